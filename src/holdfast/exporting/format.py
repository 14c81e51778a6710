"""What a format of files is: how one is written, and how its own runtime runs it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from torch import Tensor
    from torch.export import ExportedProgram

# Names of inputs and outputs, where a format has such.
IMAGES = "images"
LOGITS = "logits"

# Floating types as torch calls them, by the names that others have for them.
_FLOATS = {
    **{name: name for name in ("float64", "float32", "float16", "bfloat16")},
    **{"double": "float64", "float": "float32", "half": "float16"},
    **{"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16"},
}


def floats(names: Iterable[str]) -> frozenset[str]:
    """The floating types among types of any names; those of eight bits keep their own."""
    found = (_FLOATS.get(name.lower(), name.lower()) for name in names)
    return frozenset(name for name in found if name.startswith(("float", "bfloat", "f8")))


@dataclass(frozen=True)
class Opened:
    """A file as its runtime has loaded it.

    run: logits of a batch of images.
    precisions: the floating types in it, weights and what they are computed in.
    usual: what the runtime makes of the file if it is told nothing, where that is something else.
    """

    run: Callable[[Tensor], Tensor]
    precisions: frozenset[str]
    usual: Opened | None = None


class Format(ABC):
    """Packages are imported where they are used: they are extras, and take long.

    packages: what they are imported as.
    as_given: weights stay as they are, on their device and in their memory format.
    """

    name: ClassVar[str]
    ending: ClassVar[str]
    packages: ClassVar[tuple[str, ...]] = ()
    as_given: ClassVar[bool] = False

    @abstractmethod
    def write(self, program: ExportedProgram, path: Path) -> None:
        """Write the file, and any others that it needs beside it."""

    @abstractmethod
    def open(self, path: Path) -> Opened: ...

    @abstractmethod
    def loading(self, path: Path) -> str:
        """The code that loads it."""

    def most(self, batch: int) -> int | None:
        """The largest batch that a file takes which has to take this one; None: any."""
        return None

    def beside(self, path: Path) -> tuple[Path, ...]:
        """Other files that belong to this one, if it needs any."""
        return ()
