"""A server of archives that can misbehave."""

import io
import tarfile
from http.server import BaseHTTPRequestHandler

PAGE = b"<!DOCTYPE html><html><body>Please log in</body></html>" * 50


class Handler(BaseHTTPRequestHandler):
    """Files by name, with ranges; what else it does stands in `server.mood`."""

    def do_GET(self):
        server = self.server
        asked = self.headers.get("Range")
        server.asked.append((self.path, asked))
        mood, body = server.mood, server.files.get(self.path.partition("?")[0])
        if mood == "silent":
            return server.test_is_over.wait(60)
        if mood == "no web server":
            return self.wfile.write(b"220 mail.example ready\r\n")
        if mood == "page":
            return self.answer(200, PAGE, {"Content-Type": "text/html"})
        if body is None or mood == "gone":
            return self.answer(404, PAGE, {"Content-Type": "text/html"})
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        if not asked or mood == "no ranges":
            return self.answer(200, body)
        if start >= len(body):
            return self.answer(416, b"", {"Content-Range": f"bytes */{len(body)}"})
        if mood == "wrong range":
            return self.answer(206, body, {"Content-Range": f"bytes 0-9/{len(body)}"})
        where = f"bytes {start}-{len(body) - 1}/{len(body)}"
        return self.answer(206, body[start:], {"Content-Range": where})

    def answer(self, code, body, headers=None):
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.server.break_after is not None and code in (200, 206):
            body = body[: self.server.break_after]
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def archive_of(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, contents in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(contents)
            archive.addfile(entry, io.BytesIO(contents))
    return out.getvalue()
