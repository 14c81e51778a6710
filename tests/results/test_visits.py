"""What a table tells of domains that come again."""

from compared import comparison_of
from made import make_run

from holdfast.results.visits import by_visit, visit_table


def test_accuracy_is_by_visit_over_domains_and_seeds(tmp_path):
    for seed in range(2):
        rows = {"visits": 3, "change": -10}
        make_run(tmp_path, "tent", {"fog": 50, "snow": 70}, seed=seed, rows=rows)
        make_run(tmp_path, "bn", {"fog": 40 + seed * 10, "snow": 60}, seed=seed, rows={"visits": 3})
    table = visit_table(comparison_of(tmp_path))
    heads = ["visit 1", "visit 2", "visit 3", "mean of 3", "last − first"]
    assert [column.text for column in table.columns] == heads
    rows = {row.label: [cell.text for cell in row.cells] for row in table.rows}
    assert rows["tent"] == ["60.0", "50.0", "40.0", "50.00 ± 0.00", "−20.0 ± 0.0"]
    assert rows["bn"] == ["52.5", "52.5", "52.5", "52.50 ± 3.54", "+0.0 ± 0.0"]


def test_of_a_visit_it_is_the_mean_over_its_domains(tmp_path):
    make_run(tmp_path, "tent", {"fog": 20, "snow": 80}, rows={"visits": 2})
    (group,) = comparison_of(tmp_path).groups
    assert by_visit(group.first) == {0: 50.0, 1: 50.0}


def test_of_many_visits_some_are_shown_the_first_and_the_last_among_them(tmp_path):
    make_run(tmp_path, "tent", {"fog": 90}, rows={"visits": 20, "change": -2.5})
    table = visit_table(comparison_of(tmp_path))
    heads = [column.text for column in table.columns]
    assert (heads[0], heads[7]) == ("visit 1", "visit 20")
    assert heads[8:] == ["mean of 20", "last − first"]
    assert table.rows[0].cells[-1].text == "−47.5"


def test_where_nothing_comes_again_there_is_no_table(tmp_path):
    make_run(tmp_path)
    assert visit_table(comparison_of(tmp_path)) is None
