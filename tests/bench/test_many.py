"""Many runs: what fails or dies is noted and the others go on; stopping leaves what can go on."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from short_runs import BROKEN, long, plan, same_rows

from holdfast.bench.display import Board, Roster
from holdfast.bench.many import Ended, Progress, perform_all
from holdfast.bench.plan import labels
from holdfast.bench.store import RunFolder


def folders(out):
    return [path.parent for path in out.glob("*/manifest.json")]


def is_held(path):
    """Whether some process runs it."""
    try:
        with RunFolder(path).held():
            return False
    except ValueError:
        return True


@pytest.fixture
def news():
    """What is told, by the number of the run."""
    heard = []
    yield heard
    for number, one in heard:
        assert isinstance(number, int) and isinstance(one, Progress | Ended)


def test_a_run_that_fails_does_not_stop_the_others(tmp_path, news):
    runs = [plan(), BROKEN, plan("tent")]
    outcomes = perform_all(runs, tmp_path, tell=lambda *heard: news.append(heard))
    assert [one.run for one in outcomes] == runs
    assert [one.folder is not None and one.folder.finished for one in outcomes] == [1, 0, 1]
    assert [one.error is None for one in outcomes] == [1, 0, 1]
    assert "nowhere" in outcomes[1].error
    assert [one for number, one in news if isinstance(one, Ended)] == outcomes
    told = [one for number, one in news if number == 2 and isinstance(one, Progress)]
    assert (told[0].done, told[-1].done, told[-1].batches) == (0, 8, 8)
    assert told[-1].pid == os.getpid()
    figures = outcomes[2].folder.manifest.metrics
    assert told[-1].accuracy == pytest.approx(figures["mean_accuracy"])


def test_a_fault_of_ours_is_told_with_its_kind_and_ctrl_c_is_no_outcome(tmp_path):
    def breaks(error, number, one):
        if getattr(one, "done", 0):
            raise error

    for error, said in ((TypeError("a\n b"), "TypeError: a b"), (KeyError(), "KeyError")):
        (one,) = perform_all([plan()], tmp_path, tell=partial(breaks, error))
        assert one.error == said
    with pytest.raises(KeyboardInterrupt):
        perform_all([plan()], tmp_path, tell=partial(breaks, KeyboardInterrupt))


@pytest.mark.parametrize("what", ["rows", "analysis", "other rows"])
def test_a_damaged_run_does_not_stop_the_others(tmp_path, materials, monkeypatch, what):
    monkeypatch.setattr("holdfast.bench.many.Materials", lambda folder: materials)
    runs = [plan(analysis=True), plan("frozen")]
    folder = perform_all(runs[:1], tmp_path)[0].folder
    path = folder.path / f"{what.split()[-1]}.parquet"
    if what == "other rows":
        folder.rows.drop("label").write_parquet(path)
    else:
        path.write_bytes(path.read_bytes()[:100])
    damaged, other = perform_all(runs, tmp_path)
    assert other.folder.finished
    assert damaged.error.startswith(f"{folder.path} is damaged (")
    assert "--again" in damaged.error and "--out" in damaged.error


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is such a device")
def test_a_device_that_is_not_there_does_not_stop_the_others(tmp_path):
    runs = [plan(device="cuda"), plan(device="gpu"), plan()]
    *failed, other = perform_all(runs, tmp_path)
    assert other.folder.finished
    for run, one in zip(runs, failed, strict=False):
        assert one.error.startswith(f"torch has no device '{run.machine.device}' here (")
        assert "--device cpu" in one.error
    assert len(folders(tmp_path)) == 1


def test_a_board_may_look_on_in_one_process(tmp_path, capsys):
    runs = [plan(), plan(seed=1)]
    with Board(runs) as board:
        perform_all(runs, tmp_path, tell=board)
    assert board.finished == 2
    assert "bn seed 1: mean" in capsys.readouterr().err


def test_in_processes_one_that_is_killed_fails_alone_and_goes_on_later(tmp_path, news):
    runs = [long(), BROKEN, plan("tent")]

    def tell(number, one):
        news.append((number, one))
        if number == 0 and isinstance(one, Progress) and one.done >= 10:
            os.kill(one.pid, signal.SIGKILL)

    outcomes = perform_all(runs, tmp_path / "many", jobs=2, every=0.05, tell=tell)
    assert [one.run for one in outcomes] == runs
    assert [one.folder is None for one in outcomes] == [True, True, False]
    assert "SIGKILL" in outcomes[0].error and "memory" in outcomes[0].error
    assert {number for number, one in news if isinstance(one, Ended)} == {0, 1, 2}
    pids = {one.pid for _, one in news if isinstance(one, Progress)}
    assert os.getpid() not in pids and len(pids) == 2
    # The same runs in one process: the same rows, also of the one that goes on.
    left = [path for path in folders(tmp_path / "many") if (path / "progress.json").exists()]
    assert len(left) == 1
    again = perform_all(runs, tmp_path / "many")
    alone = perform_all(runs, tmp_path / "one")
    assert [one.error is None for one in again] == [True, False, True]
    assert again[1].error == outcomes[1].error == alone[1].error
    for number in (0, 2):
        assert same_rows(again[number].folder, alone[number].folder)
    assert again[2].folder.path == outcomes[2].folder.path


def test_ctrl_c_stops_all_processes_after_their_batch(tmp_path, news):
    asked = []

    def tell(number, one):
        news.append((number, one))
        if isinstance(one, Progress):
            # A terminal's Ctrl-C would reach this process, and none of those.
            assert os.getpgid(one.pid) != os.getpgrp()
        begun = {number for number, one in news if getattr(one, "done", 0)}
        # Once: batches on their way still tell of themselves, and a second one waits for none.
        if len(begun) == 2 and not asked:
            asked.append(True)
            signal.raise_signal(signal.SIGINT)
            news.clear()

    before = signal.getsignal(signal.SIGINT)
    runs = [long(seed, limit=2000) for seed in range(3)]
    with pytest.raises(KeyboardInterrupt):
        perform_all(runs, tmp_path, jobs=2, every=1e9, tell=tell)
    assert signal.getsignal(signal.SIGINT) is before
    assert not any(isinstance(one, Ended) for _, one in news)  # none has failed
    # Both have written down where they were; the third has not begun.
    assert len(folders(tmp_path)) == 2
    assert all((path / "progress.json").exists() for path in folders(tmp_path))


PARENT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from short_runs import long
from holdfast.bench.many import _start

if __name__ == "__main__":
    ears, process = _start(long(limit=2000), Path(sys.argv[1]), {"every": 1e9})
    while not ears.recv().done:
        pass
    print("begun", flush=True)
    process.join()
"""


def test_no_process_outlives_its_parent(tmp_path):
    script, out = tmp_path / "parent.py", tmp_path / "out"
    script.write_text(PARENT)
    helpers = Path(__file__).parents[1] / "helpers"
    command = [sys.executable, script, out, helpers]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout.readline() == "begun\n"
        parent.kill()
    # The run's process sees it, writes down where it is, and lets go of the folder.
    (path,) = folders(out)
    deadline = time.monotonic() + 60
    while not (path / "progress.json").exists() or is_held(path):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_plain_lines_where_there_is_no_terminal(tmp_path, capsys):
    runs = [plan(), BROKEN, plan(seed=1)]
    with Roster(runs) as roster:
        outcomes = perform_all(runs, tmp_path, tell=roster)
    lines = capsys.readouterr().err.splitlines()
    mean = outcomes[0].folder.manifest.metrics["mean_accuracy"]
    assert lines[0] == (
        f"[1/3] bn, data glyphs-c, model None seed 0 finished: mean {mean:.2f} %, 8 batches"
    )
    assert lines[1].startswith("[2/3] bn, data nowhere, model glyphs seed 0 failed: ")
    assert len(lines) == 3 and roster.finished == 2


def test_labels_say_what_runs_differ_in():
    runs = [plan(), plan("tent( lr=0.1 )", seed=3, batch=4)]
    assert labels(runs) == ["bn, batch 8 seed 0", "tent(lr=0.1), batch 4 seed 3"]
