"""Adversarial images, made against a model before it adapts: what `noisy(kind=attack)` mixes in."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from holdfast.data.pools import Data, Pool, PoolImages
from holdfast.engine.network import logits_of, private_copy, without_autocast
from holdfast.util.settings import whole


class Attacked:
    """A data set whose images are changed, by ε at most, so that the model mistakes them:

    x ← x + stride · sign ∇ₓ CE(model(x), y), clipped to [x₀ − ε, x₀ + ε] and [0, 1], `steps` times

    from the image x₀ itself, with its true label y (projected gradient ascent, Madry et al. 2018).
    The default of `stride`, 2.5 ε / steps, reaches the edge of the ball. SoTTA (Gong et al.
    2023) has 10 steps with ε = 0.1 on CIFAR, 1 with 0.2 on ImageNet, and strides of 1/255.

    A departure from SoTTA, which changes the intruders of each batch against the adapting model,
    so that it mistakes the batch's other images. A stream is laid out before it meets an adapter:
    these are made against the model as it is given, each by itself. One at a time, in eval mode,
    so that what becomes of an image depends on its index alone.
    """

    def __init__(
        self,
        data: Data,
        model: nn.Module,
        *,
        steps: int = 10,
        epsilon: float = 0.1,
        stride: float | None = None,
    ):
        self.data = data
        self.model = private_copy(model).requires_grad_(False)
        self.steps = whole(steps, "steps", 1)
        self.epsilon = epsilon
        self.stride = 2.5 * epsilon / self.steps if stride is None else stride
        if not 0 < epsilon <= 1 or not self.stride > 0:
            raise ValueError(
                "epsilon is above 0 and at most 1, since images are in [0, 1], and stride is above "
                f"0: not {epsilon} and {self.stride}."
            )

    def __getitem__(self, domain: str) -> Pool:
        return AttackedImages(self.data[domain], self)

    def change(self, image: Tensor, label: int) -> Tensor:
        """An adversarial image, (1, channels, height, width), made of one."""
        with torch.inference_mode(False), torch.enable_grad(), without_autocast(self.model):
            tensors = [*self.model.parameters(), *self.model.buffers(), image]
            changed = start = image.clone().to(tensors[0].device)
            low, high = (start - self.epsilon).clamp(min=0), (start + self.epsilon).clamp(max=1)
            for _ in range(self.steps):
                changed = changed.detach().requires_grad_()
                logits = logits_of(self.model(changed))
                if not 0 <= label < logits.shape[1]:
                    raise ValueError(
                        f"An image has the label {label}, and the model knows 0 to "
                        f"{logits.shape[1] - 1}: attack images of the model's own classes."
                    )
                loss = nn.functional.cross_entropy(logits, torch.tensor([label]).to(logits.device))
                (slope,) = torch.autograd.grad(loss, changed)
                changed = (changed + self.stride * slope.sign()).clamp(low, high)
            return changed.detach().to(image.device)


class AttackedImages(PoolImages):
    """One domain of such a data set."""

    def __init__(self, pool: Pool, attack: Attacked):
        super().__init__(pool)
        self.attack = attack

    def raw(self, indices: Sequence[int]) -> Tensor:
        change, pool = self.attack.change, self.pool
        return torch.cat([change(pool.images([i]), int(self.labels[i])) for i in indices])
