"""Results of old code: what counts as a run's code, and what becomes of runs when it changes."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from polars.testing import assert_frame_equal
from short_runs import Killed, Killer, lasting

import holdfast
from holdfast.bench import code
from holdfast.bench import run as run_module
from holdfast.bench.code import ASIDE, code_hash, hash_source
from holdfast.bench.materials import Materials
from holdfast.bench.plan import Run
from holdfast.bench.run import perform
from holdfast.bench.store import RunFolder
from holdfast.bench.sweep import CHOSEN
from holdfast.cli.main import main
from holdfast.cli.run import tell_of_other_code
from holdfast.results.comparison import compare
from holdfast.results.stored import StoredRun, read_run

PACKAGE = Path(holdfast.__file__).parent
STREAM = "continual(order=fog,clean=false)"


def plan(method="bn", **others):
    """Four batches."""
    return Run.of(method, **{"stream": STREAM, "limit": 32, "batch": 8, **others})


def command(out, *options, method="bn"):
    return [
        *("run", "-m", method, "--limit", "32", "--batch", "8", "--stream", STREAM),
        *("--threads", "1", "--out", str(out), *options),
    ]


@pytest.fixture
def other_code(monkeypatch):
    """As if the code that decides numbers had been changed."""

    def change():
        monkeypatch.setattr(code, "hash_source", lambda *_: "c" * 64)
        code_hash.cache_clear()

    yield change
    code_hash.cache_clear()


class Counting:
    """Counts batches that are done, not those that are recalled, of which it hears at the start."""

    batches = -1

    def __call__(self, progress):
        self.batches += 1


# What counts.


@pytest.fixture
def package(tmp_path):
    return Path(shutil.copytree(PACKAGE, tmp_path / "holdfast", ignore=only_code))


def only_code(folder, names):
    return [name for name in names if "." in name and not name.endswith(".py")]


def groups_of(folders):
    (comparison,) = compare(map(StoredRun.of, folders))
    return comparison.groups


def edit(package, path, old, new):
    text = (package / path).read_text()
    assert old in text
    (package / path).write_text(text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        (
            "recipes/eata.py",
            "entropy_factor: float = setting(0.4",
            "entropy_factor: float = setting(0",
        ),
        ("engine/batch.py", "learn.apply()", "pass"),
        ("models/resnets.py", "stride", "other_stride"),
        ("data/corrupt/tables.py", "0.04", "0.05"),
        ("bench/metrics/tally.py", "15", "16"),
    ],
)
def test_a_change_of_what_decides_numbers_counts(package, path, old, new):
    edit(package, path, old, new)
    assert hash_source(package) != code_hash()


def test_comments_texts_and_what_shows_do_not_count(package):
    edit(package, "recipes/eata.py", '"""', '"""Otherwise told. ')
    edit(package, "recipes/eata.py", "from __future__", "# TermResult.\n\nfrom __future__")
    edit(package, "recipes/eata.py", "class Eata(", "class Eata(  # in other words\n    ")
    edit(package, "report/charts.py", "import", "import os\nimport")
    edit(package, "util/terminal.py", "10_000", "20_000")
    edit(package, "cli/main.py", "return 2", "return 3")
    edit(package, "explain/card.py", "nothing", "none")
    edit(package, "results/tables.py", "ECE", "E.C.E.")
    assert hash_source(package) == code_hash()


def test_a_new_file_counts_and_images_depend_on_the_code_of_the_data_alone(package):
    (package / "recipes" / "new.py").write_text("x = 1\n")
    assert hash_source(package) != code_hash()
    assert hash_source(package, "data") == code_hash("data")
    edit(package, "data/corrupt/tables.py", "0.04", "0.05")
    assert hash_source(package, "data") != code_hash("data")


def test_what_is_left_aside_is_there():
    assert all((PACKAGE / name).exists() for name in ASIDE)


# What becomes of runs.


def test_a_finished_run_is_not_reused_by_other_code(materials, tmp_path, other_code):
    first = perform(plan(), materials, tmp_path)
    assert perform(plan(), materials, tmp_path, tell=Killer(0)).path == first.path
    other_code()
    seen = Counting()
    second = perform(plan(), materials, tmp_path, tell=seen)
    assert seen.batches == 4
    assert second.path != first.path and first.finished
    codes = [one.manifest.hashes["code"] for one in (first, second)]
    assert len(set(codes)) == 2 and codes[1] == "c" * 64
    assert len(groups_of([first, second])) == 2  # and are no two seeds of one result


def test_a_stopped_run_is_not_gone_on_with_by_other_code(tmp_path, capsys, other_code, monkeypatch):
    """Nor is that kept quiet."""
    monkeypatch.setattr(run_module, "show", stopping(run_module.show, 2))
    with pytest.raises(Killed):
        main(command(tmp_path, "--snapshot", "0"))
    monkeypatch.undo()
    (stopped,) = (RunFolder(path.parent) for path in tmp_path.glob("*/manifest.json"))
    assert stopped.rows.height == 2
    other_code()
    capsys.readouterr()
    assert main(command(tmp_path, "--resume")) == 0
    told = capsys.readouterr().err
    assert f"Note: {tmp_path} has 1 of these runs as other code made it, and it stopped. It" in told
    assert not stopped.finished and stopped.rows.height == 2
    assert len(list(tmp_path.glob("*/manifest.json"))) == 2
    # It is told as long as there is none of today's code.
    assert main(command(tmp_path, "--resume")) == 0
    assert "Note" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("finished", "said"),
    [
        ([True], "1 of these runs as other code made it. It is run anew;"),
        ([True, True], "2 of these runs as other code made them. They are run anew;"),
        ([True, False], "2 of these runs as other code made them, 1 of them stopped. They are run"),
    ],
)
def test_stopped_runs_of_other_code_are_told_of_where_there_are_some(
    tmp_path, capsys, monkeypatch, finished, said
):
    found = [SimpleNamespace(finished=one) for one in finished]
    monkeypatch.setattr("holdfast.results.gather.of_other_code", lambda runs, out: found)
    tell_of_other_code([], tmp_path)
    assert f"Note: {tmp_path} has {said}" in capsys.readouterr().err


def stopping(show, after):
    left = iter(range(after))

    def shown(*given):
        if next(left, None) is None:
            raise Killed
        return show(*given)

    return shown


def test_what_is_kept_serves_the_code_that_made_it(tmp_path, other_code):
    materials = Materials(tmp_path)
    before = materials._source_path(plan("debias")), materials._images
    other_code()
    after = materials._source_path(plan("debias")), materials._images
    assert not {*before} & {*after}


def test_manifests_from_before_still_load(materials, tmp_path):
    folder = perform(plan(), materials, tmp_path)
    manifest = folder.manifest
    del manifest.hashes["code"]
    folder.manifest = manifest
    assert read_run(folder.manifest) == plan()
    (result,) = groups_of([folder])
    assert result.mean("mean_accuracy") > 0
    # But its numbers are not taken for those of today's code.
    fingerprint = plan().fingerprint(materials.hashes(plan()) | {"code": None})
    assert fingerprint != manifest.fingerprint


# --again.


def test_again_runs_anew_and_keeps_the_tags(materials, tmp_path):
    first = perform(plan(tags=(CHOSEN,)), materials, tmp_path)
    (first.path / "rows.parquet").write_bytes(b"damaged")
    with pytest.raises(ValueError, match="pass --again"):
        perform(plan(), materials, tmp_path)
    seen = Counting()
    folder = perform(plan(), materials, tmp_path, again=True, tell=seen)
    assert seen.batches == 4 and folder.path == first.path and folder.rows.height == 4
    assert folder.manifest.run["tags"] == [CHOSEN]
    assert {path.name for path in tmp_path.iterdir()} == {first.path.name}
    assert {path.name for path in folder.path.iterdir()} == {"manifest.json", "rows.parquet"}


def test_a_run_is_not_lost_to_a_new_one_that_fails(materials, tmp_path):
    run = plan("tent")
    first = perform(run, materials, tmp_path)
    rows, manifest = first.rows, first.manifest
    for resume, after in ((False, 2), (True, 1), (False, 1)):
        how = {"again": True, "resume": resume, "tell": Killer(after), "every": 0}
        with pytest.raises(Killed):
            perform(run, materials, tmp_path, **how)
        assert first.rows.equals(rows) and first.manifest == manifest
    # It goes on where it was stopped, if asked to, else from the start.
    seen = Counting()
    folder = perform(run, materials, tmp_path, again=True, resume=True, tell=seen)
    assert seen.batches == 3
    assert folder.manifest.time_started >= manifest.time_finished
    assert_frame_equal(lasting(folder.rows), lasting(rows), check_exact=True)
    assert len(list(tmp_path.iterdir())) == 1


def test_again_begins_what_was_stopped_anew_and_with_resume_goes_on(materials, tmp_path):
    for resume, batches in ((False, 4), (True, 2)):
        out = tmp_path / str(resume)
        with pytest.raises(Killed):
            perform(plan(), materials, out, tell=Killer(2), every=0)
        seen = Counting()
        folder = perform(plan(), materials, out, again=True, resume=resume, tell=seen)
        assert folder.finished and seen.batches == batches
        assert len(list(out.iterdir())) == 1


def test_again_on_the_command_line(tmp_path, capsys):
    both = command(tmp_path, "-m", "frozen")
    assert main(both) == 0

    def stamps():
        return {p: p.stat().st_mtime_ns for p in tmp_path.glob("*/manifest.json")}

    before = stamps()
    assert main(both) == 0 and stamps() == before
    assert main([*both, "--again"]) == 0
    after = stamps()
    assert after.keys() == before.keys() and all(after[p] > before[p] for p in before)
    assert main(["sweep", *command(tmp_path, "--again", "--jobs", "1")[1:]]) == 0
    assert sum(stamps()[path] > after[path] for path in after) == 1
    capsys.readouterr()
