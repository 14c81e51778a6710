"""Who may come in: whoever has the token; without one, whoever is on this machine and meant it."""

from __future__ import annotations

import hmac
import ipaddress
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

# What orchestrators ask for without a token, and the page, which holds nothing by itself.
OPEN = ("/", "/v2/health/live", "/v2/health/ready")


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_open_to(host: str, token: str | None) -> None:
    """That nobody else than this machine is let in without a token."""
    if token is None and not is_loopback(host):
        raise ValueError(
            f"--host {host} lets others in, who could teach and reset streams: pass --token, or "
            "set HOLDFAST_TOKEN; or leave out --host, and only this machine is let in."
        )
    if token is not None and (len(token) < 16 or not token.isascii() or not token.isprintable()):
        raise ValueError(
            "A token is at least 16 printable ASCII characters that nobody guesses: make one with "
            "python -c 'import secrets; print(secrets.token_urlsafe())'."
        )


class Door:
    """Turns away who has no token. Without a token a browser is the way in for others: what it was
    told to ask by a page from elsewhere is turned away too."""

    def __init__(self, app: ASGIApp, token: str | None):
        self.app = app
        self.token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        problem = self._problem(scope) if scope["type"] == "http" else None
        if problem is None:
            await self.app(scope, receive, send)
            return
        status, text = problem
        headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
        await JSONResponse({"error": text}, status, headers)(scope, receive, send)

    def _problem(self, scope: Scope) -> tuple[int, str] | None:
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if origin is not None and _netloc(origin) != host:
            return 403, "Pages from elsewhere may not ask this server."
        if self.token is None:
            if not is_loopback(_hostname(host)):
                return 403, "This server has no token, and answers to localhost alone."
            return None
        given = headers.get("authorization", "")
        expected = f"Bearer {self.token}"
        if scope["path"] in OPEN or hmac.compare_digest(given.encode(), expected.encode()):
            return None
        return 401, "Send the token: curl -H 'Authorization: Bearer TOKEN'."


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _hostname(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
