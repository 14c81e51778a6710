"""What an engineer deploys with speaks of metrics and options that there are."""

import json
import re
import shlex
from pathlib import Path

import pytest
import tyro
from plain_fleet import PlainFleet, pictures

from holdfast.cli.serve import Serve
from holdfast.serving.metrics import collect, exposition
from holdfast.serving.service import Service, ServiceOptions

DEPLOY = Path(__file__).parent.parent / "deploy"
DOCS = Path(__file__).parent.parent / "docs" / "production.md"


@pytest.fixture(scope="module")
def metrics(tmp_path_factory):
    service = Service(PlainFleet(tmp_path_factory.mktemp("fleet")), ServiceOptions(deadline=0.0))
    service.submit("a", pictures(1)).result(10)
    text = exposition({"": collect(service)}).decode()
    service.drain()
    return set(re.findall(r"^(?:# TYPE )?(holdfast_\w+)", text, re.MULTILINE))


@pytest.mark.parametrize("file", ["alerts.yml", "dashboard.json", "docs"])
def test_every_metric_that_is_asked_for_is_there(metrics, file):
    path = DOCS if file == "docs" else DEPLOY / file
    asked = set(re.findall(r"\bholdfast_[a-z_]+\b", path.read_text()))
    assert asked and asked <= metrics


def test_the_dashboard_is_whole_and_its_panels_do_not_overlap():
    board = json.loads((DEPLOY / "dashboard.json").read_text())
    taken = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert place["x"] + place["w"] <= 24 and not taken & cells
        taken |= cells
        assert panel["targets"] and all(target["expr"] for target in panel["targets"])


def test_commands_of_the_unit_and_the_container_are_read():
    unit = (DEPLOY / "holdfast.service").read_text()
    (line,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    (entry,) = re.findall(r"^ENTRYPOINT (.*)$", (DEPLOY / "Containerfile").read_text(), re.M)
    for words in (shlex.split(line), json.loads(entry)):
        assert words[1] == "serve"
        assert tyro.cli(Serve, args=words[2:]).port == 8080
