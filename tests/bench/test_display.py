"""What is seen while runs go on."""

import io

import pytest
from rich.console import Console

from holdfast.bench.display import Board, clock
from holdfast.bench.many import perform_all
from holdfast.bench.names import apart, short
from holdfast.bench.plan import Run
from holdfast.bench.run import perform
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
        perform_all(runs, out, tell=board, materials=materials)
        page = as_text(board.render())
    return file.getvalue(), page


def test_lines_where_there_is_no_terminal(runs, folders, materials, tmp_path):
    lines, _ = watched(runs[2:], materials, tmp_path, force_terminal=False, width=40)
    manifest = folders[2].manifest.metrics
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
        def __call__(self, number, news):
            super().__call__(number, news)
            drawn.append(as_text(self.render()).splitlines()[-1])

    board = Drawing(runs, Console(file=io.StringIO(), force_terminal=True, width=200))
    perform_all(runs[2:3], tmp_path, tell=board, materials=materials)
    assert len(drawn) == 6  # as it begins and as it ends too
    for number, line in enumerate(drawn[1:5], start=1):
        assert f"batch {number} of 4" in line and "batches/s, " in line and line.endswith("left")


def test_a_table_on_a_terminal(runs, folders, materials, tmp_path):
    """Its cells are means over the seeds."""
    for width in (200, 60):
        screen, page = watched(
            runs, materials, tmp_path / str(width), force_terminal=True, width=width
        )
        assert "run 1 of 4" in screen
        both = [folder.manifest.metrics["accuracy/fog"] for folder in folders[2:]]
        assert f"{sum(both) / 2:.1f}" in page
        rows = page.splitlines()
        assert (rows[1].startswith("frozen") and rows[2].startswith("bn")) == (width == 200)
        assert (rows[1].startswith("fog")) == (width == 60)


def test_runs_are_told_apart_by_what_they_differ_in():
    runs = [Run.of("eata", batch=batch, seed=seed) for batch in (16, 64) for seed in (0, 1)]
    assert apart(runs) == ["eata, batch 16"] * 2 + ["eata, batch 64"] * 2
    assert apart(runs[:2]) == ["eata", "eata"]


def test_texts():
    assert (clock(59.6), clock(3723)) == ("1:00", "1:02:03")
    assert (short("gaussian_noise"), short("night")) == ("gauss", "night")
    assert (short("gaussian_noise@3"), short("night@3")) == ("gauss@3", "night@3")
