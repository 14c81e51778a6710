"""What is seen while runs go on, and the tables at their end."""

import io
import math

import pytest
from faked import fake
from rich.console import Console

from holdfast.bench.display.board import Board, clock
from holdfast.bench.names import apart, short
from holdfast.bench.plan import Run
from holdfast.bench.run import perform
from holdfast.bench.store import RunFolder
from holdfast.results.blocks import Page, Sheet, break_name
from holdfast.results.results import group, spread
from holdfast.results.run_tables import domains_sheet, figures_sheet, results_blocks
from holdfast.util.terminal import as_text

STREAM = "continual(order='fog,original',clean=false)"


@pytest.fixture(scope="module")
def runs():
    some = {"stream": STREAM, "limit": 64, "batch": 32}
    return [Run.of(method, seed=seed, **some) for method in ("frozen", "bn") for seed in (0, 1)]


@pytest.fixture(scope="module")
def folders(runs, materials, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    return [perform(run, materials, out) for run in runs]


def watched(runs, materials, out, **console):
    file = io.StringIO()
    with Board(runs, Console(file=file, **console)) as board:
        for run in runs:
            perform(run, materials, out, watcher=board)
        page = as_text(board.render())
    return file.getvalue(), page


def test_lines_where_there_is_no_terminal(runs, folders, materials, tmp_path):
    lines, _ = watched(runs[2:], materials, tmp_path, force_terminal=False, width=40)
    manifest = folders[2].manifest["figures"]
    first = lines.splitlines()[:3]
    assert first[0] == f"bn seed 0: fog {manifest['accuracy/fog']:.2f} %"
    assert first[1] == f"bn seed 0: original {manifest['accuracy/original']:.2f} %"
    assert first[2].startswith(f"bn seed 0: mean {manifest['mean_accuracy']:.2f} %, 4 batches, ")
    assert len(first[2]) > 40  # not cut at the width


def test_lines_tell_runs_apart(materials, tmp_path):
    some = [Run.of("bn", stream=STREAM, limit=16, batch=batch) for batch in (8, 16)]
    lines, _ = watched(some, materials, tmp_path, force_terminal=False)
    assert [line.partition(": ")[0] for line in lines.splitlines()] == (
        ["bn, batch 8 seed 0"] * 3 + ["bn, batch 16 seed 0"] * 3
    )


def test_how_far_a_run_is_is_told_while_it_goes_on(runs, materials, tmp_path):
    """After each batch, as it would be drawn then."""
    drawn = []

    class Drawing(Board):
        def sees(self, seen):
            super().sees(seen)
            drawn.append(as_text(self.render()).splitlines()[-1])

    board = Drawing(runs, Console(file=io.StringIO(), force_terminal=True, width=200))
    perform(runs[2], materials, tmp_path, watcher=board)
    assert len(drawn) == 4
    for number, line in enumerate(drawn, start=1):
        assert f"batch {number} of 4" in line and "batches/s, " in line and line.endswith("left")


def test_a_table_on_a_terminal(runs, folders, materials, tmp_path):
    """Its cells are means over the seeds."""
    for width in (200, 60):
        screen, page = watched(
            runs, materials, tmp_path / str(width), force_terminal=True, width=width
        )
        assert "run 1 of 4" in screen
        result = group(folders)[1]
        assert f"{result.accuracy('fog'):.1f}" in page
        rows = page.splitlines()
        assert (rows[1].startswith("frozen") and rows[2].startswith("bn")) == (width == 200)
        assert (rows[1].startswith("fog")) == (width == 60)


def test_runs_are_told_apart_by_what_they_differ_in():
    runs = [Run.of("eata", batch=batch, seed=seed) for batch in (16, 64) for seed in (0, 1)]
    assert apart(runs) == ["eata, batch 16"] * 2 + ["eata, batch 64"] * 2
    assert apart(runs[:2]) == ["eata", "eata"]


def test_results_are_means_over_seeds(folders):
    frozen, bn = group(folders)
    assert (frozen.title, frozen.seeds, bn.title, bn.seeds) == ("frozen", [0, 1], "bn", [0, 1])
    each = [folder.manifest["figures"]["mean_accuracy"] for folder in folders[2:]]
    mean = sum(each) / 2
    assert bn.mean("mean_accuracy") == pytest.approx(mean)
    spread_ = math.sqrt(sum((one - mean) ** 2 for one in each))
    assert bn.std("mean_accuracy") == pytest.approx(spread_)
    alone = group(folders[:1])[0]
    assert math.isnan(alone.std("mean_accuracy"))
    assert alone.run == Run.of("frozen", stream=STREAM, limit=64, batch=32)


def test_a_run_that_is_given_twice_counts_once(folders):
    (frozen,) = group([folders[0], RunFolder(folders[0].path)])
    assert frozen.seeds == [0]
    assert math.isnan(frozen.std("mean_accuracy"))


def test_tables_say_what_the_store_says(folders):
    results = group(folders)
    sheet, bn = figures_sheet(results), results[1]
    assert sheet.rows[1][0] == "bn" and sheet.header[1:3] == ("mean of 2", "mean of 1")
    assert sheet.rows[1][1] == spread(bn.mean("mean_accuracy"), bn.std("mean_accuracy"))
    assert spread(100 * bn.mean("bias"), 100 * bn.std("bias"), 1) in sheet.rows[1]
    sheet = domains_sheet(results)
    assert sheet.header == ("method", "fog", "original")
    assert [str(cell) for cell in sheet.rows[1][1:]] == [
        f"{bn.accuracy(name):.2f}" for name in ("fog", "original")
    ]
    # The best of each domain in bold.
    for name, cells in zip(sheet.header[1:], list(zip(*sheet.rows, strict=True))[1:], strict=True):
        best = max(one.accuracy(name) for one in results)
        assert [cell.style == "bold" for cell in cells] == [
            one.accuracy(name) == best for one in results
        ]


def test_a_method_that_hardly_acted_is_marked_and_not_in_bold(tmp_path):
    made = {"bn": (50.0, None), "eata": (60.0, (1, 128)), "tent": (55.0, (128, 128))}
    folders = []
    for method, (accuracy, steps) in made.items():
        run = Run.of(method)
        by_domain = dict.fromkeys(run.resolved_stream.domains(), accuracy)
        folders.append(fake(tmp_path / method, run, by_domain, images=10, steps=steps))
    _, domains, figures, note = results_blocks(folders)
    assert note.startswith("‡ hardly acted (eata: 1 step of 128): took fewer than 5 % of")
    for sheet in (domains, figures):
        assert [row[0] for row in sheet.rows] == ["bn", "eata ‡", "tent"]
    assert [row[1].style for row in domains.rows] == ["", "", "bold"]


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
            folders.append(fake(tmp_path / f"{method} {seed}", run, accuracy, images=10))
    blocks = results_blocks(folders)
    file = io.StringIO()
    Console(file=file, width=width, force_terminal=True, color_system=None).print(Page(blocks))
    lines = [line.rstrip() for line in file.getvalue().splitlines()]
    assert max(map(len, lines)) <= width
    for sheet in (one for one in blocks if isinstance(one, Sheet)):
        for row in sheet.rows:
            for cell in row[1:]:
                assert str(cell) in file.getvalue()
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
    results = group([fake(tmp_path / "it", run, accuracy, images=10)])
    assert len(accuracy) == 15
    assert [name for name in figures_sheet(results).header if "mean" in name] == ["mean of 15"]


def test_texts():
    assert spread(43.214, 0.118) == "43.21 ± 0.12"
    assert spread(43.214, math.nan) == "43.21"
    assert spread(math.nan, math.nan) == "–"
    assert (clock(59.6), clock(3723)) == ("1:00", "1:02:03")
    assert (short("gaussian_noise"), short("night")) == ("gauss", "night")
    assert (short("gaussian_noise@3"), short("night@3")) == ("gauss@3", "night@3")
