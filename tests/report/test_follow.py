"""The page while runs go on."""

import http.client
import threading
import urllib.error
import urllib.request

import pytest
from made import make_run

from holdfast.report import follow as module
from holdfast.report.follow import Server, follow


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
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
        connection.request("GET", "/", headers={"Host": "evil.example:80"})
        assert connection.getresponse().status == 404
        assert server.server_address[0] == "127.0.0.1"


def test_a_port_that_is_taken_is_an_error_that_says_what_to_do():
    with Server() as server, pytest.raises(ValueError, match="choose another --port"):
        Server(server.server_port)


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


def test_a_loop_that_is_told_to_end_leaves_no_server(tmp_path, monkeypatch):
    def end(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(module.time, "sleep", end)
    make_run(tmp_path / "runs")
    told = []
    before = threading.active_count()
    follow([tmp_path / "runs"], tmp_path / "o.html", tell=told.append)
    address = told[0].split()[2]
    with pytest.raises(urllib.error.URLError):
        ask(address)
    assert threading.active_count() <= before + 1
