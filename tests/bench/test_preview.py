"""What is said before runs begin: how long their streams are, and what to know of them."""

import numpy as np
import pytest
from kill_runs import STREAM

from holdfast.bench.materials import Materials
from holdfast.bench.plan import Run
from holdfast.bench.preview import preview, preview_methods, preview_streams
from holdfast.cli.main import main
from holdfast.data.streams import kinds


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
