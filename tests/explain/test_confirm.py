"""Is adapting on a device what it is on the CPU? A device that is not here cannot be asked; the CPU
is, against itself and against one that is made to err."""

import math
from pathlib import Path

import pytest
import torch

from holdfast.cli.main import main
from holdfast.data import glyphs
from holdfast.explain import confirm as module
from holdfast.explain.confirm import METHODS, Check, Confirmation, confirm
from holdfast.recipes.compose import compose


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(module, "DOMAINS", ("fog",))
    monkeypatch.setattr(module, "BATCH", 8)
    monkeypatch.setattr(module, "SOURCE_IMAGES", 100)


class Erring:
    """The second of two on each precision is off by so much."""

    def __init__(self, monkeypatch, by: float):
        self.shown, self.by = 0, by
        plain = module._Shown

        def erring(*arguments, **options):
            made = plain(*arguments, **options)
            self.shown += 1
            if self.shown % 5 in (2, 0):  # CPU, device, another seed; then CPU, device
                made.logits = made.logits + self.by * torch.eye(50)[0].to(made.logits)
            return made

        monkeypatch.setattr(module, "_Shown", erring)


def test_the_cpu_is_as_the_cpu():
    found = confirm("cpu", ["tent", "eata+debias"])
    assert found.passed and [check.method for check in found.checks] == ["tent", "eata+debias"]
    assert all(check.difference == check.moved == 0 for check in found.checks)
    assert all(check.same_labels == 1 and not check.random for check in found.checks)
    assert "Confirmed: 2 methods adapt on cpu as on the CPU." in str(found)


def test_a_method_that_draws_is_held_to_its_accuracy():
    (check,) = confirm("cpu", ["roid"]).checks
    assert check.random and check.passed
    assert "draws at random" in check.row
    far = Check("roid", moved=0.0, accuracies=(60.0, 50.0))
    assert not far.passed and Check("roid", moved=0.0, accuracies=(60.0, 57.0)).passed


@pytest.mark.parametrize(("by", "passes"), [(1e-9, True), (1e-4, False), (math.nan, False)])
def test_logits_that_are_off_are_found(monkeypatch, by, passes):
    Erring(monkeypatch, by)
    found = confirm("cpu", ["tent"])
    assert found.passed == passes
    assert ("NOT confirmed: tent." in str(found)) != passes


def test_labels_and_state_files_count():
    good = {"difference": 0.0, "moved": 0.0, "accuracies": (60.0, 60.0), "same_labels": 1.0}
    assert Check("tent", **good).passed
    for bad in (
        {"same_labels": 0.9},
        {"moved": 1e-3},
        {"moved": math.nan},
        {"error": "RuntimeError"},
    ):
        assert not Check("tent", **{**good, **bad}).passed
    assert not Confirmation("x", "x", (Check("tent", **good), Check("bn", error="no"))).passed


def test_a_method_that_fails_is_told_and_the_others_go_on(monkeypatch):
    plain = module.glyphs.source_loader
    monkeypatch.setattr(glyphs, "source_loader", lambda size: [(i, y + 99) for i, y in plain(size)])
    failed = confirm("cpu", ["eata+debias"]).checks[0]
    assert failed.error and not failed.passed and failed.row[0] == "✗"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is such a device")
def test_no_device_is_said(capsys):
    assert main(["confirm"]) == 2
    error = capsys.readouterr().err
    assert "cannot compute in float64 on 'cuda' here" in error and "--device cpu" in error
    assert main(["confirm", "--device", "nonsense"]) == 2
    assert "'nonsense'" in capsys.readouterr().err


def test_the_command_ends_by_what_was_found(capsys, monkeypatch):
    assert main(["confirm", "--device", "cpu", "-m", "bn"]) == 0
    assert "Confirmed: 1 methods" in capsys.readouterr().out
    Erring(monkeypatch, 1.0)
    with pytest.raises(SystemExit, match="1"):
        main(["confirm", "--device", "cpu", "-m", "bn"])
    assert "NOT confirmed: bn." in capsys.readouterr().out
    assert main(["confirm", "--device", "cpu", "-m", "tennt"]) == 2


def test_what_is_confirmed_by_default_can_be_composed_and_is_told():
    assert all(compose(method) for method in METHODS)
    page = (Path(__file__).parents[2] / "docs" / "devices.md").read_text("utf-8")
    assert f"to {len(METHODS)} methods" in page
    assert f"within {module.TOLERANCE:.0e}".replace("e-06", "e-6") in page
    assert f"{module.SAME_LABELS:.0%} ".replace("%", " %") in page
