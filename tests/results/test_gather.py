"""Whatever lies in a folder of runs: what can be read is read, and the rest is told."""

import os

import polars as pl
import pytest
from made import make_run, retell

from holdfast.report.page import Report, page
from holdfast.results.gather import gather
from holdfast.results.stored import hardly_acts


def only(gathered):
    (stored,) = gathered.runs
    return stored


def told(gathered):
    return " ".join(f"{note.path} {note.text}" for note in gathered.notes)


def test_a_finished_run_has_the_figures_of_its_manifest(tmp_path):
    folder = make_run(tmp_path, analysis=True)
    gathered = gather(tmp_path)
    stored = only(gathered)
    assert stored.metrics == folder.manifest.metrics
    assert stored.finished and stored.done == stored.manifest.batches == 12
    assert stored.domains == ["fog", "snow", "original"]
    assert stored.analysis["gap"].to_list() == folder.analysis["gap"].to_list()
    assert gathered.notes == ()


def test_a_run_that_goes_on_is_read_as_far_as_it_is(tmp_path):
    make_run(tmp_path, cut=5)
    stored = only(gather(tmp_path))
    assert not stored.finished
    assert (stored.done, stored.manifest.batches) == (5, 12)
    assert stored.domains == ["fog", "snow"]


def test_a_damaged_part_leaves_what_came_before_it(tmp_path):
    folder = make_run(tmp_path, cut=6)
    last = sorted(folder.path.glob("rows-*"))[-1]
    last.write_bytes(last.read_bytes()[:100])
    gathered = gather(tmp_path)
    assert only(gathered).done == 3
    assert "3 batches before it" in told(gathered)


def test_a_row_that_does_not_fit_does_not_get_half_way_in(tmp_path):
    folder = make_run(tmp_path, cut=6)
    last = sorted(folder.path.glob("rows-*"))[-1]
    bad = pl.read_parquet(last).with_columns(pl.col("predicted").list.head(3))
    bad.write_parquet(last)
    stored = only(gather(tmp_path))
    assert stored.done == 3
    assert stored.metrics["images"] == 60 == stored.batches["images"].sum()


def test_without_rows_the_manifests_figures_are_shown(tmp_path):
    folder = make_run(tmp_path)
    (folder.path / "rows.parquet").unlink()
    gathered = gather(tmp_path)
    assert only(gathered).metrics == folder.manifest.metrics
    assert only(gathered).recorder is None
    assert "rows cannot be read" in told(gathered)


def test_figures_that_are_not_those_of_the_rows_are_told(tmp_path):
    folder = make_run(tmp_path, accuracy=60)
    retell(folder, figures={**folder.manifest.metrics, "mean_accuracy": 99.0})
    gathered = gather(tmp_path)
    assert only(gathered).metrics["mean_accuracy"] == pytest.approx(60)
    assert "not those of its rows" in told(gathered)


def test_figures_that_an_older_version_did_not_write_down_are_no_contradiction(tmp_path):
    folder = make_run(tmp_path)
    retell(folder, figures={k: v for k, v in folder.manifest.metrics.items() if k != "bias"})
    gathered = gather(tmp_path)
    assert gathered.notes == () and only(gathered).metrics["bias"] is not None


@pytest.mark.parametrize(("method", "due"), [("eata", 120), ("bn", 0)])
def test_rows_of_version_0_1_do_not_say_which_steps_could_have_been_taken(tmp_path, method, due):
    """There, the rate of steps was that of all batches."""
    folder = make_run(tmp_path, method, batches=40, rows={"every": 60})
    rows = folder.path / "rows.parquet"
    pl.read_parquet(rows).drop("due").write_parquet(rows)
    later = ("steps", "steps_due")
    older = {k: v for k, v in folder.manifest.metrics.items() if k not in later}
    retell(folder, figures={**older, "step_rate": 2 / 120})
    gathered = gather(tmp_path)
    figures = only(gathered).metrics
    assert gathered.notes == ()
    assert figures["steps_due"] == due and figures["steps"] == (2 if due else 0)
    assert hardly_acts(figures) == (method == "eata")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"classes": 10', "not a manifest that can be read"),
        ("[]", "not a manifest that can be read"),
        ('{"format": 99, "classes": 10}', "this holdfast reads format 1"),
        ('{"name": "somebody else\'s"}', "missing required field `classes`"),
        ('{"classes": "many"}', "Expected `int`, got `str` as `classes`"),
        ('{"classes": true}', "Expected `int`, got `bool` as `classes`"),
        ('{"classes": 10000000000}', "Expected `int` <= 1000000 as `classes`"),
        ('{"classes": 10, "run": 3}', "Expected `object`, got `int` as `run`"),
        ('{"classes": 10, "settings": {"bn": 1}}', "got `int` as `settings[...]`"),
        ('{"classes": 10, "title": "\\ud800"}', "not a manifest that can be read"),
        ("[" * 100_000, "not a manifest that can be read"),
    ],
)
def test_a_foreign_manifest_is_a_note(tmp_path, text, reason):
    make_run(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    (other / "manifest.json").write_text(text)
    gathered = gather(tmp_path)
    assert only(gathered).title == "eata"
    assert str(other) in told(gathered) and reason in told(gathered)


def test_a_manifest_without_more_than_the_classes_is_shown(tmp_path):
    """As far as it goes: an older version, or another program, may write down less."""
    folder = make_run(tmp_path)
    (folder.path / "manifest.json").write_text('{"classes": 10, "finished": true}')
    stored = only(gather(tmp_path))
    assert stored.title == folder.path.name
    assert stored.seed == 0 and stored.manifest.tags == () and stored.settings == {}
    assert stored.batch_size is None and stored.manifest.batches == 0 and stored.done == 12
    assert "is 60.0 % accurate" in page(Report(gather(tmp_path)))


def test_numbers_that_are_too_large_do_no_harm(tmp_path):
    folder, large = make_run(tmp_path), 10**400
    retell(folder, stream=f"continual(batch={large})", run={"batch": large, "method": "eata"})
    stored = only(gather(tmp_path))
    assert stored.batch_size is None
    assert "is 60.0 % accurate" in page(Report(gather(tmp_path)))
    retell(folder, batches=large)
    assert "as `batches`" in told(gather(tmp_path))


def test_half_a_character_in_a_name_is_shown_as_a_sign_for_it(tmp_path):
    make_run(tmp_path)
    os.mkdir(os.fsencode(tmp_path) + b"/caf\xe9")
    assert "passed over: caf\ufffd." in told(gather(tmp_path))


def test_a_link_to_where_it_was_looked_before_is_followed_once(tmp_path):
    make_run(tmp_path / "a")
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "a" / "eggs.txt").touch()
    gathered = gather(tmp_path, tmp_path / "a" / "up")
    assert only(gathered).title == "eata"
    (note,) = gathered.notes
    assert note.path == str((tmp_path / "a").resolve()) and "eggs.txt" in note.text


def test_what_a_link_leads_to_is_looked_at_as_deep_as_from_there(tmp_path):
    folder = make_run(tmp_path / "a" / "b" / "c")
    assert gather(tmp_path).runs == ()
    (tmp_path / "link").symlink_to(tmp_path / "a" / "b")
    gathered = gather(tmp_path)
    assert only(gathered).path == folder.path.resolve() and gathered.notes == ()


def test_a_run_that_is_about_to_begin_is_no_note(tmp_path):
    """While a model is made ready, its folder holds a lock alone."""
    make_run(tmp_path)
    soon = tmp_path / "tent-s0-abc"
    soon.mkdir()
    (soon / "lock").touch()
    assert gather(tmp_path).notes == ()


def test_foreign_parquet_and_stray_files_are_notes(tmp_path):
    make_run(tmp_path)
    other = make_run(tmp_path, "tent")
    pl.DataFrame({"a": [1]}).write_parquet(other.path / "rows.parquet")
    (other.path / "analysis.parquet").write_bytes(b"nonsense")
    (tmp_path / "shopping.txt").write_text("eggs")
    rows = tmp_path / "no-manifest"
    rows.mkdir()
    (rows / "rows.parquet").write_bytes(b"")
    gathered = gather(tmp_path)
    assert {one.title for one in gathered.runs} == {"eata", "tent"}
    for word in ("shopping.txt", "no manifest.json", "rows cannot", "analysis.parquet cannot"):
        assert word in told(gathered)


def test_runs_are_found_below_and_counted_once(tmp_path):
    folder = make_run(tmp_path / "a" / "b", seed=1)
    (tmp_path / "a" / "cache").mkdir()
    gathered = gather(tmp_path, tmp_path / "a", folder.path)
    assert only(gathered).seed == 1
    assert gathered.notes == ()


def test_the_same_run_in_two_folders_is_no_second_seed(tmp_path):
    make_run(tmp_path / "a", cut=4)
    make_run(tmp_path / "b")
    gathered = gather(tmp_path)
    assert only(gathered).finished
    assert "the same run as" in told(gathered)


def test_what_is_no_folder_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="not a folder of runs"):
        gather(tmp_path / "nowhere")


def test_only_what_has_changed_is_read_again(tmp_path):
    still = make_run(tmp_path, "tent")
    going = make_run(tmp_path, cut=4)
    known = {}
    before = {one.title: one for one in gather(tmp_path, known=known).runs}
    (going.path / "rows-000002.parquet").unlink()
    after = {one.title: one for one in gather(tmp_path, known=known).runs}
    assert after["tent"] is before["tent"] and still.finished
    assert (before["eata"].done, after["eata"].done) == (4, 2)
