"""What is told of the service and its streams, as JSON."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from holdfast.serving.service import Service
from holdfast.serving.watching import Seen

# The worst of them, where there are more.
MOST = 500
SUMS = (
    *("streams_served", "images", "images_a_second"),
    *("waiting", "turned_away", "alarms", "troubles"),
)


def tell_streams(service: Service, most: int = MOST) -> dict[str, Any]:
    """All that the page shows: those in trouble first, then those that ring, then the latest."""
    now, seen, troubles = time.monotonic(), service.watched.all(), dict(service.keeper.troubles)
    order = sorted(
        {*seen, *troubles},
        key=lambda stream: (
            stream not in troubles,
            not (stream in seen and seen[stream].health.alarm),
            -(seen[stream].at if stream in seen else 0.0),
            stream,
        ),
    )
    tally = service.tally
    return {
        "streams_served": len(seen),
        "images": tally.images,
        "images_a_second": round(tally.rate(), 1),
        "waiting": service.waiting,
        "turned_away": sum(tally.turned_away.values()),
        "alarms": sum(each.health.alarm for each in seen.values()),
        "troubles": len(troubles),
        "unsaved_for_seconds": round(service.keeper.age(), 1),
        "stopping": service.stopping,
        "streams": [
            {"stream": name, "trouble": troubles.get(name), **tell_stream(seen.get(name), now)}
            for name in order[:most]
        ],
    }


def merge_streams(told: list[dict[str, Any]], most: int = MOST) -> dict[str, Any]:
    """What several servers told, as if one had."""
    if len(told) == 1:
        return told[0]
    by_name: dict[str, list[dict[str, Any]]] = {}
    for stream in (stream for one in told for stream in one["streams"]):
        by_name.setdefault(stream["stream"], []).append(stream)
    streams = [found for one in by_name.values() if (found := latest(one)) is not None]
    streams.sort(key=lambda one: (not one["trouble"], not one.get("alarm"), _age(one)))
    return {
        **{name: sum(one[name] for one in told) for name in SUMS},
        "unsaved_for_seconds": max(one["unsaved_for_seconds"] for one in told),
        "stopping": all(one["stopping"] for one in told),
        "streams": streams[:most],
    }


def latest(told: Iterable[dict[str, Any] | None]) -> dict[str, Any] | None:
    """Of what several servers tell of a stream, what the one tells that had its last image."""
    return min((one for one in told if one is not None), key=_age, default=None)


def _age(told: dict[str, Any]) -> float:
    return float(told.get("seconds_ago", "inf"))


def tell_stream(seen: Seen | None, now: float | None = None) -> dict[str, Any]:
    if seen is None:
        return {}
    now = time.monotonic() if now is None else now
    health = seen.health
    return {
        "images": seen.images,
        "seconds_ago": round(now - seen.at, 1),
        "state": health.state,
        "alarm": health.alarm,
        "advice": health.advice,
        "estimated_accuracy": health.accuracy,
        "frozen_accuracy": health.frozen_accuracy,
        "entropy": health.entropy,
        "spread": health.spread,
        "largest_share": seen.largest,
        "drift": health.drift,
        "distance": health.distance,
    }


def tell_briefly(service: Service) -> str:
    """How it goes, in one line."""
    tally = service.tally
    told = [
        f"{tally.images:,} images of {len(service.watched.all()):,} streams",
        f"{tally.rate():.1f} a second now",
        f"{service.waiting} wait",
        f"{len(service.watched.alarms())} alarms",
    ]
    if away := sum(tally.turned_away.values()):
        told.append(f"{away} requests turned away")
    return ", ".join(told)
