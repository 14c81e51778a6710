"""A stand-in for a fleet whose answers tell what each stream has seen: so that a test sees what was
lost, learnt twice, out of order or another's."""

import json
from pathlib import Path

import torch

from holdfast.engine.health import Health
from holdfast.engine.last import Last
from holdfast.fleet.folder import StateError, TakenOverError

SCALE = 2**16


def picture(number, side=2):
    """An image that carries a number below 65536."""
    return torch.full((1, 3, side, side), number / SCALE)


def pictures(*numbers, side=2):
    return torch.cat([picture(number, side) for number in numbers])


class PlainFleet:
    """Logits of an image: its number, and how many images the stream had seen before it."""

    sharing = None

    def __init__(self, folder, resident=None):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.resident = resident
        self.held = {}
        self.steps = []
        self.fail_to_save = None
        self.lost = set()
        self.pause = lambda: None

    def _file(self, stream):
        return self.folder / f"{stream}.json"

    def _damaged(self, stream):
        return self.folder / f"{stream}.damaged"

    def __contains__(self, stream):
        return stream in self.held or self._file(stream).exists()

    def streams(self):
        return sorted({*self.held, *(path.stem for path in self.folder.glob("*.json"))})

    def add(self, stream):
        self.held[stream] = {"seen": [], "notes": {}}

    def _state(self, stream):
        if stream in self.held:
            return self.held[stream]
        if self._damaged(stream).exists():
            raise StateError(f"The state of {stream} was damaged: reset it.")
        if self._file(stream).exists():
            try:
                self.held[stream] = json.loads(self._file(stream).read_text())
            except ValueError:
                self._file(stream).rename(self._damaged(stream))
                raise StateError(f"The state of {stream} was damaged: reset it.") from None
            return self.held[stream]
        return {"seen": [], "notes": {}}

    def step(self, batches, refused=None):
        self.pause()
        assert self.resident is None or len(batches) <= self.resident
        self.steps.append({stream: len(images) for stream, images in batches.items()})
        answers = {}
        for stream, images in batches.items():
            try:
                state = self._state(stream)
                if images.max() >= 1:
                    raise ValueError("Images lie beyond 1: divide by 255.")
            except ValueError as error:
                refused[stream] = error
                continue
            self.held[stream] = state
            numbers = (images[:, 0, 0, 0] * SCALE).round().long().tolist()
            rows = [[number, len(state["seen"]) + at] for at, number in enumerate(numbers)]
            state["seen"] += numbers
            answers[stream] = torch.tensor(rows, dtype=torch.float32)
        return answers

    def notes(self, stream, look=False):
        return self._state(stream)["notes"]

    def save(self, stream=None):
        if self.fail_to_save is not None:
            raise self.fail_to_save
        for name in self.held if stream is None else [stream]:
            if name in self.lost:
                self.lost.discard(name)
                del self.held[name]
                raise TakenOverError(f"{name} was taken over by another process.")
            part = self.folder / f"{name}.part"
            part.write_text(json.dumps(self.held[name]))
            part.replace(self._file(name))

    def reset(self, stream):
        self._state(stream)["seen"] = []

    def remove(self, stream):
        self.held.pop(stream, None)
        self._file(stream).unlink(missing_ok=True)
        self._damaged(stream).unlink(missing_ok=True)

    def health(self, stream):
        return Health(entropy=0.5, spread=0.9)

    def last(self, stream):
        return Last(stepped=True)

    # For tests.

    def seen(self, stream):
        return self._state(stream)["seen"]

    def taken_over(self, stream, by):
        """As if another process had gone on with it, and saved this."""
        self._file(stream).write_text(json.dumps({"seen": by, "notes": {}}))
        self.lost.add(stream)

    def saved(self, stream):
        return json.loads(self._file(stream).read_text())["seen"]
