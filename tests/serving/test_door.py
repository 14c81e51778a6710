"""Who may come in."""

import pytest
from asgi import Client
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from holdfast.serving.door import OPEN, Door, check_open_to, is_loopback

TOKEN = "a-token-that-nobody-guesses"


def client(token=None, host="127.0.0.1:8080"):
    routes = [Route(path, lambda request: PlainTextResponse("in")) for path in (*OPEN, "/metrics")]
    app = Starlette(routes=routes, middleware=[Middleware(Door, token=token)])
    return Client(app, f"http://{host}")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:80", "[::1]:8080", "127.0.0.1:8080"])
def test_this_machine_is_let_in_without_a_token(host):
    assert client(host=host).get("/metrics").status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.1:80", "["])
def test_a_name_that_leads_here_from_elsewhere_is_not(host):
    assert client().get("/metrics", headers={"host": host}).status_code == 403


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "//["])
@pytest.mark.parametrize("token", [None, TOKEN])
def test_a_page_from_elsewhere_may_not_ask(origin, token):
    headers = {"origin": origin, "authorization": f"Bearer {TOKEN}"}
    assert client(token).get("/metrics", headers=headers).status_code == 403


def test_its_own_page_may_ask():
    headers = {"origin": "http://127.0.0.1:8080"}
    assert client().get("/metrics", headers=headers).status_code == 200


@pytest.mark.parametrize("given", [None, "", "Bearer", "Bearer x", TOKEN, f"Bearer {TOKEN}x", "ä"])
def test_without_the_token_only_health_and_the_empty_page_are_open(given):
    headers = {} if given is None else {"authorization": given.encode("latin-1")}
    inside = client(TOKEN, host="cameras.example")
    refused = inside.get("/metrics", headers=headers)
    assert refused.status_code == 401 and refused.headers["www-authenticate"] == "Bearer"
    assert "TOKEN" in refused.json()["error"] and TOKEN not in refused.text
    for path in OPEN:
        assert inside.get(path, headers=headers).status_code == 200


def test_with_the_token_everything_is():
    inside = client(TOKEN, host="cameras.example")
    assert inside.get("/metrics", headers={"authorization": f"Bearer {TOKEN}"}).text == "in"


def test_other_hosts_need_a_token_that_is_worth_the_name():
    for host in ("127.0.0.1", "localhost", "::1", "127.8.8.8"):
        assert is_loopback(host)
        check_open_to(host, None)
    for host in ("0.0.0.0", "::", "192.168.0.4", "example.org", ""):
        with pytest.raises(ValueError, match="--token"):
            check_open_to(host, None)
        check_open_to(host, TOKEN)
    for token in ("short", "ä" * 20, "a\nb" * 10):
        with pytest.raises(ValueError, match="16 printable"):
            check_open_to("127.0.0.1", token)
