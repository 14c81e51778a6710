"""Any classifier, copied and split into feature extractor and head, with no change to it."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from holdfast.words import listed, nearest

MemoryFormat = Literal["auto", "channels_last", "contiguous"]


class Network:
    """A private copy of a model in eval mode: `features, logits = network(images)`.

    The head is the last `nn.Linear`, or the layer named by `head`; the feature is its input,
    caught by a hook.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        head: str | None = None,
        memory_format: MemoryFormat = "auto",
        compile: bool = False,
        precision: torch.dtype | None = None,
    ):
        self.name = type(model).__name__
        self.model = private_copy(model)
        self.head_name = find_head(self.model, head)
        self.is_conv = any(isinstance(m, nn.Conv2d) for m in self.model.modules())
        self.memory_format = choose_memory_format(self.model, memory_format)
        self.model.to(memory_format=self.memory_format)  # type: ignore[call-overload]
        tensor = next(iter([*self.model.parameters(), *self.model.buffers()]), torch.zeros(0))
        self.device, self.dtype = tensor.device, tensor.dtype
        # The precision of forwards: a half type for autocast, None for the model's own.
        self.precision = precision
        self.forwards = 0
        self._seen: list[Tensor] = []
        self._hook = self._tap()
        self._run = torch.compile(self._forward) if compile else self._forward

    @property
    def head(self) -> nn.Module:
        if self.head_name is None:
            raise ValueError(
                f"No nn.Linear was found in {self.name}, so its head is not known: name the layer "
                "that maps features to logits, as in head='classifier'."
            )
        return self.model.get_submodule(self.head_name)

    @property
    def rows(self) -> Tensor:
        """The head's weight, one row a class, (classes, feature size), in float32 at least."""
        return at_least_float32(self.head.weight.detach().flatten(1))  # type: ignore[operator]

    @property
    def classes(self) -> int:
        return self.rows.shape[0]

    def prepare(self, images: Tensor) -> Tensor:
        """Images on the model's device, in its type and memory format."""
        images = images.detach().to(self.device, self.dtype)
        if images.is_inference():
            images = images.clone()  # autograd cannot save an inference tensor
        if images.ndim == 4:
            images = images.contiguous(memory_format=self.memory_format)
        return images

    def __call__(self, images: Tensor) -> tuple[Tensor | None, Tensor]:
        """Features (None without a head) and logits, both in float32 at least."""
        self.forwards += 1
        # A cached cast of a weight would outlive the step that changes the weight.
        with torch.autocast(
            self.device.type,
            dtype=self.precision,
            enabled=self.precision is not None,
            cache_enabled=False,
        ):
            try:
                seen, logits = self._run(images)
            except torch.OutOfMemoryError:
                raise
            except (RuntimeError, IndexError) as error:
                raise ValueError(
                    f"{self.name} cannot take images of shape {tuple(images.shape)}: {error}"
                ) from error
            finally:
                self._seen.clear()
        if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != len(images):
            shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise ValueError(
                f"{self.name} returned {shape} for {len(images)} images; expected logits of shape "
                "(batch, classes), as a tensor or as an object with .logits."
            )
        features = None if self.head_name is None else self._checked(seen, logits)
        return features, at_least_float32(logits)

    def features(self, images: Tensor) -> Tensor:
        features, _ = self(images)
        self.head  # noqa: B018 (without a head, its error says what to do)
        assert features is not None
        return features

    def plain_model(self) -> nn.Module:
        """A copy of the model as it is now, without the hook."""
        model = copy.deepcopy(self.model)
        if self._hook is not None and self.head_name is not None:
            model.get_submodule(self.head_name)._forward_pre_hooks.pop(self._hook)
        return model

    def _tap(self) -> int | None:
        if self.head_name is None:
            return None
        seen = self._seen

        # A plain function, which a deep copy of the model shares instead of copying.
        def tap(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            seen.append(inputs[0])

        return self.head.register_forward_pre_hook(tap).id

    def _forward(self, images: Tensor) -> tuple[list[Tensor], Tensor]:
        output = self.model(images)
        return list(self._seen), getattr(output, "logits", output)

    def _checked(self, seen: list[Tensor], logits: Tensor) -> Tensor:
        classes, size = self.rows.shape
        shapes = [tuple(each.shape) for each in seen]
        fits = len(seen) == 1 and seen[0].flatten(1).shape == (len(logits), size)
        if fits and logits.shape[1] == classes:
            return at_least_float32(seen[0].flatten(1))
        raise ValueError(
            f"Layer {self.head_name!r} does not look like the head of {self.name}: it has "
            f"{classes} rows of {size} and saw {listed(shapes) or 'nothing'}, while the logits are "
            f"{tuple(logits.shape)}. Name the layer that maps (batch, features) to logits with "
            f"head=…; linear layers here: {listed(linear_layers(self.model))}."
        )


def at_least_float32(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def private_copy(model: nn.Module) -> nn.Module:
    """The model in eval mode, sharing nothing with the caller's."""
    if isinstance(model, torch.jit.ScriptModule):
        raise ValueError("A TorchScript module cannot train: give the nn.Module it was made from.")
    # Outside inference mode, so that the copies can train.
    with torch.inference_mode(False), torch.enable_grad():
        try:
            own = copy.deepcopy(model)
        except RuntimeError as error:
            raise ValueError(
                f"{type(model).__name__} cannot be copied ({error}): it holds a tensor that was "
                "computed from others. Keep only parameters and buffers on the model."
            ) from error
    return own.eval()


def choose_memory_format(model: nn.Module, wish: MemoryFormat) -> torch.memory_format:
    """channels_last for convolutional nets, by default.

    Not with GroupNorm: torch's CPU kernel crashes in its backward where the layer's input is in
    channels_last and needs no gradient, which is so for the first layer when only norms train.
    """
    if wish not in ("auto", "channels_last", "contiguous"):
        raise ValueError(f"memory_format is 'auto', 'channels_last' or 'contiguous', not {wish!r}.")
    kinds = {type(layer) for layer in model.modules()}
    grouped = any(issubclass(kind, nn.GroupNorm) for kind in kinds)
    if wish == "channels_last" and grouped:
        raise ValueError(
            "memory_format='channels_last' with GroupNorm crashes torch on the CPU: leave it at "
            "'auto', which is contiguous here."
        )
    convolutional = any(issubclass(kind, nn.Conv2d) for kind in kinds)
    if wish == "contiguous" or grouped or not convolutional:
        return torch.contiguous_format
    return torch.channels_last


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
            f"Linear layers here: {listed(linear) or 'none'}."
        )
    weight = getattr(layers[name], "weight", None)
    if not isinstance(weight, Tensor) or weight.ndim < 2:
        raise ValueError(
            f"Layer {name!r} is a {type(layers[name]).__name__}; the head needs a weight with one "
            f"row a class. Linear layers here: {listed(linear) or 'none'}."
        )
    return name


def fingerprint(model: nn.Module) -> str:
    """A hash of the model's weights and buffers: names, types, shapes and values."""
    if not isinstance(model, nn.Module):
        raise ValueError(f"The model must be a torch.nn.Module, not {type(model).__name__}.")
    return tensor_hash({**dict(model.named_parameters()), **dict(model.named_buffers())})


def tensor_hash(tensors: Mapping[str, Tensor], text: str = "") -> str:
    """A hash of a text and of named tensors: names, types, shapes and values."""
    digest = hashlib.sha256(text.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()
