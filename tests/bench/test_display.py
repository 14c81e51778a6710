"""What is seen of runs: before they begin, and while they go on."""

import io

import numpy as np
import pytest
from rich.console import Console

from holdfast.bench.display import Board, clock, preview, preview_methods, preview_streams
from holdfast.bench.many import perform_all
from holdfast.bench.materials import Materials
from holdfast.bench.plan import Run, apart, short
from holdfast.bench.run import perform
from holdfast.cli.main import main
from holdfast.data.streams import kinds
from holdfast.util.terminal import as_text

STREAM = "continual(order='fog,contrast,original',clean=false)"
TWO_DOMAINS = "continual(order='fog,original',clean=false)"


@pytest.fixture(scope="module")
def runs():
    some = {"stream": TWO_DOMAINS, "limit": 64, "batch": 32}
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
    some = [Run.of("bn", stream=TWO_DOMAINS, limit=16, batch=batch) for batch in (8, 16)]
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


# Before they begin.


@pytest.mark.parametrize("name", kinds())
def test_the_numbers_are_those_of_the_stream_that_is_shown(materials, name):
    run = Run.of("bn", stream=name, limit=40, domains="fog,snow")
    flow = materials.flow(run)
    (line,) = [one for one in preview_streams([run], materials) if not one.startswith("note")]
    batches = f"{len(flow):,} batch{'es' if len(flow) > 1 else ''}"
    expected = f"glyphs-c, {run.resolved_stream}: {flow.samples:,} images in {batches}"
    assert line == expected + (", window 64" if name == "single" else "") + "; 1 run"
    if flow.samples < 500:
        assert flow.samples == sum(len(batch.labels) for batch in flow)


def test_each_stream_is_one_line_with_its_runs(materials):
    runs = [
        Run.of(method, stream=stream, limit=16, seed=seed)
        for method in ("bn", "tent")
        for stream in (STREAM, "mixed(order='fog,snow')")
        for seed in (0, 1)
    ]
    lines = preview_streams(runs, materials)
    assert len(lines) == 2
    assert lines[0].endswith(": 48 images in 3 batches; 4 runs")
    assert lines[1].endswith(": 32 images in 1 batch; 4 runs")


def test_a_correlated_stream_of_one_batch_a_domain_says_so_once(materials):
    runs = [Run.of("bn", stream="correlated", limit=64, seed=seed) for seed in (0, 1)]
    size, note = preview_streams(runs, materials)
    assert "960 images in 15 batches" in size
    assert note.startswith("note: correlated: 15 of 15 domains are one batch each")


def test_the_doctor_s_advice_is_given_once_for_the_methods_that_it_is_for(materials):
    drops = "eata(redundancy=0.05)"
    methods = (drops, "tent", f"{drops}+debias", "eata(redundancy=1)")
    runs = [Run.of(method, limit=16, seed=seed) for method in methods for seed in (0, 1)]
    (note,) = preview_methods(runs, materials)
    named, _, said = note.removeprefix("note: ").partition(": ")
    assert named == f"{drops}, {drops}+debias"
    assert "redundancy=0.05 drops most images of 50 classes" in said


@pytest.mark.parametrize(
    ("given", "noisy"),
    [
        ({"batch": 4}, True),
        ({"batch": 8}, False),
        ({"batch": 4, "window": 16}, False),
        ({"stream": "single"}, False),  # it has a window by itself
        ({"batch": 4, "method": "frozen"}, False),
    ],
)
def test_small_batches_are_told_of_where_they_count(materials, given, noisy):
    lines = preview_methods([Run.of(**{"method": "bn", **given}, limit=16)], materials)
    assert [line for line in lines if "batch statistics of 4 images are noisy" in line] == lines
    assert bool(lines) is noisy


def test_what_is_wrong_with_a_run_is_the_run_s_to_say(tmp_path):
    runs = [Run.of("bn", data="nowhere"), Run.of("bn", model="resnet21")]
    assert preview([runs[0]], Materials(tmp_path)) == []
    assert len(preview([runs[1]], Materials(tmp_path))) == 1  # the stream is there, the model not


def test_a_dry_sweep_says_once_why_a_stream_cannot_be_opened(tmp_path, capsys):
    """Since no run is to say it."""
    command = ["sweep", "-m", "bn", "-m", "tent", "--data", "nowhere", "--seeds", "2"]
    assert main([*command, "--dry-run", "--out", str(tmp_path / "runs")]) == 0
    (note,) = capsys.readouterr().err.splitlines()
    with pytest.raises(Exception, match="nowhere") as why:
        Materials(tmp_path).data(Run.of("bn", data="nowhere"))
    assert note == f"note: nowhere, continual cannot be opened: {' '.join(str(why.value).split())}"


def test_a_dry_sweep_says_once_why_a_model_cannot_be_opened(tmp_path, capsys):
    command = ["sweep", "-m", "bn", "-m", "tent", "--model", "resnet21", "--limit", "8"]
    assert main([*command, "--dry-run", "--out", str(tmp_path / "runs")]) == 0
    size, note = capsys.readouterr().err.splitlines()
    assert size.endswith("; 2 runs")
    assert note.startswith("note: the model resnet21 cannot be opened: ")
    assert "not 'resnet21'" in note
    assert not (tmp_path / "runs").exists()


def test_run_and_paper_say_it_before_the_first_result(tmp_path, capsys):
    common = ["--limit", "8", "--threads", "1", "--out", str(tmp_path)]
    run = ["run", "-m", "bn", "-m", "eta(redundancy=0.05)", "--domains", "fog", *common]
    assert main(run) == 0
    out, err = capsys.readouterr()
    first, second, *rest = err.splitlines()
    assert first.endswith("8 images in 1 batch; 2 runs")
    assert second.startswith("note: eta(redundancy=0.05): redundancy=0.05 drops")
    assert all(line.startswith(("bn seed 0", "eta(")) for line in rest)
    assert "note" not in out
    assert main(["paper", "table-imagenet", "-m", "frozen", *common]) == 0
    assert "glyphs-c, continual(limit=8): 128 images in 16 batches; 1 run" in (
        capsys.readouterr().err.splitlines()
    )


def test_a_sweep_says_it_also_where_it_is_dry(tmp_path, capsys):
    command = ["sweep", "-m", "bn", "--domains", "snow,fog", "--limit", "8", "--threads", "1"]
    command += ["--grid", "batch=4,8", "--jobs", "1", "--out", str(tmp_path / "runs")]
    sizes = [
        'glyphs-c, continual(batch=4,limit=8,order="snow,fog",clean=false): 16 images in 4 '
        "batches; 1 run",
        'glyphs-c, continual(batch=8,limit=8,order="snow,fog",clean=false): 16 images in 2 '
        "batches; 1 run",
    ]
    assert main([*command, "--dry-run"]) == 0
    assert capsys.readouterr().err.splitlines() == sizes
    assert not (tmp_path / "runs").exists()
    assert main(command) == 0
    err = capsys.readouterr().err.splitlines()
    assert err[:2] == sizes and err[2].startswith("note: bn: batch statistics of 4 images")


def test_a_set_that_lacks_what_is_not_shown_will_do(tmp_path):
    """As of one archive of ImageNet-C out of four."""
    folder = tmp_path / "Some-C"
    folder.mkdir()
    images = np.random.default_rng(0).integers(0, 256, (100, 32, 32, 3), dtype=np.uint8)
    np.save(folder / "labels.npy", np.tile(np.arange(20), 5))
    np.save(folder / "fog.npy", images)
    materials = Materials(tmp_path / "cache")

    def opened(domains):
        data = materials.data(Run.of("bn", data=str(folder), model="glyphs", domains=domains))
        return [one.name for one in data.domains]

    assert opened("fog") == ["fog"]
    for missing in ("fog,snow", "fog,original", None):
        with pytest.raises(FileNotFoundError, match=r"lacks .*\(in `holdfast run`, by --domains\)"):
            opened(missing)
    np.save(folder / "spatter.npy", images)  # kept apart: there only where it is asked for
    assert opened("fog") == ["fog"] and opened("spatter") == ["spatter"]
    assert opened("spatter,fog") == ["fog", "spatter"]
    np.save(folder / "original.npy", images[:20])
    assert opened("fog,original") == ["fog", "original"]
    # Clean images serve Fisher information, also where the stream shows none.
    assert (
        Materials(tmp_path)
        .data(Run.of("bn", data=str(folder), model="glyphs", domains="fog"))
        .domains[-1]
        .name
        == "original"
    )
