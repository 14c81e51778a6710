"""The tables of `step.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from step import Contestants, Measured, Target


def table(title: str, *columns: str) -> Table:
    made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, min_width=len(title))
    for index, column in enumerate(columns):
        made.add_column(column, justify="left" if index == 0 else "right")
    return made


def show_steps(out: Console, name: str, contestants: Contestants) -> None:
    shown = table(
        f"{name}: a step over the bare network in the same format",
        "method",
        "fastest ms",
        "× bare (10 50 90 %)",
        "steps taken",
        "peak MB",
        "peak × bare",
    )
    for variant, row in contestants.items():
        for method, one in row.items():
            bare = row["bare"]
            shown.add_row(
                f"{variant} {method}",
                f"{one.fastest:.1f}",
                "" if one is bare else str(one.over(bare)),
                "" if one is bare else f"{sum(one.stepped) / len(one.stepped):.0%}",
                f"{one.peak_mb:.1f}",
                "" if one is bare else f"{one.peak_mb / bare.peak_mb:.3f}",
                end_section=method == list(row)[-1],
            )
    out.print(shown)
    out.print("Peak: the most torch's allocator held during a step beyond what it held before it.")
    for variant, row in contestants.items():
        out.print(f"(eata+debias) / eata, {variant}: {row['eata+debias'].over(row['eata'])}")
    out.print()


def show_default(out: Console, name: str, measured: Measured, default: str) -> None:
    gains = measured.gains()
    if not gains:
        return
    shown = table(
        f"{name}: the default ({default}) against contiguous",
        "method",
        "times faster (10 50 90 %)",
        "largest difference of logits",
        "largest logit",
    )
    for method, (ratio, gap) in gains.items():
        largest = measured.contestants[default][method].logits.abs().max().item()
        shown.add_row(method, str(ratio), f"{gap:.1e}", f"{largest:.1f}")
    out.print(shown)


def show_prototypes(out: Console, updates: dict[int, float], found: dict[str, Measured]) -> None:
    steps = {
        f"{name}, {variant}": row["debias"].fastest
        for name, measured in found.items()
        for variant, row in measured.contestants.items()
    }
    shown = table(
        "Update of the EMA prototypes alone, feature size 2048, as a share of a debias step",
        "classes",
        "ms",
        *steps,
    )
    for classes, spent in updates.items():
        shares = [f"{spent / step:.2%}" for step in steps.values()]
        shown.add_row(f"{classes:,}", f"{spent:.3f}", *shares)
    out.print(shown)


def show_targets(out: Console, targets: list[Target], default: str) -> None:
    shown = table(f"Targets ({default})", "what", "target", "measured", "")
    for one in targets:
        limit = f"{'≤' if one.at_most else '≥'} {one.limit:g}"
        measured = "–" if one.measured is None else f"{one.measured:.4g}"
        shown.add_row(one.text, limit, measured, one.verdict)
    out.print(shown)
