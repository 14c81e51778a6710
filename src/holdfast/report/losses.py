"""Where adapting is worse than not adapting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter

from holdfast.results import CLEAN, short
from holdfast.results.comparison import Comparison
from holdfast.results.group import BASELINES, ONE_SEED, Difference, Group, Pair
from holdfast.util.words import enumerated

# More domains than these are counted, and so are more methods.
DOMAINS, METHODS = 3, 3
_value = attrgetter("value")


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
    common = []
    for domain in domains:
        known = [lost[pair.group.label] for pair in pairs if domain in pair.domains]
        # By two methods or more: what one alone loses is told of that one.
        if len(known) > 1 and all(domain in of for of in known):
            common.append(domain)
    sentences = []
    if common:
        shared = [by for of in lost.values() for domain, by in of.items() if domain in common]
        low, high = (pick(shared, key=_value).text for pick in (max, min))
        amount = low if low == high else f"{low} to {high}"
        sentences.append(
            f"on {_where(common, domains)} {verb}ing is worse than not {verb}ing: every method is "
            f"less accurate than {base} there, by {amount} points"
        )
    lost_alone = {
        label: alone
        for label, of in lost.items()
        if (alone := {domain: by for domain, by in of.items() if domain not in common})
    }
    if lost_alone:
        less = "also less" if common else "less"
        sentences.append(
            f"{less} accurate than {base}, which does not {verb}: {_listed(lost_alone, domains)}"
        )
    one_seed = any(by.seeds < 2 for of in lost.values() for by in of.values())
    seeds = ONE_SEED if one_seed else ""
    through = all(pair.group.finished and pair.other.finished for pair in pairs)
    return [
        f"{text[0].upper() + text[1:] if through else f'So far, {text}'}{seeds}."
        for text in sentences
    ]


def _lost(pair: Pair) -> dict[str, Difference]:
    differences = {domain: pair.accuracy_on(domain) for domain in pair.domains}
    return {domain: by for domain, by in differences.items() if by.is_shown and by.value < 0}


def _listed(lost: Mapping[str, Mapping[str, Difference]], domains: Sequence[str]) -> str:
    """`tent on snow and fog (by up to 7.1 points), sar on …`, the worst first."""
    worst = {label: min(of.values(), key=_value) for label, of in lost.items()}
    ranked = sorted(lost, key=lambda label: worst[label].value)
    items = [
        f"{label} on {_where(list(lost[label]), domains)} (by {'up to ' * (len(lost[label]) > 1)}"
        f"{worst[label].text} points)"
        for label in ranked[:METHODS]
    ]
    if (more := len(ranked) - METHODS) > 0:
        items.append(f"and {more} more method{'s' * (more > 1)}")
    return ", ".join(items)


def _where(lost: Sequence[str], domains: Sequence[str]) -> str:
    if len(lost) > DOMAINS:
        return f"{len(lost)} of {len(domains)} domains"
    return enumerated(
        ["clean images (original)" if name == CLEAN else short(name) for name in lost]
    )
