import pytest
import torch
from follow import TOLERANCE, follow
from plain import PlainSgd, PlainToy, entropy
from toys import stream, toy_net

import holdfast
from holdfast.engine.draws import Draws
from holdfast.parts.augment import AUGMENTATIONS, Augment
from holdfast.parts.augment.strong import strong


def restate(*, lr, weight, views, host=None):
    """`views(call)` says whether the call-th view (from 1) is flipped."""

    def build(net):
        toy = PlainToy(net)
        optimizer = PlainSgd(toy, lr)
        calls = [0]

        def step(images):
            calls[0] += 1
            _, logits = toy(images)
            _, other = toy(images.flip(3) if views(calls[0]) else images)
            target = torch.softmax(logits, 1).detach()
            loss = weight * -(target * torch.log_softmax(other, 1)).sum(1).mean()
            if host == "tent":
                loss = loss + entropy(logits).mean()
            optimizer.step(loss)
            return logits

        return step, toy

    return build


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("augment", "views"),
    [
        ("none", lambda call: False),
        ("flip", lambda call: True),
        ("alternate", lambda call: call % 2 == 1),
    ],
)
def test_consistency_alone_and_on_tent(augment, views, dtype):
    follow(
        f"consistency(augment={augment},lr=0.001,lambda_cons=0.5)",
        restate(lr=0.001, weight=0.5, views=views),
        dtype,
        moves=augment != "none",  # the same view has no gradient against itself
    )
    follow(
        f"tent(lr=0.001)+consistency(augment={augment})",
        restate(lr=0.001, weight=1.0, views=views, host="tent"),
        dtype,
    )


def test_statistics_of_the_augmented_view_are_not_recorded():
    """`frozen()` serves the stream, not its augmentations."""
    net = toy_net()
    plain, augmented = (
        holdfast.adapt(net, f"consistency(lr=0,augment={name})") for name in ("none", "strong")
    )
    for images in stream():
        plain(images)
        augmented(images)
    for name, buffer in plain.frozen().named_buffers():
        assert torch.equal(buffer, augmented.frozen().get_buffer(name))


def test_strong_views_stay_in_range_and_differ_by_image():
    images = torch.cat(stream(("all",) * 4))
    images[1:] = images[0]
    augment = Augment(AUGMENTATIONS["strong"], Draws(0, torch.device("cpu")))
    view = augment(images)
    assert view.shape == images.shape
    assert view.min() >= 0 and view.max() <= 1
    changed = (view - images).abs().amax((1, 2, 3)) > 1e-6
    assert changed.float().mean() > 0.8
    assert len(torch.unique(view, dim=0)) > 0.8 * len(view)


def test_strong_cutouts_are_as_frequent_as_stated():
    """White images: what is mid-grey afterwards was cut out."""
    images = torch.ones(2000, 3, 16, 16)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        view = strong(images)
    grey = ((view - 0.5).abs() < 1e-6).all(1).flatten(1).float().mean(1)
    # P(no cutout) = 0.3 · 0.5 · 0.7; jitter alone turns white into another flat colour.
    assert (grey == 0).float().mean() == pytest.approx(0.105, abs=0.03)


def test_augmentation_leaves_torchs_random_state_alone():
    before = torch.get_rng_state()
    Augment(AUGMENTATIONS["strong"], Draws(0, torch.device("cpu")))(torch.full((4, 3, 8, 8), 0.3))
    assert torch.equal(torch.get_rng_state(), before)


def test_strong_needs_colour():
    augment = Augment(AUGMENTATIONS["strong"], Draws(0, torch.device("cpu")))
    with pytest.raises(ValueError, match="RGB"):
        augment(torch.rand(2, 1, 8, 8))


def test_strong_views_lie_where_the_images_lie():
    images = torch.cat(stream(("all",) * 2))
    draws = [Draws(0, torch.device("cpu")) for _ in range(2)]
    plain, moved = (
        Augment(AUGMENTATIONS["strong"], draws[0]),
        Augment(AUGMENTATIONS["strong"], draws[1], (-2.0, 2.0)),
    )
    assert torch.allclose(moved(4 * images - 2), 4 * plain(images) - 2, atol=1e-4)
    with pytest.raises(ValueError, match=r"input_range=\(low, high\)"):
        holdfast.adapt(toy_net(), "consistency", input_range=None)


@pytest.mark.parametrize("size", [(1, 1), (2, 1), (1, 7), (3, 2)])
def test_a_strong_view_of_tiny_images(size):
    for seed in range(8):
        torch.manual_seed(seed)
        view = strong(torch.rand(2, 3, *size))
        assert view.shape[-2:] == size and bool(view.isfinite().all())
