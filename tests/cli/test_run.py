"""`holdfast run` for a person who makes mistakes."""

import numpy as np
import pytest

from holdfast.bench import store
from holdfast.bench.manifest import SettingValue
from holdfast.bench.plan import Run
from holdfast.bench.run import perform
from holdfast.bench.store import RunFolder
from holdfast.cli.main import main
from holdfast.report.provenance import facts
from holdfast.results.gather import gather
from holdfast.results.stored import read_run
from holdfast.results.tables import run_document
from holdfast.results.writers import Page, write_markdown
from holdfast.util.terminal import as_text

STREAM = "continual(order=fog,clean=false)"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--method", "eatta"], "eata"),
        (["--method", "tent(lrr=1)"], "lr"),
        (["--stream", "continuall"], "continual"),
        (["--preset", "cifar"], "cifar100-c"),
        (["--data", "nowhere"], "There is no set, folder or .npz file nowhere."),
        (["--model", "resnet21"], "resnet20"),
        (["--seeds", "0"], "at least 1"),
        (["--jobs", "0"], "at least 1"),
        (["--snapshot", "-1"], "at least 0 (one after each batch), not -1"),
        (["--threads", "0"], "at least 1"),
        (["--window", "1", "--method", "bn"], "at least 2"),
        (["--stream", "continual(order=fog,clean=false)", "--batch", "0"], "at least 1"),
        (["--model", "resnet20", "--data", "{npz}"], "classes"),
        (["--model", "resnet20", "--data", "{npz}", "--method", "debias"], "--source"),
        (["--model", "resnet20", "--mean", "0.5"], "--mean was given without --std"),
        (["--mean", "0.5", "--std", "0.5"], "glyphs normalises its input already"),
        (["--data", "{npz}"], "--model"),
        (["--source", "gone.safetensors", "--method", "debias"], "gone.safetensors"),
        (
            ["--domains", "fgo,snow"],
            "Did you mean 'fog'? Domains: gaussian_noise, shot",
        ),
        (["--domains", "fog,"], "There is no domain ''."),
        (["--domains", "fog", "--stream", "continual(order=rotta)"], "and order of the stream"),
        (["--domains", "fog", "--stream", "mixed(clean=true)"], "and clean of the stream"),
        (["--domains", "fog", "--stream", "endless"], "needs two or more"),
        (["--intruders", "{npz}"], "the stream is continual(limit=16): write --stream 'noisy(kind"),
        (["--intruders", "x", "--stream", "noisy(clean=true)"], "'noisy(clean=true,kind=other)'"),
        (["--intruders", "x", "--stream", "noisy(kind=attack)"], "--stream 'noisy(kind=other)'"),
        (["--stream", "noisy(kind=other)"], "--intruders SET"),
        (["--stream", "gradual", "--severity", "3"], "--severity 3 would not be used"),
        (["--stream", "endless", "--severity", "3"], "`holdfast card endless` shows"),
    ],
)
def test_a_mistake_is_told_and_nothing_is_written(options, expected, tmp_path, capsys):
    npz = tmp_path / "mine.npz"
    labels = np.arange(40) % 20 if "debias" in options else np.arange(40) * 5
    np.savez(npz, images=np.zeros((40, 32, 32, 3), np.uint8), labels=labels)
    options = [option.format(npz=npz) for option in options]
    if "--method" not in options:
        options += ["--method", "bn"]
    out = tmp_path / "runs"
    if "--threads" not in options:
        options += ["--threads", "1"]
    code = main(["run", "--limit", "16", "--out", str(out), *options])
    printed = capsys.readouterr()
    assert code == 2
    assert expected in printed.err
    assert [path.name for path in out.glob("*")] in ([], ["cache"])


def test_resume_where_nothing_is_and_where_all_is(tmp_path, capsys):
    command = ["run", "--method", "bn", "--limit", "16", "--threads", "1", "--stream", STREAM]
    command += ["--out", str(tmp_path), "--resume", "--markdown", str(tmp_path / "table.md")]
    printed = []
    for _ in range(2):
        assert main(command) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert "| bn |" in (tmp_path / "table.md").read_text()


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_one_run_that_is_written_in_two_ways_is_one(tmp_path, capsys, jobs):
    command = ["run", "-m", "tent", "-m", "tent(lr=0.0001)", "-m", "tent", "--limit", "16"]
    command += ["--stream", STREAM, "--threads", "1", "--out", str(tmp_path), "--jobs", jobs]
    assert main(command) == 0
    out, err = capsys.readouterr()
    assert "1 seed\n" in out and "±" not in out
    assert err.count("mean") == 1
    assert len(list(tmp_path.glob("*/manifest.json"))) == 1


def test_what_fails_does_not_stop_the_rest(tmp_path, capsys):
    command = ["run", "--method", "bn", "--method", "frozen", "--limit", "2", "--batch", "2"]
    command += ["--stream", STREAM, "--threads", "1", "--out", str(tmp_path)]
    command += ["--method", "ttac(variant=cifar)", "--head", "model.fc"]
    assert main(command) == 0
    capsys.readouterr()
    broken = [*command, "--no-health", "--source", "gone.safetensors"]
    with pytest.raises(SystemExit) as stopped:
        main(broken)
    assert stopped.value.code == 1
    printed = capsys.readouterr().out
    assert "Failed: ttac(variant=cifar) seed 0: There is no source file gone" in printed
    assert "frozen" in printed


def test_the_manifest_says_what_was_run(materials, tmp_path):
    run = Run.of("eata+debias(alpha=0.9)", stream=STREAM, limit=32, preset="cifar100-c", batch=16)
    manifest = perform(run, materials, tmp_path).manifest
    assert manifest.settings["debias"]["alpha"] == SettingValue(0.9, "written")
    assert manifest.settings["debias"]["src_reduction"].origin == "preset"
    assert manifest.order == ["fog"]
    assert manifest.images == 32 and manifest.batches == 2 and manifest.classes == 50
    assert manifest.normalisation == {"mean": [0.5] * 3, "std": [0.25] * 3}
    assert set(manifest.hashes) == {"code", "model", "data", "source", "health"}
    assert all(len(one) == 64 for one in manifest.hashes.values())
    assert {"torch", "python", "holdfast", "polars"} <= set(manifest.versions)
    assert manifest.machine["cores"] >= 1 and manifest.run["seed"] == 0
    assert manifest.finished and manifest.time_finished >= manifest.time_started


def test_domains_are_those_named_in_their_order(materials, tmp_path, capsys):
    command = ["run", "-m", "bn", "--limit", "16", "--threads", "1", "--out", str(tmp_path)]
    assert main([*command, "--domains", "snow, fog"]) == 0
    assert main([*command, "--domains", "fog,snow"]) == 0
    assert main([*command, "--domains", "fog,clean"]) == 0
    manifests = [RunFolder(path.parent).manifest for path in tmp_path.glob("*/manifest.json")]
    assert len({one.fingerprint for one in manifests}) == 3
    told = {one.run["domains"]: one.order for one in manifests}
    assert told == {
        "snow, fog": ["snow", "fog"],
        "fog,snow": ["fog", "snow"],
        "fog,clean": ["fog", "original"],
    }
    head = capsys.readouterr().out.splitlines()[3]
    assert head.split() == ["method", "snow", "fog", "mean", "of", "2"]
    # Another way to write it is no other run.
    one = Run.of("bn", domains="fog,snow")
    other = Run.of("bn", stream="continual(order='fog,snow',clean=false)")
    assert one.fingerprint({}) == other.fingerprint({}) != Run.of("bn").fingerprint({})


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ({"stream": "single"}, 64),
        ({"batch": 1}, 64),
        ({"stream": "single", "window": 8}, 8),
        ({"batch": 4, "window": 8}, 8),
        ({"batch": 4}, None),
    ],
)
def test_manifest_and_tables_say_which_window_was_used(materials, tmp_path, given, used):
    run = Run.of("bn", domains="fog", limit=4, **given)
    folder = perform(run, materials, tmp_path)
    assert folder.manifest.run["window"] == used
    assert read_run(folder.manifest).fingerprint({}) == run.fingerprint({})
    said = as_text(Page(run_document([folder]))).splitlines()[0]
    assert (f", window {used}," in said) if used else ("window" not in said)
    write_markdown(tmp_path / "table.md", run_document([folder]))
    assert said in (tmp_path / "table.md").read_text().replace("\\", "")
    assert facts(gather(tmp_path).runs).get("window") == (str(used) if used else None)


def test_a_folder_is_run_by_one_process_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "PATIENCE", 0)
    with (
        RunFolder(tmp_path).held(),
        pytest.raises(ValueError, match="another process"),
        RunFolder(tmp_path).held(),
    ):
        pass
    with RunFolder(tmp_path).held():
        pass
