"""Short forms of `python -m soak serve`, and that it finds what it looks for."""

import signal

import pytest
import torch

from holdfast.serving import protocol
from holdfast.serving.front import Front
from soak.serve_fuzz import fuzz_server
from soak.serving import Case, end_servers


@pytest.fixture(scope="module")
def case():
    return Case(streams=3, images=60)


def test_neighbouring_answers_are_told_apart(case):
    """So that an image that is learnt twice, or not, or by another stream, shows."""
    for answers in case.answers.values():
        again = torch.cat([answers[1:], answers[:1]])
        assert float((answers - again).abs().amax(1).min()) > 0.05 * float(answers.abs().max())


@pytest.mark.parametrize(
    ("how", "interval"), [(signal.SIGKILL, 0.0), (signal.SIGTERM, 1e6)], ids=["kill", "term"]
)
def test_what_was_answered_survives_the_server(case, how, interval):
    endings, faults = end_servers(case, 2, how, interval, seed=0)
    assert faults == [] and endings.forgotten == 0 and endings.answered > 0


@pytest.mark.slow
def test_a_kill_costs_no_more_than_the_interval(case):
    endings, faults = end_servers(case, 8, signal.SIGKILL, 2.0, seed=0)
    assert faults == [] and endings.answered > 0


def test_hostile_requests_are_refused_and_change_nothing():
    counts, faults = fuzz_server(150, seed=1)
    assert faults == []
    assert "200" in counts and "400" in counts


def test_a_fault_behind_a_request_is_found(monkeypatch):
    def broken(self, body, id):
        raise RuntimeError("broken")

    monkeypatch.setattr(Front, "decode", broken)
    _, faults = fuzz_server(40, seed=1)
    assert any("broken" in fault for fault in faults)


def test_an_image_that_is_learnt_although_it_was_refused_is_found(monkeypatch):
    read = protocol.read_request

    def learns_first(body):
        if fleets:
            fleets[0].notes("good-0")["images"] += 1
        return read(body)

    fleets, made = [], Front.__init__

    def remember(self, service, *others):
        made(self, service, *others)
        fleets.append(service.fleet)

    monkeypatch.setattr(Front, "__init__", remember)
    monkeypatch.setattr(protocol, "read_request", learns_first)
    _, faults = fuzz_server(60, seed=1)
    assert any("something changed" in fault for fault in faults)
