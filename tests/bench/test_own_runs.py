"""Runs of methods of one's own: what is written down of them, and where they go."""

import hashlib
import pickle
from pathlib import Path
from types import SimpleNamespace

import pytest
from own_methods import HEAD, MINE, SURE
from polars.testing import assert_frame_equal
from short_runs import Killed, Killer, lasting

from holdfast.bench import on_ray
from holdfast.bench.manifest import SettingValue
from holdfast.bench.many import perform_all
from holdfast.bench.materials import Materials
from holdfast.bench.plan import Run
from holdfast.bench.run import perform
from holdfast.bench.store import RunFolder
from holdfast.bench.sweep import expand
from holdfast.cli.main import main
from holdfast.report.page import Report, page
from holdfast.results.gather import gather
from holdfast.results.stored import read_run

STREAM = "continual(order=fog,clean=false)"

pytestmark = pytest.mark.usefixtures("own_folder")


def plan(method="mine.py:Sure", **others):
    usual = {"stream": STREAM, "limit": 32, "batch": 8, "health": False}
    return Run.of(method, **{**usual, **others})


def test_the_manifest_has_a_hash_of_the_file_which_counts(own_folder, materials, tmp_path):
    out = tmp_path / "runs"
    first = perform(plan("mine.py:Sure+mine.py:Push"), materials, out)
    manifest = first.manifest
    file = hashlib.sha256((own_folder / "mine.py").read_bytes()).hexdigest()
    assert manifest.hashes["method sure"] == manifest.hashes["method gentle-push"] == file
    assert manifest.title == "sure+gentle-push" and manifest.method.startswith("sure(lr=")
    assert manifest.settings["sure"]["gain"] == SettingValue(1.0, "default")
    assert manifest.run["method"] == "mine.py:Sure+mine.py:Push"
    # The same file elsewhere is the same run; another text is another.
    (own_folder / "moved").mkdir()
    (own_folder / "moved" / "mine.py").write_text(MINE)
    moved = plan("moved/mine.py:Sure+moved/mine.py:Push")
    assert perform(moved, materials, out, tell=Killer(0)).path == first.path
    (own_folder / "mine.py").write_text(
        HEAD + SURE.replace("step.entropy.mean()", "step.entropy.sum()")
    )
    again = perform(plan("mine.py:Sure+mine.py:Push"), materials, out)
    assert again.path != first.path
    assert again.rows["loss/sureness"][0] == pytest.approx(8 * first.rows["loss/sureness"][0])


def test_what_a_file_becomes_after_a_run_was_planned_does_not_count(
    own_folder, materials, tmp_path
):
    """It would be written down under the new hash, as done by code that was never run."""
    expected = perform(plan(), materials, tmp_path / "one")
    run = plan()
    (own_folder / "mine.py").write_text(
        HEAD + SURE.replace("step.entropy.mean()", "step.entropy.sum()")
    )
    folder = perform(run, materials, tmp_path / "two")
    assert folder.path.name == expected.path.name
    assert_frame_equal(lasting(folder.rows), lasting(expected.rows), check_exact=True)


def test_a_run_goes_to_another_process_as_it_is_written(materials, tmp_path):
    """And is done anew there, if asked to."""
    run = plan()
    before = perform(run, materials, tmp_path)
    name, times = before.path.name, before.rows["time"]
    assert run.composition.names == "sure"
    copy = pickle.loads(pickle.dumps(run))
    assert copy == run and not {"composition", "methods"} & vars(copy).keys()
    outcomes = perform_all([run, plan("tent+mine.py:Push")], tmp_path, jobs=2, again=True)
    assert [one.error for one in outcomes] == [None, None]
    assert [one.folder.manifest.title for one in outcomes] == ["sure", "tent+gentle-push"]
    after = outcomes[0].folder
    assert after.path.name == name and any(after.rows["time"] != times)


def test_a_worker_elsewhere_reads_the_file_where_the_sweep_was_started(
    own_folder, tmp_path, monkeypatch
):
    """What a Ray worker does, without the cluster: it begins in a folder of its own."""
    sent = pickle.dumps(plan())
    (tmp_path / "worker").mkdir()
    monkeypatch.chdir(tmp_path / "worker")
    how = {"resume": True, "again": False, "every": 60}
    news = SimpleNamespace(put_nowait=lambda what: None)
    outcome = on_ray._work(0, pickle.loads(sent), tmp_path / "runs", how, own_folder, news)
    assert outcome.error is None and outcome.folder.manifest.title == "sure"


def test_the_example_runs_by_its_place(materials, tmp_path):
    place = Path(__file__).parents[2] / "examples" / "new_method.py"
    folder = perform(plan(f"{place}:Infomax+debias"), materials, tmp_path / "runs")
    assert folder.manifest.title == "infomax+debias"
    assert {"loss/sureness", "loss/diversity", "loss/ema"} <= set(folder.rows.columns)


def test_it_is_resumed(materials, tmp_path):
    whole = perform(plan("mine.py:Sure+debias"), materials, tmp_path / "whole")
    with pytest.raises(Killed):
        perform(plan("mine.py:Sure+debias"), materials, tmp_path, tell=Killer(2), every=0)
    folder = perform(plan("mine.py:Sure+debias"), materials, tmp_path, resume=True)
    assert_frame_equal(lasting(folder.rows), lasting(whole.rows), check_exact=True)


def test_two_files_of_one_name_stand_apart_in_tables(own_folder, tmp_path, capsys):
    (own_folder / "other.py").write_text(HEAD + SURE.replace("setting(1.0", "setting(2.0"))
    options = ["--limit", "32", "--batch", "8", "--stream", STREAM, "--threads", "1"]
    both = ["-m", "mine.py:Sure", "-m", "other.py:Sure", "-m", "tent", "--out", "runs"]
    assert main(["run", *both, *options]) == 0
    lines = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert lines.count("mine.py:Sure") == lines.count("other.py:Sure") == lines.count("tent") == 2
    assert main(["sweep", *both, *options, "--jobs", "1"]) == 0
    lines = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert lines.count("mine.py:Sure") == lines.count("other.py:Sure") == 1


def test_a_run_that_is_there_under_another_name_of_its_file_is_shown(own_folder, tmp_path, capsys):
    options = ["--limit", "16", "--batch", "8", "--stream", STREAM, "--threads", "1"]

    def table(method):
        assert main(["run", "-m", method, *options, "--out", "runs"]) == 0
        return capsys.readouterr().out

    (own_folder / "first_name.py").write_text(MINE)
    shown = table("first_name.py:Sure")
    (own_folder / "second_name.py").write_text(MINE)
    assert table("first_name:Sure") == table("second_name.py:Sure") == shown
    (own_folder / "first_name.py").unlink()
    assert table("second_name.py:Sure") == shown
    assert len(list((own_folder / "runs").glob("*/manifest.json"))) == 1


def test_to_read_a_manifest_runs_no_file_of_a_known_name(own_folder, materials, tmp_path):
    """The code that was loaded is taken, not what lies where the manifest says."""
    manifest = perform(plan(), materials, tmp_path / "runs").manifest
    (own_folder / "elsewhere").mkdir()
    (own_folder / "elsewhere" / "mine.py").write_text("open('was_run', 'w')\n" + MINE)
    manifest.run["method"] = "elsewhere/mine.py:Sure"
    assert read_run(manifest).composition == plan().composition
    assert not (own_folder / "was_run").exists()


def test_a_sweep_varies_its_settings_by_its_name():
    given = {"method": "mine.py:Sure+debias", "stream": STREAM, "grid": {"sure.gain": [0.5, 2]}}
    points = expand(given)
    assert [point.run.composition.host.gain for point in points] == [0.5, 2.0]
    assert [point.at["method"] for point in points] == ["sure+debias"] * 2
    assert len(expand({"method": "mine.py:Sure", "lr": True})) == 5
    with pytest.raises(ValueError, match="sure has no setting 'gian'"):
        expand(given | {"grid": {"sure.gian": [1]}})


def test_a_report_shows_it_and_runs_no_code(own_folder, materials, tmp_path, monkeypatch):
    out = tmp_path / "runs"
    folder = perform(plan(), materials, out)
    perform(plan("tent"), materials, out)
    (own_folder / "mine.py").unlink()
    monkeypatch.setattr("holdfast.recipes.registry._loaded", {})
    with pytest.raises(ValueError, match="a stored file may not run by itself"):
        read_run(folder.manifest)
    report = Report(gather(out))
    (comparison,) = report.comparisons
    assert {group.label for group in comparison.groups} == {"sure", "tent"}
    shown = page(report)
    assert f"method sure {folder.manifest.hashes['method sure']}" in shown


def test_a_model_of_one_s_own_counts_with_its_file(own_folder, tmp_path):
    """Its weights alone do not tell what it does with them."""
    text = """
from holdfast.data import glyphs
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = glyphs.model()

    def forward(self, x):
        return self.inner(x)
"""
    found = []
    for sign in "+-":
        (own_folder / "net.py").write_text(text.replace("self.inner(x)", f"{sign}self.inner(x)"))
        run = plan("frozen", model="net.py:Net")
        found.append(perform(run, Materials(tmp_path / "cache"), tmp_path / "runs"))
    one, other = (RunFolder(each.path).manifest for each in found)
    assert one.hashes["model"] == other.hashes["model"]
    assert one.hashes["model file"] != other.hashes["model file"]
    assert found[0].path != found[1].path
