"""What the runs show, in one plain sentence, as it comes out."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import iadd
from typing import TypeAlias

from holdfast.bench.metrics import Tally
from holdfast.bench.sweep import CHOSEN
from holdfast.report.entries import Comparison, Entry, over
from holdfast.report.reading import Reading
from holdfast.words import enumerated

_Read: TypeAlias = Callable[[Reading], float]

# Less than the clock can tell, in shares of the time.
CLOCK = 0.01


@dataclass(frozen=True)
class Difference:
    """Of one figure between two methods, over seeds that both have if there are such."""

    value: float
    spread: float
    """Standard deviation over seeds; NaN with one seed."""
    seeds: int
    least: float = 0.0
    """What is smaller than this is none, with any number of seeds."""

    @property
    def is_known(self) -> bool:
        return math.isfinite(self.value)

    @property
    def is_shown(self) -> bool:
        """Whether the runs show one: it is larger than what another seed changes."""
        return abs(self.value) > max(self.least, 0.0 if math.isnan(self.spread) else self.spread)

    @property
    def text(self) -> str:
        digits = 1 if abs(self.value) >= 1 else 2
        spread = "" if math.isnan(self.spread) else f" ± {self.spread:.{digits}f}"
        return f"{abs(self.value):.{digits}f}{spread}"


@dataclass(frozen=True)
class Pair:
    """Two entries over the domains that both have seen as far as each other."""

    entry: Entry
    other: Entry
    timed: bool = True
    """Whether their times can be compared."""

    @cached_property
    def domains(self) -> list[str]:
        def images(one: Entry, name: str) -> set[float]:
            return {reading.figure(f"images/{name}") for reading in one.readings}

        both = [name for name in self.entry.domains if name in self.other.domains]
        return [name for name in both if images(self.entry, name) == images(self.other, name)]

    @property
    def is_whole(self) -> bool:
        return self.entry.domains == self.domains and self.other.domains == self.domains

    def accuracy(self) -> Difference:
        """In points, of the mean over domains."""

        def mean(one: Reading) -> float:
            found = [one.figure(f"accuracy/{name}") for name in self.domains]
            return statistics.fmean(found) if found else math.nan

        ours, theirs = self._by_seed(mean)
        return _difference(ours, theirs, least=0.005)

    def calibration(self) -> Difference:
        """In points of the expected calibration error."""

        def ece(one: Reading) -> float:
            if self.is_whole:
                return 100 * one.figure("ece_15")
            tallies = [_copy(one, name) for name in self.domains]
            known = [tally for tally in tallies if tally is not None]
            return 100 * reduce(iadd, known[1:], known[0]).ece() if known else math.nan

        ours, theirs = self._by_seed(ece)
        return _difference(ours, theirs, least=0.05)

    def time(self) -> Difference:
        """In % of the other's time, of the median of a batch; unknown on different machines, and
        where other runs or programs disturbed it."""
        steady = self.timed and self.entry.steady and self.other.steady
        if not steady or _machine(self.entry) != _machine(self.other):
            return Difference(math.nan, math.nan, 0)
        ours, theirs = self._by_seed(lambda one: one.figure("time_median"))
        whole = statistics.fmean(theirs.values()) / 100 if theirs else math.nan
        return _difference(
            {seed: value / whole for seed, value in ours.items()},
            {seed: value / whole for seed, value in theirs.items()},
            # Runs come one after the other, so that the machine's moods differ between them.
            least=100 * max(CLOCK, self.entry.unevenness, self.other.unevenness),
        )

    def _by_seed(self, figure: _Read) -> tuple[dict[str, float], dict[str, float]]:
        found = []
        for one in (self.entry, self.other):
            values = {f"{each.seed} {each.stream}": figure(each) for each in one.readings}
            found.append({seed: value for seed, value in values.items() if math.isfinite(value)})
        return found[0], found[1]


def sentence(pair: Pair) -> str:
    """`eata+debias is 1.4 points more accurate than eata, better calibrated, 3 % slower`."""
    accuracy, calibration, time = pair.accuracy(), pair.calibration(), pair.time()
    one, other = pair.entry.label, pair.other.label
    if not accuracy.is_known:
        return f"{one} and {other} have no domain in common yet."
    parts = [_accuracy(pair, accuracy)]
    if calibration.is_known:
        parts.append(_worded(calibration, "worse calibrated", "better calibrated", "calibrated"))
    if time.is_known:
        parts.append(_time(time))
    parts += _chosen_of(pair)
    so_far = "" if pair.is_whole and pair.entry.finished and pair.other.finished else "So far, "
    seeds = ", with one seed, so chance is not ruled out" if accuracy.seeds < 2 else ""
    return f"{so_far}{', '.join(parts)}{seeds}."


def _accuracy(pair: Pair, found: Difference) -> str:
    one, other = pair.entry.label, pair.other.label
    if found.is_shown:
        more = "more" if found.value > 0 else "less"
        return f"{one} is {found.text} points {more} accurate than {other}"
    if abs(found.value) <= found.least:
        return f"{one} is as accurate as {other}"
    return (
        f"{one} is as accurate as {other} (they differ by {found.text} points, which is no more "
        f"than {over([pair.entry, pair.other])} do)"
    )


def _worded(found: Difference, up: str, down: str, same: str) -> str:
    if not found.is_shown:
        return f"equally well {same}"
    return up if found.value > 0 else down


def _time(found: Difference) -> str:
    if not found.is_shown:
        return "about as fast"
    amount = abs(found.value)
    return f"{amount:.{0 if amount >= 1 else 1}f} % {'slower' if found.value > 0 else 'faster'}"


def _chosen_of(pair: Pair) -> list[str]:
    whose = {
        (True, True): "both learning rates",
        (True, False): "its learning rate",
        (False, True): "the latter's learning rate",
    }.get((pair.entry.chosen, pair.other.chosen))
    return [f"{whose} {CHOSEN}"] if whose else []


# Which of many things to say first.


def finding(comparison: Comparison) -> str:
    """The one sentence: on a plug-in and its host, where both were run; else on the best method
    and the next; else on the only one."""
    entries = _told(comparison)
    if not entries:
        return "No batch of these runs has been written down yet."
    said = _of_plugins(comparison)
    if said:
        return said[0]
    ranked = sorted(entries, key=lambda one: -one.mean("mean_accuracy"))
    if len(ranked) == 1:
        return _alone(ranked[0])
    pair = Pair(ranked[0], ranked[1], not comparison.disturbed)
    if pair.accuracy().value < 0:  # over the domains that both have seen while they go on
        pair = replace(pair, entry=pair.other, other=pair.entry)
    if not pair.accuracy().is_known or pair.accuracy().is_shown:
        return sentence(pair)
    level = [one for one in ranked[1:] if not Pair(ranked[0], one).accuracy().is_shown]
    return _level([ranked[0], *level], len(ranked))


def others(comparison: Comparison) -> list[str]:
    """The same of every other plug-in and its host."""
    return _of_plugins(comparison)[1:]


def _told(comparison: Comparison) -> list[Entry]:
    return [one for one in comparison.entries if one.values("mean_accuracy")]


def _of_plugins(comparison: Comparison) -> list[str]:
    """Sentences on plug-ins and their hosts, those with the most accurate host first.

    Of many settings of one plug-in none is picked by its result: it is the plug-in as it is
    without any that comes first, and the others are told of together.
    """
    found: dict[tuple[str, tuple[str, ...]], list[Pair]] = {}
    for one in _told(comparison):
        host = comparison.host_of(one)
        if host is not None and host.values("mean_accuracy"):
            found.setdefault((host.label, one.names), []).append(
                Pair(one, host, not comparison.disturbed)
            )
    said = []
    for pairs in sorted(found.values(), key=lambda each: -each[0].other.mean("mean_accuracy")):
        plain = [pair for pair in pairs if "(" not in pair.entry.parts[-1]]
        first = plain if len(plain) == 1 else []
        rest = [pair for pair in pairs if pair not in first]
        said += [_of_pairs(each) for each in (first, rest) if each]
    return said


def _of_pairs(pairs: list[Pair]) -> str:
    if len(pairs) == 1:
        return sentence(pairs[0])
    name, host = "+".join(pairs[0].entry.names), pairs[0].other.label
    pairs = [pair for pair in pairs if pair.accuracy().is_known]
    if not pairs:
        return f"{name} and {host} have no domain in common yet."
    known = [pair.accuracy() for pair in pairs]
    least, most = (pick(known, key=lambda one: one.value).value for pick in (min, max))
    more, less = (sum(one.is_shown and sign * one.value > 0 for one in known) for sign in (1, -1))
    tested = min(one.seeds for one in known) > 1
    repeats = over(one for pair in pairs for one in (pair.entry, pair.other))
    seeds = f"by more than {repeats} differ" if tested else "with one seed"
    which = f"better in {more} and worse in {less}" if more or less else "in none"
    rates = _chosen_among([pair.entry.chosen or pair.other.chosen for pair in pairs])
    return (
        f"{name} differs from {host} by {_signed(least)} to {_signed(most)} points of accuracy "
        f"over {len(known)} settings{rates}: {which} of them, {seeds}."
    )


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def _alone(entry: Entry) -> str:
    accuracy, std = entry.mean("mean_accuracy"), entry.std("mean_accuracy")
    many = len(entry.domains)
    spread = "" if math.isnan(std) else f" ± {std:.1f}"
    over = f" on average over {many} domains" if many > 1 else ""
    ece = entry.mean("ece_15")
    error = "" if math.isnan(ece) else f", with a calibration error of {100 * ece:.1f} %"
    so_far = "" if entry.finished else "So far, "
    seed = "" if len(entry.values("mean_accuracy")) > 1 else " (one seed)"
    rate = f", its learning rate {CHOSEN}" if entry.chosen else ""
    return f"{so_far}{entry.label} is {accuracy:.1f}{spread} % accurate{over}{error}{rate}{seed}."


def _level(best: list[Entry], of: int) -> str:
    names = enumerated([one.label for one in best])
    through = all(one.finished for one in best)
    # Of runs that go on, means are over domains of which some have seen more.
    at = f", at {best[0].mean('mean_accuracy'):.1f} %" if through else ""
    rest = f", the best of {of} methods" if of > len(best) else ""
    seeds = min(len(one.values("mean_accuracy")) for one in best)
    why = f"they differ by no more than {over(best)} do" if seeds > 1 else "one seed tells no more"
    rates = _chosen_among([one.chosen for one in best])
    return f"{'' if through else 'So far, '}{names}{rates} are equally accurate{at}{rest}: {why}."


def _chosen_among(chosen: list[bool]) -> str:
    """' (2 of them with a learning rate chosen with labels)', where there are any."""
    which = "all" if all(chosen) else f"{sum(chosen)} of them"
    return f" ({which} with a learning rate {CHOSEN})" if any(chosen) else ""


def _difference(
    ours: dict[str, float], theirs: dict[str, float], *, least: float = 0.0
) -> Difference:
    """Seed by seed where both have the same ones."""
    if not ours or not theirs:
        return Difference(math.nan, math.nan, 0, least)
    if ours.keys() == theirs.keys():
        each = [ours[seed] - theirs[seed] for seed in ours]
        spread = statistics.stdev(each) if len(each) > 1 else math.nan
        return Difference(statistics.fmean(each), spread, len(each), least)
    value = statistics.fmean(ours.values()) - statistics.fmean(theirs.values())
    seeds = min(len(ours), len(theirs))
    known = [statistics.stdev(one.values()) for one in (ours, theirs) if len(one) > 1]
    return Difference(value, math.hypot(*known) if known else math.nan, seeds, least)


def _machine(entry: Entry) -> str:
    first = entry.first
    return json.dumps([first.manifest.get("machine"), first.run.get("threads")], sort_keys=True)


def _copy(reading: Reading, domain: str) -> Tally | None:
    if reading.recorder is None or domain not in reading.recorder.domains:
        return None
    copy = Tally(reading.recorder.classes)
    copy += reading.recorder.domains[domain]
    return copy
