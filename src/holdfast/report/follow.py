"""Watch runs as they go on: the page is written again as rows arrive, and served on loopback."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from holdfast.report.page import Report, page
from holdfast.results.gather import Gathered, Known, gather
from holdfast.results.stored import printable
from holdfast.util import files

LOOPBACK = "127.0.0.1"
# Hosts that a request may name, so that a page from elsewhere cannot make a browser read this one.
HOSTS = {LOOPBACK, "localhost"}
PORTS = 65535

# After a look at the runs, it waits at least so many times as long as the look took.
REST = 4


class Server(ThreadingHTTPServer):
    """Serves one page to this machine alone."""

    daemon_threads = True
    page = b""
    tag = ""

    def __init__(self, port: int = 0):
        """0: any port that is free."""
        advice = "choose another --port, or leave it out."
        if not 0 <= port <= PORTS:
            raise ValueError(f"A port is a number from 1 to {PORTS}, not {port}: {advice}")
        try:
            super().__init__((LOOPBACK, port), _Handler)
        except OSError as error:
            raise ValueError(f"Cannot serve on port {port} ({error.strerror}): {advice}") from None

    @property
    def address(self) -> str:
        return f"http://{LOOPBACK}:{self.server_port}/"

    def show(self, text: str) -> None:
        """Serve this page from now on."""
        self.page = printable(text).encode()
        self.tag = f'"{hashlib.sha256(self.page).hexdigest()[:16]}"'

    def __enter__(self) -> Server:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        host = (self.headers.get("Host") or "").rpartition(":")[0]
        page, tag = self.server.page, self.server.tag
        if host not in HOSTS or self.path != "/":
            self.send_error(404)
            return
        same = self.headers.get("If-None-Match") == tag
        self.send_response(304 if same else 200)
        self.send_header("ETag", tag)
        self.send_header("Cache-Control", "no-cache")
        if not same:
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        if not same:
            self.wfile.write(page)

    def log_message(self, format: str, *args: Any) -> None:
        """A page that asks every few seconds is no news."""


def follow(
    paths: Sequence[Path],
    out: Path,
    *,
    port: int = 0,
    every: float = 5.0,
    report: Callable[[Gathered], Report] = Report,
    tell: Callable[[str], None] = print,
) -> None:
    """Look every so many seconds, until Ctrl-C; other runs may begin after these are finished."""
    known: Known = {}
    before = None
    with Server(port) as server:
        tell(f"Following at {server.address} and in {out}; Ctrl-C ends it.")
        try:
            while True:
                start = time.monotonic()
                gathered = gather(*(path for path in paths if path.is_dir()), known=known)
                if before is None or gathered != before:
                    text = page(report(gathered), every=every)
                    server.show(text)
                    write(out, text)
                    tell(progress(gathered))
                    before = gathered
                # Watching takes little time from what runs.
                time.sleep(max(every, REST * (time.monotonic() - start)))
        except KeyboardInterrupt:
            tell(f"Stopped. The page as it was: {out}")


def progress(gathered: Gathered) -> str:
    runs = gathered.runs
    if not runs:
        return "No run yet."
    if gathered.finished:
        return f"All runs are finished: {len(runs)}."
    done = sum(run.finished for run in runs)
    batches = sum(run.done for run in runs)
    planned = sum(run.manifest.batches or run.done for run in runs)
    return f"{done} of {len(runs)} runs finished, {batches:,} of {planned:,} batches."


def write(path: Path, text: str) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_whole(path, lambda part: part.write_text(printable(text), encoding="utf-8"))
