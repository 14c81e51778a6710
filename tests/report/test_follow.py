"""The page while runs go on."""

import http.client
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import pytest
from made import make_run, retell

from holdfast.cli.report import Report
from holdfast.report import follow as module
from holdfast.report.follow import Server, follow
from holdfast.results.gather import gather


def ask(address, **headers):
    request = urllib.request.Request(address, headers=headers)
    return urllib.request.urlopen(request, timeout=10)


def test_the_server_serves_its_page_and_says_when_it_is_the_same():
    with Server() as server:
        server.show("<p>one</p>")
        answer = ask(server.address)
        assert answer.read() == b"<p>one</p>"
        tag = answer.headers["ETag"]
        with pytest.raises(urllib.error.HTTPError) as same:
            ask(server.address, **{"If-None-Match": tag})
        assert same.value.code == 304
        server.show("<p>two</p>")
        assert ask(server.address, **{"If-None-Match": tag}).read() == b"<p>two</p>"


def test_the_server_serves_nothing_else_and_nobody_else():
    with Server() as server:
        server.show("secret")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            ask(server.address + "etc/passwd")
        connection = http.client.HTTPConnection("127.0.0.1", server._http.server_port, timeout=10)
        connection.request("GET", "/", headers={"Host": "evil.example:80"})
        assert connection.getresponse().status == 404
        assert server._http.server_address[0] == "127.0.0.1"


def test_a_port_that_is_taken_is_an_error_that_says_what_to_do():
    with Server() as server, pytest.raises(ValueError, match="choose another --port"):
        Server(server._http.server_port)


@pytest.mark.parametrize("port", [-1, 65536, 99999])
def test_a_port_that_cannot_be_is_an_error_that_says_what_to_do(port):
    with pytest.raises(ValueError, match=f"from 1 to 65535, not {port}: choose another --port"):
        Server(port)


def test_the_page_is_written_again_as_rows_arrive(tmp_path, monkeypatch):
    """Between looks a run begins, gets on, and is finished; then Ctrl-C."""
    runs, out, told = tmp_path / "runs", tmp_path / "page.html", []
    of_run = {"accuracy": {"fog": 50}, "batches": 12}
    looks = [
        lambda: make_run(runs, **of_run, cut=4),
        lambda: None,
        lambda: (gone(), make_run(runs, **of_run, cut=8)),
        lambda: (gone(), make_run(runs, **of_run)),
    ]
    pages = []

    def gone():
        for path in sorted(runs.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()

    def wait(seconds):
        pages.append(out.read_text())
        if not looks:
            raise KeyboardInterrupt
        looks.pop(0)()

    monkeypatch.setattr(module.time, "sleep", wait)
    follow([runs], out, every=1, tell=told.append)
    assert "http://127.0.0.1:" in told[0]
    assert told[1:] == [
        "No run yet.",
        "0 of 1 runs finished, 4 of 12 batches.",
        "0 of 1 runs finished, 8 of 12 batches.",
        "All runs are finished: 1.",
        f"Stopped. The page as it was: {out}",
    ]
    assert pages[1] == pages[2] and "4 of 12 batches" in pages[1]
    assert "8 of 12 batches" in pages[3]
    assert "All runs are finished." in pages[4]
    assert "1 of 1" not in pages[4] and 'data-every="1"' in pages[4]


def test_a_loop_that_is_told_to_end_leaves_no_server(tmp_path):
    make_run(tmp_path / "runs")
    told = []
    before = threading.active_count()
    follow([tmp_path / "runs"], tmp_path / "o.html", tell=told.append, until=lambda: True)
    address = told[0].split()[2]
    with pytest.raises(urllib.error.URLError):
        ask(address)
    assert threading.active_count() <= before + 1


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is sent otherwise there")
def test_ctrl_c_ends_the_command_cleanly(tmp_path):
    make_run(tmp_path / "runs", "eata", {"fog": 50})
    code = (
        "from pathlib import Path; from holdfast.cli.report import Report; "
        f"Report(runs=(Path({str(tmp_path / 'runs')!r}),), "
        f"out=Path({str(tmp_path / 'page.html')!r}), follow=True).run()"
    )
    command = [sys.executable, "-u", "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert "Following at" in process.stdout.readline()
        assert process.stdout.readline() == "All runs are finished: 1.\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.read().startswith("Stopped. The page as it was")
        assert process.wait(30) == 0
    assert (tmp_path / "page.html").is_file()


# The command.


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
