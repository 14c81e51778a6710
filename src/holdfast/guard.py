"""What keeps a stream from doing harm: checks of every batch, and a watch for collapse."""

from __future__ import annotations

import torch
from torch import Tensor, nn

InputRange = tuple[float, float] | None

# Values this far outside the range are rounding, left by resizing or augmentation.
ROUNDING = 1e-3


def check_images(images: object, input_range: InputRange, *, convolutional: bool) -> Tensor:
    """The images, or an error that says what is wrong and what to do."""
    if not isinstance(images, Tensor):
        raise ValueError(f"Images must be a torch.Tensor, not {type(images).__name__}.")
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
    low, high = (bound.item() for bound in images.detach().aminmax())
    # A NaN anywhere makes both bounds NaN.
    if not (abs(low) < float("inf") and abs(high) < float("inf")):
        raise ValueError("Images hold NaN or Inf. Nothing was adapted: leave the bad images out.")
    if input_range is not None:
        _check_range(low, high, input_range)
    return images


def _check_range(low: float, high: float, input_range: tuple[float, float]) -> None:
    least, most = input_range
    slack = ROUNDING * (most - least)
    if least - slack <= low and high <= most + slack:
        return
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
    found = logits.detach()
    # As far as rounding in the type that the model computes in leaves it open.
    close = 1e-2 if found.dtype.itemsize < 4 else 1e-4
    if len(found) > 1 and bool((found >= 0).all() & ((found.sum(1) - 1).abs() < close).all()):
        raise ValueError(
            f"{name} returns probabilities: none is negative, and those of an image add up to 1. "
            "Return the logits, from before the softmax; where you cannot, the logarithm of the "
            "probabilities serves as well."
        )


class Activity(nn.Module):
    """How often a method took the steps that it could have taken, of late.

    A filter that leaves out nearly every image stops a method without a word. Over the last
    hundred steps that were due, a share below 5 % means that it hardly acts.
    """

    OVER = 100
    HARDLY = 0.05

    taken: Tensor
    due: Tensor
    told: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("taken", torch.zeros(self.OVER, dtype=torch.bool))
        self.register_buffer("due", torch.zeros((), dtype=torch.int64))
        self.register_buffer("told", torch.zeros((), dtype=torch.bool))

    def forward(self, taken: bool) -> bool:
        """Take in a step that was due; True once, when it is seen that the method hardly acts."""
        self.taken[int(self.due) % self.OVER] = taken
        self.due += 1
        news = self.hardly_acts and not bool(self.told)
        self.told |= news
        return news

    @property
    def rate(self) -> float | None:
        """The share of the last hundred; None before the first."""
        count = min(int(self.due), self.OVER)
        return float(self.taken[:count].float().mean()) if count else None

    @property
    def hardly_acts(self) -> bool:
        rate = self.rate
        return rate is not None and int(self.due) >= self.OVER and rate < self.HARDLY


class Watch(nn.Module):
    """Sees predictions fall into a few classes.

    It follows the frequency of each predicted class over about ten images a class. The spread is
    (e^H − 1)/(C − 1), H being the entropy of these frequencies: 1 when all classes are predicted
    alike, 0 when one class is all that is left. Below 0.05 the model has collapsed.
    """

    COLLAPSED = 0.05
    HEALTHY = 0.2

    frequency: Tensor
    images: Tensor
    alarmed: Tensor
    settled_at: Tensor

    def __init__(self, classes: int):
        super().__init__()
        self.horizon = max(500, 10 * classes)
        self.register_buffer("frequency", torch.zeros(classes, dtype=torch.float64))
        self.register_buffer("images", torch.zeros((), dtype=torch.int64))
        self.register_buffer("alarmed", torch.zeros((), dtype=torch.bool))
        self.register_buffer("settled_at", torch.zeros((), dtype=torch.int64))

    def forward(self, labels: Tensor) -> bool:
        """Take in a batch of predictions; True at the batch at which they have collapsed."""
        classes = len(self.frequency)
        fresh = torch.bincount(labels.cpu(), minlength=classes).to(self.frequency) / len(labels)
        keep = (1 - 1 / self.horizon) ** len(labels)
        self.frequency.mul_(keep).add_(fresh, alpha=1 - keep)
        self.images += len(labels)
        collapsed = int(self.images) >= self.horizon and self.spread() < self.COLLAPSED
        news = collapsed and not bool(self.alarmed)
        self.alarmed.fill_(collapsed)
        return news

    def fits(self, logits: Tensor) -> bool:
        """A layer taken for the head that is not has another number of classes."""
        return logits.shape[1] == len(self.frequency)

    def settled(self) -> bool:
        """True now and then, while predictions are spread: what was put aside at the last time
        is then healthy, since a collapse at that time would show by now."""
        if int(self.images - self.settled_at) < 2 * self.horizon or self.spread() < self.HEALTHY:
            return False
        self.settled_at.copy_(self.images)
        return True

    def start(self) -> None:
        """Watch afresh."""
        for buffer in self.buffers():
            buffer.zero_()

    def spread(self) -> float:
        share = self.frequency / self.frequency.sum().clamp_min(1e-300)
        entropy = torch.special.entr(share).sum()
        return float((entropy.exp() - 1) / max(len(share) - 1, 1))
