"""A stream in a fleet is an adapter of its own, whatever method, and however often it has left
memory."""

import pytest
import torch
from running import law_of_openings
from toys import assert_same_state, state_of, stream

import holdfast

pytestmark = pytest.mark.filterwarnings("ignore:.*was not adapted to|.*hardly adapts")

KINDS = ("some", "all", "none")


@law_of_openings
def test_streams_in_turn_are_adapters_of_their_own_bit_for_bit(net, source, tmp_path, spec):
    fleet = holdfast.Fleet(net, spec, source=source, folder=tmp_path, resident=1)
    adapters = {name: holdfast.adapt(net, spec, source=source) for name in ("one", "two")}
    for number, images in enumerate(stream(KINDS)):
        for name, adapter in adapters.items():
            own = images.flip(0) if name == "two" else images[: 16 - number]
            assert torch.equal(fleet(name, own), adapter(own))
            assert fleet.last(name).losses == adapter.last.losses
    for name, adapter in adapters.items():
        fleet.health(name)  # puts its state in place
        assert_same_state(state_of(fleet._network), state_of(adapter))
