"""The page: one HTML file with all that it needs, put together from the other files' parts."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache, cached_property
from pathlib import Path

import vl_convert
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from holdfast import __version__
from holdfast.report import chart_data
from holdfast.report.charts import DARK, LIGHT, Charts, style
from holdfast.report.figure import Section
from holdfast.report.figures import sections
from holdfast.report.finding import apart, headline, others, overall
from holdfast.report.provenance import provenance, summary
from holdfast.results import CHOSEN
from holdfast.results.comparison import Comparison, compare
from holdfast.results.gather import Gathered
from holdfast.results.health import estimate_table, health_note
from holdfast.results.stored import IDLE
from holdfast.results.table import Table
from holdfast.results.tables import (
    PublishedRows,
    accuracy_table,
    alarm_lines,
    metrics_table,
    notes,
)
from holdfast.results.visits import visit_table

STATIC = Path(__file__).with_name("static")
# In the legend, by what is remarked of a method.
SIGNS = {CHOSEN: "†", IDLE: "‡"}


@dataclass(frozen=True)
class Report:
    """What a page shows, worked out once for the page, pictures and tables."""

    gathered: Gathered
    published: Callable[[Comparison], PublishedRows] = lambda comparison: PublishedRows()
    """What a paper says of the same runs."""

    @cached_property
    def comparisons(self) -> list[Comparison]:
        return compare(self.gathered.runs)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The labels of all methods, in the order in which they were begun, which decides their
        styles."""
        groups = [group for comparison in self.comparisons for group in comparison.groups]
        groups.sort(key=lambda group: group.first.manifest.time_started)
        return tuple(dict.fromkeys(group.label for group in groups))

    @cached_property
    def places(self) -> dict[str, int]:
        return {label: index for index, label in enumerate(self.labels)}

    @property
    def prefixes(self) -> list[str]:
        """Prefixes for names of charts and tables, so that those of two comparisons differ."""
        several = len(self.comparisons) > 1
        return [f"c{index}-" if several else "" for index in range(len(self.comparisons))]

    @cached_property
    def sections(self) -> list[list[Section]]:
        """Of each comparison."""
        return [
            sections(comparison, Charts(self.labels), prefix)
            for comparison, prefix in zip(self.comparisons, self.prefixes, strict=True)
        ]

    @cached_property
    def findings(self) -> dict[str, list[str]]:
        """What each comparison shows, by what tells it from the others."""
        return {
            name: headline(comparison) for name, comparison in apart(self.comparisons)[1].items()
        }

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
    script, library = static("page.js"), _library()
    html = render(
        "page.html",
        report=report,
        every=every,
        parts=list(_parts(report)),
        remarks=_remarks(report),
        signs=SIGNS,
        runs=report.gathered.runs,
        going_on=list(_going_on(report)),
        notes=report.gathered.notes,
        version=__version__,
        made_at=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        hashes=[_hash(library), _hash(script)],
        style_sheet=static("page.css"),
        data=as_json(_data(report)),
        library=library,
        script=script,
    )
    return str(html)  # plain: `Markup` would escape what is put into it later


def _parts(report: Report) -> Iterator[dict[str, object]]:
    """What is said of each comparison."""
    findings, charts = report.findings.items(), report.sections
    shown = zip(report.comparisons, report.prefixes, findings, charts, strict=True)
    for comparison, prefix, (name, sentences), drawn in shown:
        published = report.published(comparison)
        accuracy = accuracy_table(comparison, published.rows, means_first=True)
        estimates, visits = estimate_table(comparison), visit_table(comparison)
        yield {
            "prefix": prefix,
            "name": name,
            "title": comparison.title,
            "headline": " ".join(sentences),
            "others": others(comparison),
            "summary": summary(comparison),
            "accuracy": table_html(accuracy, report.places),
            "visits": visits and table_html(visits, report.places),
            "notes": " ".join(filter(None, (*notes(comparison.groups), published.note))),
            "sections": drawn,
            "alarms": list(alarm_lines(comparison)),
            "health": health_note(comparison.groups),
            "estimates": estimates and table_html(estimates, report.places),
            "metrics": table_html(metrics_table(comparison.groups), report.places),
            "provenance": provenance(comparison),
        }


def _remarks(report: Report) -> dict[str, list[str]]:
    """What the legend remarks of methods: that which any part of the page does."""
    remarks = [comparison.remarks for comparison in report.comparisons]
    return {
        label: [remark for remark in SIGNS if any(remark in of.get(label, ()) for of in remarks)]
        for label in report.labels
    }


def _going_on(report: Report) -> Iterator[dict[str, object]]:
    titles = {
        run.path: comparison.title for comparison in report.comparisons for run in comparison.runs
    }
    for run in report.gathered.runs:
        if not run.finished:
            order = "" if run.order is None else f", order {run.order}"
            title = titles.get(run.path, run.manifest.stream)
            yield {
                "name": f"{run.title} on {title}, seed {run.seed}{order}",
                "done": run.done,
                "planned": run.manifest.batches or run.done or 1,
            }


def _data(report: Report) -> dict[str, object]:
    """What the script draws charts from."""
    figures = [figure for part in report.sections for section in part for figure in section.figures]
    tables = {name: table for figure in figures for name, table in figure.tables.items()}
    return {
        "methods": report.labels,
        "themes": {"light": LIGHT, "dark": DARK},
        "charts": {
            figure.id: {"spec": figure.spec, "tables": list(figure.tables)} for figure in figures
        },
        "tables": {
            name: chart_data.columns(table, report.places) for name, table in tables.items()
        },
    }


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def static(name: str) -> Markup:
    return Markup((STATIC / name).read_text(encoding="utf-8"))


@cache
def _library() -> Markup:
    """Vega, Vega-Lite and Vega-Embed."""
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return Markup(bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--"))


# At 1280 px, in a wide font: the room that columns have beside the names of rows, where they are
# dense, and where a table is folded and has to fit whatever its signs are.
ROOM, DENSE_ROOM, FOLDED_ROOM = 960, 1040, 880
# What a screen reader says of marks.
SPOKEN = {"best": "best", "second": "second best"}


def render(template: str, **values: object) -> Markup:
    return Markup(_TEMPLATES.get_template(template).render(values))


def breakable(text: str) -> Markup:
    """A method's name, which may be broken after its punctuation."""
    return Markup(re.sub(r"([,+(])", r"\1<wbr>", str(escape(text))))


def sentence(text: str) -> Markup:
    """Numbers are not torn from what follows them, nor methods' names unless they are longer than
    a line; commas stay with what they follow."""
    bound = re.sub(r"(?<=\d) (?=[%±])|(?<=±) (?=\d)", "\u00a0", text)
    return Markup(
        re.sub(
            r"[^\s(]+\([^\s()]*\)(?:\+[\w-]+(?:\([^\s()]*\))?)*[,.:]?",
            lambda name: f'<span class="name">{breakable(Markup(name[0]))}</span>',
            str(escape(bound)),
        )
    )


def as_json(value: object) -> Markup:
    """Safe within a script element: nothing in it can end the element or open a comment."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def table_html(table: Table, places: Mapping[str, int]) -> Markup:
    """Its columns closer to each other where they are many, and as several tables where one would
    be wider than the page. `places`: of methods in the legend, by label."""
    signs = table.signs()
    dense = sum(17.6 + 8.1 * count for count in signs) > ROOM
    widths = [8.3 + 7.2 * count for count in signs]
    too_wide = dense and sum(widths) > DENSE_ROOM
    tables = table.fold(widths, FOLDED_ROOM) if too_wide else [table]
    return render("table.html", tables=tables, dense=dense, places=places, spoken=SPOKEN)


_TEMPLATES = Environment(
    loader=PackageLoader("holdfast.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
_TEMPLATES.filters |= {"breakable": breakable, "sentence": sentence}
_TEMPLATES.globals["style"] = style
