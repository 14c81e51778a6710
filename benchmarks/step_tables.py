"""The tables of `step.py`, and the targets."""

from __future__ import annotations

from dataclasses import dataclass

from contestants import CORE, DEFAULT, Contestants, Measured
from parts import VIEWS
from race import Ratio
from rich import box
from rich.console import Console
from rich.table import Table


def table(title: str, *columns: str) -> Table:
    made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, min_width=len(title))
    for index, column in enumerate(columns):
        made.add_column(column, justify="left" if index == 0 else "right")
    return made


def show_steps(out: Console, name: str, contestants: Contestants) -> None:
    for variant, row in contestants.items():
        shown = table(
            f"{name}, {variant}: a step over the bare network in the same format",
            "method",
            "fastest ms",
            "× bare (10 50 90 %)",
            "forwards",
            "backwards",
            "steps taken",
            "peak MB",
            "× bare",
            "held MB",
        )
        bare = row["bare"]
        for method, contestant in row.items():
            shown.add_row(
                method,
                f"{contestant.fastest:.1f}",
                "" if contestant is bare else str(contestant.over(bare)),
                " or ".join(map(str, contestant.forwards)),
                " or ".join(map(str, contestant.backwards)),
                "" if contestant.stepped is None else f"{contestant.stepped:.0%}",
                f"{contestant.peak_mb:.1f}",
                "" if contestant is bare else f"{contestant.peak_mb / bare.peak_mb:.3f}",
                "" if contestant is bare else f"{contestant.held_mb:.1f}",
            )
        out.print(shown)
        if "eata" in row and "eata+debias" in row:
            out.print(f"(eata+debias) / eata: {row['eata+debias'].over(row['eata'])}")
    out.print("Peak: the most torch's allocator held during a step beyond what it held before it.")
    out.print("Held: tensors of the adapter, those it takes from the source too, but its network.")
    if any(name.startswith("cotta") for row in contestants.values() for name in row):
        out.print(f"cotta: without augmented views, which are {VIEWS} forwards a batch by default.")
    out.print()


def show_default(out: Console, name: str, measured: Measured) -> None:
    gains = measured.gains()
    if not gains:
        return
    shown = table(
        f"{name}: the default ({DEFAULT}) against contiguous, as neighbours in each round",
        "method",
        "times faster (10 50 90 %)",
        "largest difference of logits",
        "largest logit",
    )
    for method, (ratio, gap) in gains.items():
        largest = measured.contestants[DEFAULT][method].logits.abs().max().item()
        shown.add_row(method, str(ratio), f"{gap:.1e}", f"{largest:.1f}")
    out.print(shown)


def show_views(out: Console, results: dict[str, Measured]) -> None:
    shown = table(
        f"CoTTA's views: {VIEWS} augmented forwards of a teacher over as many plain ones",
        "cotta-views",
        "plain ms",
        "augmented ms",
        "× plain (10 50 90 %)",
    )
    for name, measured in results.items():
        if measured.views:
            plain, augmented = measured.views
            times = [f"{contestant.fastest:.0f}" for contestant in measured.views]
            shown.add_row(name, *times, str(augmented.over(plain)))
    if shown.row_count:
        out.print(shown)


def show_prototypes(out: Console, updates: dict[int, float], results: dict[str, Measured]) -> None:
    steps = {
        f"{name}, {variant}": row["debias"].fastest
        for name, measured in results.items()
        for variant, row in measured.contestants.items()
        if "debias" in row
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


@dataclass(frozen=True)
class Target:
    """What is asked for, and what was found; of a ratio, that of minima and the median."""

    text: str
    measured: float | None
    limit: float
    at_most: bool = True
    median: float | None = None

    @classmethod
    def of(cls, text: str, ratio: Ratio | None, limit: float, at_most: bool = True) -> Target:
        if ratio is None:
            return cls(text, None, limit, at_most)
        return cls(text, ratio.value, limit, at_most, ratio.middle)

    @property
    def verdict(self) -> str:
        if self.measured is None:
            return "not measured"
        met = self.measured <= self.limit if self.at_most else self.measured >= self.limit
        return "met" if met else "NOT MET"


def judge(results: dict[str, Measured]) -> list[Target]:
    def over(net: str, method: str, other: str) -> Ratio | None:
        row = results[net].contestants.get(DEFAULT, {}) if net in results else {}
        return row[method].over(row[other]) if method in row and other in row else None

    large = results.get("resnext29")
    gains = large.gains() if large else {}
    views = large.views if large else None
    gaps = [gap for measured in results.values() for _, gap in measured.gains().values()]
    initial_gaps = [measured.initial_gap for measured in results.values()]
    apart = "difference of logits, default to contiguous"
    return [
        Target.of("tent / bare, ResNeXt-29", over("resnext29", "tent", "bare"), 1.03),
        Target.of("debias / bare, ResNeXt-29", over("resnext29", "debias", "bare"), 1.06),
        Target.of(
            "(eata+debias) / eata, ResNeXt-29", over("resnext29", "eata+debias", "eata"), 1.04
        ),
        Target.of("(eata+debias) / eata, ResNet-20", over("resnet20", "eata+debias", "eata"), 1.04),
        Target.of(
            "(eata+debias+steady) / (eata+debias), ResNeXt-29",
            over("resnext29", "eata+debias+steady", "eata+debias"),
            1.10,
        ),
        *(
            Target.of(
                f"{method}: contiguous / default, ResNeXt-29",
                gains[method][0] if method in gains else None,
                1.3,
                at_most=False,
            )
            for method in CORE
        ),
        Target.of(
            "CoTTA's views: augmented / plain forwards, ResNeXt-29",
            views[1].over(views[0]) if views else None,
            1.35,
        ),
        Target(f"{apart}, head as initialised", max(initial_gaps, default=None), 2e-4),
        Target(f"{apart}, confident head", max(gaps, default=None), 2e-4),
    ]


def show_targets(out: Console, targets: list[Target]) -> None:
    shown = table(f"Targets ({DEFAULT})", "what", "target", "minima", "median", "")
    for target in targets:
        limit = f"{'≤' if target.at_most else '≥'} {target.limit:g}"
        measured = "–" if target.measured is None else f"{target.measured:.4g}"
        median = "" if target.median is None else f"{target.median:.4g}"
        shown.add_row(target.text, limit, measured, median, target.verdict)
    out.print(shown)
