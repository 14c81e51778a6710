"""The soaks in short, and that each would find what it is there to find."""

import mmap

import numpy as np
import pytest
from hypothesis import strategies as st

import holdfast
from soak import endless as endless_module
from soak.endless import endless
from soak.fuzz import DOORS, Tally, knock, try_one
from soak.hostile.door import Door, Harm, find_fault
from soak.recurring import recurring


def test_an_endless_stream_keeps_memory_flat():
    verdict = endless(images=1_000, seed=1, measurements=5, source_images=300)
    assert verdict.passed, verdict.failures
    assert verdict.counts["images"] == "1,000"


@pytest.mark.slow
def test_an_adapter_that_keeps_what_it_sees_is_found(monkeypatch):
    kept, adapt = [], holdfast.adapt

    class Leaks:
        def __init__(self, *args, **options):
            self.inner = adapt(*args, **options)

        def __call__(self, images):
            # Pages of its own: what the heap has left over would not show.
            kept.append(mmap.mmap(-1, 8_000_000))
            kept[-1].write(b"x" * 8_000_000)
            return self.inner(images)

        def __getattr__(self, name):
            return getattr(self.inner, name)

    monkeypatch.setattr(endless_module.holdfast, "adapt", Leaks)
    verdict = endless(images=1_500, method="frozen", measurements=5, source_images=300)
    assert any("resident memory grew" in what for what in verdict.failures)


def test_domains_that_come_again_make_nothing_grow():
    verdict = recurring(visits=3, limit=5, methods=("rotta(capacity=9)",), source_images=300)
    assert verdict.passed, verdict.failures


@pytest.mark.parametrize("door", DOORS)
def test_hostile_inputs_are_refused_with_words(door):
    tally = knock(door, 40, seed=2)
    assert tally.tried == 40 and tally.refused > 5
    assert not tally.faults


@pytest.mark.parametrize(
    "error",
    [
        KeyError("model"),
        RuntimeError("expected a tensor: pass one"),
        ValueError(""),
        ValueError("bad input"),
        ValueError("expected " + "x" * 5_000),
        UnicodeDecodeError("utf-8", b"x", 0, 1, "expected a byte: pass one"),
        np.exceptions.AxisError("expected an axis"),
    ],
)
def test_errors_that_help_nobody_are_faults(error):
    assert find_fault(error)


def test_errors_that_help_are_none():
    assert find_fault(ValueError("Images are uint8; expected floats: images / 255.")) is None
    assert find_fault(FileNotFoundError("There is no file x: make it again.")) is None


class BadDoor(Door):
    name = "bad"

    def __init__(self, folder=None):
        self.changes = 0

    def inputs(self):
        return st.integers()

    def attempt(self, given):
        if given == 0:
            raise Harm("it should have been refused")
        if given == 1:
            self.changes += 1
        raise ValueError("Expected another number: pass 3.")

    def state(self):
        return str(self.changes)


def test_a_change_behind_a_refusal_and_a_wrong_acceptance_are_faults():
    tally, door = Tally("bad"), BadDoor()
    for given in (0, 1, 2):
        try_one(door, given, tally)
    assert [what for what, _ in tally.faults.values()] == [
        "it should have been refused",
        "it was refused, and yet something changed",
    ]
