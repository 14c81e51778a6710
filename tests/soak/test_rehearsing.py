"""A rehearsal that is killed, in short, and that a wrong answer after it would be found."""

import json
import subprocess
import sys

import pytest

from soak import rehearsing as module
from soak.rehearsing import rehearsing

# Makes the plan of a rehearsal, and goes on until it is killed.
PLANS = """
import json, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
folder.mkdir()
(folder / "source.safetensors").write_text("")
(folder / "plan.json.part").write_text(json.dumps({"seconds": 0.1}))
(folder / "plan.json.part").rename(folder / "plan.json")
time.sleep(60)
"""


@pytest.mark.slow
def test_a_rehearsal_that_was_killed_ends_as_one_that_was_not():
    verdict = rehearsing(minutes=0.2, methods=("tent",))
    assert verdict.passed, verdict.failures


@pytest.mark.parametrize(("accuracy", "passed"), [(70.0, True), (70.1, False)])
def test_another_end_after_a_kill_is_found(monkeypatch, accuracy, passed):
    def finish(folder, words):
        own = accuracy if folder.name == "killed" else 70.0
        cost = 1.0 if folder.name == "killed" else 2.0
        told = {"sentence": "Take tent.", "method": "tent"}
        told["standings"] = [{"accuracy": own, "cost": cost}]
        (folder / "rehearsal.json").write_text(json.dumps(told))
        return 0.0

    monkeypatch.setattr(module, "finish", finish)
    monkeypatch.setattr(module, "command", lambda at, words: [sys.executable, "-c", PLANS, str(at)])
    verdict = rehearsing()
    assert verdict.passed == passed
    assert passed or "standings" in verdict.failures[0]


def test_one_that_makes_no_plan_is_told(monkeypatch, tmp_path):
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    with pytest.raises(RuntimeError, match="made no plan"):
        module.wait_for_plan(tmp_path, process)
