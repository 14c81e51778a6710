"""Input normalisation as a part of the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

Values = tuple[float, ...]

NORMALIZATIONS: dict[str, tuple[Values, Values]] = {
    "ImageNet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "CIFAR": ((0.5070, 0.4865, 0.4409), (0.2673, 0.2564, 0.2761)),
    "0.5": ((0.5,), (0.5,)),
}


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
                f"mean {tuple(mean)}, std {tuple(std)}."
            )

    def forward(self, images: Tensor) -> Any:
        return self.model((images - self.mean) / self.std)


def normalized(model: nn.Module, mean: Sequence[float], std: Sequence[float]) -> Normalized:
    """The model with its input normalisation inside: (images − mean) / std, by channel."""
    return Normalized(model, mean, std)
