"""What is told of the service and its streams, as JSON."""

from __future__ import annotations

import time
from typing import Any

from holdfast.serving.service import Service
from holdfast.serving.watching import Seen

# The worst of them, where there are more.
MOST = 500


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


def tell_stream(seen: Seen | None, now: float) -> dict[str, Any]:
    if seen is None:
        return {}
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
