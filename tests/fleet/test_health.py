"""What watches a stream, and what guards it, where streams take their steps at once."""

import pytest
import torch
from drifting import drifted, home_net, images_of, labelled
from fleets import assert_alike

import holdfast
from holdfast import HealthOptions

STREAMS = {"clean": "clean", "noise": "noise", "dark": "dark", "few": "bright"}


@pytest.fixture(scope="module")
def home():
    """In float64: steps so large that they do harm also make much of rounding."""
    net = home_net().double()
    loader = [labelled(count=56, seed=200 + number) for number in range(8)]
    loader = [(images.double(), labels) for images, labels in loader]
    hard = [(images.double(), labels, kind) for images, labels, kind in drifted()]
    return net, holdfast.Source.from_loader(net, loader, drifted=hard)


def given(number):
    """Batches of each stream's own drift, some of them of a few images."""
    found = {n: images_of(kind, seed=3000 + number)[0].double() for n, kind in STREAMS.items()}
    return found | {"few": found["few"][: 3 + number % 3]}


@pytest.mark.filterwarnings("ignore:(clean|noise|dark|few|tent)")
@pytest.mark.parametrize("guard", ["none", "alarm", "rollback", "fallback"])
@pytest.mark.parametrize("spec", ["tent(lr=0.1)", "tent(lr=0.3)+steady"])
def test_health_and_guards_are_each_streams_own(home, spec, guard, groups):
    net, source = home
    options = {"source": source, "guard": guard, "health": HealthOptions(every=1)}
    fleet = holdfast.Fleet(net, spec, **options)
    adapters = {name: holdfast.adapt(net, spec, **options) for name in STREAMS}
    acted, rang = set(), set()
    for number in range(12):
        for name, logits in fleet.step(given(number)).items():
            expected = adapters[name](given(number)[name])
            torch.testing.assert_close(logits, expected, atol=1e-8, rtol=1e-8)
            did, should = fleet.last(name), adapters[name].last
            assert (did.alarm, did.rolled_back, did.fallback) == (
                should.alarm,
                should.rolled_back,
                should.fallback,
            )
            rang |= {name} if did.alarm else set()
            acted |= {name} if did.rolled_back else set()
    assert {"noise"} <= rang <= {"dark", "noise"}
    assert ("noise" in acted) == (guard in ("rollback", "fallback")) and acted <= rang
    for name, adapter in adapters.items():
        health, expected = fleet.health(name), adapter.health
        assert health.state == expected.state and health.accuracy is not None
        assert health.accuracy == pytest.approx(expected.accuracy, abs=1e-6)
        assert health.drift == pytest.approx(expected.drift, abs=1e-6)
    assert fleet.health("noise").drift > fleet.health("clean").drift
    assert_alike(fleet, adapters, 1e-8)
    # A fallback has the source model answer some streams, and not others.
    assert groups == ([] if guard == "fallback" else [4] * 12)
