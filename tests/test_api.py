"""What `adapt` takes as its method."""

import pytest
import torch
from toys import stream, toy_net

import holdfast


def test_a_composition_is_the_method_that_it_was_made_of():
    composed = holdfast.adapt(toy_net(), holdfast.compose("tent(lr=0.1)+consistency"), seed=3)
    written = holdfast.adapt(toy_net(), "tent(lr=0.1)+consistency", seed=3)
    for images in stream():
        assert torch.equal(composed(images), written(images))


def test_a_composition_comes_alone():
    whole = holdfast.compose("tent")
    for more, preset in ((("debias",), None), ((), "cifar100-c"), ((whole,), None)):
        with pytest.raises(ValueError, match=r"A composition comes alone.*where it is made"):
            holdfast.adapt(toy_net(), whole, *more, preset=preset)


@pytest.mark.parametrize("other", [3, None, holdfast.Tent])
def test_what_is_no_method_is_refused(other):
    with pytest.raises(ValueError, match="A method is a spec string or a typed value, not"):
        holdfast.adapt(toy_net(), other)
