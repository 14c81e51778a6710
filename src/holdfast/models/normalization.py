"""Input normalisation as a part of the model."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.engine.checks import channels_come_last

Values = tuple[float, ...]
Normalization = tuple[Values, Values]

NORMALIZATIONS: dict[str, Normalization] = {
    "ImageNet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "CIFAR-100": ((0.5070, 0.4865, 0.4409), (0.2673, 0.2564, 0.2761)),
    "CIFAR-10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    # The mean of each image's own deviation, which many trainings take for the deviation.
    "CIFAR-10 with std 0.2": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "0.5": ((0.5,), (0.5,)),
}

ACCEPTED = (
    "a timm model (pretrained_cfg), weights of torchvision (ResNet50_Weights.DEFAULT) or their "
    "transforms, an image processor of Hugging Face (image_mean, image_std), or anything else with "
    "mean and std"
)


class Normalized(nn.Module):
    """A model that takes images in [0, 1] and normalises them itself."""

    mean: Tensor
    std: Tensor

    def __init__(self, model: nn.Module, mean: Sequence[float], std: Sequence[float]):
        super().__init__()
        self.model = model
        like = next((p for p in model.parameters() if p.is_floating_point()), torch.zeros(0))
        for name, values in (("mean", mean), ("std", std)):
            tensor = torch.as_tensor(values, dtype=like.dtype, device=like.device)
            self.register_buffer(name, tensor.reshape(-1, 1, 1))
        if self.mean.shape != self.std.shape or not bool((self.std > 0).all()):
            raise ValueError(
                f"mean and std need as many values as there are channels, std above 0: got "
                f"mean {mean}, std {std}."
            )

    def forward(self, images: Tensor) -> Any:
        # A trace warns of every comparison.
        if not torch.jit.is_tracing():  # type: ignore[attr-defined,no-untyped-call]
            self._check_channels(tuple(images.shape))
        return self.model((images - self.mean) / self.std)

    def _check_channels(self, shape: tuple[int, ...]) -> None:
        """Broadcasting would make as many channels of one, and nobody would know."""
        count = len(self.mean)
        if count == 1 or (len(shape) >= 3 and shape[-3] == count):
            return
        advice = f"give images of {count} channels, (batch, {count}, height, width)"
        if len(shape) >= 3 and shape[-3] == 3:  # as colours have, so mean and std are wrong
            advice = "give mean and std 3 values each, or one for all channels"
        if len(shape) >= 3 and shape[-3] == 1:
            advice = (
                f"repeat the grey channel, images.expand(-1, {count}, -1, -1), if the model takes "
                f"{count} of them; else give normalized() one mean and one std"
            )
        raise ValueError(
            f"The normalisation has {count} values, one for each channel, and images have the "
            f"shape {shape}: {advice}.{channels_come_last(shape)}"
        )

    def extra_repr(self) -> str:
        return f"mean={written(self.mean)}, std={written(self.std)}"


def normalized(
    model: nn.Module,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    *,
    like: object = None,
) -> Normalized:
    """The model with its input normalisation inside: (images − mean) / std, by channel.

    like: what to read mean and std off, in their place: a timm model, weights of torchvision, an
        image processor of Hugging Face.

    >>> import holdfast
    >>> from holdfast.models import resnet20
    >>> holdfast.normalized(resnet20(10), (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)).mean.shape
    torch.Size([3, 1, 1])
    """
    if like is not None:
        if mean is not None or std is not None:
            raise ValueError("like=… brings mean and std: give either like, or mean and std.")
        mean, std = read_normalization(like)
    if mean is None or std is None:
        raise ValueError("normalized() takes mean and std, or like=… to read them off.")
    if isinstance(model, Normalized):
        warnings.warn(
            f"The model is normalised already ({model.extra_repr()}), and now a second time: to "
            "replace its values, give normalized() model.model.",
            stacklevel=2,
        )
    return Normalized(model, mean, std)


def read_normalization(like: object) -> Normalization:
    """Mean and std for images in [0, 1], by the attributes of whatever brings them."""
    like = getattr(like, "image_processor", like)  # beside a tokenizer
    if any(_get(like, name) is not None for name in ("image_mean", "do_normalize")):
        return _of_processor(like)
    if callable(getattr(like, "transforms", None)):
        like = like.transforms()  # type: ignore[attr-defined]
    config = getattr(like, "pretrained_cfg", None) or getattr(like, "default_cfg", None) or like
    steps = getattr(config, "transforms", None)  # of a Compose
    for step in reversed(steps) if isinstance(steps, Sequence) else [config]:
        mean, std = _values(_get(step, "mean")), _values(_get(step, "std"))
        if mean and std:
            return mean, std
    raise ValueError(f"No mean and std were found on {type(like).__name__}: like= is {ACCEPTED}.")


def _of_processor(like: object) -> Normalization:
    """A processor multiplies bytes, perhaps after shifting them, and then normalises."""
    mean, std = _values(_get(like, "image_mean")), _values(_get(like, "image_std"))
    if not _get(like, "do_normalize", True):
        mean, std = (0.0,), (1.0,)
    elif not (mean and std):
        raise ValueError(f"{type(like).__name__} normalises, but has no image_mean and image_std.")
    elif _get(like, "include_top", False):
        std = tuple(value * value for value in std)  # EfficientNet's divides by it twice
    rescales = _get(like, "do_rescale", True)
    scale = 255 * float(_get(like, "rescale_factor", 1 / 255)) if rescales else 255.0
    shift = 0.5 if rescales and _get(like, "rescale_offset", False) else 0.0
    return tuple(value / scale + shift for value in mean), tuple(value / scale for value in std)


def _get(config: object, name: str, default: Any = None) -> Any:
    value = config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)
    return default if value is None else value


def _values(values: Any) -> Values:
    """Numbers, or nothing: a tensor has methods that are called mean and std."""
    if isinstance(values, Tensor):
        values = values.flatten().tolist()
    numbers = [values] if isinstance(values, int | float) else values
    if not isinstance(numbers, Iterable) or isinstance(numbers, str):
        return ()
    return tuple(float(number) for number in numbers)


def parse_normalization(mean: str | None, std: str | None) -> Normalization | None:
    """What --mean and --std say: 0.485,0.456,0.406, or one number for all channels, each."""
    if mean is None and std is None:
        return None
    if mean is None or std is None:
        given, missing = ("--mean", "--std") if std is None else ("--std", "--mean")
        raise ValueError(f"{given} was given without {missing}: give both.")
    return _parse_values(mean, "mean"), _parse_values(std, "std")


def _parse_values(text: str, name: str) -> Values:
    try:
        values = tuple(float(number) for number in text.replace(",", " ").split())
    except ValueError:
        values = ()
    if not values or not all(map(math.isfinite, values)):
        raise ValueError(
            f"--{name} is one number, or one for each channel, as in 0.485,0.456,0.406, not "
            f"{text!r}."
        )
    return values


def written(values: Tensor | Sequence[float]) -> str:
    """As Python writes a tuple, to four digits."""
    numbers = values.flatten().tolist() if isinstance(values, Tensor) else values
    return f"({', '.join(f'{number:.4g}' for number in numbers)}{',' if len(numbers) == 1 else ''})"
