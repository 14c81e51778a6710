"""From what methods made of the rungs to what is known of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.rehearsal.judge import (
    Choice,
    Difference,
    Showing,
    choose,
    collapsed_on,
    compare,
    failure,
    ranked,
    score,
    why_dropped,
    why_not,
)
from holdfast.rehearsal.plan import BN, FROZEN, passes

CLEAN = "clean"


@dataclass(frozen=True)
class Standing:
    """What is known of a method, from the last rung that it came to. Gains are over frozen, unless
    said; None: there is nothing to compare."""

    method: str
    rung: int
    images: int
    accuracy: float
    """Mean over streams."""
    by_stream: Mapping[str, float]
    gain: Difference | None
    over_bn: Difference | None
    on_clean: Difference | None
    on_drift: Difference | None
    worst: tuple[str, Difference] | None
    """The stream with the smallest gain."""
    collapsed: tuple[str, ...]
    passes: int
    """What it costs, in forwards; a backward counts two."""
    cost: float
    """The time that it took, over that of frozen on the same streams."""
    why: str
    """Why it is not the one to take; empty of the one that is."""


class Conclusion(NamedTuple):
    choice: Choice
    standings: tuple[Standing, ...]


def conclude(rungs: Sequence[Mapping[str, Showing]]) -> Conclusion:
    costs = {name: passes(name) for name in rungs[0]}
    choice = choose(rungs[-1], costs)
    standings: list[Standing] = []
    for number in reversed(range(len(rungs))):
        showings = rungs[number]
        order = ranked(showings)
        order += [name for name in showings if name not in order]
        done = {standing.method for standing in standings}
        for name in order:
            if name in done:
                continue
            if number < len(rungs) - 1:
                why = why_dropped(name, showings, order[0])
            elif name != choice.method:
                why = why_not(name, showings, choice, costs)
            else:
                why = ""
            standings.append(_standing(name, number, showings, costs[name], why))
    return Conclusion(choice, tuple(standings))


def _standing(
    name: str, rung: int, showings: Mapping[str, Showing], passes: int, why: str
) -> Standing:
    showing, frozen = showings[name], showings[FROZEN]
    taken = [
        sum(evaluation.seconds for evaluation in evaluations.values())
        for evaluations in (showing, frozen)
    ]
    drift = [stream for stream in showing if stream != CLEAN]
    compared = name != FROZEN and failure(showing) is None
    against_bn = compared and BN in showings and name != BN and failure(showings[BN]) is None
    by_stream = (
        {stream: compare(showing, frozen, [stream]) for stream in showing} if compared else {}
    )
    worst = min(by_stream.items(), key=lambda item: item[1].mean, default=None)
    return Standing(
        name,
        rung,
        sum(sum(evaluation.images) for evaluation in showing.values()),
        score(showing),
        {stream: evaluation.accuracy for stream, evaluation in showing.items()},
        gain=compare(showing, frozen) if compared else None,
        over_bn=compare(showing, showings[BN]) if against_bn else None,
        on_clean=by_stream.get(CLEAN),
        on_drift=compare(showing, frozen, drift) if compared else None,
        worst=worst,
        collapsed=tuple(collapsed_on(showing, frozen)),
        passes=passes,
        cost=taken[0] / max(taken[1], 1e-9),
        why=why,
    )
