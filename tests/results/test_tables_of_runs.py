"""What is read at the end of runs, on terminals of any width."""

import io
import math

import pytest
from made import make_without_rows
from rich.console import Console

from holdfast.bench.plan import Run
from holdfast.bench.run import perform
from holdfast.bench.store import RunFolder
from holdfast.results.comparison import compare
from holdfast.results.stored import StoredRun
from holdfast.results.table import Table
from holdfast.results.tables import metrics_table, run_document
from holdfast.results.writers import Page
from holdfast.util.terminal import break_name

STREAM = "continual(order='fog,original',clean=false)"


@pytest.fixture(scope="module")
def folders(materials, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    some = {"stream": STREAM, "limit": 64, "batch": 32}
    runs = [Run.of(method, seed=seed, **some) for method in ("frozen", "bn") for seed in (0, 1)]
    return [perform(run, materials, out) for run in runs]


def groups_of(folders):
    (comparison,) = compare(map(StoredRun.of, folders))
    return comparison.groups


def test_groups_are_means_over_seeds(folders):
    frozen, bn = groups_of(folders)
    assert (frozen.label, bn.label) == ("frozen", "bn")
    assert [run.seed for run in bn.runs] == [0, 1]
    each = [folder.manifest.metrics["mean_accuracy"] for folder in folders[2:]]
    mean = sum(each) / 2
    assert bn.mean("mean_accuracy") == pytest.approx(mean)
    assert bn.number("mean_accuracy").std == pytest.approx(math.dist(each, [mean, mean]))
    (alone,) = groups_of(folders[:1])
    assert math.isnan(alone.number("mean_accuracy").std)
    assert alone.first.run == Run.of("frozen", stream=STREAM, limit=64, batch=32)


def test_a_run_that_is_given_twice_counts_once(folders):
    (frozen,) = groups_of([folders[0], RunFolder(folders[0].path)])
    assert len(frozen.runs) == 1 and math.isnan(frozen.number("mean_accuracy").std)


def test_rows_are_read_only_when_they_are_asked_for(folders):
    run = StoredRun.of(folders[2])
    assert "replay" not in vars(run)
    assert run.recorder.summary() == pytest.approx(folders[2].manifest.metrics, nan_ok=True)


def test_tables_say_what_the_store_says(folders):
    _, bn = groups_of(folders)
    heading, accuracy, metrics = run_document(folders)
    assert heading.text == "glyphs-c, " + bn.first.manifest.stream + ", 128 images, 2 seeds"
    assert [column.text for column in accuracy.columns] == [
        *("fog", "original"),
        *("mean of 2", "mean of 1"),
    ]
    assert [row.label for row in accuracy.rows] == ["frozen", "bn"]
    cells = dict(zip([c.text for c in accuracy.columns], accuracy.rows[1].cells, strict=True))
    assert cells["fog"].text == f"{bn.mean('accuracy/fog'):.2f}"
    assert cells["mean of 2"].text == bn.number("mean_accuracy").text()
    texts = dict(zip([c.text for c in metrics.columns], metrics.rows[1].cells, strict=True))
    assert texts["bias %"].text == bn.number("bias").times(100).text(1)
    assert texts["mean of 2"].text == cells["mean of 2"].text
    assert "entropy" not in texts  # that is for the page


def test_a_method_that_hardly_acted_is_marked_and_not_the_best(tmp_path):
    made = {"bn": (50.0, None), "eata": (60.0, (1, 128)), "tent": (55.0, (128, 128))}
    folders = []
    for method, (accuracy, steps) in made.items():
        run = Run.of(method)
        by_domain = dict.fromkeys(run.resolved_stream.domains(), accuracy)
        folders.append(make_without_rows(tmp_path / method, run, by_domain, images=10, steps=steps))
    _, accuracy, metrics, note = run_document(folders)
    assert note.startswith("Hardly acted: took fewer than 5 % of 100 or more steps")
    for table in (accuracy, metrics):
        names = [row.name for row in table.rows]
        assert names == ["bn", "eata, hardly acted: 1 step of 128", "tent"]
    assert [row.cells[0].mark for row in accuracy.rows] == ["second", "", "best"]


LONG = "eata(lr=0.001,redundancy=0.4)+debias(alpha=0.99)"


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_tables_break_no_number_and_names_after_punctuation_only(tmp_path, width):
    folders = []
    for method in ("frozen", "eata+debias", LONG):
        for seed in (0, 1):
            run = Run.of(method, seed=seed)
            accuracy = {
                name: 40.0 + seed + k for k, name in enumerate(run.resolved_stream.domains())
            }
            path = tmp_path / f"{method} {seed}"
            folders.append(make_without_rows(path, run, accuracy, images=10))
    blocks = run_document(folders)
    file = io.StringIO()
    Console(file=file, width=width, force_terminal=True, color_system=None).print(Page(blocks))
    lines = [line.rstrip() for line in file.getvalue().splitlines()]
    assert max(map(len, lines)) <= width
    for table in (block for block in blocks if isinstance(block, Table)):
        for row in table.rows:
            assert all(cell.text in file.getvalue() for cell in row.cells)
    printed = {line.split("  ")[0] for line in lines}
    assert {"frozen", "eata+debias", *break_name(LONG, width // 3).split("\n")} <= printed


def test_names_break_after_punctuation():
    assert break_name(LONG, 48) == LONG
    assert break_name(LONG, 47).split("\n") == [
        "eata(lr=0.001,redundancy=0.4)+",
        "debias(alpha=0.99)",
    ]
    pieces = ["eata(lr=0.001,", "redundancy=0.4)+", "debias(alpha=0.99)"]
    assert break_name(LONG, 20).split("\n") == break_name(LONG, 1).split("\n") == pieces
    assert break_name("  published", 1) == "  published"


def test_where_no_clean_images_are_one_mean_says_all(tmp_path):
    run = Run.of("bn", stream="continual(clean=false)")
    accuracy = dict.fromkeys(run.resolved_stream.domains(), 40.0)
    groups = groups_of([make_without_rows(tmp_path / "it", run, accuracy, images=10)])
    headings = [column.text for column in metrics_table(groups, brief=True).columns]
    assert len(accuracy) == 15
    assert [text for text in headings if "mean" in text] == ["mean of 15"]
