"""The engine: a model that predicts, and adapts to what it sees."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path
from threading import RLock
from typing import Any, Literal

import torch
from torch import Tensor, nn

from holdfast.engine.batch import Examined, Runner
from holdfast.engine.calibrate import calibrate
from holdfast.engine.checks import check_images
from holdfast.engine.export import NotExportable, export
from holdfast.engine.fallback import OVERFLOW
from holdfast.engine.health import HARMS, NOT_CALIBRATED, Health
from holdfast.engine.last import Answer, Last, Watched
from holdfast.engine.network import Network, fingerprint, without_autocast
from holdfast.engine.options import Options
from holdfast.engine.reference import Reference
from holdfast.engine.slots import fill
from holdfast.engine.state import State
from holdfast.engine.step import Step
from holdfast.recipes.compose import Composition
from holdfast.source.source import Source
from holdfast.util import files
from holdfast.util.words import enumerated

KIND = "an adapter state"


class Adapter(NotExportable):
    """`logits = adapter(images)` predicts and adapts. Made by `adapt` and `load`."""

    def __init__(
        self, model: nn.Module, method: Composition, source: Source | None, options: Options
    ):
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
            self._slots = fill(method, model, source, options)
            self._state = State(self._slots, options)
        self._runner = Runner(self._state)
        # Two threads that share an adapter wait for each other.
        self._lock = RLock()
        self.method = self._slots.method
        self.network = self._slots.task.network
        self.last = Last()
        if source is not None:
            self._begin_estimates(model, source)
        if options.guard == "fallback" and self._state.monitor.reference is None:
            raise ValueError(NOT_CALIBRATED)

    def _begin_estimates(self, model: nn.Module, source: Source) -> None:
        """Calibrate estimates of health, if the source has what that takes."""
        slots, network = self._slots, self.network
        if network.head_name is None or not source.can_calibrate(slots.answers):
            return

        def fresh() -> Network:
            return Network(model, head=self.options.head, memory_format=network.memory_format_name)

        def predict(images: Tensor) -> Answer:
            return self._runner.predict(images, len(images))

        with self._full_precision(), without_autocast(model):
            reference = Reference(fresh, source.budgets_of(network, fresh))
            made = source.calibration_of(
                slots.answers, network, lambda batches: calibrate(predict, reference, batches)
            )
        slots.task.taken.update(source.health_names(slots.answers))
        self._state.monitor.begin(reference, made)

    def __repr__(self) -> str:
        network, batches = self.network, int(self._state.batches)
        classes = f", {network.head_rows} classes" if network.head_name else ""
        plural = "" if batches == 1 else "es"
        return f"<Adapter {self.method.names} on {network.name}{classes}: {batches} batch{plural}>"

    @property
    def model(self) -> nn.Module:
        """The adapted network itself, for looking at; take weights from `frozen()`."""
        return self.network.model

    @property
    def prototypes(self) -> Tensor | None:
        """A copy of the class prototypes that a term makes of the stream (debias: P^t), if any."""
        with self._lock:
            prototypes = (term.class_prototypes for term in self._slots.terms)
            return next((known.clone() for known in prototypes if known is not None), None)

    # Predicting and adapting.

    def __call__(self, images: Tensor) -> Tensor:
        """Logits of the images; then the model has adapted to them."""
        with self._lock:
            logits = self._take_in(images)
            for text in self._news():
                warnings.warn(text, stacklevel=2)  # the line that called the adapter
        return logits

    def _take_in(self, images: Tensor) -> Tensor:
        """Answer images and learn from them; `last` is then what that did."""
        with torch.inference_mode(False), self._full_precision():
            start, state = time.perf_counter(), self._state
            undo = state.begin()
            try:
                admitted, newest = self._admit(images)
                recent = state.window.after(admitted)
                if state.fallback.active:
                    logits, did = self._stand_by(admitted, newest)
                else:
                    logits, did = self._conclude(self._runner.examine(admitted, newest), undo)
            except BaseException as error:
                undo()
                self.last = Last(batch=int(state.batches), refused=str(error))
                raise
            if did.refused is None:
                state.window.images = recent
            self.last = replace(did, seconds=time.perf_counter() - start)
        return logits

    def _news(self) -> list[str]:
        """What of the last batch a person should be told."""
        return self.last.news(self.method.names, quiet=self.options.guard == "none")

    def _conclude(self, batch: Examined, undo: Callable[[], None]) -> tuple[Tensor, Last]:
        """Learn from a batch that was examined, if it is good; its answer, and what it did."""
        state, images, newest = self._state, batch.step.images, batch.step.newest
        if batch.problem is None:
            self._runner.commit(batch)
            answer = self._runner.given(batch)
        else:
            undo()
            later = self._slots.prediction.after or self._slots.answers_between
            answer = self._runner.predict(images, newest) if later else self._runner.given(batch)
        proposal, problem = batch.proposal, batch.problem
        due = self._slots.learn is not None and proposal.due
        idle = False
        if due and problem is None:
            # An optimiser that goes on without a term to drive it does not count.
            idle = state.activity(batch.stepped and bool(proposal.losses))
        watched = Watched(answer) if problem else self._watch(images[-newest:], answer)
        logits, uncorrected = watched.answer
        return logits, Last(
            batch=int(state.batches),
            losses=batch.losses,
            images=proposal.images,
            reliable=batch.reliable,
            due=due,
            stepped=batch.stepped,
            step_rate=state.activity.rate,
            hardly_acts=state.activity.hardly_acts,
            inactivity=self.inactivity() if idle else None,
            gradient_norm=batch.gradient_norm,
            refused=problem,
            reset=batch.reset,
            collapsed=watched.collapsed,
            alarm=watched.alarm,
            rolled_back=watched.went_back,
            fallback=bool(state.fallback.active),
            forwards=sum(network.forwards for network in self._slots.networks),
            backwards=proposal.backwards,
            uncorrected=None if uncorrected is logits else uncorrected,
            **self._slots.told(),
            **({} if state.route is None else state.route.told()),
        )

    def _watch(self, images: Tensor, answer: Answer) -> Watched:
        """Update health after a batch was answered, and let the guard act."""
        state, monitor = self._state, self._state.monitor
        measured, frozen = monitor.measure(images, answer) if monitor.due else (None, None)
        alarm = tuple(monitor(answer.uncorrected, measured))
        collapsed = state.collapsed(answer.logits)
        if not state.keeps_healthy:
            return Watched(answer, alarm, collapsed)
        bad = collapsed or HARMS in alarm
        if not bad:
            state.remember()
            return Watched(answer, alarm, collapsed)
        state.go_back()
        if self.options.guard == "fallback":
            state.fallback.start()
            if frozen is not None:  # this batch's too, if the source model has seen it
                answer = Answer(frozen, frozen)
        else:
            monitor.harm.start()
        return Watched(answer, alarm, collapsed, went_back=True)

    def _stand_by(self, images: Tensor, newest: int) -> tuple[Tensor, Last]:
        """Answer with the source model, and see what the healthy state would have answered."""
        state, monitor = self._state, self._state.monitor
        tried = self._runner.predict(images, newest)
        measured, logits = monitor.measure(images[-newest:], tried)
        if measured is None:
            return logits, Last(batch=int(state.batches), refused=OVERFLOW, fallback=True)
        alarm = tuple(monitor(logits, measured, by_source=True))
        if monitor.as_good is not None and state.fallback(monitor.as_good):
            monitor.harm.start()
        state.batches += 1
        return logits, Last(batch=int(state.batches), alarm=alarm, fallback=True)

    @property
    def health(self) -> Health:
        """How the adapter does, as far as that can be told without labels.

        Estimates of drift and accuracy need a source that was calibrated for them:
        `Source.from_loader(model, loader, drifted=holdfast.data.holdout.drifted(loader))`.
        """
        with self._lock:
            state = self._state
            return state.monitor.health(
                state.watch, state.activity.rate, state.distance, bool(state.fallback.active)
            )

    def predict(self, images: Tensor) -> Tensor:
        """What `adapter(images)` would return before any update, with no change to anything."""
        return self.answer(images).logits

    def answer(self, images: Tensor) -> Answer:
        """What `predict` returns, and beside it the logits whose softmax are probabilities: the
        same, but where a method such as `prior` makes scores of them that are none."""
        after = self._slots.prediction.after
        with self._lock, torch.inference_mode(False), self._full_precision():
            batch, newest = self._admit(images, needs_batch=not after)
            reference = self._state.monitor.reference
            if reference is not None and self._state.fallback.active:
                frozen = reference.logits(batch[-newest:])
                return Answer(frozen, frozen)
            return self._runner.predict(batch, newest)

    def features(self, images: Tensor) -> Tensor:
        """What the head of the network that learns is given for these images when they are the
        next batch, (images, feature size); with no change to anything."""
        with self._lock, torch.inference_mode(False), self._full_precision():
            batch, newest = self._admit(images)
            # Where it predicts between steps, a batch is not what it learns from.
            learnt_from = not self._slots.answers_between
            return Step(self.network, batch, aside=learnt_from).features[-newest:]

    def _full_precision(self) -> AbstractContextManager[Any]:
        """Forwards run in the precision asked for, or the caller's autocast; all else in full."""
        kind = self.network.device.type
        precision = None
        if self.options.precision is not None:
            precision = getattr(torch, self.options.precision)
        elif torch.is_autocast_enabled(kind):
            precision = torch.get_autocast_dtype(kind)
        reference = self._state.monitor.reference
        beside = [] if reference is None else reference.networks
        for network in [*self._slots.networks, *beside]:
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
                "last W images; add +steady, which takes single images; or give larger batches."
            )
        return batch, newest

    def inactivity(self) -> str:
        """What a person should know of a method that hardly acts."""
        known = self.network.head_name is not None
        advice = "; ".join(self.method.advice(self.network.head_rows) if known else []) or (
            "its filters leave out nearly every image; `holdfast card` shows what they are"
        )
        return (
            f"{self.method.names} took {100 * (self.last.step_rate or 0):.0f} of the last 100 "
            f"steps that it could have taken, so that it hardly adapts: {advice}."
        )

    # State.

    def reset(self) -> None:
        """Start again, as fresh as at the beginning."""
        with self._lock:
            self._state.reset()
            self.last = Last()

    def save(self, path: str | Path, *, images: bool = True) -> None:
        """Write all that `holdfast.load` needs to go on, but replay images.

        images: whether images of the stream are written, where any are kept (a window, RoTTA's
            memory; `holdfast card` says which methods do). Without them the file says what was
            left out, and a loaded adapter begins with an empty window or memory: it goes on with
            all that was learnt, but not bit for bit.
        """
        header: dict[str, Any] = {
            "model": self.model_hash,
            "method": str(self.method),
            "options": asdict(self.options),
            "head": self.network.head_name,
            "fisher_samples": None if self.source is None else self.source.fisher_samples,
        }
        with self._lock:
            tensors = self._state.saved(images=images)
            extra = self._state.extra_state()
            if not images and extra:  # a file of a state without images is the same either way
                header["left_out"] = sorted({name.partition("/")[0] for name in extra})
            if self.source is not None and self._slots.task.taken:
                wanted = tuple(self._slots.task.taken)
                taken = {n: t for n, t in self.source.tensors.items() if n.startswith(wanted)}
                tensors |= {f"source/{name}": value for name, value in taken.items()}
            files.write(path, KIND, header, tensors)

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over the state in the tensors of a saved file."""
        self._state.load(tensors)

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
        with self._lock:
            return export(self._slots, self.options, calibrate, statistics)
