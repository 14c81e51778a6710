"""What a run tells of its health, against plain arithmetic."""

import numpy as np
import pytest

from holdfast.bench.metrics.health import HealthTally
from holdfast.bench.metrics.recorder import Recorder
from holdfast.bench.metrics.seen import Seen


def seen(batch, domains, hits, **told):
    """hits: of each image whether it is right; None: it is not scored."""
    labels = np.array([-1 if hit is None else 0 for hit in hits], np.int32)
    predicted = np.array([0 if hit else 1 for hit in hits], np.int32)
    half = np.full(len(hits), 0.5, np.float32)
    return Seen(batch, 0, tuple(domains), labels, predicted, half, half, **told)


def summary(*batches):
    recorder = Recorder(2)
    for one in batches:
        recorder.update(one)
    return recorder.summary()


def test_estimates_of_a_domain_are_weighted_by_its_scored_images():
    found = summary(
        seen(0, ["fog"] * 4, [True, True, False, None], estimated=0.5),
        seen(1, ["fog", "snow", "snow"], [True, False, True], estimated=0.9),
        seen(2, ["snow"] * 2, [True, True], estimated=None),
    )
    fog = 100 * (3 * 0.5 + 1 * 0.9) / 4
    assert found["estimated/fog"] == pytest.approx(fog)
    assert found["estimated/snow"] == pytest.approx(90)
    # 3 of 4 images of fog are right, and 3 of 4 of snow.
    assert found["estimate_error/fog"] == pytest.approx(75 - fog)
    assert found["estimate_error/snow"] == pytest.approx(15)
    assert found["estimate_error"] == pytest.approx((75 - fog + 15) / 2)


def test_of_alarms_the_first_is_told_and_of_states_their_share():
    states = ["stable", "degrading", "adapting", "collapsed", None]
    rings = [False, True, False, True, None]
    answered = [False, False, True, False, None]
    rows = zip(states, rings, answered, strict=True)
    batches = [
        seen(n, ["fog"], [True], state=state, alarm=alarm, fallback=fallback)
        for n, (state, alarm, fallback) in enumerate(rows)
    ]
    found = summary(*batches)
    assert found["alarm"] == 1
    assert found["unhealthy"] == 2 / 4
    assert found["fallback"] == 1 / 4


def test_where_nothing_is_known_nothing_is_told():
    found = summary(seen(0, ["fog"], [True]))
    assert [found[name] for name in ("estimate_error", "alarm", "unhealthy", "fallback")] == [
        None
    ] * 4
    assert not any(name.startswith(("estimated/", "estimate_error/")) for name in found)
    assert HealthTally().estimates == {}
