"""A step that several streams take at once: one forward, one backward, each by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from holdfast.engine.apart import Apart, BatchApart, StreamStep, go_back
from holdfast.engine.batch import Examined
from holdfast.engine.blend import BlendedStatistics
from holdfast.engine.blend_apart import BlendApart
from holdfast.engine.held import Held
from holdfast.engine.last import Last
from holdfast.engine.moments import Groups
from holdfast.engine.norms import BatchStatistics
from holdfast.engine.steady import SteadyStatistics
from holdfast.engine.steady_apart import SteadyApart
from holdfast.engine.step import Step
from holdfast.engine.turns import Turns
from holdfast.parts.learn import FLOAT16_SCALE, PlainStep, Proposal
from holdfast.parts.predict import Predicted
from holdfast.parts.terms import Pull

# By what batch norm layers go by: how they do that for several streams at once.
APART: Mapping[type, Callable[..., Apart]] = {
    type(None): BatchApart,
    BatchStatistics: BatchApart,
    SteadyStatistics: SteadyApart,
    BlendedStatistics: BlendApart,
}


class Admitted(NamedTuple):
    """A stream with images that were checked.

    images: with those of its window before them; newest: how many are new; recent: what the
    window is to hold.
    """

    held: Held
    images: Tensor
    newest: int
    recent: Tensor | None


class Served(NamedTuple):
    """What came of a stream's images."""

    logits: Tensor
    held: Held
    last: Last


@dataclass
class Member:
    """A stream in a step of several: its part of the forward, and what it makes of that.

    gradients: those that did not go through the forward, such as that of an anchor, by name.
    """

    stream: Admitted
    step: StreamStep
    answer: list[Predicted] = field(default_factory=list)
    proposal: Proposal = field(default_factory=Proposal)
    gradients: dict[str, Tensor] = field(default_factory=dict)
    draws: Tensor | None = None


class Abreast(Turns):
    """Serves streams in turn; and several at once, where `groups` says that it can."""

    @cached_property
    def groups(self) -> bool:
        """Whether several can be served at once."""
        return self._can_group()

    def _bound(self) -> dict[str, Mapping[str, Tensor]]:
        if not self.groups:
            return {}
        # Optimisers, norm layers and what watches a stream change theirs in place.
        state, learn, by = self._state, self._slots.learn, self.network.statistics
        watching = {"watch": state.watch, "activity": state.activity, "health": state.monitor}
        return {
            "model": self._slots.task.parameters,
            "optimizer": {} if learn is None else learn.tensors(),
            "statistics/0": {} if by is None else by.tensors,
            **{
                part: {} if module is None else module.state_dict(keep_vars=True)
                for part, module in watching.items()
            },
        }

    def _can_group(self) -> bool:
        """Whether all that differs between streams in a forward is in batch norm layers, which can
        keep them apart, and a step is a plain one."""
        slots, options = self._slots, self.options
        plain = slots.learn is None or type(slots.learn) is PlainStep
        pulled = any(isinstance(term, Pull) for term in slots.terms)
        # The source model answers some streams then, and not others.
        alike = not options.compile and options.guard != "fallback"
        return self.method.groups and plain and not pulled and alike and self._norms_hold_all()

    def _norms_hold_all(self) -> bool:
        layers = self._layers()
        by, trained = self.network.statistics, self._slots.task.parameters.values()
        own = {id(weight) for layer in layers.values() for weight in layer.parameters()}
        # A layer that is called otherwise than batch norm is may do more than normalise.
        usual = all(type(layer).forward is _BatchNorm.forward for layer in layers.values())
        return type(by) in APART and usual and all(id(weight) in own for weight in trained)

    def _layers(self) -> dict[str, _BatchNorm]:
        by = self.network.statistics
        return {} if by is None else by.layers

    def admit(self, held: Held, images: Tensor) -> Admitted:
        """Check a stream's images, and put them behind those of its window."""
        window, self._in_place = self._state.window, None
        kept = held.extra.get("window")
        with torch.inference_mode(False):
            window.images = None if kept is None else self.network.prepare(kept)
            batch, newest = self._admit(images)
            return Admitted(held, batch, newest, window.after(batch))

    def serve_together(self, streams: Sequence[Admitted]) -> list[Served | Exception]:
        """Take the images of several streams, all of one shape, through the network at once. An
        error before the first has learnt is raised, and has changed nothing."""
        start = time.perf_counter()
        self._in_place = None
        with torch.inference_mode(False), self._full_precision():
            try:
                whole, apart = self._forward(streams)
                members = self._examine(streams, whole)
            finally:
                self._clear()
            served = [self._finish(member, apart, i) for i, member in enumerate(members)]
        share = (time.perf_counter() - start) / len(streams)
        return [
            outcome._replace(last=replace(outcome.last, seconds=share))
            if isinstance(outcome, Served)
            else outcome
            for outcome in served
        ]

    def _set_apart(self, streams: Sequence[Admitted]) -> Apart:
        """Norm layers with what each stream has in them."""
        helds, parameters = [stream.held for stream in streams], self._slots.task.parameters
        stacked = self.layout.stacked([f"model/{name}" for name in parameters], helds)
        trained = {n: stacked[f"model/{n}"].detach().requires_grad_(True) for n in parameters}
        images = Groups.in_order([len(stream.images) for stream in streams], self.network.device)
        by = self.network.statistics
        return APART[type(by)](by, images, parameters, trained)

    def _forward(self, streams: Sequence[Admitted]) -> tuple[Step, Apart]:
        """All images at once, each stream's by itself where it matters."""
        apart, memory_format = self._set_apart(streams), self.network.memory_format
        images = self.network.prepare(torch.cat([stream.images for stream in streams]))
        whole = Step(self.network, images, learning=self._slots.learn is not None)
        with apart.in_place():
            whole.logits  # noqa: B018 (made here)
        if self.network.memory_format is not memory_format:
            # The network began again on the way, and norm layers took some images in twice.
            return self._forward(streams)
        return whole, apart

    def _examine(self, streams: Sequence[Admitted], whole: Step) -> list[Member]:
        """What each stream makes of its part; and one backward."""
        members, first = [], 0
        for stream in streams:
            step = StreamStep(whole, stream.images, first, stream.newest)
            first += len(stream.images)
            members.append(self._ask(Member(stream, step)))
        if any(member.proposal.stepped for member in members):
            go_back(whole, [member.step for member in members])
        return members

    def _ask(self, member: Member) -> Member:
        """What a stream makes of its part, with its own state in place."""
        self.put(member.stream.held)
        self._in_place = None
        member.answer, member.proposal = self._runner.consider(member.step, [])
        member.draws = self._state.draws.state
        learn = self._slots.learn
        if isinstance(learn, PlainStep):
            member.gradients = {
                name: weight.grad
                for name, weight in learn.parameters.items()
                if weight.grad is not None
            }
            learn.clear()
        return member

    def _finish(self, member: Member, apart: Apart, place: int) -> Served | Exception:
        """Have a stream learn from what it found; an error is its own."""
        stream, state = member.stream, self._state

        def undo() -> None:
            self._in_place = None
            self.put(stream.held)

        try:
            undo()
            self._in_place = None
            assert member.draws is not None  # `_ask` has seen to it
            state.draws.state = member.draws
            apart.take_in(place)
            self.network.forwards = 1
            if member.proposal.stepped:
                self._set_gradients(member, apart, place)
            batch = Examined(member.step, member.answer, member.proposal)
            logits, did = self._conclude(batch, undo)
            if did.refused is None:
                state.window.images = stream.recent
            return Served(logits, self.take(), did)
        except Exception as error:
            return error
        finally:
            self._clear()

    def _set_gradients(self, member: Member, apart: Apart, place: int) -> None:
        """Those through the forward, and those beside it."""
        learn, proposal, beside = self._slots.learn, member.proposal, member.gradients
        assert isinstance(learn, PlainStep)  # it has stepped
        names, rows = apart.gradients
        row = rows[place]
        if self.network.precision is torch.float16:
            row = row / FLOAT16_SCALE
        sizes = [learn.parameters[name].numel() for name in names]
        gradients = dict(zip(names, torch.split(row, sizes), strict=True))
        if both := [name for name in names if name in beside]:
            added = [beside[name].reshape(-1) for name in both]
            torch._foreach_add_([gradients[name] for name in both], added)
        others = {name: gradient for name, gradient in beside.items() if name not in gradients}
        for name, weight in learn.parameters.items():
            gradient = gradients.get(name, others.get(name))
            weight.grad = None if gradient is None else gradient.to(weight.dtype).view_as(weight)
        proposal.gradient_norm = torch.nn.utils.get_total_norm([row, *others.values()])

    def _clear(self) -> None:
        if self._slots.learn is not None:
            self._slots.learn.clear()
