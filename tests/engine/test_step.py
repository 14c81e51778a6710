"""A view of some of the batch."""

import pytest
import torch
from plain import PlainToy
from toy_methods import Partly
from toys import assert_same_state, state_of, stream

import holdfast

pytestmark = pytest.mark.usefixtures("toy_methods")


@pytest.mark.parametrize("window", [None, 24])
def test_a_view_of_some_images_is_a_part_of_the_batch(net, window):
    """Normalised by themselves, recorded nowhere; and of a window, what is new is known."""
    Partly.seen.clear()
    adapter, whole = (holdfast.adapt(net, spec, window=window) for spec in ("toy-part", "bn"))
    for images in stream(("some", "all")):
        adapter(images), whole(images)
    for (chosen, view), count in zip(Partly.seen, (16, 24 if window else 16), strict=True):
        assert 0 < len(chosen) <= count and len(view.images) == len(chosen)
        assert view.newest == int((chosen >= count - 16).sum())
    assert adapter.last.forwards == 2
    # The first batch's averages: not moved by its view.
    first, other = (holdfast.adapt(net, spec) for spec in ("toy-part", "bn"))
    images = stream(("some",))[0]
    first(images), other(images)
    names = [name for name in state_of(other) if name.startswith("statistics/")]
    assert names
    assert_same_state(*({n: state_of(a)[n] for n in names} for a in (first, other)))
    chosen, view = Partly.seen[-1]
    with torch.no_grad():
        expected = PlainToy(net)(images[chosen].flip(-1))[1]
    torch.testing.assert_close(view.logits, expected, rtol=1e-4, atol=1e-4)
