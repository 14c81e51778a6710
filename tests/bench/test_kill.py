"""A process is killed at random moments: what it leaves is whole, and a run goes on from it."""

import pytest

from holdfast.bench import materials as materials_module
from soak import kill_runs
from soak.kills import kill_run, kill_save

SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("cotta(views=8)", "rotta")]


@pytest.fixture(autouse=True)
def set_back(monkeypatch):
    """What a soak sets for its process."""
    monkeypatch.setattr(materials_module, "DRAWN_IMAGES", 128)


@pytest.mark.parametrize("method", ["eata+debias", *SLOW])
def test_a_run_killed_at_twenty_random_moments_has_the_rows_of_one_never_stopped(tmp_path, method):
    places = set()
    # On a fast machine most kills come before a snapshot, or a run ends between two: then more of
    # them, until it was not killed before it did anything, time after time.
    for seed in range(1, 5):
        reached, found = kill_run(method, 20, seed, tmp_path / str(seed))
        assert found.pop("runs") >= 3
        assert not found
        places |= {(seed, *at) for at in reached if at[1]}
        if len(places) >= 5:
            break
    assert len(places) >= 5


def test_runs_that_are_begun_anew_and_not_gone_on_with_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(kill_runs, "few_images", lambda: None)  # but where runs are killed
    _, found = kill_run("eata+debias", 2, 1, tmp_path)
    assert "was not gone on with, but begun anew" in found["2 anew"]


@pytest.mark.slow  # tests/util/test_files.py has another, of fewer images
def test_a_state_file_whose_process_is_killed_is_the_old_or_the_new_one(tmp_path):
    found = kill_save(30, 1, tmp_path)
    assert {state for state, _ in found} == {0, 1}
    assert any(half_written for _, half_written in found)
