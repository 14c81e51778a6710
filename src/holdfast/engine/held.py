"""What is one stream's own, in few pieces, while others have the network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from holdfast.engine.state import guarded
from holdfast.util import files

# A tensor of several rows and at least so many numbers is held by the rows that have moved.
LARGE = 4096

# Tensors of one device and one type lie behind each other in one piece.
Kind = tuple[torch.device, torch.dtype]


class Rows(NamedTuple):
    """Rows of a large tensor that are not as at the beginning: which, and their values."""

    places: Tensor
    values: Tensor


@dataclass(frozen=True, eq=False)
class Held:
    """A stream's state; what is not here is as at the beginning.

    flat: all small tensors behind each other; of hundreds of tensors, the objects alone would take
    as much memory as the numbers in them. moved: of large ones, the rows that have moved.
    extra: images. draws: randomness. healthy, latest: what a guard that acts puts back.
    """

    flat: Mapping[Kind, Tensor] = field(default_factory=dict)
    moved: Mapping[str, Rows] = field(default_factory=dict)
    extra: Mapping[str, Tensor] = field(default_factory=dict)
    draws: Tensor | None = None
    healthy: dict[str, Tensor] | None = None
    latest: dict[str, Tensor] | None = None

    def bytes(self) -> int:
        """How much memory its tensors take; what is shared with other streams is not counted."""
        tensors = [*self.flat.values(), *self.extra.values()]
        tensors += [tensor for rows in self.moved.values() for tensor in rows]
        tensors += [] if self.draws is None else [self.draws]
        # The two may be one.
        for kept in {id(kept): kept for kept in (self.healthy, self.latest)}.values():
            tensors += [] if kept is None else kept.values()
        return sum(tensor.nbytes for tensor in tensors)


class Layout:
    """Where each tensor of a state lies in what is held of it; `fresh` is the first state."""

    def __init__(self, fresh: Mapping[str, Tensor]):
        self.fresh = fresh
        self.small: dict[Kind, list[str]] = {}
        self.large: list[str] = []
        self.places: dict[str, tuple[Kind, int]] = {}
        for name, tensor in fresh.items():
            if tensor.ndim > 1 and tensor.numel() >= LARGE:
                self.large.append(name)
            else:
                self.small.setdefault((tensor.device, tensor.dtype), []).append(name)
        for kind, names in self.small.items():
            start = 0
            for name in names:
                self.places[name] = kind, start
                start += fresh[name].numel()
        self.sizes = {k: [fresh[n].numel() for n in names] for k, names in self.small.items()}
        self.start = self._flat(fresh)

    def _flat(self, tensors: Mapping[str, Tensor]) -> dict[Kind, Tensor]:
        return {
            kind: torch.cat([tensors[name].reshape(-1) for name in names])
            for kind, names in self.small.items()
        }

    def pack(self, tensors: Mapping[str, Tensor]) -> tuple[dict[Kind, Tensor], dict[str, Rows]]:
        """What is to be held of these tensors: copies."""
        moved = {}
        for name in self.large:
            now = tensors[name]
            places = (now != self.fresh[name]).flatten(1).any(1).nonzero().squeeze(1)
            if len(places):
                moved[name] = Rows(places, now[places])
        return self._flat(tensors), moved

    def write(self, held: Held, tensors: Mapping[str, Tensor]) -> None:
        """Give tensors the values that are held."""
        for kind, names in self.small.items():
            pieces = torch.split(held.flat.get(kind, self.start[kind]), self.sizes[kind])
            live = [tensors[name] for name in names]
            values = [piece.view(to.shape) for piece, to in zip(pieces, live, strict=True)]
            torch._foreach_copy_(live, values)
        for name in self.large:
            tensors[name].copy_(self.fresh[name])
            if name in held.moved:
                rows = held.moved[name]
                tensors[name][rows.places] = rows.values

    def stacked(self, name: str, streams: Iterable[Held]) -> Tensor:
        """A small tensor of several streams, one behind the other: a copy."""
        (kind, start), like = self.places[name], self.fresh[name]
        end = start + like.numel()
        found = [held.flat.get(kind, self.start[kind])[start:end] for held in streams]
        return torch.stack(found).view(-1, *like.shape)

    # In a file, tensors lie behind each other by type alone, so that another device can read it.

    def to_file(self, held: Held) -> dict[str, Tensor]:
        """All that is held, by name."""
        found: dict[str, Tensor] = {}
        if held.flat:
            for dtype, names in self._by_type().items():
                pieces = self._pieces(held.flat)
                found[f"flat/{_word(dtype)}"] = torch.cat([pieces[name].cpu() for name in names])
        for name, rows in held.moved.items():
            found |= {f"places/{name}": rows.places, f"values/{name}": rows.values}
        found |= {f"extra/{name}": tensor for name, tensor in held.extra.items()}
        for kept in ("healthy", "latest"):
            # Copies, since the two may share tensors, and a file holds none twice.
            known = getattr(held, kept) or {}
            found |= {f"{kept}/{name}": tensor.clone() for name, tensor in known.items()}
        return found if held.draws is None else {**found, "draws": held.draws}

    def from_file(self, saved: Mapping[str, Tensor]) -> Held:
        """What `to_file` gave, or an error that says what is wrong with it."""
        files.check_numbers(saved)
        if not saved:
            return Held()
        pieces: dict[str, Tensor] = {}
        for dtype, names in self._by_type().items():
            sizes = [self.fresh[name].numel() for name in names]
            flat = {f"flat/{_word(dtype)}": torch.empty(sum(sizes), dtype=dtype)}
            files.check_alike(saved, flat)
            parts = torch.split(saved[f"flat/{_word(dtype)}"], sizes)
            pieces |= dict(zip(names, parts, strict=True))
        return Held(
            flat={
                kind: torch.cat([pieces[name].to(kind[0]) for name in names])
                for kind, names in self.small.items()
            },
            moved={name: self._rows(name, saved) for name in files.under("places/", saved)},
            extra=files.under("extra/", saved),
            draws=saved.get("draws"),
            healthy=self._guarded(files.under("healthy/", saved)),
            latest=self._guarded(files.under("latest/", saved)),
        )

    def _by_type(self) -> dict[torch.dtype, list[str]]:
        found: dict[torch.dtype, list[str]] = {}
        for name in self.fresh:
            if name in self.places:
                found.setdefault(self.fresh[name].dtype, []).append(name)
        return found

    def _pieces(self, flat: Mapping[Kind, Tensor]) -> dict[str, Tensor]:
        return {
            name: piece
            for kind, names in self.small.items()
            for name, piece in zip(names, torch.split(flat[kind], self.sizes[kind]), strict=True)
        }

    def _rows(self, name: str, saved: Mapping[str, Tensor]) -> Rows:
        if name not in self.large:
            raise ValueError(f"rows of {name!r}, which is not held by rows")
        like = self.fresh[name]
        places = saved[f"places/{name}"]
        files.check_alike(saved, {f"values/{name}": like[: len(places)]})
        if places.dtype != torch.int64 or not bool(((places >= 0) & (places < len(like))).all()):
            raise ValueError(f"rows of {name!r} that it does not have")
        return Rows(places.to(like.device), saved[f"values/{name}"].to(like.device))

    def _guarded(self, kept: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
        if not kept:
            return None
        expected = guarded(self.fresh)
        files.check_alike(kept, expected)
        return {name: kept[name].to(like.device) for name, like in expected.items()}


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
