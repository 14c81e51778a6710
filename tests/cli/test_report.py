"""`holdfast report`: what it writes, and its errors."""

import os
import signal
import subprocess
import sys

import pytest
from made import make_run, retell

from holdfast.cli.report import Report
from holdfast.results.gather import gather

# The command sets the paper's numbers beside ours, or says why not.
NOTE = "The paper has no numbers on glyphs-c"


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is sent otherwise there")
def test_ctrl_c_ends_the_command_cleanly(tmp_path):
    make_run(tmp_path / "runs", "eata", {"fog": 50})
    code = (
        "from pathlib import Path; from holdfast.cli.report import Report; "
        f"Report(runs=(Path({str(tmp_path / 'runs')!r}),), "
        f"out=Path({str(tmp_path / 'page.html')!r}), follow=True).run()"
    )
    # A shell's background job, in which these tests may run, ignores Ctrl-C, and so would this one.
    listens = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    command = [sys.executable, "-u", "-c", listens + code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert "Following at" in process.stdout.readline()
        assert process.stdout.readline() == "All runs are finished: 1.\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.read().startswith("Stopped. The page as it was")
        assert process.wait(30) == 0
    assert NOTE in (tmp_path / "page.html").read_text()


def test_the_command_writes_all_that_it_is_asked_for(tmp_path, capsys):
    make_run(tmp_path / "runs", "eata", {"fog": 50})
    (tmp_path / "runs" / "notes.txt").write_text("x")
    Report(
        runs=(tmp_path / "runs",),
        out=tmp_path / "new" / "page.html",
        markdown=tmp_path / "t.md",
        latex=tmp_path / "t.tex",
    ).run()
    said = capsys.readouterr().out
    assert "eata is 50.0 % accurate" in said and "notes.txt" in said
    assert (tmp_path / "new" / "page.html").read_text().startswith("<!doctype html>")
    assert r"\toprule" in (tmp_path / "t.tex").read_text()
    assert "| eata |" in (tmp_path / "t.md").read_text()
    for name in ("new/page.html", "t.md"):
        assert NOTE in (tmp_path / name).read_text()


def test_names_that_cannot_be_written_do_no_harm(tmp_path, capsys):
    folder = make_run(tmp_path / "runs", "eata", {"fog": 50})
    retell(folder, title="")  # then the folder's name stands for it
    folder.path.rename(os.fsdecode(os.fsencode(folder.path) + b"\xe9"))
    names = {"out": "page.html", "markdown": "t.md", "latex": "t.tex"}
    paths = {name: tmp_path / text for name, text in names.items()}
    Report(runs=(tmp_path / "runs",), **paths).run()
    assert f"{folder.path.name}\ufffd is 50.0 % accurate" in capsys.readouterr().out
    for path in paths.values():
        assert "\ufffd" in path.read_text(encoding="utf-8")


def test_mistakes_are_errors_that_say_what_to_do(tmp_path):
    with pytest.raises(ValueError, match="not a folder of runs"):
        Report(runs=(tmp_path / "nowhere",)).run()
    with pytest.raises(ValueError, match="holdfast run"):
        Report(runs=(tmp_path,)).run()
    with pytest.raises(ValueError, match="above 0"):
        Report(runs=(tmp_path,), every=0).run()
    with pytest.raises(ValueError, match="--follow writes the page alone"):
        Report(runs=(tmp_path,), follow=True, png=tmp_path).run()
    assert gather(tmp_path).runs == ()
