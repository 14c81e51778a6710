"""torch's own files of exported programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.exporting.format import Format, Opened, floats

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.export import ExportedProgram


def precisions(program: ExportedProgram) -> frozenset[str]:
    """Of its weights, and of all that is computed on the way."""
    return floats(_types(program))


def _types(program: ExportedProgram) -> Iterator[str]:
    from torch import Tensor

    values = [*program.state_dict.values(), *program.constants.values()]
    for node in program.graph.nodes:
        value = node.meta.get("val")
        values += value if isinstance(value, list | tuple) else [value]
    for value in values:
        if isinstance(value, Tensor):
            yield str(value.dtype).removeprefix("torch.")


class Pt2(Format):
    """Needs nothing but torch, and holds the weights as they are: on their device."""

    name = "pt2"
    ending = ".pt2"
    as_given = True

    def write(self, program: ExportedProgram, path: Path) -> None:
        import torch

        torch.export.save(program, path)

    def open(self, path: Path) -> Opened:
        import torch

        program = torch.export.load(path)
        return Opened(program.module(), precisions(program))

    def loading(self, path: Path) -> str:
        return f'torch.export.load("{path}").module()'
