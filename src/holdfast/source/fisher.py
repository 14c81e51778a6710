"""Fisher information: how much the source's predictions hang on each parameter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from holdfast.engine.network import Network, at_least_float32
from holdfast.engine.norms import batch_norms


def gather_fisher(
    network: Network,
    batches: Iterable[tuple[Tensor, object]],
    parameters: Mapping[str, nn.Parameter],
) -> dict[str, Tensor]:
    """Squared batch-mean gradients of the cross-entropy against the model's own labels, averaged
    over batches, in batch-statistics mode."""
    sums = {name: torch.zeros_like(at_least_float32(p)) for name, p in parameters.items()}
    count = 0
    for images, _ in batches:
        if len(images) == 1 and batch_norms(network.model):
            continue  # one image has no batch statistics
        _, logits = network(images)
        loss = nn.functional.cross_entropy(logits, logits.detach().argmax(1))
        found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
        for total, gradient in zip(sums.values(), found, strict=True):
            if gradient is not None:
                total += gradient.detach().to(total.dtype) ** 2
        count += 1
    if not count:
        raise ValueError("The loader for Fisher information gave no batch of two or more images.")
    return {name: (total / count).cpu() for name, total in sums.items()}
