"""Checks of every batch before anything changes."""

from __future__ import annotations

import torch
from torch import Tensor

InputRange = tuple[float, float] | None

# Values this far outside the range are rounding, left by resizing or augmentation.
ROUNDING = 1e-3


def check_images(images: object, input_range: InputRange, *, convolutional: bool) -> Tensor:
    """The images, or an error that says what is wrong and what to do."""
    if not isinstance(images, Tensor):
        raise ValueError(f"Images must be a torch.Tensor, not {type(images).__name__}.")
    if unusual := _unusual(images):
        raise ValueError(
            f"Images are a {unusual} tensor; expected a dense one with values, as torch.stack "
            "makes it of single images."
        )
    shape = tuple(images.shape)
    if images.ndim < 2 or (convolutional and images.ndim != 4):
        expected = "(batch, channels, height, width)" if convolutional else "(batch, …)"
        raise ValueError(
            f"Images of shape {shape}; expected {expected}. A single image needs images[None]."
        )
    if images.numel() == 0:
        raise ValueError(f"An empty batch: images have the shape {shape}. Leave it out.")
    if not images.is_floating_point():
        raise ValueError(
            f"Images are {images.dtype}; expected floats in [0, 1]: images.float() / 255."
        )
    if images.dtype.itemsize == 1:  # torch computes nothing in 8 bits
        raise ValueError(f"Images are {images.dtype}; expected 16 bits or more: images.float().")
    low, high = (bound.item() for bound in images.detach().aminmax())
    # A NaN anywhere makes both bounds NaN.
    if not (abs(low) < float("inf") and abs(high) < float("inf")):
        raise ValueError("Images hold NaN or Inf. Nothing was adapted: leave the bad images out.")
    least, most = input_range or (low, high)
    slack = ROUNDING * (most - least)
    if least - slack <= low and high <= most + slack:
        return images
    if low >= 0 and high > 2:
        advice = "They look like 0–255: divide by 255."
    else:
        advice = (
            "They look normalised already: feed images in [0, 1] and put the normalisation inside "
            "the model, holdfast.normalized(model, mean, std)."
        )
    raise ValueError(
        f"Images lie in [{low:.4g}, {high:.4g}]; expected [{least:g}, {most:g}]. {advice} "
        "If your model takes other values, pass input_range=None."
    )


def _unusual(images: Tensor) -> str:
    """What sort of tensor it is, if not a plain one that can be looked at."""
    if images.is_nested:
        return "nested"
    if images.is_meta:
        return "meta"
    if images.is_quantized:
        return "quantised"
    return "" if images.layout is torch.strided else str(images.layout).removeprefix("torch.")


def channels_come_last(shape: tuple[int, ...]) -> str:
    """What to do with images of this shape, if it looks like that of (batch, height, width,
    channels)."""
    few = (1, 3, 4)
    if len(shape) != 4 or shape[3] not in few or shape[1] in few:
        return ""
    return (
        " They look like (batch, height, width, channels), and channels come second: "
        "images.permute(0, 3, 1, 2)."
    )


def check_logits(logits: object, images: int, name: str) -> None:
    """One row of logits for each image, as far as their shape tells."""
    if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != images:
        shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(
            f"{name} returned {shape} for {images} images; expected logits of shape "
            "(batch, classes), as a tensor or as an object with .logits."
        )


def refuse_probabilities(logits: Tensor, name: str) -> None:
    """A second softmax would make all predictions look unsure. Logits may be positive and add up to
    1 by chance, but hardly for each of several images."""
    values = logits.detach()
    # How far sums may be from 1 by rounding, in the type that the model computes in.
    close = 1e-2 if values.dtype.itemsize < 4 else 1e-4
    if len(values) > 1 and bool((values >= 0).all() & ((values.sum(1) - 1).abs() < close).all()):
        raise ValueError(
            f"{name} returns probabilities: none is negative, and those of an image add up to 1. "
            "Return the logits, from before the softmax; where you cannot, the logarithm of the "
            "probabilities serves as well."
        )
