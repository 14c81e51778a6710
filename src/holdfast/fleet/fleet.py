"""Many streams, one network: what a person holds."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from holdfast.api import composition_of
from holdfast.engine.abreast import Abreast
from holdfast.engine.checks import InputRange
from holdfast.engine.health import Guard, Health, HealthOptions
from holdfast.engine.held import Held
from holdfast.engine.last import Last
from holdfast.engine.network import MemoryFormat
from holdfast.engine.options import Options, Precision
from holdfast.fleet.folder import Folder, HeldError, OtherFleetError, StateError, TakenOverError
from holdfast.fleet.seat import Seat, check_name, unknown
from holdfast.fleet.sharing import Sharing
from holdfast.fleet.together import as_one, in_rounds, serve
from holdfast.recipes.base import Method
from holdfast.recipes.compose import Composition
from holdfast.source.source import Source
from holdfast.util.files import tensor_hash
from holdfast.util.words import first_line


class Fleet:
    """Many streams, each adapted to by itself, over one network that they share.

    logits = fleet("camera-7", images): as an adapter of its own would answer; a stream begins with
    its first images. fleet.step({"camera-7": x7, "camera-9": x9}) takes several at once.

    What differs between streams is held for each, everything else once. Where the method trains
    batch norm layers only, `step` is one forward and one backward for all; `holdfast card` says of
    which methods. A fleet is for one thread: a server that has several takes a lock around it.

    folder: where streams are saved; those that are found there go on. A stream is saved by `save`,
        and when it has to leave memory. Several processes may share a folder: a stream belongs to
        the one that learnt from it last, and another that still has it cannot save it. One that a
        server has is refused.
    resident: at most so many streams in memory; the one that was not used for longest is saved and
        dropped, and comes back when it is next asked for.

    The other arguments are those of `holdfast.adapt`.

    >>> import torch, holdfast
    >>> from holdfast.models import resnet20
    >>> fleet = holdfast.Fleet(resnet20(10), "tent", folder="streams")
    >>> logits = fleet.step({"front": torch.rand(4, 3, 32, 32), "back": torch.rand(6, 3, 32, 32)})
    >>> logits["back"].shape, fleet.last("front").stepped
    (torch.Size([6, 10]), True)
    >>> fleet.save()
    >>> fleet.streams()
    ['back', 'front']
    """

    def __init__(
        self,
        model: nn.Module,
        *method: str | Method | Composition,
        source: Source | None = None,
        folder: str | Path | None = None,
        resident: int | None = None,
        preset: str | None = None,
        seed: int = 0,
        head: str | None = None,
        input_range: InputRange = (0.0, 1.0),
        window: int | None = None,
        memory_format: MemoryFormat = "auto",
        compile: bool = False,
        precision: Precision | None = None,
        guard: Guard = "alarm",
        health: HealthOptions | None = None,
    ):
        if resident is not None and (not isinstance(resident, int) or resident < 1):
            raise ValueError(f"resident is a number of streams, at least 1, not {resident!r}.")
        if resident is not None and folder is None:
            raise ValueError(
                f"resident={resident} has streams leave memory, which takes a folder to save them "
                "in: pass folder=…, or leave resident out."
            )
        options = Options(
            seed=seed,
            head=head,
            input_range=input_range,
            window=window,
            memory_format=memory_format,
            compile=compile,
            precision=precision,
            guard=guard,
            health=HealthOptions() if health is None else health,
        )
        self._network = Abreast(model, composition_of(method, preset), source, options)
        self.resident = resident
        # The stream that was used last comes last.
        self._seats: dict[str, Seat] = {}
        self._folder = None if folder is None else Folder(folder, self._identity())
        # For servers that share the folder, and hand streams over to each other.
        self.sharing = None if self._folder is None else Sharing(self._folder)

    def _identity(self) -> dict[str, str]:
        network = self._network
        return {
            "model": network.model_hash,
            "method": str(network.method),
            "fresh": tensor_hash(network.layout.fresh),
        }

    def __repr__(self) -> str:
        network = self._network
        return (
            f"<Fleet {network.method.names} on {network.network.name}: {len(self)} streams, "
            f"{len(self._seats)} in memory>"
        )

    # Predicting and adapting.

    def __call__(self, stream: str, images: Tensor) -> Tensor:
        """Logits of a stream's images; then its state has adapted to them."""
        return self._step({stream: images}, None)[stream]

    def step(
        self, batches: Mapping[str, Tensor], refused: dict[str, Exception] | None = None
    ) -> dict[str, Tensor]:
        """Logits of images of several streams, each of which then has adapted to its own.

        Images that cannot be taken change nothing for their stream, and nothing for the others.
        When these are done the error is raised; or, if `refused` is given, put into it by stream,
        and the logits of the others are returned.
        """
        return self._step(batches, refused)

    def _step(
        self, batches: Mapping[str, Tensor], refused: dict[str, Exception] | None
    ) -> dict[str, Tensor]:
        for stream in batches:
            check_name(stream)
        found: dict[str, Tensor] = {}
        errors: dict[str, Exception] = {}
        for streams in in_rounds(list(batches), self.resident):
            seats: dict[str, Seat] = {}
            for stream in streams:
                try:
                    seats[stream] = self._seat(stream, keep=seats)
                except (ValueError, OSError) as error:
                    errors[stream] = error
            served = serve(self._network, seats, batches)
            for stream, result in served.items():
                if isinstance(result, Exception):
                    errors[stream] = result
                    if self._folder is not None and stream not in self._seats:
                        self._folder.take_back(stream)
                    continue
                found[stream] = result
                self._seats[stream] = self._seats.pop(stream, seats[stream])
                for text in self._network.news(seats[stream].last):
                    warnings.warn(f"{stream}: {text}", stacklevel=3)
        if errors and refused is None:
            raise as_one(errors, len(batches))
        if refused is not None:
            refused |= errors
        return {stream: found[stream] for stream in batches if stream in found}

    def predict(self, stream: str, images: Tensor) -> Tensor:
        """What `fleet(stream, images)` would return before any update, with no change to
        anything."""
        check_name(stream)
        seat = self._looked_at(stream) if stream in self else Seat()
        return self._network.foresee(seat.held, images)

    # What is known of a stream.

    def last(self, stream: str) -> Last:
        """What the stream's last batch did, since it came into memory."""
        return self._looked_at(stream).last

    def health(self, stream: str) -> Health:
        """How the stream does, as far as that can be told without labels."""
        return self._network.health_of(self._looked_at(stream).held)

    def notes(self, stream: str, *, look: bool = False) -> dict[str, Any]:
        """What you want to have saved with a stream's state: texts and numbers, as JSON has them.
        Write into it, and ask for it anew each time: a stream may have left memory between.
        look: only read it, and the stream stays whosever it is."""
        return (self._looked_at(stream) if look else self._known(stream)).notes

    def streams(self) -> list[str]:
        """The names of all streams, in memory and in the folder."""
        saved = [] if self._folder is None else self._folder.streams()
        return sorted({*self._seats, *saved})

    def __contains__(self, stream: object) -> bool:
        if not isinstance(stream, str):
            return False
        return stream in self._seats or (self._folder is not None and stream in self._folder)

    def __len__(self) -> int:
        return len(self.streams())

    # Their coming and going.

    def add(self, stream: str) -> None:
        """Begin a stream, as its first images would do; one whose file was damaged, anew."""
        check_name(stream)
        if stream in self or (self._folder is not None and not self._folder.begin(stream)):
            raise ValueError(
                f"There is a stream {stream!r} already: go on with it, reset({stream!r}) it, or "
                "take another name."
            )
        self._make_room({})
        self._seats[stream] = Seat()

    def remove(self, stream: str) -> None:
        """Forget a stream, in memory and in the folder."""
        aside = bool(self._folder is not None and self._folder.aside(stream))
        if stream not in self and not aside:
            raise unknown(stream)
        self._seats.pop(stream, None)
        if self._folder is not None:
            self._folder.remove(stream)

    def reset(self, stream: str) -> None:
        """Begin a stream's state anew; its notes stay."""
        seat = self._known(stream)
        seat.held, seat.last = Held(), Last()

    def save(self, stream: str | None = None) -> None:
        """Write the state of a stream, or of all, where it is not written yet."""
        if self._folder is None:
            raise ValueError("This fleet has no folder to save streams in: Fleet(…, folder=…).")
        if stream is not None and stream not in self:
            raise unknown(stream)
        taken: list[TakenOverError] = []
        for name in list(self._seats) if stream is None else [stream]:
            if name in self._seats:
                try:
                    self._save(name)
                except TakenOverError as error:  # the others are saved all the same
                    taken.append(error)
        if taken:
            raise taken[0]

    def give(self, stream: str, to: str) -> None:
        """Save a stream, and leave it to another process that has asked for it."""
        if self.sharing is not None:
            if stream in self._seats:
                self._save(stream)
                del self._seats[stream]
            self.sharing.give(stream, to)

    def _save(self, stream: str) -> None:
        seat = self._seats[stream]
        if self._folder is None or seat.is_saved:
            return
        text = seat.written_notes()
        try:
            self._folder.write(stream, self._network.layout.to_file(seat.held), seat.notes)
        except TakenOverError:
            del self._seats[stream]  # asked for again, it goes on from what the other has saved
            raise
        seat.saved = seat.held, text

    def _known(self, stream: str) -> Seat:
        """A stream that there is."""
        check_name(stream)
        if stream not in self and not (self._folder and self._folder.aside(stream)):
            raise unknown(stream)
        seat = self._seat(stream)
        self._seats[stream] = self._seats.pop(stream, seat)
        return seat

    def _seat(self, stream: str, keep: Iterable[str] = ()) -> Seat:
        """A stream in memory: there already, brought back, or a new one, which is not counted
        before it has proved good."""
        if self._folder is not None and stream in self._seats and self._folder.is_taken(stream):
            self._leave_to_other(stream)
        if stream in self._seats:
            return self._seats[stream]
        seat = Seat() if self._folder is None else self._brought_back(stream, self._folder)
        self._make_room(keep)
        if seat.saved is not None:
            self._seats[stream] = seat
        return seat

    def _looked_at(self, stream: str) -> Seat:
        """A stream that there is, to look at: it stays whosever it is."""
        check_name(stream)
        folder = self._folder
        saved = folder is not None and stream in folder
        if stream in self._seats and not (folder and saved and folder.is_taken(stream)):
            self._seats[stream] = self._seats.pop(stream)
            return self._seats[stream]
        if folder is None or not saved:
            return self._known(stream)
        tensors, notes = folder.read(stream)
        return Seat(self._network.layout.from_file(tensors), notes=notes)

    def _brought_back(self, stream: str, folder: Folder) -> Seat:
        """As its file has it, and from now on this fleet's own."""
        if stream not in folder:
            if aside := folder.aside(stream):
                raise StateError(
                    f"The state of {stream!r} was damaged and is set aside as {aside[-1]}: put a "
                    f"whole copy in its place ({folder.file(stream)}), or add({stream!r}) begins "
                    "it anew."
                )
            if folder.begin(stream):
                return Seat()
        try:
            tensors, notes = folder.take(stream)
            held = self._network.layout.from_file(tensors)
            self._network.put(held)
        except (HeldError, OtherFleetError):
            raise
        except (KeyError, IndexError, RuntimeError, TypeError, ValueError) as error:
            kept = folder.set_aside(stream)
            raise StateError(
                f"The state of {stream!r} cannot be read ({first_line(error)}) and was set aside "
                f"as {kept}: put a whole copy in its place ({folder.file(stream)}), or "
                f"add({stream!r}) begins it anew."
            ) from error
        seat = Seat(held, notes=notes)
        seat.saved = held, seat.written_notes()
        return seat

    def _make_room(self, keep: Iterable[str]) -> None:
        """For one more stream in memory, while these stay."""
        stay = set(keep)
        while self.resident is not None and len({*self._seats, *stay}) >= self.resident:
            oldest = next(stream for stream in self._seats if stream not in stay)
            try:
                self._save(oldest)
                del self._seats[oldest]
            except TakenOverError:
                self._leave_to_other(oldest)

    def _leave_to_other(self, stream: str) -> None:
        """Drop what another process has gone on with."""
        seat = self._seats.pop(stream, None)
        if seat is None or not seat.is_saved:
            warnings.warn(
                f"{stream}: another process has taken it over, and what was learnt here since it "
                "was saved last is lost. Send each stream to one process.",
                stacklevel=5,
            )
