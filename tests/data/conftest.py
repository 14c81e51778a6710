import hashlib
import threading
from http.server import ThreadingHTTPServer
from types import SimpleNamespace

import pytest
from download_server import Handler, archive_of

from holdfast.data.fetch import transfer
from holdfast.data.fetch.catalogue import CATALOGUE, Entry, Remote


@pytest.fixture
def server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.files, server.asked, server.mood, server.break_after = {}, [], "good", None
    server.test_is_over = threading.Event()
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.test_is_over.set()
    server.shutdown()
    server.server_close()
    thread.join(60)
    assert not thread.is_alive(), "the server does not end"


@pytest.fixture
def known(server, tmp_path, monkeypatch):
    """A set called `toy`, one archive, on the server."""
    monkeypatch.setattr(transfer.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(transfer, "CHUNK", 1000)
    monkeypatch.setattr(transfer, "TIMEOUT", 30)
    body = archive_of({"Toy/labels.npy": bytes(range(200)), "Toy/fog.npy": b"fog" * 30_000})
    remote = Remote(
        "toy.tar",
        hashlib.md5(body).hexdigest(),
        len(body),
        (f"{server.url}/first/toy.tar?download=1", f"{server.url}/second/toy.tar"),
        ("Toy",),
    )
    server.files |= {"/first/toy.tar": body, "/second/toy.tar": body}
    monkeypatch.setitem(CATALOGUE, "toy", Entry("A toy", (remote,)))
    return SimpleNamespace(root=tmp_path / "data", body=body, remote=remote)
