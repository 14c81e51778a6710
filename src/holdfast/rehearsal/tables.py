"""A rehearsal's findings as tables, and as a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.rehearsal.judge import Difference
from holdfast.rehearsal.standing import Standing
from holdfast.results.table import Block, Cell, Column, Heading, Item, Mark, Row, Table

NOTE = (
    "Gains are in points of accuracy, means over streams, on the same images; ± is half of a 95 % "
    "interval, with batches as units. They are of hold-out corruptions made from your images: what "
    "comes in deployment may be another drift, and the best of many looks better than it is."
)
COLUMNS = (
    Column("accuracy", "mean over streams, in %"),
    Column("over frozen", "points, mean over streams"),
    Column("over bn", "points, mean over streams"),
    Column("on clean", "points over frozen, where nothing drifts"),
    Column("on drift", "points over frozen, mean over the other streams"),
    Column("worst stream", "that with the smallest gain over frozen"),
    Column("collapsed", "streams on which predictions fell into a few classes", is_text=True),
    Column("time", "that it took, over that of frozen"),
    Column("images", "that it was judged on"),
)


def standings_table(standings: Sequence[Standing], chosen: str) -> Table:
    best = max(
        (standing.accuracy for standing in standings if standing.rung == standings[0].rung),
        default=0.0,
    )
    rows = []
    for standing in standings:
        mark: Mark = (
            "best" if standing.rung == standings[0].rung and standing.accuracy == best else ""
        )
        worst = (
            ""
            if standing.worst is None
            else f"{standing.worst[0]} {_signed(standing.worst[1].mean)}"
        )
        cells = (
            Cell(f"{standing.accuracy:.1f}", mark),
            *(
                Cell("" if gain is None else str(gain))
                for gain in (standing.gain, standing.over_bn, standing.on_clean, standing.on_drift)
            ),
            Cell(worst),
            Cell(", ".join(standing.collapsed)),
            Cell(f"{standing.cost:.1f}×"),
            Cell(f"{standing.images:,}"),
        )
        badges = ("take this",) if standing.method == chosen else ()
        rows.append(Row(standing.method, cells, standing.method, badges=badges))
    return Table("Methods, those of the last rung first", "method", COLUMNS, tuple(rows))


def streams_table(standings: Sequence[Standing]) -> Table:
    names = list(standings[0].by_stream)
    rows = tuple(
        Row(
            standing.method,
            tuple(Cell(f"{standing.by_stream[name]:.1f}") for name in names),
            standing.method,
        )
        for standing in standings
        if standing.rung == standings[0].rung
    )
    columns = tuple(map(Column, names))
    return Table("Accuracy by stream in the last rung, in %", "method", columns, rows)


def blocks(
    sentence: str, table: Table, streams: Table, ruled_out: Mapping[str, str]
) -> list[Block]:
    listed = [Item(f"{name}: {why}") for name, why in ruled_out.items()]
    return [sentence, table, NOTE, streams, Heading("Why not the others"), *listed]


def _signed(value: float) -> str:
    return str(Difference(value, 0)).partition(" ")[0]
