"""Means and variances by channel."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def batch_moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and biased variance over all axes but 1, in float32 at least, without gradient."""
    wide = _wide(x)
    if x.device.type in ("cpu", "cuda"):
        # What batch norm itself takes them by: many times as fast on a CPU as torch.var_mean.
        return torch.batch_norm_update_stats(wide, None, None, 0.0)
    var, mean = torch.var_mean(wide, [d for d in range(x.ndim) if d != 1], correction=0)
    return mean, var


def image_moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """The same for each image, (images, channels)."""
    wide = _wide(x)
    if x.ndim == 2:
        return wide, torch.zeros_like(wide)
    if x.device.type == "cpu":
        found = (torch.batch_norm_update_stats(image[None], None, None, 0.0) for image in wide)
        means, variances = zip(*found, strict=True)
        return torch.stack(means), torch.stack(variances)
    var, mean = torch.var_mean(wide.flatten(2), 2, correction=0)
    return mean, var


def together(mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
    """Of images, as many pixels each, as a whole."""
    spread, center = torch.var_mean(mean, 0, correction=0)
    return center, var.mean(0) + spread


def _wide(x: Tensor) -> Tensor:
    return x.detach().to(torch.promote_types(x.dtype, torch.float32))


class Groups:
    """Images of one batch that are normalised together, in whatever order they come.

    of: the group of each image. sizes: how many images each has. even: whether groups are of one
    size and come one after the other.
    """

    def __init__(self, of: Tensor, sizes: Sequence[int], *, even: bool = False):
        self.of, self.sizes, self.even = of, tuple(sizes), even
        self._images = torch.tensor(self.sizes, device=of.device)[:, None]

    @classmethod
    def in_order(cls, sizes: Sequence[int], device: torch.device) -> Groups:
        """One group after the other."""
        of = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
        return cls(of.to(device), sizes, even=len(set(sizes)) == 1)

    def values(self, x: Tensor) -> Tensor:
        """How many numbers each has in a channel of x, (groups, 1)."""
        return self._images * (x.shape[1:].numel() // x.shape[1])

    def sums(self, x: Tensor) -> Tensor:
        """Over each group's images and their pixels, (groups, channels), in float32 at least."""
        wide, pixels = torch.promote_types(x.dtype, torch.float32), list(range(2, x.ndim))
        # By image first, which leaves a few numbers, whatever the groups' sizes.
        by_image = x.sum(pixels, dtype=wide) if pixels else x.to(wide)
        if self.even:  # many times as fast on several threads
            return by_image.view(len(self.sizes), -1, x.shape[1]).sum(1)
        return by_image.new_zeros(len(self.sizes), x.shape[1]).index_add_(0, self.of, by_image)

    def spread(self, values: Tensor, x: Tensor) -> Tensor:
        """Each group's values, (groups, channels), for its images: to be broadcast over x."""
        return values.index_select(0, self.of).view(*x.shape[:2], *[1] * (x.ndim - 2))

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Each group's mean and biased variance, (groups, channels), and x less its group's
        mean; in float32 at least, without gradient."""
        wide, values = _wide(x), self.values(x)
        mean = self.sums(wide) / values
        centred = wide - self.spread(mean, x)
        return mean, self.sums(centred * centred) / values, centred
