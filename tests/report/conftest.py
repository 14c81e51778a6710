"""Shared by the report's tests: runs of several kinds, gathered once."""

import pytest
from made import HOSTILE, make_run

from holdfast.bench.sweep import CHOSEN
from holdfast.paper.comparable import published_rows
from holdfast.report.page import Report, page
from holdfast.results.gather import gather


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Two seeds each, an analysis, a sweep, an alarm, a run that goes on, a hostile name, a
    foreign folder."""
    path = tmp_path_factory.mktemp("runs")
    rows = {"eata": {"over": 0.25, "favourite": 0.5}, "eata+debias": {"over": 0.05}}
    for seed in range(2):
        make_run(path, "frozen", 30 + seed, seed=seed, started=1)
        make_run(path, "eata", 55 + seed, seed=seed, started=2, analysis=True, rows=rows["eata"])
        made = {"started": 3, "analysis": True, "rows": rows["eata+debias"]}
        make_run(path, "eata+debias", 62 + 2 * seed, seed=seed, **made)
        make_run(path, "eata+debias(alpha=0.9)", 58 + seed, seed=seed, started=4)
    make_run(path, "tent(lr=1.0)", 5, started=5, tags=(CHOSEN,), rows={"favourite": 1.0})
    make_run(path, "sar", 50, cut=6, started=6)
    hostile = {"title": HOSTILE, "method": HOSTILE, "command": f"holdfast run -m {HOSTILE}"}
    make_run(path, "bn", 45, started=7, manifest=hostile | {"fingerprint": "h" * 64})
    (path / "<img src=x onerror=alert(1)>").mkdir()
    (path / "<img src=x onerror=alert(1)>" / "manifest.json").write_text("{")
    return path


@pytest.fixture(scope="session")
def report(runs):
    return Report(gather(runs), published_rows)


@pytest.fixture(scope="session")
def html(report):
    return page(report)
