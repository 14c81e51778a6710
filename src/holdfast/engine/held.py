"""What is one stream's own, in few pieces, while others have the network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
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
    """Where each tensor of a state lies in what is held of it.

    fresh: the first state.
    bound: those of the small tensors that stay the same objects for ever, themselves: they are
    made to lie behind each other, so that they are written and read in one piece.
    """

    def __init__(self, fresh: Mapping[str, Tensor], bound: Mapping[str, Tensor] | None = None):
        self.fresh, self.bound = fresh, {} if bound is None else bound
        self.large = [name for name, tensor in fresh.items() if _is_large(tensor)]
        self.small: dict[Kind, list[str]] = {}
        small = [name for name, tensor in fresh.items() if not _is_large(tensor)]
        for name in sorted(small, key=lambda name: name not in self.bound):
            self.small.setdefault((fresh[name].device, fresh[name].dtype), []).append(name)
        self.sizes = {k: [fresh[n].numel() for n in names] for k, names in self.small.items()}
        self.places = {
            name: (kind, end - fresh[name].numel())
            for kind, names in self.small.items()
            for name, end in zip(names, accumulate(self.sizes[kind]), strict=True)
        }
        self.start = {kind: _behind(fresh, names) for kind, names in self.small.items()}
        self.live = {kind: self._bind(kind, names) for kind, names in self.small.items()}

    def _bind(self, kind: Kind, names: list[str]) -> Tensor:
        """Have the tensors of a kind that are bound lie in one piece, which is given."""
        mine = [name for name in names if name in self.bound]
        piece = self.start[kind][: sum(self.fresh[name].numel() for name in mine)].clone()
        for name in mine:
            start = self.places[name][1]
            own = piece[start : start + self.fresh[name].numel()]
            self.bound[name].data = own.view(self.fresh[name].shape)
        return piece

    def pack(self, tensors: Mapping[str, Tensor]) -> tuple[dict[Kind, Tensor], dict[str, Rows]]:
        """What is to be held of these tensors, and of those that are bound: copies."""
        moved = {}
        for name in self.large:
            now = tensors[name]
            places = (now != self.fresh[name]).flatten(1).any(1).nonzero().squeeze(1)
            if len(places):
                moved[name] = Rows(places, now[places])
        flat = {
            kind: torch.cat([self.live[kind], *(tensors[n].reshape(-1) for n in self._free(names))])
            for kind, names in self.small.items()
        }
        return flat, moved

    def write(self, held: Held, tensors: Mapping[str, Tensor]) -> None:
        """Give tensors, and those that are bound, the values that are held."""
        for kind, names in self.small.items():
            flat, live = held.flat.get(kind, self.start[kind]), self.live[kind]
            live.copy_(flat[: len(live)])
            if free := [tensors[name] for name in self._free(names)]:
                pieces = torch.split(flat[len(live) :], self.sizes[kind][-len(free) :])
                values = [piece.view(to.shape) for piece, to in zip(pieces, free, strict=True)]
                torch._foreach_copy_(free, values)
        for name in self.large:
            tensors[name].copy_(self.fresh[name])
            if name in held.moved:
                rows = held.moved[name]
                tensors[name][rows.places] = rows.values

    def _free(self, names: list[str]) -> list[str]:
        return [name for name in names if name not in self.bound]

    def stacked(self, names: Sequence[str], streams: Sequence[Held]) -> dict[str, Tensor]:
        """Small tensors of several streams, (streams, …) each: copies."""
        tensors: dict[str, Tensor] = {}
        for kind in {self.places[name][0] for name in names}:
            flats = torch.stack([held.flat.get(kind, self.start[kind]) for held in streams])
            pieces = torch.split(flats, self.sizes[kind], 1)
            rows = dict(zip(self.small[kind], pieces, strict=True))
            tensors |= {n: rows[n].view(-1, *self.fresh[n].shape) for n in names if n in rows}
        return tensors

    # In a file, tensors lie behind each other by type alone, so that another device can read it.

    def to_file(self, held: Held) -> dict[str, Tensor]:
        """All that is held, by name."""
        tensors: dict[str, Tensor] = {}
        if held.flat:
            for dtype, names in self._by_type().items():
                pieces = self._pieces(held.flat)
                tensors[f"flat/{_word(dtype)}"] = torch.cat([pieces[name].cpu() for name in names])
        for name, rows in held.moved.items():
            tensors |= {f"places/{name}": rows.places, f"values/{name}": rows.values}
        tensors |= {f"extra/{name}": tensor for name, tensor in held.extra.items()}
        for kept in ("healthy", "latest"):
            # Copies, since the two may share tensors, and a file holds none twice.
            known = getattr(held, kept) or {}
            tensors |= {f"{kept}/{name}": tensor.clone() for name, tensor in known.items()}
        return tensors if held.draws is None else {**tensors, "draws": held.draws}

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
        names: dict[torch.dtype, list[str]] = {}
        for name in self.fresh:
            if name in self.places:
                names.setdefault(self.fresh[name].dtype, []).append(name)
        return names

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


def _is_large(tensor: Tensor) -> bool:
    return tensor.ndim > 1 and tensor.numel() >= LARGE


def _behind(tensors: Mapping[str, Tensor], names: Iterable[str]) -> Tensor:
    return torch.cat([tensors[name].reshape(-1) for name in names])


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
