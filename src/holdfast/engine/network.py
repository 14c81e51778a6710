"""Any classifier, copied and split into feature extractor and head, with no change to it."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor, nn

from holdfast.engine.checks import channels_come_last, check_logits, refuse_probabilities
from holdfast.engine.heads import (
    Call,
    WrappedHead,
    by_image,
    find_head,
    is_head,
    linear_layers,
    unwatch,
    watch,
)
from holdfast.engine.norms import Normalisation, Statistics, batch_norms
from holdfast.util.files import tensor_hash
from holdfast.util.words import listed

MemoryFormat = Literal["auto", "channels_last", "contiguous"]
Forward = Callable[[Tensor], tuple[list[Call], Tensor]]


class Network:
    """A private copy of a model in eval mode: `calls, logits = network(images)`.

    The head is the last `nn.Linear`, or the layer named by `head`; what it saw and gave is caught
    by a hook, and `feature` makes sure that it saw the feature and gave the logits.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        head: str | None = None,
        memory_format: MemoryFormat = "auto",
        compile: bool = False,
    ):
        self.name = type(model).__name__
        self.model = private_copy(model)
        self.head_name = find_head(self.model, head)
        # Whether the head has to have a row for each class: it was named, or somebody counts on it.
        self.counts_on_head = head is not None
        layers = list(self.model.modules())
        self.is_conv = any(isinstance(layer, nn.Conv2d) for layer in layers)
        self._has_attention = any(isinstance(layer, nn.MultiheadAttention) for layer in layers)
        self._may_retry = memory_format == "auto"
        self._use(choose_memory_format(self.model, memory_format))
        tensor = next(iter([*self.model.parameters(), *self.model.buffers()]), torch.zeros(0))
        self.device, self.dtype = tensor.device, tensor.dtype
        # What is computed from its outputs: in float32 at least.
        self.full_dtype = torch.promote_types(self.dtype, torch.float32)
        # What forwards run in: a half type by autocast, or None for the model's own.
        self.precision: torch.dtype | None = None
        # What batch norm goes by, where it does not stay with the source's statistics.
        self.statistics: Statistics | None = None
        self.forwards = 0
        # Whether the model gives logits as they are; not known before its first forward.
        self.returns_tensor = False
        # What is checked at the first batch of several images: one alone may look right by chance.
        self._gave_logits = self._head_gave_them = False
        self._calls: list[Call] = []
        self._hook = None if self.head_name is None else watch(self.head, self._calls)
        self._run: Forward = self._forward
        self._compiled = compile
        if compile:
            # Newer torch counts recompilations of each network by itself, if told to.
            apart = {"isolate_recompiles"} & inspect.signature(torch.compile).parameters.keys()
            self._run = torch.compile(self._forward, **dict.fromkeys(apart, True))  # type: ignore[call-overload]

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
        self.counts_on_head = True
        return at_least_float32(self._weight.detach().flatten(1))

    @property
    def memory_format_name(self) -> MemoryFormat:
        return "channels_last" if self.memory_format is torch.channels_last else "contiguous"

    @property
    def classes(self) -> int:
        """The rows of the head, which the first batch then has to bear out."""
        self.counts_on_head = True
        return self.head_rows

    @property
    def head_rows(self) -> int:
        """The rows of the head's weight: the number of classes, if the layer is the head."""
        return self._weight.shape[0]

    @property
    def feature_size(self) -> int:
        return math.prod(self._weight.shape[1:])

    @property
    def _weight(self) -> Tensor:
        weight = self.head.weight
        assert isinstance(weight, Tensor)  # find_head has seen to it
        return weight

    def prepare(self, images: Tensor) -> Tensor:
        """Images on the model's device, in its type and memory format."""
        images = images.detach().to(self.device, self.dtype)
        if images.is_inference():
            images = images.clone()  # autograd cannot save an inference tensor
        if images.ndim == 4:
            images = images.contiguous(memory_format=self.memory_format)
        return images

    def uncompiled(self) -> Network:
        """Itself, which from now on runs as it is written: for a pass that watches layers."""
        self._run, self._compiled = self._forward, False
        return self

    @contextmanager
    def as_written(self) -> Iterator[None]:
        """Inside, it runs uncompiled: compiled graphs ignore hooks."""
        run, self._run = self._run, self._forward
        try:
            yield
        finally:
            self._run = run

    def normalise(self, by: Normalisation) -> None:
        """From now on, batch norm goes by these statistics."""
        self.statistics = by.start(batch_norms(self.model))
        if self._compiled and self.statistics is not None:
            self.statistics.leave_graphs()

    @property
    def by_batch(self) -> bool:
        """Whether a batch is normalised by itself, so that one image alone cannot be."""
        return self.statistics is not None and self.statistics.by_batch

    def __call__(
        self, images: Tensor, *, record: bool = False, aside: bool = False
    ) -> tuple[list[Call], Tensor]:
        """What the head saw and gave, and the logits, in float32 at least.

        record: learnt from, so that batch norm records these images.
        aside: normalised as when learning, but nothing is recorded.
        """
        self.forwards += 1
        # A cached cast of a weight would outlive the step that changes the weight.
        with (
            torch.autocast(
                self.device.type,
                dtype=self.precision,
                enabled=self.precision is not None,
                cache_enabled=False,
            ),
            _slow_attention() if self._has_attention else nullcontext(),
            self._normalising(len(images), record, aside),
        ):
            calls, logits = self._run_or_retry(images, recorded=record)
        check_logits(logits, len(images), self.name)
        if self.counts_on_head and self.head_rows != logits.shape[1]:
            raise self._not_the_head(calls, logits)
        if not self._gave_logits:
            refuse_probabilities(logits, self.name)
            self._gave_logits = len(images) > 1
        return calls, at_least_float32(logits)

    def _normalising(self, images: int, record: bool, aside: bool) -> AbstractContextManager[None]:
        if self.statistics is None:
            return nullcontext()
        if images == 1 and self.by_batch:
            return self.statistics.alone()
        if aside:
            return self.statistics.aside(images)
        return self.statistics.recording(images) if record else self.statistics.predicting()

    def feature(self, calls: list[Call], logits: Tensor) -> Tensor:
        """The feature of each image, in float32 at least."""
        if len(calls) == 1 and logits.shape[1] == self.head_rows:
            feature = by_image(at_least_float32(calls[0].input), self.feature_size, self.head)
            if feature is not None and (self._head_gave_them or is_head(self.head, calls, logits)):
                self._head_gave_them = len(logits) > 1
                return feature
        raise self._not_the_head(calls, logits)

    def _not_the_head(self, calls: list[Call], logits: Tensor) -> ValueError:
        shapes = [tuple(call.input.shape) for call in calls]
        return ValueError(
            f"Layer {self.head_name!r} does not look like the head of {self.name}: it has "
            f"{self.head_rows} rows of {self.feature_size} and saw {listed(shapes) or 'nothing'}, "
            f"while the logits are {tuple(logits.shape)}; and its output, averaged over places if "
            "it has any, has to be the logits. Name the layer of which that is so with head=…; "
            "holdfast.doctor(model, images) finds it. Linear layers here: "
            f"{listed(linear_layers(self.model)) or 'none'}."
        )

    def plain_model(self) -> nn.Module:
        """A copy of the model as it is now, without the hook."""
        model = copy.deepcopy(self.model)
        if self._hook is not None and self.head_name is not None:
            unwatch(model.get_submodule(self.head_name), self._hook)
        return model

    def _use(self, memory_format: torch.memory_format) -> None:
        self.memory_format = memory_format
        self.model.to(memory_format=memory_format)  # type: ignore[call-overload]

    def _run_or_retry(self, images: Tensor, *, recorded: bool) -> tuple[list[Call], Tensor]:
        """A model that cannot take channels_last (`x.view(…)`) runs contiguous from then on."""
        try:
            return self._run_once(images)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, IndexError) as error:
            refused = ValueError(
                f"{self.name} cannot take images of shape {tuple(images.shape)}: {error}"
                f"{channels_come_last(tuple(images.shape))}"
            )
            if not self._may_retry or self.memory_format is torch.contiguous_format:
                raise refused from error
        if recorded and self.statistics is not None:
            self.statistics.restore()
        self._use(torch.contiguous_format)
        try:
            return self._run_once(images.contiguous())
        except (RuntimeError, IndexError):
            self._use(torch.channels_last)
            raise refused from None

    def _run_once(self, images: Tensor) -> tuple[list[Call], Tensor]:
        self._calls.clear()
        if self.statistics is not None:
            self.statistics.begin()
        try:
            return self._run(images)
        finally:
            self._calls.clear()

    def _forward(self, images: Tensor) -> tuple[list[Call], Tensor]:
        output = self.model(images)
        self.returns_tensor = isinstance(output, Tensor)
        return list(self._calls), logits_of(output)


@contextmanager
def _slow_attention() -> Iterator[None]:
    """Torch's fast path for attention runs without gradients only, and rounds differently: without
    it, predicting and adapting give the same logits."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def without_autocast(model: nn.Module) -> AbstractContextManager[Any]:
    """Switch the caller's autocast off, on the model's device."""
    tensor = next(iter([*model.parameters(), *model.buffers()]), torch.zeros(0))
    return torch.autocast(tensor.device.type, enabled=False)


def logits_of(output: Any) -> Tensor:
    """A model returns a tensor, or an object with `.logits`."""
    logits: Tensor = getattr(output, "logits", output)
    return logits


def features_and_logits(model: nn.Module, head: str, images: Tensor) -> tuple[Tensor, Tensor]:
    """Features and logits of an exported module: the input of the layer of this name at its first
    call, for each image, and the output of the module; both in float32 at least."""
    inputs_seen: list[Tensor] = []
    layer = model.get_submodule(head)
    with layer.register_forward_pre_hook(lambda _, inputs: inputs_seen.append(inputs[0])):
        logits = at_least_float32(logits_of(model(images)))
    if isinstance(layer, WrappedHead):
        layer = layer.head
    weight = layer.weight
    assert isinstance(weight, Tensor)  # find_head has seen to it
    features = by_image(at_least_float32(inputs_seen[0]), weight[0].numel(), layer)
    assert features is not None  # the adapter has seen to it
    return features, logits


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
        except (RuntimeError, TypeError) as error:
            raise ValueError(
                f"{type(model).__name__} cannot be copied ({error}): keep only parameters, buffers "
                "and plain values on the model."
            ) from error
    return own.eval()


def choose_memory_format(model: nn.Module, wish: MemoryFormat) -> torch.memory_format:
    """channels_last for convolutional nets, by default.

    Not where a weight has five dimensions, for which there is no such format. And not with
    GroupNorm: torch's CPU kernel crashes in its backward where the layer's input is in
    channels_last and needs no gradient, which is so for the first layer when only norms train.
    """
    if wish not in ("auto", "channels_last", "contiguous"):
        raise ValueError(f"memory_format is 'auto', 'channels_last' or 'contiguous', not {wish!r}.")
    kinds = {type(layer) for layer in model.modules()}
    five = any(tensor.ndim > 4 for tensor in model.parameters())
    grouped = any(issubclass(kind, nn.GroupNorm) for kind in kinds)
    if wish == "channels_last" and grouped:
        raise ValueError(
            "memory_format='channels_last' with GroupNorm crashes torch on the CPU: leave it at "
            "'auto', which is contiguous here."
        )
    convolutional = any(issubclass(kind, nn.Conv2d) for kind in kinds)
    if wish == "contiguous" or grouped or (wish == "auto" and (five or not convolutional)):
        return torch.contiguous_format
    return torch.channels_last


def fingerprint(model: nn.Module) -> str:
    """A hash of the model's weights and buffers: names, types, shapes and values."""
    if not isinstance(model, nn.Module):
        raise ValueError(f"The model must be a torch.nn.Module, not {type(model).__name__}.")
    return tensor_hash({**dict(model.named_parameters()), **dict(model.named_buffers())})
