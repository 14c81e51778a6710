"""The head of a network: the layer whose output is the logits, and whose input is the feature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from holdfast.util.words import listed, nearest

# How far logits may be from the head's output, as a share of their length: rounding in half
# precision is far below, another layer far above.
APART = 0.05


class Call(NamedTuple):
    """One call of a layer."""

    input: Tensor
    output: Tensor


def linear_layers(model: nn.Module) -> list[str]:
    return [name for name, layer in model.named_modules() if isinstance(layer, nn.Linear)]


def find_head(model: nn.Module, name: str | None) -> str | None:
    """The name of the head: the one given, else the last linear layer, None if there is none."""
    linear = linear_layers(model)
    if name is None:
        return linear[-1] if linear else None
    layers = dict(model.named_modules())
    if name not in layers:
        raise ValueError(
            f"No layer is called {name!r}.{nearest(name, layers)} "
            f"Name one that is; linear layers here: {listed(linear) or 'none'}."
        )
    if not _has_rows(layers[name]):
        raise ValueError(
            f"Layer {name!r} is a {type(layers[name]).__name__}; the head needs a weight with one "
            "row a class, as a linear layer or a convolution (not in groups, not transposed) has. "
            f"Linear layers here: {listed(linear) or 'none'}."
        )
    return name


def _has_rows(layer: nn.Module) -> bool:
    weight = getattr(layer, "weight", None)
    if not isinstance(weight, Tensor) or weight.ndim < 2:
        return False
    return getattr(layer, "groups", 1) == 1 and not getattr(layer, "transposed", False)


def watch(layer: nn.Module, calls: list[Call]) -> int:
    """Put down every call of a layer; the hook's number."""

    # A plain function, which a deep copy of the model shares instead of copying.
    def put_down(
        module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: Any
    ) -> None:
        calls.append(Call([*inputs, *named.values(), output][0], output))

    return layer.register_forward_hook(put_down, with_kwargs=True).id


def unwatch(layer: nn.Module, hook: int) -> None:
    for hooks in (layer._forward_hooks, layer._forward_hooks_with_kwargs):
        hooks.pop(hook)


def _over_tokens(layer: nn.Module) -> bool:
    """Whether it takes features last, as a linear layer does, or second, as a convolution."""
    return getattr(layer.weight, "ndim", 0) == 2


class WrappedHead(nn.Module):
    """In place of a head in an exported module: it is given features, the head something else."""

    def __init__(self, head: nn.Module):
        super().__init__()
        self.head = head


def by_image(values: Tensor, size: int, layer: nn.Module) -> Tensor | None:
    """What a layer saw or gave, as one vector of this size for each image; None: it is no such.

    A linear layer may go over the tokens of an image, and a 1×1 convolution over the places of a
    map: then it is their mean, which is as well the layer's output on the mean of its input.
    """
    flat = values.flatten(1)
    if flat.shape[1] != size and values.ndim > 2:
        tokens = _over_tokens(layer)
        flat = values.flatten(1, -2).mean(1) if tokens else values.flatten(2).mean(2)
    return flat if flat.shape[1:] == (size,) else None


def at_each_place(values: Tensor, output: Tensor, layer: nn.Module) -> Tensor:
    """The inverse: one vector for each image, as if the layer gave it at all places."""
    places = (1,) * (output.ndim - 2)
    count, size = values.shape
    shape = (count, *places, size) if _over_tokens(layer) else (count, size, *places)
    return values.reshape(shape).expand_as(output)


@torch.no_grad()
def layers_that_give_logits(
    model: nn.Module, images: Tensor, logits: Tensor
) -> Mapping[str, nn.Module]:
    """By name, the layers that would do for the head, found by running the model."""
    layers = {name: layer for name, layer in model.named_modules() if _has_rows(layer)}
    calls: dict[str, list[Call]] = {name: [] for name in layers}
    hooks = {name: watch(layer, calls[name]) for name, layer in layers.items()}
    try:
        model(images)
    finally:
        for name, hook in hooks.items():
            unwatch(layers[name], hook)
    return {name: layers[name] for name in layers if is_head(layers[name], calls[name], logits)}


def is_head(layer: nn.Module, calls: list[Call], logits: Tensor) -> bool:
    """Whether a layer, called like this, gave the logits, but for a factor and a constant of each
    image: those of a temperature and of a log-softmax."""
    weight = layer.weight
    if len(calls) != 1 or not isinstance(weight, Tensor) or len(weight) != logits.shape[1]:
        return False
    if not all(isinstance(tensor, Tensor) and tensor.ndim > 1 for tensor in calls[0]):
        return False
    output = by_image(calls[0].output, len(weight), layer)
    if output is None or by_image(calls[0].input, weight[0].numel(), layer) is None:
        return False
    output, logits = (x.detach().float() for x in (output, logits))
    output, logits = (x - x.mean(1, keepdim=True) for x in (output, logits))
    factor = (output * logits).sum() / (output * output).sum().clamp_min(1e-30)
    apart = (logits - factor * output).norm()
    if not apart.isfinite():
        return True  # NaN tells nothing of the layer, and is found elsewhere
    return bool(factor >= 0) and bool(apart <= APART * logits.norm())
