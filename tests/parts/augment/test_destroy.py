"""Copies of images whose shapes are destroyed."""

from collections import Counter

import pytest
import torch

from holdfast.engine.draws import Draws
from holdfast.parts.augment import DESTROYED, Augment, occlude

CPU = torch.device("cpu")


def made(kind, images, seed=0, input_range=None):
    """In whatever range: they do not ask."""
    return Augment(kind, Draws(seed, CPU), input_range)(images)


def numbered(count, side, channels=2):
    """Every pixel tells where it comes from."""
    places = torch.arange(side * side, dtype=torch.float64).reshape(1, 1, side, side)
    return places.repeat(count, channels, 1, 1) + 1000 * torch.arange(channels)[:, None, None]


def order_of(view):
    """Of an image of 4×4 patches of one pixel: which patch stands where."""
    return tuple(view[0].flatten().long().tolist())


@pytest.mark.parametrize("side", [4, 8, 12])
def test_patches_are_moved_as_a_whole_with_all_channels(side):
    images, patch = numbered(3, side), side // 4
    view = made(DESTROYED["patch"], images)
    assert not torch.equal(view, images)
    for image, shuffled in zip(images, view, strict=True):
        cut = [
            image[:, r : r + patch, c : c + patch]
            for r in range(0, side, patch)
            for c in range(0, side, patch)
        ]
        left = list(range(16))
        for r in range(0, side, patch):
            for c in range(0, side, patch):
                there = shuffled[:, r : r + patch, c : c + patch]
                left.remove(next(i for i in left if torch.equal(cut[i], there)))
        assert not left


def test_every_image_has_its_own_patches_and_all_have_the_same_pixels():
    images = numbered(200, 4)
    assert len({order_of(each) for each in made(DESTROYED["patch"], images)}) == 200
    augment = Augment(DESTROYED["pixel"], Draws(0, CPU))
    first, second = augment(images), augment(images)
    assert len({order_of(each) for each in first}) == len({order_of(each) for each in second}) == 1
    assert not torch.equal(first, second)  # another permutation for the next batch


@pytest.mark.parametrize("name", ["patch", "pixel"])
def test_each_place_is_filled_by_each_part_equally_often(name):
    """16 × 16 counts of about 250 each, chi-square with 225 degrees of freedom: mean 225, standard
    deviation 21. Neighbours, too, are independent: 240 ordered pairs."""
    augment = Augment(DESTROYED[name], Draws(1, CPU))
    size, calls = (4000, 1) if name == "patch" else (1, 4000)
    orders = torch.tensor(
        [order_of(each) for _ in range(calls) for each in augment(numbered(size, 4))]
    )
    counts = torch.stack([(orders == part).sum(0) for part in range(16)]).double()
    assert ((counts - 250) ** 2 / 250).sum() < 225 + 5 * 21
    pairs = Counter(map(tuple, orders[:, :2].tolist()))
    assert len(pairs) == 240
    expected = 4000 / 240
    assert sum((n - expected) ** 2 / expected for n in pairs.values()) < 239 + 5 * 22


def test_pixels_go_with_their_channels():
    images = numbered(2, 5, channels=4)
    view = made(DESTROYED["pixel"], images)
    assert sorted(order_of(view[0])) == list(range(25))
    for channel in range(4):
        assert torch.equal(view[:, channel], view[:, 0] + 1000 * channel)


@pytest.mark.parametrize("shape", [(30, 33), (8, 11), (7, 7), (5, 4)])
def test_sides_that_four_does_not_divide(shape):
    """Flat images stay as they are; and the shape comes back."""
    images = torch.rand(3, 1, 1, 1).expand(3, 2, *shape)
    view = made(DESTROYED["patch"], images)
    assert view.shape == images.shape
    torch.testing.assert_close(view, images)
    # A bright upper half is no longer one.
    images = torch.zeros(1, 1, *shape)
    images[..., : shape[0] // 2, :] = 1
    view = made(DESTROYED["patch"], images)
    assert (view - images).abs().max() > 0.5
    assert view.mean() == pytest.approx(float(images.mean()), abs=0.1)


def test_a_square_is_filled_with_means_from_before():
    images = torch.rand(3, 4, 8, 12, generator=torch.Generator().manual_seed(0)) * 9 - 4
    before = images.clone()
    for kind, rows, columns in [
        (occlude(), range(2, 6), range(3, 7)),
        (occlude(3, 0, 9), range(3), range(9, 12)),
        (occlude(8, row=0), range(8), range(3, 11)),
    ]:
        view = made(kind, images)
        assert torch.equal(images, before)
        for i in range(3):
            for c in range(4):
                for y in range(8):
                    for x in range(12):
                        inside = y in rows and x in columns
                        expected = images[i, c].mean() if inside else images[i, c, y, x]
                        assert view[i, c, y, x] == pytest.approx(float(expected), abs=1e-6)


def test_the_published_square():
    images = torch.rand(1, 3, 224, 224)
    assert torch.equal(made(occlude(), images), made(occlude(112, 56, 56), images))


@pytest.mark.parametrize("square", [(9, 0, 0), (4, 5, 0), (4, 0, 5), (7, -1, -1)])
def test_a_square_outside_the_image_is_an_error(square):
    with pytest.raises(ValueError, match=r"size=\d at row=\d, column=\d .* of 8×8 pixels"):
        made(occlude(*square), torch.rand(2, 3, 8, 8))


@pytest.mark.parametrize("shape", [(2, 3, 3, 8), (2, 3), (2, 3, 8)])
def test_what_has_no_patches_is_an_error(shape):
    with pytest.raises(ValueError, match=r"augment=patch works on images .* of at least 4×4"):
        made(DESTROYED["patch"], torch.rand(shape))


@pytest.mark.parametrize("name", ["patch", "pixel"])
def test_draws_are_the_adapters_own(name):
    images = torch.rand(5, 3, 8, 8)
    state = torch.get_rng_state()
    first, again, other = (made(DESTROYED[name], images, seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first, again) and not torch.equal(first, other)
    last = images.contiguous(memory_format=torch.channels_last)
    assert torch.equal(made(DESTROYED[name], last), first)
