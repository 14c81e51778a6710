"""Run adapters, load them, compare what they gave."""

import pytest
import torch
from compositions import COMPOSITIONS

import holdfast

LAW = pytest.mark.parametrize("spec", COMPOSITIONS)
KINDS = ("some", "all", "none", "some", "all")


def load(path, net, spec, source):
    """The source is given only where images are to be replayed: the file holds the rest."""
    replays = "replay" in holdfast.compose(spec).needs
    return holdfast.load(path, net, source=source if replays else None)


def run(adapter, batches):
    return [adapter(images) for images in batches]


def assert_equal(got, expected):
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        assert torch.equal(one, other)
