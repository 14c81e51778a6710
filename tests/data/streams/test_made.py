"""Corruptions that are made as a stream asks for them."""

import numpy as np
import pytest
import torch

from holdfast.data.corrupt.corruptions import corrupt
from holdfast.data.glyphs import Glyphs
from holdfast.data.images import as_bytes
from holdfast.data.pools import Corrupted, Made, Recipe
from holdfast.data.streams import parse

CLEAN = Glyphs("test", 400)
SOME = [3, 77, 12, 399, 0, 201]


def test_a_domain_is_what_the_reader_makes_of_it():
    for name in ("gaussian_noise", "fog"):
        made = Made(CLEAN, seed=4)[name].images(SOME)
        assert torch.equal(
            made, Corrupted(CLEAN, [(name, 5)], Recipe("cifar", seed=4)).images(SOME)
        )
    assert Made(CLEAN)["original"] is CLEAN


def test_one_corruption_upon_another():
    made = Made(CLEAN, seed=4).at(("fog", 2), ("shot_noise", 3)).images(SOME)
    fog = corrupt(
        as_bytes(CLEAN.images(SOME)), "fog", severity=2, indices=SOME, seed=4, table="cifar"
    )
    both = corrupt(fog, "shot_noise", severity=3, indices=SOME, seed=4, table="cifar")
    assert torch.equal(made, both / 255)


@pytest.mark.parametrize("severity", [0.25, 2.5, 4.75])
def test_a_severity_between_two_is_a_share_of_images(severity):
    data = Made(CLEAN)
    low, high = int(severity), int(severity) + 1
    found = data.at(("contrast", severity)).images(range(400))
    lower = data.at(("contrast", low)).images(range(400)) if low else CLEAN.images(range(400))
    upper = data.at(("contrast", high)).images(range(400))
    is_low = (found == lower).flatten(1).all(1)
    is_high = (found == upper).flatten(1).all(1)
    assert (is_low ^ is_high).all()
    assert abs(is_high.float().mean() - (severity - low)) < 0.01


def test_more_severity_never_takes_an_image_back():
    """So that a fading corruption leaves, and a rising one comes, image by image."""
    data = Made(CLEAN)
    spread = [
        (data.at(("brightness", s)).images(range(100)) - CLEAN.images(range(100))).mean((1, 2, 3))
        for s in np.arange(0.25, 5.25, 0.25)
    ]
    assert (torch.stack(spread).diff(dim=0) > -1e-3).all()


def test_images_do_not_depend_on_their_company():
    pool = Made(CLEAN).at(("frost", 3.25), ("glass_blur", 1.75))
    together = pool.images(SOME)
    assert torch.equal(together[[2]], pool.images([SOME[2]]))
    assert torch.equal(together.flip(0), pool.images(SOME[::-1]))


@pytest.mark.parametrize(
    "spec", ["continual", "gradual", "mixed", "noisy", "endless(samples=999,speed=40)"]
)
def test_streams_of_real_pictures(spec):
    flow = parse(spec).over(Made(CLEAN), seed=1)
    batch = next(flow.batches(start=len(flow) - 1))
    assert batch.images.shape[1:] == (3, 32, 32)
    assert batch.images.min() >= 0 and batch.images.max() <= 1
    assert batch.images.dtype == torch.float32
