"""Streams on Ray Serve. Those that need a cluster take minutes on a busy machine."""

import asyncio
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from asgi import Client as AppClient
from plain_fleet import PlainFleet, pictures

from holdfast.cli.main import main
from holdfast.cli.serve_ray import Place, conclude, told_to_end
from holdfast.serving import ray_serve
from holdfast.serving.errors import ConflictError, ServingError
from holdfast.serving.front import Front, Served
from holdfast.serving.peers import Desk
from holdfast.serving.ray_serve import Replicas
from holdfast.serving.service import Service, ServiceOptions
from soak.serve_client import Client

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="ray is not installed (extra [ray])"
)
SERVED = Served(name="net", version="v1", method="tent", side=2, classes=2)


class Broadcasts:
    """Stands in for a handle: replicas of this process, some of which may fail."""

    def __init__(self, desks, failures=()):
        self.desks, self.failures = desks, list(failures)

    def broadcast(self, method, what, *arguments):
        assert method == "answer"

        async def results_async(timeout_s, return_exceptions):
            told = {
                name: await getattr(desk, what)(*arguments) for name, desk in self.desks.items()
            }
            return [*told.items(), *self.failures]

        return SimpleNamespace(results_async=results_async)


@pytest.fixture
def replicas(tmp_path):
    """Two, each with a fleet of its own on one folder."""
    services = [
        Service(PlainFleet(tmp_path), ServiceOptions(deadline=0.0, snapshot=1e6)) for _ in range(2)
    ]
    fronts = [Front(service, SERVED) for service in services]
    handle = Broadcasts({f"r{at}": front.desk for at, front in enumerate(fronts)})
    for front in fronts:
        front.peers = Replicas(handle)
    yield SimpleNamespace(services=services, fronts=fronts, handle=handle)
    for service in services:
        service.drain()


def client_of(front):
    return AppClient(front.app, "http://127.0.0.1:8000")


@needs_ray
def test_what_concerns_all_replicas_asks_all_of_them(replicas):
    first, second = replicas.services
    first.submit("a", pictures(1, 2)).result(10)
    second.submit("b", pictures(3)).result(10)
    client = client_of(replicas.fronts[0])
    told = client.get("/v2/streams").json()
    assert {one["stream"]: one["images"] for one in told["streams"]} == {"a": 2, "b": 1}
    assert told["images"] == 3 and told["streams_served"] == 2 and not told["stopping"]
    metrics = client.get("/metrics").text
    assert 'holdfast_images_total{replica="r0"} 2.0' in metrics
    assert 'holdfast_images_total{replica="r1"} 1.0' in metrics
    assert metrics.count("# TYPE holdfast_images_total counter") == 1
    assert 'holdfast_steps_total{outcome="applied",replica="r1"} 1.0' in metrics
    assert client.get("/v2/streams/b").json()["images_in_state"] == 1
    assert client.get("/v2/streams/c").status_code == 404
    assert client.post("/v2/snapshot").json() == {"saved": 2}
    assert second.fleet.saved("b") == [3]


@needs_ray
def test_a_drain_that_would_not_last_is_refused_with_what_to_do(replicas):
    answer = client_of(replicas.fronts[0]).post("/v2/drain")
    assert answer.status_code == 501 and "serve.delete" in answer.json()["error"]
    assert all(service.ready for service in replicas.services)


@needs_ray
def test_a_replica_that_is_gone_has_nothing_to_tell_and_one_that_fails_is_told(replicas):
    from ray.exceptions import ActorDiedError, RayTaskError

    replicas.handle.failures = [ActorDiedError()]
    assert client_of(replicas.fronts[0]).post("/v2/snapshot").json() == {"saved": 0}
    replicas.handle.failures = [RayTaskError("answer", "trace", ConflictError("damaged"))]
    answer = client_of(replicas.fronts[0]).post("/v2/snapshot")
    assert answer.status_code == 409 and "damaged" in answer.json()["error"]


@needs_ray
def test_replicas_that_do_not_answer_in_time_are_an_error():
    def late(*_):
        async def results_async(**_):
            raise TimeoutError

        return SimpleNamespace(results_async=results_async)

    with pytest.raises(ServingError, match="Not every replica"):
        asyncio.run(Replicas(SimpleNamespace(broadcast=late)).ask("snapshot"))


@needs_ray
def test_a_stream_never_falls_back_to_another_replica():
    made = ray_serve.deployment(replicas=3, name="own")
    config = made._deployment_config
    router = config.request_router_config
    assert router.request_router_kwargs == {"num_fallback_replicas": 0}
    assert str(router.request_router_class).endswith("ConsistentHashRouter")
    assert made.name == "own" and config.num_replicas == 3
    assert config.graceful_shutdown_timeout_s == ray_serve.GRACE
    with pytest.raises(ValueError, match="leave it out"):
        ray_serve.deployment(request_router_config={})


def test_without_ray_the_error_says_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr(
        "holdfast.util.imports.find_spec",
        lambda name: None if name == "ray" else importlib.util.find_spec(name),
    )
    with pytest.raises(ValueError, match=r"pip install 'holdfast\[ray\]'"):
        ray_serve.application(lambda: None)
    assert main(["serve", "--engine", "ray"]) == 2
    assert "holdfast[ray]" in capsys.readouterr().err


def test_ray_without_serve_is_an_error_that_says_so(monkeypatch):
    monkeypatch.setattr(ray_serve, "require", lambda *_: None)
    monkeypatch.setattr(ray_serve, "ROUTER", "no.such_package.Router")
    with pytest.raises(ValueError, match=r"2\.56.*pip install 'holdfast\[ray\]'"):
        ray_serve.deployment()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--replicas", "3"], "--engine ray"),
        (["--address", "auto"], "--engine ray"),
        pytest.param(
            ["--engine", "ray", "--replicas", "0"], "--replicas is a number", marks=needs_ray
        ),
        pytest.param(["--engine", "ray", "--batch", "0"], "batch is a number", marks=needs_ray),
    ],
)
def test_a_mistake_is_told_before_a_cluster_is_started(options, expected, tmp_path, capsys):
    named = ["serve", "--port", "0", "--threads", "1", "--folder", str(tmp_path / "streams")]
    assert main([*named, *options]) == 2
    assert expected in capsys.readouterr().err


def test_replicas_share_the_cores_of_one_machine():
    def place(**options):
        usual = {"host": "h", "port": 0, "device": None, "log": None, "threads": None}
        return Place(**{**usual, "address": "local", "replicas": 2, **options})

    cores = os.cpu_count()
    assert place().each == max(1, cores // 2)
    assert place(replicas=3 * cores).each == 1 and place(replicas=3 * cores).room == 3 * cores
    assert place(threads=5).each == 5 and place(threads=5).room == max(10, cores)
    assert place(address="auto").each == 1 and place(address="auto").room is None


def test_what_could_not_be_saved_is_no_good_end():
    conclude([[], []])
    with pytest.raises(OSError, match="2 streams"):
        conclude([["a"], ["b", "a"]])
    with pytest.raises(OSError, match=r"1 replicas ended.*died"):
        conclude([[], RuntimeError("died")])


def test_signals_that_come_while_others_are_noted_do_no_harm():
    with told_to_end() as ended:
        for _ in range(100):
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)
    assert set(ended) == {signal.SIGINT, signal.SIGTERM}
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_the_desk_of_a_server_tells_of_a_stream_without_taking_it(tmp_path):
    service = Service(PlainFleet(tmp_path), ServiceOptions(deadline=0.0))
    try:
        service.submit("a", pictures(1)).result(10)
        found = asyncio.run(Desk(service).stream("a"))
        assert found["images_in_state"] == 1 and asyncio.run(Desk(service).stream("b")) is None
    finally:
        service.drain()


@needs_ray
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_killed_replica_costs_nothing_and_streams_are_handed_over(capsys):
    from soak.ray_serving import ray_serving

    verdict = ray_serving(kills=1, streams=16)
    with capsys.disabled():
        print(f"\n{verdict}")
    assert verdict.failures == ()


@needs_ray
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_command_serves_and_saves_when_it_is_told_to_end(tmp_path):
    log, folder = tmp_path / "log", tmp_path / "streams"
    options = ["--port", "0", "--threads", "1", "-m", "tent", "--snapshot", "1000000"]
    where = ["--folder", str(folder), "--log", str(log)]
    command = [sys.executable, "-m", "holdfast", "serve", "--engine", "ray", *options, *where]
    # In a group of its own, which a terminal's Ctrl-C goes to as a whole.
    server = subprocess.Popen(command, start_new_session=True, cwd=tmp_path)
    try:
        while "serving model" not in (told := log.read_text() if log.exists() else ""):
            assert server.poll() is None, told
            time.sleep(0.1)
        line = next(line for line in told.splitlines() if "serving model" in line)
        client = Client(int(line.partition(" at http://127.0.0.1:")[2].partition("/")[0]))
        side = client.told("GET", "/v2/models/model")["inputs"][0]["shape"][-1]
        for number in range(6):
            client.infer(f"s{number}", torch.rand(1, 3, side, side))
        os.killpg(server.pid, signal.SIGINT)
        assert server.wait(300) == 0
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGKILL)
    assert "all streams are saved" in log.read_text()
    assert len(list((folder / "states").glob("*.safetensors"))) == 6


@needs_ray
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_example_runs(tmp_path):
    script = Path(__file__).parents[2] / "examples" / "ray_serve.py"
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "STREAMS": str(tmp_path), "RAY_USAGE_STATS_ENABLED": "0"},
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = done.stdout.splitlines()[-1].partition("streams: ")[2].replace("'", '"')
    assert json.loads(told) == {"back": 12, "front": 12, "side": 12}
