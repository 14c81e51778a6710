"""The endpoints, on a stand-in that tells what each stream has seen."""

import asyncio
import io
import threading
import time

import numpy as np
import pytest
from asgi import Client
from PIL import Image
from plain_fleet import PlainFleet, pictures

from holdfast.serving.front import Front, Limits, Served
from holdfast.serving.service import Service, ServiceOptions

SERVED = Served(name="net", version="v1", method="tent", side=2, classes=2)
HOME = "http://127.0.0.1:8080"
LIMITS = Limits()


@pytest.fixture
def made(tmp_path):
    services = []

    def make(token=None, limits=LIMITS, fleet=None, **options):
        fleet = PlainFleet(tmp_path) if fleet is None else fleet
        service = Service(fleet, ServiceOptions(**{"deadline": 0.0, **options}))
        services.append(service)
        return Front(service, SERVED, limits, token)

    yield make
    for service in services:
        service.drain()


def client_of(front):
    return Client(front.app, HOME)


@pytest.fixture
def front(made):
    return made()


@pytest.fixture
def client(front):
    return client_of(front)


def tensor(*numbers, id=None, **others):
    images = pictures(*numbers)
    given = {
        "name": "images",
        "datatype": "FP32",
        "shape": list(images.shape),
        "data": images.flatten().tolist(),
    }
    return {"inputs": [given], **({} if id is None else {"id": id}), **others}


def infer(client, stream, body, **headers):
    sent = {"content": body} if isinstance(body, bytes) else {"json": body}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.post("/v2/models/net/infer", headers={"x-session-id": stream, **named}, **sent)


def logits(answer):
    assert answer.status_code == 200, answer.text
    (found,) = [one for one in answer.json()["outputs"] if one["name"] == "logits"]
    return np.array(found["data"]).reshape(found["shape"]).tolist()


def png(value=0, side=2):
    file = io.BytesIO()
    Image.fromarray(np.full((side, side, 3), value, np.uint8)).save(file, "PNG")
    return file.getvalue()


def test_tensors_and_pictures_teach_their_own_stream(client, front):
    assert logits(infer(client, "a", tensor(7, 8))) == [[7, 0], [8, 1]]
    assert logits(infer(client, "a", png(51))) == [[round(65536 * 0.2), 2]]
    assert logits(infer(client, "b", tensor(9))) == [[9, 0]]
    assert front.service.fleet.streams() == ["a", "b"]


def test_a_retry_by_id_is_answered_the_same_and_not_learnt(client, front):
    for send in (
        lambda: infer(client, "a", tensor(7, id="q1")),
        lambda: infer(client, "b", png(51), x_request_id="q1"),
    ):
        first, again = send(), send()
        assert logits(first) == logits(again)
        assert [one.json()["parameters"]["repeated"] for one in (first, again)] == [False, True]
        assert [one.json()["id"] for one in (first, again)] == ["q1", "q1"]
    assert len(front.service.fleet.seen("a")) == len(front.service.fleet.seen("b")) == 1


def test_a_header_that_a_proxy_adds_does_not_hide_the_id_of_a_request(client):
    answers = [infer(client, "a", tensor(7, id="q1"), x_request_id=f"proxy-{n}") for n in range(2)]
    assert [one.json()["parameters"]["repeated"] for one in answers] == [False, True]


def test_the_same_id_with_other_images_is_no_retry(client):
    assert logits(infer(client, "a", tensor(7, id="1"))) == [[7, 0]]
    assert logits(infer(client, "a", tensor(8, id="1"))) == [[8, 1]]


def test_only_the_outputs_that_were_asked_for_come(client):
    told = infer(client, "a", tensor(1, outputs=[{"name": "class"}])).json()
    assert [one["name"] for one in told["outputs"]] == ["class"]


@pytest.mark.parametrize(
    ("stream", "body", "status"),
    [
        (None, png(), 400),
        ("../up", png(), 400),
        ("a", b"", 400),
        ("a", b"GIF89a", 400),
        ("a", png()[:-30], 400),
        ("a", png(side=300), 413),
        ("a", bytes(2000), 413),
        ("a", tensor(*range(300)), 413),
        ("a", {"inputs": [{**tensor(1)["inputs"][0], "shape": [1, 3, 4, 4]}]}, 400),
        ("a", {"inputs": [{**tensor(1)["inputs"][0], "data": [1.5] * 12}]}, 400),
    ],
)
def test_what_is_refused_says_why_and_changes_nothing(made, stream, body, status):
    front = made(limits=Limits(body=100_000 if isinstance(body, dict) else 1024, side=200))
    client = client_of(front)
    headers = {} if stream is None else {"x-session-id": stream}
    sent = {"content": body} if isinstance(body, bytes) else {"json": body}
    answer = client.post("/v2/models/net/infer", headers=headers, **sent)
    assert answer.status_code == status
    assert len(answer.json()["error"]) > 20
    assert front.service.fleet.streams() == []
    assert front.bodies.held == 0


def test_too_much_is_answered_with_when_to_come_again(made, tmp_path):
    fleet, gate = PlainFleet(tmp_path), threading.Event()
    fleet.pause = lambda: gate.wait(10)
    front = made(fleet=fleet, waiting=2)
    client = client_of(front)
    busy = [front.service.submit("x", pictures(1)).result]
    while front.service.waiting:
        time.sleep(0.001)
    busy.append(front.service.submit("y", pictures(1, 2)).result)
    answer = infer(client, "a", tensor(1))
    assert answer.status_code == 429 and answer.headers["retry-after"] == "1"
    gate.set()
    for result in busy:
        result(10)
    assert logits(infer(client, "a", tensor(1))) == [[1, 0]]


@pytest.mark.parametrize("when", ["it waits", "it is worked on"])
def test_a_client_that_goes_away_does_not_take_anothers_answer(made, tmp_path, when):
    fleet, gate = PlainFleet(tmp_path), threading.Event()
    fleet.pause = lambda: gate.wait(10)
    front = made(fleet=fleet, deadline=1e6 if when == "it waits" else 0.0)
    service = front.service

    async def scene():
        async with client_of(front).connect() as client:

            def send():
                return asyncio.create_task(
                    client.post(
                        "/v2/models/net/infer",
                        json=tensor(7, id="q"),
                        headers={"x-session-id": "a"},
                    )
                )

            goes, stays = send(), send()
            while not (service.waiting or service._at_work) or not service.tally.repeated:
                await asyncio.sleep(0.001)
            goes.cancel()
            await asyncio.sleep(0.02)
            gate.set()
            service.stop()
            return await stays

    assert logits(asyncio.run(scene())) == [[7, 0]]
    assert fleet.seen("a") == [7]


def test_requests_of_a_stream_keep_the_order_they_came_in(made):
    """Also where the first takes longer to decode than the second."""
    front = made()
    decode = front.decode

    def slow_for_many(body, id):
        query = decode(body, id)
        time.sleep(0.02 * (len(query.images) > 1))
        return query

    front.decode = slow_for_many

    async def scene():
        async with client_of(front).connect() as client:
            sent = []
            for numbers in ((1, 2, 3), (4,), (5, 6), (7,)):
                request = client.post(
                    "/v2/models/net/infer", json=tensor(*numbers), headers={"x-session-id": "a"}
                )
                sent.append(asyncio.create_task(request))
                await asyncio.sleep(0)
            return await asyncio.gather(*sent)

    asyncio.run(scene())
    assert front.service.fleet.seen("a") == [1, 2, 3, 4, 5, 6, 7]


def test_streams_are_shown_saved_reset_and_removed(client, front):
    infer(client, "a", tensor(1, 2))
    told = client.get("/v2/streams/a").json()
    assert told["images"] == told["images_in_state"] == 2
    assert client.post("/v2/streams/a/snapshot").json() == {"stream": "a", "saved": 1}
    assert front.service.fleet.saved("a") == [1, 2]
    infer(client, "b", tensor(3))
    assert client.post("/v2/snapshot").json() == {"saved": 1}
    assert client.post("/v2/streams/a/reset").status_code == 200
    assert front.service.fleet.saved("a") == []
    assert client.delete("/v2/streams/a").status_code == 200
    assert front.service.fleet.streams() == ["b"]
    for answer in (
        client.get("/v2/streams/a"),
        client.delete("/v2/streams/a"),
        client.post("/v2/streams/a/reset"),
        client.post("/v2/streams/a/snapshot"),
    ):
        assert answer.status_code == 404 and "'a'" in answer.json()["error"]
    told = client.get("/v2/streams").json()
    assert [one["stream"] for one in told["streams"]] == ["b"]
    assert told["model"] == {"name": "net", "version": "v1", "method": "tent"}


def test_a_damaged_stream_is_refused_with_what_to_do_until_it_is_reset(client, tmp_path):
    (tmp_path / "a.json").write_text("{")
    for _ in range(2):
        answer = infer(client, "a", tensor(1))
        assert answer.status_code == 409 and "/reset" in answer.json()["error"]
    told = client.get("/v2/streams").json()
    assert told["troubles"] == 1 and "damaged" in told["streams"][0]["trouble"]
    assert client.get("/v2/streams/a").json()["trouble"]
    assert client.post("/v2/streams/a/reset").status_code == 200
    assert logits(infer(client, "a", tensor(1))) == [[1, 0]]


def test_after_draining_it_is_alive_and_not_ready(client, front):
    assert client.get("/v2/health/ready").status_code == 200
    infer(client, "a", tensor(1))
    assert client.post("/v2/drain").json() == {"drained": True, "unsaved": []}
    assert front.service.fleet.saved("a") == [1]
    assert client.get("/v2/health/live").status_code == 200
    assert client.get("/v2/health/ready").status_code == 503
    assert client.get("/v2/models/net/ready").status_code == 503
    assert infer(client, "a", tensor(2)).status_code == 503
    assert client.get("/v2/streams").json()["stopping"] is True
    assert client.post("/v2/drain").status_code == 200


def test_a_server_whose_worker_died_is_not_alive(client, front):
    def die():
        raise SystemExit

    front.service.fleet.pause = die
    assert infer(client, "a", tensor(1)).status_code == 500
    front.service._thread.join(10)
    assert client.get("/v2/health/live").status_code == 503


def test_what_the_protocol_asks_of_a_server(client):
    assert client.get("/v2").json()["name"] == "holdfast"
    model = client.get("/v2/models/net").json()
    assert model["versions"] == ["v1"]
    assert model["inputs"] == [{"name": "images", "datatype": "FP32", "shape": [-1, 3, 2, 2]}]
    assert [one["shape"] for one in model["outputs"]] == [[-1, 2], [-1]]


def test_what_is_not_there_is_said(client):
    for answer, status in (
        (client.get("/v2/models/other"), 404),
        (client.get("/v2/models/net/infer"), 405),
        (client.put("/"), 405),
        (client.get("/../etc/passwd"), 404),
    ):
        assert answer.status_code == status and answer.json()["error"]


def test_a_fault_is_an_error_in_json_and_the_server_goes_on(client, front):
    def fault():
        raise RuntimeError("boom")

    front.service.fleet.pause = fault
    answer = infer(client, "a", tensor(1))
    assert answer.status_code == 500 and "boom" in answer.json()["error"]
    front.service.fleet.pause = lambda: None
    assert logits(infer(client, "a", tensor(1))) == [[1, 0]]


def test_the_page_runs_only_its_own_script(client):
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "script-src 'sha256-" in page.headers["content-security-policy"]
    assert "http://" not in page.text and "https://" not in page.text


def test_a_wrong_name_of_the_model_is_told_the_right_one(client):
    for path in ("/v2/models/other", "/v2/models/other/infer"):
        answer = client.request("POST" if path.endswith("infer") else "GET", path)
        assert answer.status_code == 404
        assert "no model 'other', this server's is called 'net'" in answer.json()["error"]
    assert client.get("/v2/models/net/versions").status_code == 404
