"""Run adapters, load them, compare what they gave."""

import warnings

import pytest
import torch
from compositions import AT_ONCE, COMPOSITIONS

import holdfast

KINDS = ("some", "all", "none", "some", "all")
ETA = "eta(redundancy=2)"
# Of methods in toy_methods.py: all that uses the openings.
OPENINGS = [
    "bn+toy-centre",
    "frozen+toy-centre+toy-mix",
    "toy-mix",
    "t3a(keep=3)+toy-mix",
    "cotta(augment_below=0.8,views=3,restore=0.1)+toy-mix+toy-centre",
    "rotta(capacity=12,every=20)+toy-mix+toy-centre",
    "note(capacity=12,every=20)+toy-mix+toy-centre",
    f"{ETA}+toy-mix+toy-centre",
    "toy-blend",
    "bn+toy-calm",
    f"{ETA}+toy-calm+toy-centre",
    "toy-episode",
    "toy-episode+toy-centre",
    f"{ETA}+toy-lights",
    "sar+toy-lights(ensemble=false)",
    "tent(optimizer=adam)+toy-lights+toy-centre",
    "toy-memo(steps=1,views=2)",
    "toy-memo(augment=flip,steps=2,views=1)+toy-centre",
    "toy-part",
]


def law_of(specs):
    """A law that these are asked: now those of AT_ONCE and toys, in `make test-full` the others.
    What every pair is asked now is in test_pairs.py."""
    later = set(COMPOSITIONS) - set(AT_ONCE)
    slow = [pytest.mark.slow]
    return pytest.mark.parametrize(
        "spec", [pytest.param(spec, marks=slow if spec in later else ()) for spec in specs]
    )


def law_of_openings(test):
    """A law that what uses the openings is asked, too."""
    return pytest.mark.usefixtures("toy_methods")(law_of(COMPOSITIONS + OPENINGS)(test))


LAW = law_of(COMPOSITIONS)


def load(path, net, spec, source):
    """The source is given only where images are to be replayed: the file holds the rest."""
    replays = "replay" in holdfast.compose(spec).needs
    return holdfast.load(path, net, source=source if replays else None)


def run(adapter, batches):
    return [adapter(images) for images in batches]


def quietly(adapter, batches):
    """The same, whatever there is to warn of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return run(adapter, batches)


def warnings_of(adapter, batches):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(adapter, batches)
    return [str(warning.message) for warning in caught]


def assert_equal(got, expected):
    assert len(got) == len(expected)
    for ours, theirs in zip(got, expected, strict=True):
        assert torch.equal(ours, theirs)
