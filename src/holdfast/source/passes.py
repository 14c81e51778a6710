"""Passes over the loaders of a source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from torch import Tensor

from holdfast.engine.checks import InputRange
from holdfast.engine.network import Network
from holdfast.source.loaders import Replay, checked_batches


@dataclass(eq=False, repr=False)
class Passes:
    """A caller's loaders: of labelled source images, of images for Fisher information, and of
    labelled ones under drift. `limit`: so many images of the first are looked at."""

    _: KW_ONLY
    limit: int | None = None
    loader: Iterable[Any] | None = None
    fisher: Iterable[Any] | None = None
    drifted: Iterable[Any] | None = None
    input_range: InputRange = (0.0, 1.0)
    # Iterators that a pass has gone through already.
    _spent: list[Iterator[Any]] = field(default_factory=list, init=False)

    def replay(self, network: Network) -> Replay:
        """Labelled source batches, in the loader's order, cycling."""

        def another_pass() -> Iterable[Any]:
            return self._pass(self.loader, "replay", again=True)

        another_pass()
        return Replay(another_pass, network, self.input_range)

    def _batches(
        self,
        network: Network,
        title: str,
        made: str,
        limit: int | None,
        *,
        loader: Iterable[Any] | None = None,
        again: bool = False,
        number: int = 0,
    ) -> Iterator[tuple[Tensor, object]]:
        """Pass `number` over the loader; `title` is shown while it goes on, `made` names what comes
        of it."""
        given = self._pass(self.loader if loader is None else loader, made, again=again)
        return checked_batches(given, limit, self.input_range, network, title, number)

    def _pass(
        self, loader: Iterable[Any] | None, made: str, *, again: bool = False
    ) -> Iterable[Any]:
        """The loader, for one more pass over it, or (`again`) for any number of them."""
        if loader is None:
            raise ValueError(
                f"This source holds no {made}, and no loader to make them from: load it with "
                "Source.load(path, loader=…), or make it with Source.from_loader(model, loader)."
            )
        if isinstance(loader, Iterator):
            if again or any(loader is spent for spent in self._spent):
                raise ValueError(
                    f"Making {made} takes a second pass over the loader, but it is a one-shot "
                    "iterator: give a DataLoader, a list, or another loader (fisher=…)."
                )
            self._spent.append(loader)
        return loader
