"""Episodes of one image."""

import pytest
import torch
from toy_methods import ToyMemo
from toys import state_of, stream, toy_net

import holdfast
from holdfast.parts import ByBatch, Select

pytestmark = pytest.mark.usefixtures("toy_methods")


def test_an_episode_is_one_image_from_the_source_on(net):
    """Views are the image mirrored; plain steps, then the image as it is."""
    adapter = holdfast.adapt(net, "toy-memo(augment=flip,views=2,momentum=0,lr=0.05)")
    fresh = state_of(adapter)
    images = stream(("some",))[0][:5]
    rows = []
    for image in images[:, None]:
        one = toy_net()
        trained = [*one.norm1.parameters(), *one.norm2.parameters()]
        for _ in range(2):
            mean = one(image.flip(-1)).softmax(1)[0]
            gradients = torch.autograd.grad(torch.special.entr(mean).sum(), trained)
            with torch.no_grad():
                for weight, gradient in zip(trained, gradients, strict=True):
                    weight -= 0.05 * gradient
        rows.append(one(image).detach())
    got = adapter(images)
    torch.testing.assert_close(got, torch.cat(rows), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(got, net(images), rtol=1e-3, atol=1e-3)
    # Nothing stays but counters, and what is predicted without an update is the source's.
    state = state_of(adapter)
    counters = ("batches", "watch/", "activity/", "health/", "draws")
    for name, tensor in state.items():
        assert name.startswith(counters) or torch.equal(tensor, fresh[name])
    torch.testing.assert_close(adapter.predict(images), net(images))
    assert adapter.last.forwards == 5 * 3 and adapter.last.backwards == 5 * 2
    assert adapter.last.images == {"marginal": 10}


def test_an_image_of_an_episode_does_not_depend_on_its_neighbours(net):
    images = stream(("some",))[0]
    whole = holdfast.adapt(net, "toy-memo(augment=flip)")(images)
    single = holdfast.adapt(net, "toy-memo(augment=flip)")
    torch.testing.assert_close(torch.cat([single(image[None]) for image in images]), whole)


def test_episodes_need_statistics_that_serve_one_image(net, monkeypatch):
    with pytest.raises(ValueError, match="window=8 has no use"):
        holdfast.adapt(net, "toy-memo", window=8)
    monkeypatch.setattr(ToyMemo, "selection", lambda self: Select(self.select, ByBatch()))
    with pytest.raises(ValueError, match="one image at a time"):
        holdfast.adapt(net, "toy-memo")
