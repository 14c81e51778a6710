"""AugMix: every operation beside Pillow's, and the law of its draws."""

import math

import pytest
import torch
from PIL import Image, ImageOps

from holdfast.engine.draws import Draws
from holdfast.parts.augment import AUGMENTATIONS, Augment, augmix


def picture(side=(40, 48), seed=0):
    """8-bit, smooth and rough, with a channel of one value."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(1, 3, 5, 6, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, side, mode="bilinear")
    rough = torch.rand(1, 3, *side, generator=generator)
    image = (200 * smooth + 40 * rough + 5 * seed).round().clamp(0, 255)
    if seed == 2:
        image[:, 1] = 77
    return image


def pil(image):
    return Image.fromarray(image[0].permute(1, 2, 0).byte().numpy())


def tensor(image):
    data = torch.tensor(list(image.tobytes()), dtype=torch.float32)
    return data.view(image.height, image.width, 3).permute(2, 0, 1)[None]


def moved(matrix):
    return lambda im: im.transform(im.size, Image.AFFINE, matrix, Image.BILINEAR)


def number(operation):
    return [*augmix.COLOURS, *augmix.MOVES].index(operation)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("operation", "level", "expected"),
    [
        (augmix.autocontrast, 0.5, ImageOps.autocontrast),
        (augmix.equalize, 0.5, ImageOps.equalize),
        (augmix.posterize, 0.9, lambda im: ImageOps.posterize(im, 4)),
        (augmix.posterize, 5, lambda im: ImageOps.posterize(im, 2)),
        (augmix.solarize, 1.0, lambda im: ImageOps.solarize(im, 231)),
        (augmix.solarize, 0.1, lambda im: ImageOps.solarize(im, 254)),
        (augmix.solarize, 6, lambda im: ImageOps.solarize(im, 103)),
    ],
)
def test_colours_are_pillows(operation, level, expected, seed):
    images = torch.cat([picture(seed=seed), picture(seed=seed + 1)])
    got = operation(images, torch.tensor([level, level]))
    for index in range(2):
        want = tensor(expected(pil(images[index : index + 1])))
        off = (got[index : index + 1] - want).abs()
        # Pillow cuts what rounding left just below a whole number.
        assert (
            off.max() <= 1 and off.mean() < 0.03 if "auto" in operation.__name__ else not off.any()
        )


# Levels of a move are signed, of ten.
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("operation", "level", "expected"),
    [
        (augmix.rotate, 0.9, lambda im: im.rotate(2, Image.BILINEAR)),
        (augmix.rotate, -0.5, lambda im: im.rotate(-1, Image.BILINEAR)),
        (augmix.rotate, 0.3, lambda im: im),
        (augmix.rotate, 8, lambda im: im.rotate(24, Image.BILINEAR)),
        (augmix.shear_x, 1.0, moved((1, 0.03, 0, 0, 1, 0))),
        (augmix.shear_x, -7, moved((1, -0.21, 0, 0, 1, 0))),
        (augmix.shear_y, 0.7, moved((1, 0, 0, 0.021, 1, 0))),
        (augmix.translate_x, 1.0, moved((1, 0, 1, 0, 1, 0))),
        (augmix.translate_x, -5, moved((1, 0, -8, 0, 1, 0))),
        (augmix.translate_y, 5, moved((1, 0, 0, 0, 1, 6))),
    ],
)
def test_moves_are_pillows(operation, level, expected, seed):
    images = torch.cat([picture(seed=seed), picture(seed=seed + 1)])
    which = torch.tensor([number(operation), -1])
    got = augmix.operate(images, which, torch.tensor([level, level], dtype=torch.float64))
    want = tensor(expected(pil(images[:1])))
    assert (got[0] - want[0]).abs().max() <= 1  # rounding
    assert (got[0] != want[0]).float().mean() < 0.02
    assert torch.equal(got[1], images[1])


def test_the_law_of_what_is_drawn():
    count = 20_000
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        which, level, weight, blend = augmix.drawn(count)
    length = (which >= 0).sum(2).flatten()
    for places in (1, 2, 3):
        assert (length == places).float().mean() == pytest.approx(1 / 3, abs=0.01)
    assert ((which[..., :-1] >= 0) | (which[..., 1:] < 0)).all()  # chains have no gaps
    used = which[which >= 0]
    assert used.max() == 8 == augmix.OPERATIONS - 1
    shares = torch.bincount(used) / len(used)
    assert (shares - 1 / 9).abs().max() < 0.003
    size = level.abs()
    assert size.min() >= 0.1 and size.max() <= 1
    for quantile in (0.25, 0.5, 0.75):
        expected = 0.1 + 0.9 * quantile
        assert size.flatten()[:100_000].quantile(quantile).item() == pytest.approx(
            expected, abs=0.01
        )
    assert (level > 0).float().mean() == pytest.approx(0.5, abs=0.01)
    # Dirichlet(1, 1, 1): each weight has the density 2 (1 − w), and two of them −1/36 together.
    assert torch.allclose(weight.sum(1), torch.ones(count, dtype=torch.float64))
    for quantile in (0.25, 0.5, 0.9):
        expected = 1 - math.sqrt(1 - quantile)
        assert weight[:, 1].quantile(quantile).item() == pytest.approx(expected, abs=0.01)
    assert torch.cov(weight.T)[0, 2] == pytest.approx(-1 / 36, abs=0.002)
    # Beta(1, 1) is even.
    for quantile in (0.1, 0.5, 0.9):
        assert blend.quantile(quantile).item() == pytest.approx(quantile, abs=0.015)


def test_ranges_at_the_levels_that_are_drawn():
    level = torch.tensor([0.1, 0.5, 0.9999], dtype=torch.float64)
    degrees = torch.rad2deg(torch.atan2(augmix.rotate(level, 224, 224)[:, 3], torch.tensor(1.0)))
    assert degrees.round().tolist() == [0, 1, 2]
    assert augmix.shear_x(level, 224, 224)[:, 1].max() <= 0.03
    assert augmix.translate_x(level, 224, 224)[:, 2].tolist() == [0, 3, 7]
    assert augmix.translate_y(level, 32, 32)[:, 5].tolist() == [0, 0, 1]
    ramp = torch.arange(256.0).view(1, 1, 16, 16).repeat(3, 3, 1, 1)
    inverted = (augmix.solarize(ramp, level.float()) != ramp)[:, 0].flatten(1)
    assert [256 - int(row.sum()) for row in inverted] == [254, 244, 231]
    assert len(augmix.posterize(ramp, level.float()).unique()) == 16


def test_small_images_are_shifted_by_up_to_an_eighth():
    image = torch.rand(3, 32, 32) + 0.1
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        views = augmix.shifted(image.expand(4000, -1, -1, -1))
    padded = torch.nn.functional.pad(image, (4, 4, 4, 4))
    places = {}
    for view in views:
        rows = (view != 0).any(0).any(1).nonzero().flatten()
        columns = (view != 0).any(0).any(0).nonzero().flatten()
        top = 4 - int(rows[0]) if rows[0] else 4 + 31 - int(rows[-1])
        left = 4 - int(columns[0]) if columns[0] else 4 + 31 - int(columns[-1])
        assert torch.equal(view, padded[:, top : top + 32, left : left + 32])
        places[top, left] = places.get((top, left), 0) + 1
    assert len(places) == 81 and max(places.values()) < 100


def test_large_images_are_resized_parts():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        tall, wide = augmix.part(20_000, 96, 96)
        # A ramp shows where a view was taken from.
        ramp = torch.arange(96.0).expand(2, 96, 96)
        ramp = torch.stack([ramp[0], ramp[0].T, ramp[0]])
        views = augmix.resized(ramp.expand(500, -1, -1, -1))
    assert (tall <= 96).all() and (wide <= 96).all()
    area, ratio = tall * wide / 96**2, wide / tall
    assert area.min() >= 0.07 and area.max() <= 1
    assert ratio.min() >= 0.7 and ratio.max() <= 1.4
    assert area.mean() == pytest.approx(0.5, abs=0.03)  # the largest rarely fit
    assert ratio.log().mean() == pytest.approx(0, abs=0.01)
    columns, rows = views[:, 0, 0], views[:, 1, :, 0]
    for places in (columns, rows):
        assert (places[:, 1:] >= places[:, :-1]).all()
        assert places.min() >= 0 and places.max() <= 95
    width = (columns[:, -1] - columns[:, 0] + 1).round()
    assert width.min() < 40 and width.max() > 85
    # As Pillow resizes a crop, which knows nothing of what lies beyond.
    image = picture((96, 96), seed=3)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        got = augmix.resized(image)
        torch.manual_seed(5)
        tall, wide = augmix.part(1, 96, 96)
        top, left = ((torch.rand(1) * (96 - size + 1)).floor() for size in (tall, wide))
    box = [int(v) for v in (left, top, left + wide, top + tall)]
    want = tensor(pil(image).crop(box).resize((96, 96), Image.BILINEAR))
    assert (got - want).abs().max() <= 1.01


@pytest.mark.parametrize("side", [8, 32, 80])
def test_views_stay_in_range_differ_and_are_drawn_from_the_adapters_own(side):
    image = picture((side, side)) / 255
    augment = Augment(AUGMENTATIONS["augmix"], Draws(0, torch.device("cpu")))
    with augment.draws.restored():
        views = augment(image.expand(16, -1, -1, -1))
    assert views.shape == (16, 3, side, side)
    assert views.min() >= 0 and views.max() <= 1 + 1e-6
    assert len({tuple(view.flatten().tolist()) for view in views}) == 16
    torch.rand(3)
    assert torch.equal(augment(image.expand(16, -1, -1, -1)), views)
    assert (views.mean(0) - image[0]).abs().mean() < 0.2
    assert augment(image.double()).dtype == torch.float64


def test_a_view_is_the_mixture_of_its_chains(monkeypatch):
    """With draws and crops given, by hand."""
    images = torch.cat([picture(seed=0), picture(seed=1)]) / 255
    rotate, solar, equal = map(number, (augmix.rotate, augmix.solarize, augmix.equalize))
    which = torch.tensor([[[rotate, solar, -1], [equal, -1, -1], [solar, equal, rotate]]] * 2)
    level = torch.full(which.shape, -0.8, dtype=torch.float64)
    weight = torch.tensor([[0.2, 0.3, 0.5], [0.6, 0.4, 0.0]], dtype=torch.float64)
    blend = torch.tensor([0.25, 0.7], dtype=torch.float64)
    monkeypatch.setattr(augmix, "drawn", lambda count: (which, level, weight, blend))
    monkeypatch.setattr(augmix, "shifted", lambda images: images)
    monkeypatch.setattr(augmix, "flipped", lambda images: images.flip(-1))
    got = augmix.augmix(images)

    def chain(image, *operations):
        for operation in operations:
            image = operation(image)
        return tensor(image)[0] / 255

    def turn(im):
        return im.rotate(-2, Image.BILINEAR)

    def invert(im):
        return ImageOps.solarize(im, 256 - 20)

    for index in range(2):
        x = images[index].flip(-1)
        start = pil(255 * x[None].round(decimals=6))
        chains = [
            chain(start, turn, invert),
            chain(start, ImageOps.equalize),
            chain(start, invert, ImageOps.equalize, turn),
        ]
        mixed = sum(w * c for w, c in zip(weight[index], chains, strict=True))
        want = (1 - blend[index]) * x + blend[index] * mixed
        assert (got[index] - want).abs().mean() < 0.003
