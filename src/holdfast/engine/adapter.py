"""The engine: a model that predicts, and adapts to what it sees."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from threading import RLock
from typing import Any, Literal, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from holdfast.engine.checks import check_images
from holdfast.engine.collapse import Watch
from holdfast.engine.draws import Draws
from holdfast.engine.export import KeepsLearning, export
from holdfast.engine.last import Last, inspect
from holdfast.engine.network import Network, fingerprint, without_autocast
from holdfast.engine.options import Options
from holdfast.engine.state import HELD, SINCE_0_1, State, learnt
from holdfast.engine.step import Step
from holdfast.engine.task import Task
from holdfast.engine.window import Window
from holdfast.parts.learn import Proposal
from holdfast.parts.predict import Predicted
from holdfast.recipes.compose import Composition
from holdfast.source.source import Source
from holdfast.util import files
from holdfast.util.words import enumerated

KIND = "an adapter state"
TOO_FAR = "logits after the update are NaN or Inf. reset(), and take a lower learning rate."

P = ParamSpec("P")
R = TypeVar("R")


def _one_at_a_time(method: Callable[P, R]) -> Callable[P, R]:
    """Two threads that share an adapter wait for each other."""

    @wraps(method)
    def locked(*args: P.args, **kwargs: P.kwargs) -> R:
        with args[0]._lock:  # type: ignore[attr-defined]
            return method(*args, **kwargs)

    return locked


class Adapter(KeepsLearning):
    """`logits = adapter(images)` predicts and adapts. Made by `adapt` and `load`."""

    _healthy: dict[str, Tensor]
    _latest: dict[str, Tensor]

    def __init__(
        self, model: nn.Module, method: Composition, source: Source | None, options: Options
    ):
        self.method = method
        self.options = options
        self.source = source
        self.model_hash = fingerprint(model)
        if source is not None:
            if not isinstance(source, Source):
                raise ValueError(f"source is a holdfast.Source, not {type(source).__name__}.")
            source.check_model(self.model_hash)
        elif method.needs:
            raise ValueError(
                f"{method.names} needs {enumerated(method.needs)} of the source data: pass "
                "source=holdfast.Source.from_loader(model, loader)."
            )
        # What is made here must be able to train, whatever mode the caller is in.
        with torch.inference_mode(False), torch.enable_grad(), without_autocast(model):
            self._state = self._fill_slots(model)
            self._fresh = self._state.copied()
            self._fresh_draws = self._draws.state
        self._set_aside(learnt(self._fresh))
        self._lock = RLock()
        self.last = Last()

    def __repr__(self) -> str:
        network, batches = self.network, int(self._state.batches)
        classes = f", {network.head_rows} classes" if network.head_name else ""
        plural = "" if batches == 1 else "es"
        return f"<Adapter {self.method.names} on {network.name}{classes}: {batches} batch{plural}>"

    def _fill_slots(self, model: nn.Module) -> State:
        options = self.options
        given = [model]

        def fresh() -> Network:
            return Network(
                given[0],
                head=options.head,
                memory_format=options.memory_format,
                compile=options.compile,
            )

        self.network = fresh()
        if self.network.head_name is not None:
            method = self.method.for_classes(self.network.head_rows)
            self.network.counts_on_head |= method != self.method
            self.method = method
        host, methods = self.method.host, self.method.methods
        selection = host.selection()
        chosen = selection.parameters(self.network, host.name)
        self.network.normalise(selection.statistics, selection.momentum)
        self._draws = Draws(options.seed, self.network.device)
        self._task = task = Task(
            self.network, chosen, selection, self.source, self._draws, options.input_range, fresh
        )
        self._terms = [term for one in methods for term in one.terms(task)]
        self._prediction = host.prediction(task)
        self._upkeep = [rule for one in methods for rule in one.upkeep(task)]
        # A term may have parts that train along, such as a projector.
        beside = {
            f"{term.label}.{name}": parameter
            for term in self._terms
            for name, parameter in term.named_parameters()
        }
        self._learn = host.learning(task, {**chosen, **beside})
        for one in methods:
            one.prepare(task, self._learn)
        for network in task.companions:  # such as a teacher, which may be all that predicts
            network.counts_on_head |= self.network.counts_on_head
        given.clear()  # the caller's model is the caller's again
        self._watch = Watch(self.network.head_rows) if self.network.head_name else None
        window = Window(options.window)
        return State(
            task, self._terms, self._prediction, self._upkeep, self._learn, self._watch, window
        )

    @property
    def _adapts(self) -> bool:
        """Whether what it predicts changes along a stream."""
        return self._learn is not None or bool(self._prediction.state_dict())

    @property
    def model(self) -> nn.Module:
        """The adapted network itself, for looking at; take weights from `frozen()`."""
        return self.network.model

    @property
    @_one_at_a_time
    def prototypes(self) -> Tensor | None:
        """A copy of the class prototypes that a term keeps of the stream (debias: P^t), if any."""
        # Those of the source are no state of a term, since they never change.
        states = (term.state_dict() for term in self._terms)
        return next((s["prototypes"].clone() for s in states if "prototypes" in s), None)

    # Predicting and adapting.

    @_one_at_a_time
    def __call__(self, images: Tensor) -> Tensor:
        """Logits of the images; then the model has adapted to them."""
        start = time.perf_counter()
        with torch.inference_mode(False), self._full_precision():
            before = self._state.begin()
            try:
                batch, newest = self._admit(images)
                recent = self._state.window.after(batch)
                step, predicted, proposal = self._look(batch, newest)
                found = inspect([predicted.logits, *step.looked_at()], proposal)
            except BaseException as error:
                self._state.undo(before)
                self.last = Last(batch=int(self._state.batches), refused=str(error))
                raise
            problem = found.problem
            stepped = problem is None and proposal.gradient_norm is not None
            if problem is None:
                self._commit(predicted, proposal)
                self._state.window.images = recent
            else:
                self._state.undo(before)
            logits = predicted.logits
            if self._prediction.after:
                logits = self._predict(batch, newest)
                if stepped and not logits.isfinite().all():
                    problem = f"{self.method.names} went too far: {TOO_FAR}"
            logits = logits.detach()[-newest:]
            due = self._learn is not None and proposal.due
            idle = False
            if due and problem is None:
                # An optimiser that goes on without a term to drive it does not count.
                idle = self._state.activity(stepped and bool(proposal.losses))
            collapsed = problem is None and self._collapsed(logits)
        self.last = Last(
            batch=int(self._state.batches),
            losses=found.losses,
            images=proposal.images,
            reliable=None if step.reliable_count is None else int(step.reliable_count),
            due=due,
            stepped=stepped,
            step_rate=self._state.activity.rate,
            hardly_acts=self._state.activity.hardly_acts,
            gradient_norm=found.gradient_norm,
            refused=problem,
            collapsed=collapsed,
            rolled_back=collapsed and self.options.rollback,
            forwards=sum(network.forwards for network in self._state.networks),
            backwards=proposal.backwards,
            seconds=time.perf_counter() - start,
        )
        self._warn(idle)
        return logits

    @_one_at_a_time
    def predict(self, images: Tensor) -> Tensor:
        """What `adapter(images)` would return before any update, with no change to anything."""
        with torch.inference_mode(False), self._full_precision(), self._draws.kept():
            batch, newest = self._admit(images, needs_batch=not self._prediction.after)
            return self._predict(batch, newest)[-newest:]

    @_one_at_a_time
    def features(self, images: Tensor) -> Tensor:
        """What the head of the network that learns is given for these images when they are the
        next batch, (images, feature size); with no change to anything."""
        with torch.inference_mode(False), self._full_precision():
            batch, newest = self._admit(images)
            return Step(self.network, batch, aside=True).features[-newest:]

    @torch.no_grad()
    def _predict(self, batch: Tensor, newest: int) -> Tensor:
        logits: Tensor = self._prediction(Step(self.network, batch, newest=newest)).logits
        return logits

    def _full_precision(self) -> AbstractContextManager[Any]:
        """Forwards run in the precision asked for, or the caller's autocast; all else in full."""
        kind = self.network.device.type
        precision = None
        if self.options.precision is not None:
            precision = getattr(torch, self.options.precision)
        elif torch.is_autocast_enabled(kind):
            precision = torch.get_autocast_dtype(kind)
        for network in self._state.networks:
            network.precision = precision
        return torch.autocast(kind, enabled=False)

    def _admit(self, images: Tensor, *, needs_batch: bool = True) -> tuple[Tensor, int]:
        """The batch to look at, which is the window if there is one, and how many are new."""
        convolutional = self.network.is_conv
        images = check_images(images, self.options.input_range, convolutional=convolutional)
        joined = self._state.window.join(self.network.prepare(images))
        batch, newest = self.network.prepare(joined), len(images)
        alone = len(batch) == 1 and self.options.window is None
        if alone and self.network.by_batch and needs_batch:
            raise ValueError(
                f"A batch of one image: {self.method.names} normalises by batch statistics, and "
                "one image has none. Pass window=W to adapt(), to normalise and learn over the "
                "last W images; or give larger batches."
            )
        return batch, newest

    def _look(self, batch: Tensor, newest: int) -> tuple[Step, Predicted, Proposal]:
        """What is predicted, and what there is to learn from the batch."""
        lone = len(batch) == 1 and self.network.by_batch
        learn = None if lone else self._learn
        step = Step(self.network, batch, learning=learn is not None, record=True, newest=newest)
        if lone:
            # It leaves no trace: neither learnt from nor drawn for.
            with torch.no_grad(), self._draws.kept():
                logits = self._prediction(step).logits
                return step, Predicted(logits), Proposal(due=False)
        with torch.no_grad():
            # What is predicted after the update is not known yet, but whether logits are finite.
            if self._prediction.after:
                predicted = Predicted(step.logits.detach())
            else:
                predicted = step.once(self._prediction.forward)
        with torch.enable_grad():
            proposal = Proposal() if learn is None else learn.propose(step, self._terms)
        return step, predicted, proposal

    @torch.no_grad()
    def _commit(self, predicted: Predicted, proposal: Proposal) -> None:
        for commit in (*proposal.commits, predicted.commit):
            if commit is not None:
                commit()
        stepped = self._learn is not None and proposal.gradient_norm is not None
        if self._learn is not None and stepped:
            self._learn.apply()
        self._state.batches += 1
        for rule in self._upkeep:
            if stepped or rule.after == "batch":
                rule(self, proposal)

    def _collapsed(self, logits: Tensor) -> bool:
        """Whether predictions have just collapsed; with rollback, go back to a healthy state."""
        if self._watch is None or not self._adapts or not self._watch.fits(logits):
            return False
        if not self._watch(logits.argmax(1)):
            if self.options.rollback and self._watch.settled():
                self._healthy, self._latest = self._latest, self._state.learnt()
            return False
        if self.options.rollback:
            self._state.write(self._healthy)
            if self._learn is not None:
                self._learn.hold({})  # what it held was seen with the collapsed model's eyes
            self._set_aside(self._healthy)
            self._watch.start()
        return True

    def _warn(self, idle: bool) -> None:
        """Say what of the last batch a person should know; of one that hardly acts, once."""
        found = [*self.last.news(self.method.names), *([self.inactivity()] if idle else [])]
        for text in found:
            warnings.warn(text, stacklevel=4)  # the line that called the adapter

    def inactivity(self) -> str:
        """What a person should know of a method that hardly acts."""
        known = self.network.head_name is not None
        advice = self.method.advice(self.network.head_rows) if known else []
        return self.last.inactivity(self.method.names, advice)

    def _set_aside(self, healthy: dict[str, Tensor]) -> None:
        """For rollback: a state known to be healthy, and a later one not known to be so yet."""
        self._healthy = self._latest = healthy

    # State.

    @_one_at_a_time
    def reset(self) -> None:
        """Start again, as fresh as at the beginning."""
        self._state.write(self._fresh)
        self._draws.state = self._fresh_draws
        self._set_aside(learnt(self._fresh))
        self._state.hold({})
        self.last = Last()

    def forget(self, *, optimizer: bool = True) -> None:
        """Take back what was learnt: weights, averages, the optimiser's state too if not told
        otherwise. Counters go on."""
        self._state.write(learnt(self._fresh, optimizer=optimizer))

    @_one_at_a_time
    def save(self, path: str | Path) -> None:
        """Write all that `holdfast.load` needs to go on, but replay images."""
        header = {
            "model": self.model_hash,
            "method": str(self.method),
            "options": asdict(self.options),
            "head": self.network.head_name,
            "fisher_samples": None if self.source is None else self.source.fisher_samples,
        }
        tensors = {**self._state.live(), **self._state.held(), "draws": self._draws.state}
        if self.options.rollback:
            tensors |= {f"healthy/{name}": value for name, value in self._healthy.items()}
            # A copy, since the two may be one, and a file holds no tensor twice.
            tensors |= {f"latest/{name}": value.clone() for name, value in self._latest.items()}
        if self.source is not None and self._task.taken:
            wanted = tuple(self._task.taken)
            kept = {n: t for n, t in self.source.tensors.items() if n.startswith(wanted)}
            tensors |= {f"source/{name}": value for name, value in kept.items()}
        files.write(path, KIND, header, tensors)

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over the state in the tensors of a saved file."""
        names = [n for n in self._state.live() if n in tensors or not n.endswith(SINCE_0_1)]
        self._state.write({name: tensors[name] for name in names})
        for network in self._state.networks:
            if network.statistics is not None:
                network.statistics.loaded()
        self._draws.state = tensors["draws"]
        self._state.hold({name: tensors[name] for name in tensors if name.startswith(HELD)})
        if self.options.rollback:
            self._healthy = files.under("healthy/", tensors)
            self._latest = files.under("latest/", tensors)

    @_one_at_a_time
    def frozen(
        self,
        calibrate: Iterable[Any] | None = None,
        *,
        statistics: Literal["stream", "batch"] = "stream",
    ) -> nn.Module:
        """A plain eval-mode module with what was learnt, for export and for single images.

        Batch norm layers get the average statistics of the stream's recent batches, or of the
        batches of the loader `calibrate`. With statistics="batch" they normalise each batch by
        itself, as `predict` does, exactly so in the same precision and memory format.
        """
        return export(self._prediction, self.options, calibrate, statistics)
