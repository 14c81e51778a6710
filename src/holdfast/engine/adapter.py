"""The engine: a model that predicts, and adapts to what it sees."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from threading import RLock
from typing import Any, Literal

import torch
from torch import Tensor, nn

from holdfast.engine.batch import Runner
from holdfast.engine.checks import check_images
from holdfast.engine.export import NotExportable, export
from holdfast.engine.last import Last
from holdfast.engine.network import fingerprint, without_autocast
from holdfast.engine.options import Options
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
        self.method = self._slots.method
        self.network = self._slots.task.network
        # Two threads that share an adapter wait for each other.
        self._lock = RLock()
        self.last = Last()

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
            found = (term.class_prototypes for term in self._slots.terms)
            return next((known.clone() for known in found if known is not None), None)

    # Predicting and adapting.

    def __call__(self, images: Tensor) -> Tensor:
        """Logits of the images; then the model has adapted to them."""
        with self._lock, torch.inference_mode(False), self._full_precision():
            start, state = time.perf_counter(), self._state
            undo = state.begin()
            try:
                admitted, newest = self._admit(images)
                recent = state.window.after(admitted)
                batch = self._runner.examine(admitted, newest)
            except BaseException as error:
                undo()
                self.last = Last(batch=int(state.batches), refused=str(error))
                raise
            if batch.problem is None:
                self._runner.commit(batch)
                state.window.images = recent
                logits = batch.logits
            else:
                undo()
                after = self._slots.prediction.after
                logits = self._runner.predict(admitted, newest) if after else batch.logits
            learn, proposal, problem = self._slots.learn, batch.proposal, batch.problem
            due = learn is not None and proposal.due
            idle = False
            if due and problem is None:
                # An optimiser that goes on without a term to drive it does not count.
                idle = state.activity(batch.stepped and bool(proposal.losses))
            collapsed = problem is None and state.collapsed(logits)
            self.last = Last(
                batch=int(state.batches),
                losses=batch.losses,
                images=proposal.images,
                reliable=batch.step.reliable_count,
                due=due,
                stepped=batch.stepped,
                step_rate=state.activity.rate,
                hardly_acts=state.activity.hardly_acts,
                gradient_norm=batch.gradient_norm,
                refused=problem,
                collapsed=collapsed,
                rolled_back=collapsed and self.options.rollback,
                forwards=sum(network.forwards for network in self._slots.networks),
                backwards=proposal.backwards,
                seconds=time.perf_counter() - start,
            )
            told = [*self.last.news(self.method.names), *([self.inactivity()] if idle else [])]
            for text in told:
                warnings.warn(text, stacklevel=2)  # the line that called the adapter
        return logits

    def predict(self, images: Tensor) -> Tensor:
        """What `adapter(images)` would return before any update, with no change to anything."""
        after = self._slots.prediction.after
        with self._lock, torch.inference_mode(False), self._full_precision():
            batch, newest = self._admit(images, needs_batch=not after)
            return self._runner.predict(batch, newest)

    def features(self, images: Tensor) -> Tensor:
        """What the head of the network that learns is given for these images when they are the
        next batch, (images, feature size); with no change to anything."""
        with self._lock, torch.inference_mode(False), self._full_precision():
            batch, newest = self._admit(images)
            return Step(self.network, batch, aside=True).features[-newest:]

    def _full_precision(self) -> AbstractContextManager[Any]:
        """Forwards run in the precision asked for, or the caller's autocast; all else in full."""
        kind = self.network.device.type
        precision = None
        if self.options.precision is not None:
            precision = getattr(torch, self.options.precision)
        elif torch.is_autocast_enabled(kind):
            precision = torch.get_autocast_dtype(kind)
        for network in self._slots.networks:
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

    def save(self, path: str | Path) -> None:
        """Write all that `holdfast.load` needs to go on, but replay images."""
        header = {
            "model": self.model_hash,
            "method": str(self.method),
            "options": asdict(self.options),
            "head": self.network.head_name,
            "fisher_samples": None if self.source is None else self.source.fisher_samples,
        }
        with self._lock:
            tensors = self._state.saved()
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
