"""Input normalisation: values as given, or read off what brings them."""

import enum
import warnings
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import holdfast
from holdfast.models.normalization import parse_normalization

MEAN, STD = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)


class Kept(nn.Module):
    """Gives back what it is shown."""

    def forward(self, images):
        return images


def shown(images, **how):
    return holdfast.normalized(Kept(), **how)(images)


def expected(images, mean=MEAN, std=STD):
    return (images - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]


class Timm(nn.Module):
    def __init__(self, config, name="pretrained_cfg"):
        super().__init__()
        setattr(self, name, config)


class Weights(enum.Enum):
    """As torchvision's: what `transforms` makes has the values."""

    V1 = "v1"

    @property
    def transforms(self):
        return partial(SimpleNamespace, crop_size=[224], mean=list(MEAN), std=list(STD))


def processor(**others):
    known = {"image_mean": list(MEAN), "image_std": list(STD), "do_normalize": True}
    return SimpleNamespace(**(known | {"do_rescale": True, "rescale_factor": 1 / 255} | others))


LIKE = {
    "timm": Timm({"mean": MEAN, "std": STD, "input_size": (3, 224, 224)}),
    "timm, an object": Timm(SimpleNamespace(mean=MEAN, std=STD)),
    "older timm": Timm({"mean": MEAN, "std": STD}, "default_cfg"),
    "timm's data config": {"mean": MEAN, "std": STD, "crop_pct": 0.9},
    "torchvision": Weights.V1,
    "its transforms": Weights.V1.transforms(),
    "Normalize in a Compose": SimpleNamespace(
        transforms=[SimpleNamespace(size=224), SimpleNamespace(mean=MEAN, std=STD)]
    ),
    "Hugging Face": processor(),
    "beside a tokenizer": SimpleNamespace(image_processor=processor(), tokenizer=object()),
    "its configuration": vars(processor()),
    "another of ours": holdfast.normalized(Kept(), MEAN, STD),
}


@pytest.mark.parametrize("name", LIKE)
def test_values_are_read_off_what_brings_them(name):
    images = torch.rand(2, 3, 4, 4)
    torch.testing.assert_close(shown(images, like=LIKE[name]), expected(images))


# What a processor of Hugging Face does with bytes, by its own settings.
PROCESSORS = {
    "as usual": ({}, lambda x: (x / 255 - MEAN[0]) / STD[0]),
    "not normalised": ({"do_normalize": False}, lambda x: x / 255),
    "not rescaled": ({"do_rescale": False}, lambda x: (x - MEAN[0]) / STD[0]),
    "neither": ({"do_rescale": False, "do_normalize": False}, lambda x: x),
    "to [0, 2]": ({"rescale_factor": 1 / 127.5}, lambda x: (x / 127.5 - MEAN[0]) / STD[0]),
    "to [-1, 1]": (
        {"rescale_factor": 1 / 127.5, "rescale_offset": True, "do_normalize": False},
        lambda x: (x - 127.5) / 127.5,
    ),
    "twice, as EfficientNet's": (
        {"include_top": True},
        lambda x: (x / 255 - MEAN[0]) / STD[0] / STD[0],
    ),
}


@pytest.mark.parametrize("name", PROCESSORS)
def test_a_processor_is_followed_in_all_that_it_does(name):
    settings, does = PROCESSORS[name]
    pixels = torch.arange(0, 256, 5.0).reshape(1, 1, -1, 2).expand(1, 3, -1, 2)
    found = shown(pixels / 255, like=processor(**settings))
    torch.testing.assert_close(found[:, 0], does(pixels[:, 0]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "like", [nn.Linear(3, 2), torch.zeros(3), "resnet50", 0.5, {"mean": MEAN}, Weights], ids=repr
)
def test_what_brings_no_values_is_told_what_does(like):
    with pytest.raises(ValueError, match=r"No mean and std.*timm.*torchvision.*Hugging Face"):
        holdfast.normalized(Kept(), like=like)


def test_a_processor_without_its_values_is_an_error():
    with pytest.raises(ValueError, match="no image_mean and image_std"):
        holdfast.normalized(Kept(), like=processor(image_mean=None))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mean": MEAN, "std": STD, "like": processor()}, "give either like"),
        ({"std": STD, "like": processor()}, "give either like"),
        ({}, "takes mean and std, or like="),
        ({"mean": MEAN}, "takes mean and std, or like="),
        ({"mean": MEAN, "std": (1.0,)}, "as many values"),
        ({"mean": MEAN, "std": (0.5, 0.5, 0.0)}, "std above 0"),
    ],
)
def test_values_that_do_not_go_together(given, message):
    with pytest.raises(ValueError, match=message):
        holdfast.normalized(Kept(), **given)


def test_one_value_serves_any_number_of_channels():
    for channels in (1, 3, 5):
        images = torch.rand(2, channels, 4, 4)
        for half in ((0.5,), 0.5):
            torch.testing.assert_close(shown(images, mean=half, std=half), 2 * images - 1)
    assert "mean=(0.5,)" in repr(holdfast.normalized(Kept(), (0.5,), (0.5,)))


@pytest.mark.parametrize(
    ("shape", "advice"),
    [
        ((2, 1, 8, 8), r"images\.expand\(-1, 3, -1, -1\)"),
        ((1, 8, 8), r"images\.expand"),
        ((2, 4, 8, 8), r"give images of 3 channels"),
        ((2, 8, 8, 3), r"images\.permute\(0, 3, 1, 2\)"),
        ((2, 48), "give images of 3 channels"),
    ],
)
def test_other_channels_are_not_broadcast(shape, advice):
    with pytest.raises(ValueError, match=advice):
        shown(torch.rand(shape), mean=MEAN, std=STD)


def test_a_normalised_model_is_traced_without_a_warning():
    model = holdfast.normalized(nn.Conv2d(3, 2, 3), MEAN, STD)
    images = torch.rand(2, 3, 8, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", DeprecationWarning)
        traced = torch.jit.trace(model, images)
    torch.testing.assert_close(traced(images), model(images))


# As a command line has them.


def test_a_command_lines_values():
    assert parse_normalization(None, None) is None
    assert parse_normalization("0.1,0.2,0.3", "0.4, 0.5, 0.6") == (MEAN, STD)
    assert parse_normalization("0.5", "5e-1") == ((0.5,), (0.5,))


@pytest.mark.parametrize(
    ("mean", "std", "message"),
    [
        ("0.5", None, "--mean was given without --std"),
        (None, "0.5", "--std was given without --mean"),
        ("a,b", "0.5", "--mean is one number, or one for each channel.*'a,b'"),
        ("0.5", "", "--std is one number"),
        ("nan", "0.5", "--mean is one number"),
    ],
)
def test_mistakes_of_a_command_line(mean, std, message):
    with pytest.raises(ValueError, match=message):
        parse_normalization(mean, std)
