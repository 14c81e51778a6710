"""What the runs show, in plain sentences, as it comes out.

headline(comparison)   which method is best, what a plug-in adds to its host, and where adapting is
                       worse than not adapting
others(comparison)     the same of every other plug-in
overall(comparisons)   the best method of each of several comparisons, which `apart` names
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.report.losses import losses
from holdfast.results import CHOSEN
from holdfast.results.comparison import Comparison
from holdfast.results.group import BASELINES, ONE_SEED, Group, Number, Pair, repeated_over
from holdfast.util.words import enumerated

ACCURACY = "mean_accuracy"
# Whose learning rate labels had a say in: of a method, and of that which it is held against.
RATES = {
    (True, True): "both learning rates",
    (True, False): "its learning rate",
    (False, True): "the latter's learning rate",
}


def headline(comparison: Comparison) -> list[str]:
    """Sentences, the most important first."""
    groups, idle = _comparable(comparison), _idle(comparison)
    if not groups:
        return idle or ["No batch of these runs has been written down yet."]
    plugins = _of_plugins(comparison)[:1]
    # Of a host and its plug-in, what the plug-in adds says which is best.
    best = [] if len(groups) == 2 and plugins else [_best(comparison)]
    return [*_one_seed_once([*best, *plugins, *losses(comparison, groups)]), *idle]


def finding(comparison: Comparison) -> str:
    return " ".join(headline(comparison))


def others(comparison: Comparison) -> list[str]:
    """The same of every other plug-in and its host."""
    return _of_plugins(comparison)[1:]


def apart(comparisons: Sequence[Comparison]) -> tuple[str, dict[str, Comparison]]:
    """What their titles share, and each by the rest of its title, or of that by the kind of stream
    where it is enough."""
    titles = [comparison.title.split(", ") for comparison in comparisons]
    shared = [part for part in (titles or [[]])[0] if all(part in title for title in titles)]
    rests = [", ".join(part for part in title if part not in shared) for title in titles]
    kinds = [rest.partition("(")[0] for rest in rests]
    names = kinds if len({*kinds}) == len(kinds) else rests
    return ", ".join(shared), dict(zip(names, comparisons, strict=True))


def overall(comparisons: Mapping[str, Comparison]) -> str:
    """The best method of each, by name: `debias is the most accurate on continual and mixed;
    eata+debias on gradual.`"""
    won: dict[tuple[str, ...], list[str]] = {}
    for name, comparison in comparisons.items():
        best, groups = _leaders(comparison), _comparable(comparison)
        so_far = [] if all(group.finished for group in groups) else ["so far"]
        remarks = so_far + ["no other method"] * (len(groups) == 1)
        setting = f"{name} ({', '.join(remarks)})" if remarks else name
        won.setdefault(tuple(group.label for group in best), []).append(setting)
    unknown = won.pop((), [])
    parts: list[str] = []
    for labels, names in won.items():
        level = " (level)" if len(labels) > 1 else ""
        verb = "" if parts else f" {'are' if level else 'is'} the most accurate"
        parts.append(f"{enumerated(labels)}{level}{verb} on {enumerated(names)}")
    if unknown:
        parts.append(f"nothing can be said yet on {enumerated(unknown)}")
    return f"{'; '.join(parts)}."


def _comparable(comparison: Comparison) -> list[Group]:
    """The groups that have an accuracy, and acted."""
    return [group for group in comparison.groups if group.number(ACCURACY) and not group.idle]


def _idle(comparison: Comparison) -> list[str]:
    idle = [f"{group.label} ({group.idle})" for group in comparison.groups if group.idle]
    pronoun = "it" if len(idle) == 1 else "them"
    return [f"{enumerated(idle)} hardly acted: nothing is compared with {pronoun}."] if idle else []


def _one_seed_once(sentences: list[str]) -> list[str]:
    """That there is one seed is said at the end, where it holds of every sentence."""
    if len(sentences) < 2 or not all(ONE_SEED in text for text in sentences):
        return sentences
    bare = [text.replace(ONE_SEED, "") for text in sentences]
    return [*bare, f"All of it{ONE_SEED.removeprefix(',')}."]


# The best method.


def _leaders(comparison: Comparison) -> list[Group]:
    """The most accurate method, and those that seeds do not tell from it."""
    ranked = sorted(_comparable(comparison), key=lambda group: -group.mean(ACCURACY))
    if not ranked:
        return []
    first = ranked[0]
    for group in ranked:  # over the domains that both have seen while they go on
        if Pair(group, first).accuracy().value > 0:
            first = group
    behind = [Pair(first, group) for group in ranked if group is not first]
    known = ((pair.other, pair.accuracy()) for pair in behind)
    return [first, *(other for other, by in known if by.is_known and not by.is_shown)]


def _best(comparison: Comparison) -> str:
    groups, leaders = _comparable(comparison), _leaders(comparison)
    first = leaders[0]
    if len(groups) == 1:
        return _alone(first)
    if len(groups) == 2 and len(leaders) == 1:
        (second,) = (group for group in groups if group is not first)
        return sentence(Pair(first, second, not comparison.disturbed))
    pairs = [Pair(first, group) for group in groups if group not in leaders]
    behind = [pair for pair in pairs if pair.accuracy().value > 0]
    gains = _gains(comparison, first, behind)
    if len(leaders) > 1:
        return _level(leaders, len(groups), gains)
    whole = all(pair.is_whole for pair in pairs) and all(group.finished for group in groups)
    at = f", at {first.number(ACCURACY).text(1)} %" if whole else ""
    by = f": {gains}" if gains else ""
    seeds = ONE_SEED if any(pair.accuracy().seeds < 2 for pair in behind) else ""
    name = first.label + _remarks(first, groups)
    so_far = "" if whole else "So far, "
    return f"{so_far}{name} is the most accurate of {len(groups)} methods{at}{by}{seeds}."


def _gains(comparison: Comparison, first: Group, behind: Sequence[Pair]) -> str:
    """`1.2 points above eata (the next), 2.5 above bn and 26.2 above frozen`; a host has a sentence
    of its own."""
    bases = [comparison.baseline(name, first) for name in BASELINES]
    host, words = comparison.host_of(first), list[str]()
    for index, pair in enumerate(sorted(behind, key=lambda pair: pair.accuracy().value)):
        if pair.other in bases or (index == 0 and pair.other is not host):
            points = "" if words else " points"
            following = "" if index or pair.other in bases else " (the next)"
            words.append(f"{pair.accuracy().text}{points} above {pair.other.label}{following}")
    return enumerated(words) if words else ""


def _remarks(first: Group, groups: Sequence[Group]) -> str:
    """What kind of method it is, and how it was found where labels had a say in it."""
    base = BASELINES.get("+".join(first.names))
    notes = [f"which does not {base}"] if base else []
    notes += [f"its learning rate {CHOSEN}"] if first.chosen else []
    settings = sum(group.names == first.names for group in groups)
    if settings > 1:
        notes.append(f"picked by this result from {settings} settings")
    return f" ({', '.join(notes)})" if notes else ""


def _alone(group: Group) -> str:
    count = len(group.domains)
    over_all = f" on average over {count} domains" if count > 1 else ""
    accuracy, ece = group.number(ACCURACY), group.number("ece_15")
    error = f", with a calibration error of {100 * ece.value:.1f} %" if ece else ""
    so_far = "" if group.finished else "So far, "
    seed = "" if len(accuracy.by_run) > 1 else " (one seed)"
    rate = f", its learning rate {CHOSEN}" if group.chosen else ""
    return f"{so_far}{group.label} is {accuracy.text(1)} % accurate{over_all}{error}{rate}{seed}."


def _level(best: list[Group], of: int, gains: str) -> str:
    names = enumerated([group.label for group in best])
    through = all(group.finished for group in best)
    # Of runs that go on, means are over domains of which some have seen more.
    at = f", at {best[0].mean(ACCURACY):.1f} %" if through else ""
    standing = f", the best of {of} methods" if of > len(best) else ""
    gained = f", {gains}" if gains else ""
    seeds = min(len(group.values(ACCURACY)) for group in best)
    why = (
        f"they differ by no more than {repeated_over(best)} do"
        if seeds > 1
        else "one seed tells no more"
    )
    rates = _chosen_among([group.chosen for group in best])
    so_far = "" if through else "So far, "
    return f"{so_far}{names}{rates} are equally accurate{at}{standing}{gained}: {why}."


# One method against another.


def sentence(pair: Pair) -> str:
    """`eata+debias is 1.4 points more accurate than eata, better calibrated, 3 % slower`."""
    accuracy, calibration, time = pair.accuracy(), pair.calibration(), pair.time()
    if not accuracy.is_known:
        return f"{pair.group.label} and {pair.other.label} have no domain in common yet."
    parts = [_accuracy(pair)]
    if calibration.is_known:
        better = "worse calibrated" if calibration.value > 0 else "better calibrated"
        parts.append(better if calibration.is_shown else "equally well calibrated")
    if time.is_known:
        amount, slower = abs(time.value), "slower" if time.value > 0 else "faster"
        by = f"{amount:.{0 if amount >= 1 else 1}f} % {slower}"
        parts.append(by if time.is_shown else "about as fast")
    if whose := RATES.get((pair.group.chosen, pair.other.chosen)):
        parts.append(f"{whose} {CHOSEN}")
    so_far = "" if pair.is_whole and pair.group.finished and pair.other.finished else "So far, "
    seeds = ONE_SEED if accuracy.seeds < 2 else ""
    return f"{so_far}{', '.join(parts)}{seeds}."


def _accuracy(pair: Pair) -> str:
    name, other, by = pair.group.label, pair.other.label, pair.accuracy()
    if by.is_shown:
        more = "more" if by.value > 0 else "less"
        return f"{name} is {by.text} points {more} accurate than {other}"
    same = f"{name} is as accurate as {other}"
    if abs(by.value) <= by.least:
        return same
    repeats = repeated_over([pair.group, pair.other])
    return f"{same} (they differ by {by.text} points, which is no more than {repeats} do)"


# Plug-ins and their hosts.


def _of_plugins(comparison: Comparison) -> list[str]:
    """Sentences on plug-ins and their hosts, those with the most accurate host first.

    Of many settings of one plug-in none is picked by its result: it is the plug-in as it is
    without any that comes first, and the others are told of together.
    """
    families: dict[tuple[str, tuple[str, ...]], list[Pair]] = {}
    groups = _comparable(comparison)
    for group in groups:
        host = comparison.host_of(group)
        if host in groups:
            pair = Pair(group, host, not comparison.disturbed)
            families.setdefault((host.label, group.names), []).append(pair)
    sentences = []
    for pairs in sorted(families.values(), key=lambda pairs: -pairs[0].other.mean(ACCURACY)):
        plain = [pair for pair in pairs if not pair.group.written[-1]]
        first = plain if len(plain) == 1 else []
        more = [pair for pair in pairs if pair not in first]
        sentences += [_of_pairs(subset) for subset in (first, more) if subset]
    return sentences


def _of_pairs(pairs: list[Pair]) -> str:
    if len(pairs) == 1:
        return sentence(pairs[0])
    name, host = "+".join(pairs[0].group.names), pairs[0].other.label
    pairs = [pair for pair in pairs if pair.accuracy().is_known]
    if not pairs:
        return f"{name} and {host} have no domain in common yet."
    known = [pair.accuracy() for pair in pairs]
    values = [Number(by.value) for by in sorted(known, key=lambda by: by.value)]
    least, most = (number.text(sign="+") for number in (values[0], values[-1]))
    more, less = (sum(by.is_shown and sign * by.value > 0 for by in known) for sign in (1, -1))
    tested = min(by.seeds for by in known) > 1
    repeats = repeated_over(group for pair in pairs for group in (pair.group, pair.other))
    seeds = f"by more than {repeats} differ" if tested else "with one seed"
    balance = f"better in {more} and worse in {less}" if more or less else "in none"
    rates = _chosen_among([pair.group.chosen or pair.other.chosen for pair in pairs])
    return (
        f"{name} differs from {host} by {least} to {most} points of accuracy "
        f"over {len(known)} settings{rates}: {balance} of them, {seeds}."
    )


def _chosen_among(chosen: list[bool]) -> str:
    """' (2 of them with a learning rate chosen with labels)', where there are any."""
    share = "all" if all(chosen) else f"{sum(chosen)} of them"
    return f" ({share} with a learning rate {CHOSEN})" if any(chosen) else ""
