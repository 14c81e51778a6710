"""How far exported files are from what they were made of: every method, every format, the embedded
network after four batches of fog, 68 further images.

    python benchmarks/exports.py --out out/exports.json --docs docs/exports.md

What --out has already is not measured again. Formats whose tools are not installed are left out.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
import tyro

import holdfast
from holdfast.data import glyphs
from holdfast.data.streams import parse
from holdfast.explain.card import by_kind
from holdfast.exporting import NotExportedError, export
from holdfast.exporting.formats import FORMATS, To

Statistics = Literal["stream", "batch"]
BLOCK = re.compile(r"(?<=<!-- table -->\n).*?(?=<!-- end -->)", flags=re.S)
# With less to do before the stream, or for each batch.
SHORT = {
    "rmt": "rmt(warmup_samples=320)",
    "cotta": "cotta(views=4)",
    "memo": "memo(views=2)",
}
LEARNT, BATCH = 4, 64


@dataclass(frozen=True)
class Settings:
    """Differences between exported files and what they were made of."""

    method: tuple[str, ...] = ()
    """Default: all."""
    to: tuple[To, ...] = tuple(FORMATS)  # type: ignore[assignment]
    statistics: tuple[Statistics, ...] = ("stream", "batch")
    threads: int = 1
    out: Path | None = None
    """A file for all numbers."""
    docs: Path | None = None
    """A page to renew the table of."""


def main(settings: Settings) -> None:
    torch.set_num_threads(settings.threads)
    warnings.simplefilter("ignore")
    examples = {name: method.example() for name, method in by_kind().items()}
    names = settings.method or tuple(examples)
    there = [to for to in settings.to if all(map(find_spec, FORMATS[to].packages))]
    rows = {} if settings.out is None or not settings.out.exists() else read(settings.out)
    model = glyphs.model()
    source = holdfast.Source.from_loader(model, glyphs.source_loader(1000))
    stream = parse(f"continual(limit={6 * BATCH},order=fog,clean=false)")
    batches = [batch.images for batch in stream.over(glyphs.benchmark(), seed=0)]
    shown = torch.cat(batches[LEARNT:])
    for name in names:
        spec = examples.get(name, name)
        row = rows.setdefault(spec, {})
        left = [
            (how, to) for how in settings.statistics for to in there if f"{to} {how}" not in row
        ]
        if not left:
            continue
        adapter = holdfast.adapt(model, SHORT.get(spec, spec), source=source, guard="none")
        for images in batches[:LEARNT]:
            adapter(images)
        for how, to in left:
            started = time.perf_counter()
            row[f"{to} {how}"] = cell = measure(adapter.frozen(statistics=how), to, shown)
            taken = time.perf_counter() - started
            print(spec, to, how, cell, f"{taken:.1f} s", file=sys.stderr, flush=True)
            if settings.out is not None:
                settings.out.parent.mkdir(parents=True, exist_ok=True)
                settings.out.write_text(json.dumps(rows, indent=1))
    text = table(rows, there, settings.statistics)
    print(text)
    if settings.docs is not None:
        page = settings.docs.read_text("utf-8")
        settings.docs.write_text(BLOCK.sub(lambda _: text + "\n", page), "utf-8")


def read(path: Path) -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = json.loads(path.read_text())
    return rows


def measure(module: torch.nn.Module, to: To, images: torch.Tensor) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"model{FORMATS[to].ending}"
        try:
            # Of any difference, so that it is told.
            done = export(module, path, images=images, to=to, batch=BATCH, tolerance=1e9)
        except NotExportedError as error:
            return {"refused": str(error)}
        usual = None if done.usual is None else done.usual.largest
        return {
            "largest": done.largest,
            "scale": done.difference.scale,
            "labels": done.difference.labels,
            "usual": usual,
        }


def table(rows: dict[str, dict[str, Any]], formats: list[To], hows: tuple[Statistics, ...]) -> str:
    columns = [f"{to} {how}" for how in hows for to in formats]
    head = [f"{to}, batch" if how == "batch" else to for how in hows for to in formats]
    lines = [f"| method | {' | '.join(head)} |", f"|---|{'---|' * len(head)}"]
    for spec, row in rows.items():
        cells = [written(row.get(column)) for column in columns]
        lines.append(f"| `{spec}` | {' | '.join(cells)} |")
    found = [cell for row in rows.values() for cell in row.values() if "largest" in cell]
    apart = max(cell["largest"] / cell["scale"] for cell in found)
    labels = max(cell["labels"] for cell in found)
    lines += [
        "",
        f"Largest difference as a share of the largest logit: {apart:.1e}. Labels that differ: "
        f"{100 * labels:.1f} % at most.",
    ]
    if usual := [cell["usual"] for cell in found if cell["usual"] is not None]:
        lines.append(
            f"OpenVINO as it computes by default here is off by {min(usual):.2g} to "
            f"{max(usual):.2g}."
        )
    return "\n".join(lines)


def written(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return ""
    if "refused" in cell:
        return "no"
    return "0" if cell["largest"] == 0 else f"{cell['largest']:.0e}"


if __name__ == "__main__":
    main(tyro.cli(Settings))
