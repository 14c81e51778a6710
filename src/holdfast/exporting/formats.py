"""All formats by name, and the format that a path names."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from holdfast.exporting.executorch_file import ExecuTorch
from holdfast.exporting.format import Format
from holdfast.exporting.onnx_file import Onnx
from holdfast.exporting.openvino_file import OpenVino
from holdfast.exporting.pt2 import Pt2
from holdfast.util.imports import require
from holdfast.util.words import listed, nearest

To = Literal["pt2", "onnx", "openvino", "executorch"]
FORMATS: dict[str, Format] = {one.name: one for one in (Pt2(), Onnx(), OpenVino(), ExecuTorch())}
ENDINGS = {one.ending: one for one in FORMATS.values()}


def find_format(path: Path, to: str | None) -> Format:
    """By its name, else by the path's ending; its packages are there."""
    if to is None:
        if path.suffix not in ENDINGS:
            raise ValueError(
                f"{path} ends in that of no format ({listed(ENDINGS)}): pass to=…, one of "
                f"{listed(FORMATS)}."
            )
        to = ENDINGS[path.suffix].name
    if to not in FORMATS:
        raise ValueError(
            f"There is no format {to!r}.{nearest(to, FORMATS)} There are {listed(FORMATS)}."
        )
    found = FORMATS[to]
    if path.suffix != found.ending:
        raise ValueError(f"A file of {to} ends in {found.ending}, which {path} does not.")
    for package in found.packages:
        require(package, f"Exporting to {to}")
    return found
