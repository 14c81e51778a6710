"""The page: one HTML file with all that it needs, put together from the other files' parts."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache, cached_property
from pathlib import Path
from string import Template

import vl_convert

import holdfast
from holdfast.paper.published_rows import beside
from holdfast.report import chart_data as tidy
from holdfast.report.charts import Charts
from holdfast.report.figure import Figure, Section
from holdfast.report.figures import sections
from holdfast.report.finding import apart, finding, headline, others, overall
from holdfast.report.markup import as_json, chart_json, escape, legend, said, section, table
from holdfast.report.provenance import how, notes
from holdfast.report.themes import DARK, LIGHT
from holdfast.results.compare import Comparison, compare, over
from holdfast.results.gather import Gathered
from holdfast.results.tables import accuracy_table, alarm_lines, figures_table, idle_note

STATIC = Path(__file__).with_name("static")


@dataclass(frozen=True)
class Report:
    """What a page shows, worked out once for the page, pictures and tables."""

    gathered: Gathered

    @cached_property
    def comparisons(self) -> list[Comparison]:
        return compare(self.gathered.runs)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Of all methods, in the order in which they were begun, which decides their looks."""
        groups = [group for one in self.comparisons for group in one.groups]
        groups.sort(key=lambda one: str(one.first.manifest.get("time_started", "")))
        return tuple(dict.fromkeys(one.label for one in groups))

    @cached_property
    def places(self) -> dict[str, int]:
        return {label: place for place, label in enumerate(self.labels)}

    @property
    def prefixes(self) -> list[str]:
        """Of names of charts and tables, so that those of two comparisons differ."""
        many = len(self.comparisons) > 1
        return [f"c{place}-" if many else "" for place in range(len(self.comparisons))]

    def sections(self, *, legend: bool = False) -> list[list[Section]]:
        """Of each comparison."""
        return [
            sections(one, Charts(self.labels, legend, one.remarks), prefix)
            for one, prefix in zip(self.comparisons, self.prefixes, strict=True)
        ]

    @cached_property
    def findings(self) -> dict[str, list[str]]:
        """What each comparison shows, by what tells it from the others."""
        named = apart(self.comparisons)[1] if self.comparisons else {}
        return {name: headline(one) for name, one in named.items()}

    @cached_property
    def sentences(self) -> list[str]:
        """What the only comparison shows, or in one sentence what all of them do."""
        if not self.comparisons:
            return ["There is no run to show yet."]
        if len(self.comparisons) == 1:
            return next(iter(self.findings.values()))
        shared, named = apart(self.comparisons)
        return [f"On {shared}: {overall(named)}" if shared else overall(named)]

    @property
    def headline(self) -> str:
        return " ".join(self.sentences)


def page(report: Report, *, every: float | None = None) -> str:
    """The whole file. `every`: seconds between two looks for news, where it is served."""
    drawn = report.sections()
    figures = [one for each in drawn for part in each for one in part.figures]
    script, library = _static("page.js"), _library()
    fill = {
        "every": "" if every is None else f' data-every="{every:g}"',
        "hashes": " ".join(f"'sha256-{_hash(one)}'" for one in (library, script)),
        "title": escape(f"holdfast: {report.sentences[0]}"),
        "style": _static("page.css"),
        "body": _body(report, drawn, followed=every is not None),
        "data": as_json(_data(report, figures)),
        "library": library,
        "script": script,
    }
    return Template(_static("page.html")).substitute(fill)


def _data(report: Report, figures: list[Figure]) -> dict[str, object]:
    tables = {name: one for figure in figures for name, one in figure.tables.items()}
    return {
        "methods": report.labels,
        "themes": {"light": LIGHT, "dark": DARK},
        "charts": {one.id: chart_json(one) for one in figures},
        "tables": {name: tidy.columns(one, report.labels) for name, one in tables.items()},
    }


def _body(report: Report, drawn: list[list[Section]], *, followed: bool) -> str:
    parts = [
        _part(report, one, prefix, each)
        for one, prefix, each in zip(report.comparisons, report.prefixes, drawn, strict=True)
    ]
    return (
        _head(report, drawn, followed=followed)
        + (
            legend(report.labels, [one.remarks for one in report.comparisons])
            if report.labels
            else ""
        )
        + f'<main id="report">{"".join(parts)}{notes(report.gathered.notes)}</main>'
        + _foot()
    )


def _head(report: Report, drawn: list[list[Section]], *, followed: bool) -> str:
    single = report.comparisons[0] if len(report.comparisons) == 1 else None
    unread = len(report.gathered.notes)
    note = (
        f'<p class="note">Not all could be read: see <a href="#notes">{unread} '
        f"{'note' if unread == 1 else 'notes'}</a> at the end.</p>"
        if unread
        else ""
    )
    first, *rest = report.sentences
    then = f'<span class="then">{said(" ".join(rest))}</span>' if rest else ""
    return (
        '<header><div class="top"><p class="brand">holdfast <span>report</span></p>'
        '<button type="button" data-do="theme">Dark</button></div>'
        f"<h1>{said(first)}{then}</h1>"
        + (_listed(map(said, others(single))) if single else _each(report))
        + (f'<p class="facts">{escape(_facts(single))}</p>' if single else "")
        + "".join(_progress(report, followed=followed))
        + note
        + (_contents(drawn[0]) if single else "")
        + "</header>"
    )


def _listed(items: Iterable[str]) -> str:
    lines = "".join(f"<li>{one}</li>" for one in items)
    return f'<ul class="more">{lines}</ul>' if lines else ""


def _each(report: Report) -> str:
    """What each of several comparisons shows, with a link to its part of the page."""
    found = zip(report.prefixes, report.findings.items(), strict=True)
    lines = _listed(
        f'<a href="#{prefix}part">{escape(name)}</a>: {said(" ".join(sentences))}'
        for prefix, (name, sentences) in found
    )
    return f'<nav aria-label="Contents">{lines}</nav>' if lines else ""


def _facts(one: Comparison) -> str:
    first = one.runs[0]
    runs = sorted({len(group.runs) for group in one.groups})
    repeats = over(one.groups) if runs[-1] > 1 else "seed"
    images = first.manifest.get("images")
    facts = [
        one.title,
        f"{len(one.groups)} method{'s' if len(one.groups) > 1 else ''}",
        f"{len(one.domains)} domain{'s' if len(one.domains) != 1 else ''}",
        f"{images:,} images" if isinstance(images, int) else "",
        f"{'–'.join(map(str, dict.fromkeys((runs[0], runs[-1]))))} {repeats}",
    ]
    return " · ".join(fact for fact in facts if fact)


def _progress(report: Report, *, followed: bool) -> Iterator[str]:
    runs = report.gathered.runs
    going = [one for one in runs if not one.finished]
    if followed and runs and not going:
        yield '<p class="facts" role="status">All runs are finished.</p>'
    if not going:
        return
    yield '<div class="progress" role="status">'
    yield f"<p class='facts'>{len(runs) - len(going)} of {len(runs)} runs are finished.</p>"
    streams = {one.path: each.title for each in report.comparisons for one in each.runs}
    for one in going:
        whole = one.planned or one.done or 1
        order = "" if one.order is None else f", order {one.order}"
        name = escape(f"{one.title} on {streams.get(one.path, one.stream)}, seed {one.seed}{order}")
        yield (
            f"<div><span>{name}</span><span>{one.done:,} of {whole:,} batches</span>"
            f'<progress max="{whole}" value="{one.done}" aria-label="{name}"></progress></div>'
        )
    yield "</div>"


def _contents(drawn: list[Section]) -> str:
    """Of the only comparison."""
    links = {"accuracy-h": "Accuracy by domain"}
    links |= {f"{one.id}-h": one.title for one in drawn}
    links |= {"figures-h": "Figures", "how-h": "How it was run"}
    items = "".join(f'<li><a href="#{id}">{escape(text)}</a></li>' for id, text in links.items())
    return f'<nav aria-label="Contents"><ul>{items}</ul></nav>'


def _part(report: Report, one: Comparison, prefix: str, drawn: list[Section]) -> str:
    """All of one comparison."""
    places: Mapping[str, int] = report.places
    published = beside(one)
    lead = ""
    if len(report.comparisons) > 1:
        texts = [finding(one), *others(one)]
        lead = "".join(f'<p class="lead">{said(text)}</p>' for text in texts)
    marks = "● best, ○ second best of the methods that are through and acted."
    key = " ".join(filter(None, (marks, idle_note(one), published.note)))
    found = [
        f'<h2 id="{prefix}part">{escape(one.title)}</h2>{lead}',
        f'<section aria-labelledby="{prefix}accuracy-h"><h3 id="{prefix}accuracy-h">Accuracy by '
        f"domain</h3>{table(accuracy_table(one, published.rows, means_first=True), places)}"
        f'<p class="key">{escape(key)}</p></section>',
    ]
    for each in drawn:
        found.append(section(each, _alarms(one) if each.id == f"{prefix}stream" else ""))
    found.append(
        f'<section aria-labelledby="{prefix}figures-h"><h3 id="{prefix}figures-h">Figures of each '
        f"method</h3>{table(figures_table(one), places)}</section>"
    )
    found.append(how(one, places, prefix))
    return "".join(found)


def _alarms(one: Comparison) -> str:
    lines = "".join(f"<li>{escape(line)}</li>" for line in alarm_lines(one))
    if lines:
        return f'<h4>Collapse alarms</h4><ul class="alarms">{lines}</ul>'
    return '<p class="key">No collapse alarm rang.</p>'


def _foot() -> str:
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return (
        f"<footer>Made by holdfast {escape(holdfast.__version__)} on {now} from stored rows. "
        "The page asks no network for anything.</footer>"
    )


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _static(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")


@cache
def _library() -> str:
    """Vega, Vega-Lite and Vega-Embed."""
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")
