"""The tables: what is best, what was published, what a reader has to be warned of."""

import pytest
from made import HASHES, make_run, make_without_rows, retell

from holdfast.bench.plan import Run
from holdfast.bench.store import RunFolder
from holdfast.bench.sweep import CHOSEN
from holdfast.paper.comparable import published_rows
from holdfast.paper.published import published
from holdfast.results.comparison import compare
from holdfast.results.gather import gather
from holdfast.results.tables import accuracy_table, alarm_lines, idle_note, metrics_table


def comparison(path):
    (one,) = compare(gather(path).runs)
    return one


def column(table, name):
    place = [one.text for one in table.columns].index(name)
    return {row.label: row.cells[place] for row in table.rows}


def test_numbers_are_those_of_the_store(tmp_path):
    folders = {
        method: make_run(tmp_path, method, {"fog": acc, "snow": 50, "original": 95})
        for method, acc in (("eata", 20), ("tent", 31.25))
    }
    table = accuracy_table(comparison(tmp_path))
    for method, folder in folders.items():
        figures = folder.manifest.metrics
        for domain in ("fog", "snow", "original"):
            assert column(table, domain)[method].text == f"{figures[f'accuracy/{domain}']:.2f}"
        assert column(table, "mean of 3")[method].text == f"{figures['mean_accuracy']:.2f}"
        corrupted = figures["mean_accuracy_corrupted"]
        assert column(table, "mean of 2")[method].text == f"{corrupted:.2f}"
    other = metrics_table(comparison(tmp_path).groups)
    for method, folder in folders.items():
        figures = folder.manifest.metrics
        assert column(other, "ECE %")[method].text == f"{100 * figures['ece_15']:.1f}"
        assert column(other, "ms a batch")[method].text == f"{1000 * figures['time_median']:.1f}"


def test_best_and_second_best_are_marked_as_they_are_printed(tmp_path):
    for method, accuracy in {"bn": 40, "tent": 60, "eata": 60, "sar": 50}.items():
        make_run(tmp_path, method, accuracy)
    marks = {
        label: cell.mark
        for label, cell in column(accuracy_table(comparison(tmp_path)), "fog").items()
    }
    assert marks == {"bn": "", "tent": "best", "eata": "best", "sar": "second"}


def test_where_all_are_the_same_none_is_best(tmp_path):
    make_run(tmp_path, "tent")
    make_run(tmp_path, "eata")
    table = accuracy_table(comparison(tmp_path))
    assert {cell.mark for row in table.rows for cell in row.cells} == {""}


def test_a_run_that_goes_on_is_not_the_best_yet(tmp_path):
    make_run(tmp_path, "tent", 40)
    make_run(tmp_path, "eata", 50)
    make_run(tmp_path, "sar", 90, cut=5)
    table = accuracy_table(comparison(tmp_path))
    cells = column(table, "fog")
    assert (cells["sar"].mark, cells["eata"].mark) == ("", "best")
    (row,) = (row for row in table.rows if row.label == "sar")
    assert row.badges == ("5 of 12 batches so far",)
    assert column(table, "original")["sar"].text == "–"


def test_seeds_are_told_on_hover_and_in_means(tmp_path):
    make_run(tmp_path, accuracy=40, seed=0)
    make_run(tmp_path, accuracy=50, seed=1)
    table = accuracy_table(comparison(tmp_path))
    assert column(table, "mean of 3")["eata"].text == "45.00 ± 7.07"
    assert column(table, "fog")["eata"].title == "seed 0: 40.00, seed 1: 50.00"


@pytest.mark.parametrize(
    ("seeds", "column_of_runs", "caption", "hover"),
    [
        (1, "orders", "over orders", "order 0: 40.00, order 1: 50.00"),
        (
            2,
            "runs",
            "over seeds and orders",
            "seed 0, order 0: 40.00, seed 0, order 1: 50.00, "
            "seed 1, order 0: 50.00, seed 1, order 1: 60.00",
        ),
    ],
)
def test_random_orders_are_told_as_orders(tmp_path, seeds, column_of_runs, caption, hover):
    for seed in range(seeds):
        for order in range(2):
            stream = f"continual(order=random,order_seed={order})"
            make_run(tmp_path, accuracy=40 + 10 * (seed + order), seed=seed, stream=stream)
    one = comparison(tmp_path)
    assert accuracy_table(one).caption.endswith(caption)
    assert column(accuracy_table(one), "fog")["eata"].title == hover
    assert metrics_table(one.groups).caption.endswith(caption)
    assert column(metrics_table(one.groups), column_of_runs)["eata"].text == str(2 * seeds)


def test_chosen_with_labels_is_marked(tmp_path):
    make_run(tmp_path, "eata", tags=(CHOSEN,))
    make_run(tmp_path, "tent")
    for table in (accuracy_table(comparison(tmp_path)), metrics_table(comparison(tmp_path).groups)):
        assert {row.label: row.badges for row in table.rows} == {"eata": (CHOSEN,), "tent": ()}


def test_one_that_hardly_acted_is_marked_and_never_the_best(tmp_path):
    make_run(tmp_path, "bn", 40, batches=40)
    make_run(tmp_path, "tent", 50, batches=40)
    make_run(tmp_path, "eata", 60, batches=40, rows={"every": 60})
    one = comparison(tmp_path)
    for table in (accuracy_table(one), metrics_table(one.groups)):
        marked = {row.label: row.badges for row in table.rows}
        assert marked == {"bn": (), "tent": (), "eata": ("hardly acted: 2 steps of 120",)}
    marks = {label: cell.mark for label, cell in column(accuracy_table(one), "fog").items()}
    assert marks == {"bn": "second", "tent": "best", "eata": ""}
    assert column(metrics_table(one.groups), "steps %")["eata"].text == "1.7"
    # What never learns has no steps to take.
    assert column(metrics_table(one.groups), "steps %")["bn"].text == "–"
    assert idle_note(one.groups).startswith(
        "Hardly acted: took fewer than 5 % of 100 or more steps"
    )


def test_a_table_that_is_too_wide_is_folded(tmp_path):
    make_run(tmp_path, "eata", {f"domain_{number}": 50 for number in range(40)})
    table = accuracy_table(comparison(tmp_path), means_first=True)
    folded = table.fold([signs + 2 for signs in table.signs()], room=100)
    assert len(folded) > 1
    assert all(sum(signs + 2 for signs in one.signs()) <= 100 for one in folded)
    columns = [column for one in folded for column in one.columns]
    cells = [cell for one in folded for cell in one.rows[0].cells]
    assert (tuple(columns), tuple(cells)) == (table.columns, table.rows[0].cells)
    assert [one.caption.endswith(", continued") for one in folded][:2] == [False, True]
    assert table.fold([signs + 2 for signs in table.signs()], room=10_000) == [table]


def test_an_alarm_is_told(tmp_path):
    make_run(tmp_path, accuracy=0, classes=40, batches=60, rows={"favourite": 1.0})
    make_run(tmp_path, "tent", classes=40, batches=60)
    (line,) = alarm_lines(comparison(tmp_path))
    assert line.startswith("eata: predictions fell into a few classes at batch 24 (seed 0)")
    assert column(metrics_table(comparison(tmp_path).groups), "collapse")["eata"].text == "batch 24"


# Published numbers.

PAPER = published()["table-cifar100"]


def fake_paper_run(path, method, accuracy=None, **of_run):
    """As the paper's protocol has it, at the paper's numbers unless told otherwise."""
    given = {"data": "cifar100-c", "preset": "cifar100-c", "model": "resnext29:w.pt", **of_run}
    row = PAPER.row(method)
    run = Run.of(method, **given)
    place = run.folder(path, run.fingerprint(HASHES))
    make_without_rows(place, run, accuracy or row.by_domain, images=10_000)
    return row


def test_published_numbers_stand_beside_where_all_is_the_papers(tmp_path):
    fake_paper_run(tmp_path, "frozen")
    row = fake_paper_run(tmp_path, "eata")
    one = comparison(tmp_path)
    found = published_rows(one)
    assert "the model that never adapts scores what the paper says" in found.note
    table = accuracy_table(one, found.rows)
    assert [line.published for line in table.rows] == [False, True, False, True]
    (theirs,) = (line for line in table.rows if line.label == "EATA, published")
    assert theirs.cells[0].text == f"{row.by_domain['gaussian_noise']:.2f}"
    assert theirs.cells[16].text.startswith(f"{row.mean:.2f}")


def test_a_control_of_other_code_does_not_stand_for_these_runs(tmp_path):
    for method, code in (("frozen", "a"), ("frozen", "b"), ("eata", "b"), ("tent", "c")):
        fake_paper_run(tmp_path / code, method)
        (path,) = (tmp_path / code).glob(f"{method}*")
        hashes = RunFolder(path).manifest.hashes | {"code": code}
        retell(RunFolder(path), hashes=hashes, fingerprint=f"{method} {code}")
    found = published_rows(comparison(tmp_path))
    assert set(found.rows) == {"frozen · code a", "frozen · code b", "eata"}
    assert "runs were made by different code" in found.note


def test_published_numbers_stay_away_from_other_images(tmp_path):
    row = fake_paper_run(tmp_path, "frozen")
    fake_paper_run(tmp_path, "eata", severity=5, limit=100)
    found = published_rows(compare(gather(tmp_path).runs)[0])
    other = {name: value + 1 for name, value in row.by_domain.items()}
    fake_paper_run(tmp_path / "other", "frozen", accuracy=other)
    fake_paper_run(tmp_path / "other", "tent")
    off = published_rows(comparison(tmp_path / "other"))
    assert off.rows == {} and "not the paper's" in off.note
    assert "eata" not in found.rows


def test_data_that_the_paper_does_not_have(tmp_path):
    make_run(tmp_path)
    assert published_rows(comparison(tmp_path)).note == (
        "The paper has no numbers on glyphs-c, so none stand beside these."
    )


def test_a_foreign_run_is_beside_nothing(tmp_path):
    make_run(tmp_path, manifest={"run": {"data": "cifar100-c", "method": "nonsense("}})
    assert published_rows(comparison(tmp_path)).rows == {}


@pytest.mark.parametrize("what", ["accuracy", "figures"])
def test_a_table_has_a_cell_for_every_column(tmp_path, what):
    make_run(tmp_path, "eata", {"fog": 50, "snow": 50})
    make_run(tmp_path, "tent", {"fog": 50, "original": 50})
    one = comparison(tmp_path)
    table = accuracy_table(one) if what == "accuracy" else metrics_table(one.groups)
    assert {len(row.cells) for row in table.rows} == {len(table.columns)}
