"""What runs tell of health: how far estimates are off, and for whom the alarm rang."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.bench.plan import short
from holdfast.results.comparison import Comparison
from holdfast.results.group import Group, Number, means_over
from holdfast.results.table import Cell, Column, Row, Table
from holdfast.util.words import enumerated


def estimate_table(comparison: Comparison) -> Table | None:
    """How far the accuracy that was estimated without labels is off, by method and domain; None
    where nothing was estimated."""
    groups = [group for group in comparison.groups if group.values("estimate_error")]
    if not groups:
        return None
    names = [name for name in comparison.domains if any(_off(group, name) for group in groups)]
    rows = [
        Row(
            group.label,
            (
                *(Cell(_off(group, name).text(1), "", _beside(group, name)) for name in names),
                Cell(group.number("estimate_error").text(1, spread=True)),
            ),
            group.label,
        )
        for group in groups
    ]
    columns = [Column(short(name), name if short(name) != name else "") for name in names]
    caption = f"How far estimated accuracy is from true accuracy, in points, {means_over(groups)}"
    return Table(caption, "method", (*columns, Column("mean")), tuple(rows))


def _off(group: Group, domain: str) -> Number:
    return group.number(f"estimate_error/{domain}")


def _beside(group: Group, domain: str) -> str:
    estimated, true = (group.mean(f"{name}/{domain}") for name in ("estimated", "accuracy"))
    return f"estimated {estimated:.1f} %, true {true:.1f} %"


def health_note(groups: Iterable[Group]) -> str:
    """For whom the alarm rang, and from which batch on; empty where it rang for nobody."""
    rang = []
    for group in groups:
        batches = group.values("alarm")
        if batches:
            of = f" in {len(batches)} of {len(group.runs)} runs" if len(group.runs) > 1 else ""
            rang.append(f"{group.label} (first at batch {min(batches):.0f}{of})")
    if not rang:
        return ""
    return (
        f"The alarm on health rang for {enumerated(rang)}: without labels, it seemed that the "
        "model is less accurate than on source images, or that adapting does harm."
    )
