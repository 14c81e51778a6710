"""Tools for other formats are extras: tests of what is not there are skipped, and say so."""

from importlib.util import find_spec

import pytest
import torch
from toys import stream, toy_net, toy_source

from holdfast.exporting.formats import FORMATS


@pytest.fixture(scope="session")
def tools():
    """Skips unless the packages of a format are there."""

    def need(to):
        missing = [name for name in FORMATS[to].packages if find_spec(name) is None]
        if missing:
            pytest.skip(f"{', '.join(missing)} is not installed: pip install 'holdfast[{to}]'")

    return need


@pytest.fixture(scope="module")
def source(net):
    return toy_source(net, 16)


@pytest.fixture(scope="session")
def images():
    """As many as batches of 1, 3 and 16 take; none of them is dark."""
    return torch.cat(stream(("all", "some"), seed=9))[:20]


@pytest.fixture
def module():
    return toy_net()
