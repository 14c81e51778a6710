"""What trains, and how norm layers behave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from holdfast.engine.network import Network
from holdfast.engine.norms import Normalisation, batch_norms

# What `exclude` means, as the setting of a method.
EXCLUDE = "norm layers whose name contains one of these words, parted by |, do not train"

NORM_LAYERS = (_BatchNorm, _InstanceNorm, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)


def norm_layers(model: nn.Module) -> dict[str, nn.Module]:
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, NORM_LAYERS)}


@dataclass(frozen=True)
class Select:
    """Which parameters train, and by which statistics batch norm normalises.

    exclude: norm layers whose name contains one of these words, parted by |, do not train.
    renews: batch norm is all that adapts, so that there has to be some.
    """

    what: Literal["nothing", "norm", "body", "all"]
    statistics: Normalisation
    exclude: str = ""
    renews: bool = False

    def parameters(self, network: Network, method: str) -> dict[str, nn.Parameter]:
        """The parameters that train, by name. They alone require a gradient from now on."""
        model = network.model
        model.requires_grad_(False)
        if self.what == "norm":
            of_norms = {id(p) for layer in norm_layers(model).values() for p in layer.parameters()}
            chosen = {name: p for name, p in model.named_parameters() if id(p) in of_norms}
            if not chosen:
                raise ValueError(
                    f"{method} trains norm layers, but {network.name} has none with a scale and a "
                    "shift: choose select=all (or select=body), or a net with normalisation."
                )
        elif self.what == "nothing":
            if self.renews and not batch_norms(model):
                raise ValueError(
                    f"{method} renews the statistics of batch norm, but {network.name} has no "
                    "batch norm layer: nothing would change. Use frozen, or a method that trains."
                )
            return {}
        else:
            chosen = dict(model.named_parameters())
            if self.what == "body":
                of_head = {id(parameter) for parameter in network.head.parameters()}
                chosen = {name: p for name, p in chosen.items() if id(p) not in of_head}
        words = [word for word in self.exclude.split("|") if word]
        excluded = {
            id(parameter)
            for name, layer in norm_layers(model).items()
            if any(word in name for word in words)
            for parameter in layer.parameters()
        }
        trained = {name: p for name, p in chosen.items() if id(p) not in excluded}
        if not trained:
            raise ValueError(
                f"exclude={self.exclude} leaves {method} nothing of {network.name} to train: name "
                "fewer layers, or exclude=none."
            )
        for parameter in trained.values():
            parameter.requires_grad_(True)
        return trained
