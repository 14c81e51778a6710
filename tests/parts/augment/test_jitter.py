import colorsys
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from toys import stream

import holdfast
from holdfast.engine.draws import Draws
from holdfast.parts.augment import AUGMENTATIONS, Augment
from holdfast.parts.augment import jitter as chain
from holdfast.parts.augment.jitter import Jitter

CPU = torch.device("cpu")
AMOUNTS = {
    "brightness": (0.6, 1.4),
    "contrast": (0.7, 1.3),
    "saturation": (0.5, 1.5),
    "hue": (-0.06, 0.06),
    "gamma": (0.7, 1.3),
}


def pictures(count, height, width, dtype=torch.float64):
    """Colours of all kinds: saturated, grey, black, white, and with two equal channels."""
    random = torch.Generator().manual_seed(0)
    images = torch.rand(count, 3, height, width, generator=random, dtype=torch.float64)
    coarse = torch.rand(count, 1, height, width, generator=random) < 0.5
    return torch.where(coarse, (images * 2).round() / 2, images).to(dtype)


def draws_of(count, seed=0, **kind):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return [Jitter.draw(**kind) for _ in range(count)]


def restate(images, drawn):
    """The table of the chain, step by step, without its noise."""
    images = np.clip(images.numpy(), 0, 1)
    for operation, amount in drawn.colours:
        images = np.stack([recolour(image, operation.__name__, amount) for image in images])
    height, width = images.shape[2:]
    top, left = height // 2, width // 2
    images = np.pad(images, ((0, 0), (0, 0), (top, top), (left, left)), mode=drawn.padding)
    images = turn_and_shift(torch.from_numpy(images), drawn)
    if drawn.sigma is None:
        images = images[:, :, top : top + height, left : left + width]
        return images.flip(3) if drawn.flip else images
    line = torch.exp(-(torch.arange(-2.0, 3.0, dtype=images.dtype) ** 2) / (2 * drawn.sigma**2))
    kernel = torch.outer(line, line) / line.sum() ** 2
    images = F.pad(images, (2, 2, 2, 2), mode="reflect")
    images = F.conv2d(images, kernel.expand(3, 1, 5, 5), groups=3)
    images = images[:, :, top : top + height, left : left + width]
    return images.flip(3) if drawn.flip else images


def recolour(image, name, amount):
    grey = 0.2989 * image[0] + 0.587 * image[1] + 0.114 * image[2]
    if name == "brightness":
        image = amount * image
    elif name == "contrast":
        image = amount * image + (1 - amount) * grey.mean()
    elif name == "saturation":
        image = amount * image + (1 - amount) * grey
    elif name == "hue":
        image = np.apply_along_axis(turn_hue, 0, image, amount)
    else:
        image = np.clip(image, 1e-8, 1) ** amount
    return np.clip(image, 0, 1)


def turn_hue(pixel, turns):
    hue, saturation, value = colorsys.rgb_to_hsv(*pixel)
    return np.array(colorsys.hsv_to_rgb((hue + turns) % 1, saturation, value))


def turn_and_shift(images, drawn):
    height, width = images.shape[2:]
    turn = math.radians(drawn.degrees)
    cos, sin = drawn.scale * math.cos(turn), drawn.scale * math.sin(turn)
    right, down = (round(s * n) for s, n in zip(drawn.shift, (width, height), strict=True))
    there = torch.tensor([[cos, -sin, right], [sin, cos, down], [0, 0, 1]], dtype=images.dtype)
    units = torch.diag(torch.tensor([2 / width, 2 / height, 1], dtype=images.dtype))
    back = units @ torch.linalg.inv(there) @ torch.linalg.inv(units)
    grid = F.affine_grid(back[None, :2].expand(len(images), 2, 3), images.shape, False)
    return F.grid_sample(images, grid, padding_mode="zeros", align_corners=False)


FAR = Jitter(
    colours=((chain.hue, 0.06), (chain.gamma, 0.7)),
    degrees=15.0,
    shift=(1 / 16, -1 / 16),
    scale=0.9,
    sigma=0.5,
    flip=True,
)


@pytest.mark.parametrize("size", [(32, 32), (33, 21), (12, 48), (9, 9), (5, 4), (3, 2)])
def test_one_sampling_is_the_chain_step_by_step(size):
    images = pictures(2, *size)
    for drawn in [*draws_of(6), FAR]:
        assert torch.allclose(drawn(images), restate(images, drawn), rtol=0, atol=1e-9), drawn


ROID = {"padding": "reflect", "blurs": False}


@pytest.mark.parametrize("size", [(32, 32), (33, 21), (12, 48), (9, 9), (5, 4), (3, 2)])
@pytest.mark.parametrize("blurs", [False, True])
@pytest.mark.parametrize("padding", ["edge", "reflect"])
def test_padding_and_blur_are_as_asked_for(size, padding, blurs):
    images = pictures(2, *size)
    sigma = 0.5 if blurs else None
    far = replace(FAR, padding=padding, sigma=sigma)
    for drawn in [*draws_of(4, padding=padding, blurs=blurs), far]:
        assert (drawn.padding, drawn.sigma is None) == (padding, not blurs)
        assert torch.allclose(drawn(images), restate(images, drawn), rtol=0, atol=1e-9), drawn


def test_roids_view_is_one_draw_without_noise():
    images = pictures(4, 32, 32)
    for seed in range(3):
        (drawn,) = draws_of(1, seed, **ROID)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            view = AUGMENTATIONS["roid"].make(images, 0)
        assert torch.equal(view, drawn(images).clamp(0, 1))
    same = Augment(AUGMENTATIONS["roid"], Draws(3, CPU))(images[:1].expand(8, -1, -1, -1))
    assert torch.allclose(same, same[:1].expand_as(same), rtol=0, atol=1e-12)
    cotta = Augment(AUGMENTATIONS["cotta"], Draws(3, CPU))(images)
    assert not torch.allclose(
        cotta, Augment(AUGMENTATIONS["roid"], Draws(3, CPU))(images), atol=0.1
    )


def test_a_blurred_and_a_sharp_view_draw_alike_otherwise():
    for one, other in zip(draws_of(5), draws_of(5, **ROID), strict=True):
        assert replace(other, padding="edge", sigma=one.sigma) == one


def test_zeros_from_beyond_the_padding_are_part_of_that_comparison():
    white = torch.ones(1, 3, 12, 48, dtype=torch.float64)
    assert FAR(white).min() == 0
    assert FAR(torch.ones(1, 3, 32, 32, dtype=torch.float64)).min() > 0.999


@pytest.mark.parametrize(("name", "bounds"), AMOUNTS.items())
def test_each_colour_operation(name, bounds):
    images = pictures(2, 16, 16)
    for amount in (*bounds, 0.5 if name == "hue" else 1.0):
        view = getattr(chain, name)(images, amount).clamp(0, 1)
        expected = np.stack([recolour(image, name, amount) for image in images.numpy()])
        assert np.allclose(view.numpy(), expected, rtol=0, atol=1e-9)


def test_float32_agrees_with_float64():
    images = pictures(4, 32, 32, torch.float32)
    for drawn in draws_of(6):
        view = drawn(images)
        assert view.dtype == torch.float32
        assert torch.allclose(view.double(), drawn(images.double()), rtol=0, atol=1e-4)


def test_draws_fill_their_ranges():
    drawn = draws_of(4000)
    values = {name: [] for name in AMOUNTS}
    for one in drawn:
        for operation, amount in one.colours:
            values[operation.__name__].append(amount)
    ranges = AMOUNTS | {
        "degrees": (-15, 15),
        "right": (-1 / 16, 1 / 16),
        "down": (-1 / 16, 1 / 16),
        "scale": (0.9, 1.1),
        "sigma": (0.001, 0.5),
    }
    values |= {
        name: [getattr(one, name) for one in drawn] for name in ("degrees", "scale", "sigma")
    }
    values["right"], values["down"] = zip(*(one.shift for one in drawn), strict=True)
    for name, (low, high) in ranges.items():
        shares = (np.array(values[name]) - low) / (high - low)
        assert len(shares) == len(drawn)
        assert shares.min() >= 0 and shares.max() <= 1, name
        # 4000 draws miss the outer hundredth with probability 0.99 ** 4000 < 1e-17.
        assert shares.min() < 0.01 and shares.max() > 0.99, name
        # A quarter of them in each quarter: the standard deviation is 27.
        assert np.histogram(shares, 4, (0, 1))[0] == pytest.approx(1000, abs=150), name
    # Half of them flip: the standard deviation is 32.
    assert sum(one.flip for one in drawn) == pytest.approx(2000, abs=160)


def test_draws_are_independent_of_each_other():
    rows = []
    for one in draws_of(4000):
        amounts = {operation.__name__: amount for operation, amount in one.colours}
        rows.append([*map(amounts.get, AMOUNTS), one.degrees, *one.shift, one.scale, one.sigma])
    correlation = np.corrcoef(np.array(rows).T) - np.eye(10)
    assert np.abs(correlation).max() < 6 / math.sqrt(4000)


def test_colours_come_in_every_order():
    orders = Counter(tuple(op.__name__ for op, _ in one.colours) for one in draws_of(6000))
    assert len(orders) == math.factorial(5)
    # 50 of each are expected, with a standard deviation of 7.
    assert min(orders.values()) > 10 and max(orders.values()) < 95


@pytest.mark.parametrize("name", ["cotta", "rotta"])
def test_one_draw_for_the_batch_and_noise_for_each_pixel(name):
    image = 0.35 + 0.2 * pictures(1, 32, 32, torch.float32)  # far from 0 and 1: no noise is clipped
    augment = Augment(AUGMENTATIONS[name], Draws(3, CPU))
    for _ in range(3):
        views = augment(image.expand(256, -1, -1, -1))
        noise = views - views.mean(0)
        assert noise.abs().max() < 0.005 * 7
        # 786,000 values: their standard deviation is known to 0.1 %, and 0.2 % is the mean's share.
        assert noise.std().item() == pytest.approx(0.005, rel=0.01)
        # Equal channels, rows, columns or neighbouring images would correlate.
        for other in (noise.roll(1, dim) for dim in range(4)):
            assert abs((noise * other).mean() / 0.005**2) < 0.02


def test_noise_is_all_that_is_added_to_the_drawn_view():
    images = 0.35 + 0.2 * pictures(64, 32, 32)
    for seed in range(4):
        (drawn,) = draws_of(1, seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            noise = chain.jitter(images) - drawn(images)
        assert noise.std().item() == pytest.approx(0.005, rel=0.02)
        assert abs(noise.mean()) < 0.005 * 5 / math.sqrt(noise.numel())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [(32, 32), (7, 18), (1, 1)])
@pytest.mark.parametrize("name", ["cotta", "roid"])
def test_views_keep_range_shape_and_dtype(size, dtype, name):
    images = pictures(3, *size, dtype)
    before = images.clone()
    augment = Augment(AUGMENTATIONS[name], Draws(0, CPU))
    for _ in range(20):
        view = augment(images)
        assert (view.shape, view.dtype) == (images.shape, dtype)
        assert view.min() >= 0 and view.max() <= 1
    assert torch.equal(images, before)


def test_views_lie_where_the_images_lie():
    images = pictures(4, 16, 16)
    plain, moved = (
        Augment(AUGMENTATIONS["cotta"], Draws(0, CPU)),
        Augment(AUGMENTATIONS["cotta"], Draws(0, CPU), (-2.0, 2.0)),
    )
    assert torch.allclose(moved(4 * images - 2), 4 * plain(images) - 2, atol=1e-9)


@pytest.mark.parametrize("count", [1, 5])
def test_memory_format_is_kept_and_changes_no_value(count):
    images = pictures(count, 32, 32, torch.float32)
    rows = Augment(AUGMENTATIONS["cotta"], Draws(0, CPU))(images)
    last = Augment(AUGMENTATIONS["cotta"], Draws(0, CPU))(
        images.contiguous(memory_format=torch.channels_last)
    )
    assert rows.is_contiguous()
    assert last.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(rows, last)


def test_a_seed_is_a_view():
    images = pictures(4, 16, 16)
    first, again, other = (Augment(AUGMENTATIONS["cotta"], Draws(seed, CPU)) for seed in (0, 0, 1))
    view = first(images)
    assert torch.equal(view, again(images))
    assert not torch.allclose(view, other(images), atol=0.05)
    assert not torch.allclose(view, first(images), atol=0.05)


def test_cotta_and_rotta_are_the_same_chain():
    images = pictures(4, 16, 16)
    cotta, rotta = (Augment(AUGMENTATIONS[name], Draws(0, CPU)) for name in ("cotta", "rotta"))
    assert torch.equal(cotta(images), rotta(images))


def test_torchs_random_state_is_left_alone():
    before = torch.get_rng_state()
    Augment(AUGMENTATIONS["cotta"], Draws(0, CPU))(pictures(4, 16, 16))
    assert torch.equal(torch.get_rng_state(), before)


def test_alternate_counts_what_is_committed_and_what_lies_ahead():
    images = pictures(2, 4, 4)
    augment = Augment(AUGMENTATIONS["alternate"], Draws(0, CPU))

    def flips(ahead):
        view = augment(images, ahead)
        assert torch.equal(view, images.flip(3)) != torch.equal(view, images)
        return torch.equal(view, images.flip(3))

    assert [flips(ahead) for ahead in range(4)] == [True, False, True, False]
    assert flips(0)  # nothing was committed
    augment.commit()
    assert [flips(ahead) for ahead in range(3)] == [False, True, False]
    augment.commit(4)
    assert int(augment.calls) == 5
    assert not flips(0)


def test_flip_and_none_are_the_same_at_every_call():
    images = pictures(2, 4, 4)
    for name, expected in (("flip", images.flip(3)), ("none", images)):
        augment = Augment(AUGMENTATIONS[name], Draws(0, CPU))
        for ahead in range(3):
            assert torch.equal(augment(images, ahead), expected)
            augment.commit()


@pytest.mark.parametrize("name", ["strong", "cotta", "rotta", "roid"])
def test_what_cannot_be_augmented_is_refused_by_name(name):
    with pytest.raises(ValueError, match=rf"augment={name} .*input_range=\(low, high\).*flip"):
        Augment(AUGMENTATIONS[name], Draws(0, CPU), None)
    augment = Augment(AUGMENTATIONS[name], Draws(0, CPU))
    for shape in ((2, 1, 8, 8), (3, 8, 8), (2, 12)):
        with pytest.raises(ValueError, match=rf"augment={name} works on RGB .*augment=flip\."):
            augment(torch.rand(shape))
    Augment(AUGMENTATIONS["flip"], Draws(0, CPU), None)(torch.rand(2, 1, 8, 8))


@pytest.mark.usefixtures("toy_methods")
def test_an_augmentation_of_ones_own_draws_from_the_adapters_randomness(net):
    images = stream(("some",))[0]
    torch.manual_seed(5)
    one = holdfast.adapt(net, "toy-memo", seed=1)(images)
    torch.manual_seed(6)
    before = torch.get_rng_state()
    other = holdfast.adapt(net, "toy-memo", seed=1)(images)
    assert torch.equal(one, other) and torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(holdfast.adapt(net, "toy-memo", seed=2)(images), one)
