"""What tables and notes tell of health."""

import pytest
from compared import comparison_of
from made import make_run

from holdfast.results.health import estimate_table, health_note
from holdfast.results.tables import metrics_table


def told(estimated, rings=None):
    """Of each batch: what was estimated, and whether the alarm rings from a batch on."""

    def of(number):
        rang = rings is not None and number >= rings
        state = "degrading" if rang else "adapting"
        return {"estimated": estimated, "state": state, "alarm": rang, "fallback": rang}

    return {"told": of}


def test_errors_are_by_method_and_domain(tmp_path):
    make_run(tmp_path, "tent", {"fog": 50, "snow": 70}, rows=told(0.55))
    make_run(tmp_path, "bn", {"fog": 40, "snow": 60})
    table = estimate_table(comparison_of(tmp_path))
    assert [column.text for column in table.columns] == ["fog", "snow", "mean"]
    (row,) = table.rows
    assert row.label == "tent"
    assert [cell.text for cell in row.cells] == ["5.0", "15.0", "10.0"]
    assert row.cells[1].title == "estimated 55.0 %, true 70.0 %"


def test_where_nothing_was_estimated_there_is_no_table(tmp_path):
    make_run(tmp_path)
    comparison = comparison_of(tmp_path)
    assert estimate_table(comparison) is None
    assert health_note(comparison.groups) == ""
    heads = [column.text for column in metrics_table(comparison.groups).columns]
    assert not {"estimate off by", "unhealthy %", "fallback %"} & set(heads)


def test_it_is_said_for_whom_the_alarm_rang(tmp_path):
    for seed in range(2):
        make_run(tmp_path, "tent", seed=seed, rows=told(0.5, rings=6 + seed))
        make_run(tmp_path, "eata", seed=seed, rows=told(0.5))
    groups = comparison_of(tmp_path).groups
    note = health_note(groups)
    assert "rang for tent (first at batch 6 in 2 of 2 runs):" in note
    assert "eata" not in note
    table = metrics_table(groups)
    heads = [column.text for column in table.columns]
    (row,) = [row for row in table.rows if row.label == "tent"]
    # Of 12 batches, 6 and 5.
    for head in ("unhealthy %", "fallback %"):
        value = float(row.cells[heads.index(head)].text.split()[0])
        assert value == pytest.approx(100 * 5.5 / 12, abs=0.05)
