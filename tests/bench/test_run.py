"""One run: what it writes, that it repeats, and that it may be stopped at any moment."""

import random
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from short_runs import Killed, Killer, lasting

import holdfast
from holdfast.bench import run as run_module
from holdfast.bench import store
from holdfast.bench.materials import Materials
from holdfast.bench.metrics.recorder import Recorder
from holdfast.bench.plan import Run
from holdfast.bench.run import perform
from holdfast.bench.sweep import CHOSEN, SWEPT, expand
from holdfast.cli.main import main
from holdfast.data import glyphs
from holdfast.data.readers.sets import open_data
from holdfast.data.streams import parse
from holdfast.util import files

DOMAINS = "fog,contrast,original"
STREAM = f"continual(order='{DOMAINS}',clean=false)"


def plan(method, **others):
    return Run.of(method, **{"stream": STREAM, "limit": 100, "batch": 32, **others})


def in_pieces(run, materials, out, every, moments):
    """The run, killed after each of the numbers of batches, then finished."""
    for moment in moments:
        try:
            perform(run, materials, out, resume=True, tell=Killer(moment), every=every)
        except Killed:
            continue
        break
    return perform(run, materials, out, resume=True, every=every)


def test_rows_are_what_a_loop_of_ones_own_would_record(materials, tmp_path):
    run = plan("tent+debias", seed=3)
    folder = perform(run, materials, tmp_path)
    model = glyphs.model()
    data = open_data("glyphs-c")
    source = materials.source(run)
    adapter = holdfast.adapt(model, "tent+debias", source=source, seed=3)
    stream = parse(f"continual(order='{DOMAINS}',clean=false,limit=100,batch=32)")
    rows = folder.rows
    recorder = Recorder(50)
    batches = list(stream.over(data, seed=3))
    assert len(batches) == rows.height == 3 * 4
    for batch, row in zip(batches, rows.iter_rows(named=True), strict=True):
        logits = adapter(batch.images)
        told = {"last": adapter.last, "health": adapter.health}
        recorder.record(logits, batch.labels, batch.domains, **told)
        confidence, predicted = logits.softmax(1).max(1)
        assert row["predicted"] == predicted.tolist()
        assert row["label"] == batch.labels.tolist()
        assert row["confidence"] == pytest.approx(confidence.tolist(), rel=1e-6)
        assert row["correct"] == int((predicted == batch.labels).sum())
        assert row["domain"] == batch.domains[0]
        assert row["reliable"] == adapter.last.reliable
        assert row["loss/ema"] == adapter.last.losses.get("ema")
        assert row["stepped"] == adapter.last.stepped
        assert row["time"] > 0
    figures = folder.manifest.metrics
    mine = recorder.summary()
    assert {k: v for k, v in figures.items() if "time" not in k and "memory" not in k} == {
        k: v for k, v in mine.items() if "time" not in k and "memory" not in k
    }


def test_the_same_command_twice_gives_the_same_rows(tmp_path, capsys):
    command = ["run", "--method", "tent", "--limit", "64", "--stream", STREAM, "--threads", "1"]
    for name in "one", "two":
        assert main([*command, "--out", str(tmp_path / name)]) == 0
    printed = capsys.readouterr()
    assert "tent seed 0: fog" in printed.err
    found = [sorted((tmp_path / name).glob("*/rows.parquet")) for name in ("one", "two")]
    assert [len(each) for each in found] == [1, 1]
    assert found[0][0].parent.name == found[1][0].parent.name
    one, two = (pl.read_parquet(each[0]) for each in found)
    assert_frame_equal(lasting(one), lasting(two), check_exact=True)
    assert any(one["time"] != two["time"])


def test_finished_runs_are_reused_and_left_alone(materials, tmp_path):
    run = plan("bn")
    folder = perform(run, materials, tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in folder.path.iterdir()}
    assert set(before) == {"manifest.json", "rows.parquet"}
    for resume in (False, True):
        again = perform(run, materials, tmp_path, resume=resume, tell=Killer(0))
        assert again.path == folder.path
        assert {path.name: path.stat().st_mtime_ns for path in folder.path.iterdir()} == before
    assert len(list(tmp_path.iterdir())) == 1


def test_a_run_that_is_reused_gets_the_tags_it_lacks(materials, tmp_path):
    run = plan("tent(lr=0.001)")
    before = perform(run, materials, tmp_path).manifest
    swept = {"method": "tent", "stream": STREAM, "limit": 100, "batch": 32, "lr": True}
    (chosen,) = [p.run for p in expand(swept) if p.at["lr"] == "0.001"]
    folder = perform(chosen, materials, tmp_path, tell=Killer(0))
    after = folder.manifest
    assert after.run.pop("tags") == [SWEPT, CHOSEN]
    assert before.run.pop("tags") == []
    assert after == before
    # With nothing new, the file is left alone.
    stamp = (folder.path / "manifest.json").stat()
    for again in (chosen, run, replace(run, tags=(CHOSEN,))):
        perform(again, materials, tmp_path, tell=Killer(0))
    left = (folder.path / "manifest.json").stat()
    assert (left.st_ino, left.st_mtime_ns) == (stamp.st_ino, stamp.st_mtime_ns)


def test_a_run_that_goes_on_gets_the_tags_it_lacks(materials, tmp_path):
    run = plan("bn")
    with pytest.raises(Killed):
        perform(run, materials, tmp_path, tell=Killer(5), every=0)
    tagged = replace(run, tags=(SWEPT,))
    with pytest.raises(ValueError, match="--resume"):
        perform(tagged, materials, tmp_path)
    (path,) = tmp_path.glob("*/manifest.json")
    assert store.read_manifest(path).tags == ()
    folder = perform(tagged, materials, tmp_path, resume=True)
    assert folder.finished and folder.manifest.run["tags"] == [SWEPT]


def test_a_stopped_run_is_not_begun_anew_by_itself(materials, tmp_path):
    run = plan("bn")
    with pytest.raises(Killed):
        perform(run, materials, tmp_path, tell=Killer(5), every=0)
    with pytest.raises(ValueError, match="--resume"):
        perform(run, materials, tmp_path)
    assert perform(run, materials, tmp_path, resume=True).finished


@pytest.mark.parametrize(
    ("method", "others"),
    [
        ("eata+debias", {}),
        ("cotta(views=2)", {}),
        ("rotta", {}),
        ("rmt(warmup_samples=64)", {"limit": 64}),
        ("sar", {"window": 40, "batch": 8, "limit": 64}),
        ("tent+debias", {"analysis": True}),
        ("t3a", {}),
        ("ttac", {}),
    ],
)
def test_a_run_killed_at_random_moments_ends_the_same(materials, tmp_path, method, others):
    run = plan(method, **others)
    whole = perform(run, materials, tmp_path / "whole")
    total = whole.rows.height
    generator = random.Random(0)
    moments = [generator.randrange(total) for _ in range(4)]
    pieces = in_pieces(run, materials, tmp_path / "pieces", 0, moments)
    assert_frame_equal(lasting(pieces.rows), lasting(whole.rows), check_exact=True)
    assert sorted(path.name for path in pieces.path.iterdir()) == sorted(
        path.name for path in whole.path.iterdir()
    )
    if run.analysis:
        assert_frame_equal(pieces.analysis, whole.analysis, check_exact=True)
    figures = [folder.manifest.metrics for folder in (pieces, whole)]
    one, two = (
        {k: v for k, v in each.items() if "time" not in k and "memory" not in k} for each in figures
    )
    assert one == two


def test_what_was_written_after_the_last_snapshot_is_done_again(materials, tmp_path):
    """A kill between two snapshots: rows since then are lost, and come again the same."""
    run = plan("tent")
    whole = perform(run, materials, tmp_path / "whole")
    with pytest.raises(Killed):
        perform(run, materials, tmp_path / "pieces", tell=Killer(7), every=0)
    with pytest.raises(Killed):  # no snapshot in this one
        perform(run, materials, tmp_path / "pieces", resume=True, tell=Killer(3), every=1e9)
    folder = perform(run, materials, tmp_path / "pieces", resume=True, every=1e9)
    assert_frame_equal(lasting(folder.rows), lasting(whole.rows), check_exact=True)


def test_rows_can_be_watched_between_snapshots_and_decide_nothing(materials, tmp_path, monkeypatch):
    run = plan("tent")
    whole = perform(run, materials, tmp_path / "whole")
    monkeypatch.setattr(run_module, "ROWS_SECONDS", 0)
    pieces = tmp_path / "pieces"
    with pytest.raises(Killed):
        perform(run, materials, pieces, tell=Killer(7), every=1e9)
    (folder,) = map(store.RunFolder, pieces.iterdir())
    assert_frame_equal(lasting(folder.rows), lasting(whole.rows.head(7)), check_exact=True)
    assert len(list(folder.path.glob("rows-*"))) == 1
    assert folder.resume() == (0, None)  # it was never saved, and begins anew
    folder = perform(run, materials, pieces, resume=True, every=1e9)
    assert_frame_equal(lasting(folder.rows), lasting(whole.rows), check_exact=True)


@pytest.mark.parametrize("step", ["rows", "snapshot", "progress", "whole", "manifest", "clear"])
def test_a_kill_between_any_two_writes_loses_nothing(materials, tmp_path, monkeypatch, step):
    """Each place in which the store writes, as the moment of the kill."""
    run = plan("tent", limit=64)
    whole = perform(run, materials, tmp_path / "whole")
    armed = {"yes": True}

    def killing(original, hit):
        def write(path, *args):
            if armed["yes"] and hit(path):
                armed["yes"] = False
                raise Killed
            return original(path, *args)

        return write

    hits = {
        "rows": lambda path: path.name == "rows-000002.parquet",
        "snapshot": lambda path: path.parent.name == "snapshot-000003",
        "progress": lambda path: path.name == "progress.json",
        "whole": lambda path: path.name == "rows.parquet",
        "manifest": lambda path: (
            path.name == "manifest.json" and (path.parent / "rows.parquet").exists()
        ),
    }
    if step == "clear":
        monkeypatch.setattr(store.RunFolder, "clear", killing(store.RunFolder.clear, bool))
    else:
        monkeypatch.setattr(files, "write_whole", killing(files.write_whole, hits[step]))
    with pytest.raises(Killed):
        perform(run, materials, tmp_path / "pieces", every=0)
    folder = perform(run, materials, tmp_path / "pieces", resume=True, every=0)
    assert_frame_equal(lasting(folder.rows), lasting(whole.rows), check_exact=True)
    assert sorted(p.name for p in folder.path.iterdir()) == ["manifest.json", "rows.parquet"]


def test_one_run_however_it_is_written(materials, tmp_path):
    """A setting that is written out at its value, or taken from a preset, is the same run."""
    first = perform(plan("tent"), materials, tmp_path)
    same = [
        plan("tent(lr=0.0001)"),
        plan("tent", preset="imagenet-c"),
        plan("tent", root="elsewhere", tags=("sweep",)),
        Run.of("tent", stream=STREAM.replace(")", ",limit=100,batch=32)")),
    ]
    for run in same:
        assert perform(run, materials, tmp_path, tell=Killer(0)).path == first.path
    other = [plan("tent(lr=0.001)"), plan("tent", seed=1), plan("tent", window=64)]
    paths = {perform(run, materials, tmp_path).path for run in other}
    assert len(paths) == 3 and first.path not in paths


def test_another_normalisation_makes_another_run(materials, tmp_path):
    """What it is counts, not how it is written: that of the network itself is no other."""

    def performed(**others):
        run = plan("frozen", model="resnet20", limit=32, health=False, **others)
        folder = perform(run, materials, tmp_path)
        return folder.path, folder.manifest.normalisation["mean"]

    own, mean = performed()
    halves, other = performed(mean="0.5,0.5,0.5", std="0.5,0.5,0.5")
    assert halves != own
    assert mean == pytest.approx([0.5070, 0.4865, 0.4409]) and other == [0.5] * 3
    assert performed(mean="0.50, 0.5, 5e-1", std="0.5,0.5,0.5")[0] == halves
    first, second = plan("bn", mean="0.5", std="0.5"), plan("bn", mean="0.4", std="0.5")
    assert first.identity != second.identity != plan("bn").identity


def test_other_intruders_make_another_run(tmp_path):
    """What they hold counts, not what their file is called."""

    def performed(name, value):
        path = tmp_path / name
        np.savez(path, images=np.full((40, 32, 32, 3), value, np.uint8), labels=np.zeros(40, int))
        stream = "noisy(kind=other,order=fog,clean=false)"
        run = plan("bn", stream=stream, limit=32, intruders=str(path))
        return perform(run, Materials(tmp_path / "cache"), tmp_path / "runs").path

    black = performed("one.npz", 0)
    assert performed("two.npz", 0) == black
    assert performed("one.npz", 255) != black


def test_a_method_that_takes_single_images_runs_without_a_window(materials, tmp_path):
    given = {"stream": "single", "domains": "fog", "limit": 6}
    alone = perform(Run.of("frozen", window=0, **given), materials, tmp_path)
    among = perform(Run.of("frozen", **given), materials, tmp_path)
    assert alone.path != among.path
    assert alone.rows["predicted"].to_list() == among.rows["predicted"].to_list()
    with pytest.raises(ValueError, match="one image has none"):
        perform(Run.of("bn", window=0, **given), materials, tmp_path)


def test_clean_images_that_come_again_are_one_domain(materials, tmp_path):
    stream = "switching(order='fog,speckle_noise',clean=true)"
    folder = perform(Run.of("frozen", stream=stream, limit=40, batch=20), materials, tmp_path)
    rows, metrics = folder.rows, folder.manifest.metrics
    names = ["original", "fog", "original", "speckle_noise", "original"]
    assert rows["domain"].to_list() == [name for name in names for _ in range(2)]
    assert rows["visit"].to_list() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]
    right = {
        name: float(rows.filter(pl.col("domain") == name)["correct"].mean() * 5)  # of 20, in %
        for name in ("original", "fog", "speckle_noise")
    }
    for name, share in right.items():
        assert metrics[f"accuracy/{name}"] == pytest.approx(share)
    corrupted = (right["fog"] + right["speckle_noise"]) / 2
    assert metrics["mean_accuracy_corrupted"] == pytest.approx(corrupted)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"batches": "two"}', '{"batches": -1}', "\x80"])
def test_a_damaged_note_of_progress_is_told(tmp_path, text):
    (tmp_path / "progress.json").write_bytes(text.encode("latin1"))
    with pytest.raises(ValueError, match=r"progress\.json is damaged.*--again"):
        store.RunFolder(tmp_path).resume()
