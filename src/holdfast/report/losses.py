"""Where adapting is worse than not adapting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from holdfast.results import CLEAN, short
from holdfast.results.comparison import Comparison
from holdfast.results.group import BASELINES, ONE_SEED, Difference, Group, Pair
from holdfast.util.words import enumerated

# More domains than these are counted, and so are more methods.
DOMAINS, METHODS = 3, 3

_Lost: TypeAlias = Mapping[str, Difference]
"""By domain."""


def losses(comparison: Comparison, groups: Sequence[Group]) -> list[str]:
    """Sentences on the domains in which groups are less accurate than the model that does not
    adapt: first those in which all groups are."""
    for base in BASELINES:
        against = [(group, comparison.baseline(base, group)) for group in groups]
        pairs = [
            Pair(group, other)
            for group, other in against
            if other is not None and other in groups and other is not group
        ]
        if pairs:
            return _sentences(base, pairs, comparison.domains)
    return []


def _sentences(base: str, pairs: Sequence[Pair], domains: Sequence[str]) -> list[str]:
    verb = BASELINES[base]
    lost = {pair.group.label: _lost(pair) for pair in pairs}
    every = [domain for domain in domains if _is_lost_by_all(domain, pairs, lost)]
    sentences = []
    if every:
        shared = [by for of in lost.values() for domain, by in of.items() if domain in every]
        low, high = (pick(shared, key=_amount).text for pick in (min, max))
        amount = low if low == high else f"{low} to {high}"
        sentences.append(
            f"on {_where(every, domains)} {verb}ing is worse than not {verb}ing: every method is "
            f"less accurate than {base} there, by {amount} points"
        )
    some = {
        label: rest
        for label, of in lost.items()
        if (rest := {domain: by for domain, by in of.items() if domain not in every})
    }
    if some:
        less = "also less" if every else "less"
        sentences.append(
            f"{less} accurate than {base}, which does not {verb}: {_listed(some, domains)}"
        )
    known = [by for of in lost.values() for by in of.values()]
    seeds = ONE_SEED if any(by.seeds < 2 for by in known) else ""
    through = all(pair.group.finished and pair.other.finished for pair in pairs)
    return [
        f"{text[0].upper() + text[1:] if through else f'So far, {text}'}{seeds}."
        for text in sentences
    ]


def _lost(pair: Pair) -> _Lost:
    differences = {domain: pair.accuracy_on(domain) for domain in pair.domains}
    return {domain: by for domain, by in differences.items() if by.is_shown and by.value < 0}


def _is_lost_by_all(domain: str, pairs: Sequence[Pair], lost: Mapping[str, _Lost]) -> bool:
    """By two or more: that of one is told of the one."""
    known = [pair.group.label for pair in pairs if domain in pair.domains]
    return len(known) > 1 and all(domain in lost[label] for label in known)


def _listed(lost: Mapping[str, _Lost], domains: Sequence[str]) -> str:
    """`tent on snow and fog (by up to 7.1 points), sar on …`, the worst first."""
    worst = {label: max(of.values(), key=_amount) for label, of in lost.items()}
    ranked = sorted(lost, key=lambda label: -_amount(worst[label]))
    items = [
        f"{label} on {_where(list(lost[label]), domains)} (by {'up to ' * (len(lost[label]) > 1)}"
        f"{worst[label].text} points)"
        for label in ranked[:METHODS]
    ]
    more = len(ranked) - METHODS
    rest = [f"and {more} more method{'s' * (more > 1)}"] if more > 0 else []
    return ", ".join([*items, *rest])


def _where(lost: Sequence[str], domains: Sequence[str]) -> str:
    if len(lost) > DOMAINS:
        return f"{len(lost)} of {len(domains)} domains"
    return enumerated(
        ["clean images (original)" if name == CLEAN else short(name) for name in lost]
    )


def _amount(by: Difference) -> float:
    return abs(by.value)
