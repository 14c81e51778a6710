"""A plain module out of an adapter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn

from holdfast.engine.checks import InputRange, check_images
from holdfast.engine.heads import WrappedHead
from holdfast.engine.network import Network, logits_of
from holdfast.engine.norms import batch_norms
from holdfast.engine.options import Options
from holdfast.engine.slots import Slots
from holdfast.source.loaders import images_and_labels

ADVICE = "an adapter keeps learning; what can be exported is adapter.frozen()"


class _SaysHowToExport(type):
    """Torch's exporters refuse what is no nn.Module by showing its class: the advice stands
    there."""

    def __repr__(cls) -> str:
        return f"{super().__repr__()} ({ADVICE})"


class NotExportable(metaclass=_SaysHowToExport):
    """What cannot be exported or copied as it is, and says so."""

    def __reduce__(self) -> str:
        raise TypeError(
            "An adapter can be neither copied nor pickled: save() it and holdfast.load() it."
        )

    def __prepare_scriptable__(self) -> object:
        raise TypeError(ADVICE)  # torch.jit.script asks for this


def export(
    slots: Slots,
    options: Options,
    calibrate: Iterable[Any] | None,
    statistics: Literal["stream", "batch"],
) -> nn.Module:
    """What predicts now, as a plain module in eval mode; see `Adapter.frozen`."""
    if statistics not in ("stream", "batch"):
        raise ValueError(f"statistics is 'stream' or 'batch', not {statistics!r}.")
    if calibrate is not None and statistics == "batch":
        raise ValueError("calibrate=… sets running statistics: leave statistics='batch' out.")

    heads: dict[Network, nn.Module | None] = {}

    def plain(network: Network) -> nn.Module:
        model = network.plain_model().requires_grad_(False)
        if network.statistics is not None:
            network.statistics.write_into(model, statistics)
        if calibrate is not None:
            if heads and isinstance(calibrate, Iterator):
                raise ValueError(
                    "calibrate=… is read once for each network that predicts, student and teacher, "
                    "but it is a one-shot iterator: give a DataLoader or a list."
                )
            _calibrate(model, network, calibrate, options.input_range)
        if not network.returns_tensor:
            model.register_forward_hook(_give_logits)
        heads[network] = model.get_submodule(network.head_name) if network.head_name else None
        return model

    exact = statistics == "batch"
    with torch.inference_mode(False), torch.no_grad():
        module = slots.prediction.module(plain, exact)
        for refine in slots.refine:
            head = heads[slots.prediction.network]
            names = (
                name for name, layer in module.named_modules() if _is_given_features(layer, head)
            )
            module = refine.module(module, next(names, ""), exact)
        return module.eval()


def _is_given_features(layer: nn.Module, head: nn.Module | None) -> bool:
    return layer is head or (isinstance(layer, WrappedHead) and layer.head is head)


def _give_logits(model: nn.Module, inputs: Any, output: Any) -> Tensor:
    """A forward hook: of an object with `.logits`, these alone."""
    return logits_of(output)


def _calibrate(
    model: nn.Module, network: Network, loader: Iterable[Any], input_range: InputRange
) -> None:
    """Running statistics: the plain average over the loader's batches."""
    layers = batch_norms(model).values()
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # torch's word for a plain average
        layer.train()
    seen = 0
    for batch in loader:
        images, _ = images_and_labels(batch)
        check_images(images, input_range, convolutional=network.is_conv)
        if len(images) > 1:
            model(network.prepare(images))
            seen += 1
    if not seen:
        raise ValueError("calibrate=… gave no batch of two or more images.")
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
        layer.eval()
