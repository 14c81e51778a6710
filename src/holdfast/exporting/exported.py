"""What came of an export, and what is said of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast.exporting.compare import Difference
from holdfast.util.words import enumerated


class NotExportedError(ValueError):
    """Nothing was left in the file's place."""


@dataclass(frozen=True)
class Exported:
    """A file that was run, and agrees with the module that it was made of.

    files: the file, and any others that it needs beside it.
    difference: from the module's logits, on real images.
    allowed: as far as two logits may be apart: the tolerance times the largest logit, at least 1.
    usual: the difference where the runtime is told nothing and then computes otherwise; None: it
        computes alike.
    usual_precisions: what it then computes in.
    loading: the code that loads it so that it agrees.
    """

    path: Path
    to: str
    files: tuple[Path, ...]
    shape: tuple[int, ...]
    classes: int
    sizes: tuple[int, ...]
    precisions: tuple[str, ...]
    difference: Difference
    tolerance: float
    loading: str
    most: int | None = None
    usual: Difference | None = None
    usual_precisions: tuple[str, ...] = ()

    @property
    def largest(self) -> float:
        return self.difference.largest

    @property
    def allowed(self) -> float:
        return self.tolerance * self.difference.scale

    def __str__(self) -> str:
        return "\n".join((self._files(), self._takes(), self._differs(), *self._usually()))

    def _files(self) -> str:
        size = sum(file.stat().st_size for file in self.files if file.exists())
        names = enumerated([str(file) for file in self.files])
        return f"{names}: {self.to}, {enumerated(self.precisions)}, {size / 1e6:.2f} MB"

    def _takes(self) -> str:
        images = "any number of images" if self.most is None else f"1 to {self.most} images"
        sides = "×".join(map(str, self.shape))
        return f"It takes {images} of {sides} and gives {self.classes} logits for each."

    def _differs(self) -> str:
        sizes = enumerated([str(size) for size in self.sizes])
        return (
            f"On {self.difference.images} images, in batches of {sizes}: largest difference in a "
            f"logit {self.largest:.1e} ({self.allowed:.1e} allowed), "
            f"{100 * self.difference.labels:.1f} % of labels differ.\nLoad it with {self.loading}"
        )

    def _usually(self) -> tuple[str, ...]:
        if self.usual is None:
            return ()
        return (
            f"Not without these settings: here, {self.to} then computes in "
            f"{enumerated(self.usual_precisions)}, logits are off by up to "
            f"{self.usual.largest:.1e}, and {100 * self.usual.labels:.1f} % of labels differ.",
        )
