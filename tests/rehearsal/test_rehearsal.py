"""A rehearsal from end to end, on the toy net."""

import json
import re
from pathlib import Path

import pytest
import torch
from rehearsing import BATCH, ending, loader, net, rehearse, time_alike
from toys import group_norm, toy_net

import holdfast
from holdfast.rehearsal import rehearsal, session
from holdfast.rehearsal.judge import Evaluation
from holdfast.rehearsal.perform import Shown, evaluate
from holdfast.rehearsal.plan import Rung
from holdfast.rehearsal.scenes import scenes

FEW = {"streams": ["continual", "correlated"]}


@pytest.fixture(autouse=True)
def alike(monkeypatch):
    time_alike(monkeypatch)


def test_it_ends_with_a_method_a_source_and_a_reason_for_all_others(tmp_path):
    model = net()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    lines = []
    found = holdfast.rehearse(
        *(model, loader()),
        methods=["tent", "bn+steady"],
        batch=BATCH,
        minutes=0.05,
        folder=tmp_path,
        tell=lines.append,
    )
    named = {"frozen", "bn", "bn+steady", "tent", "tent(lr=0.0004)", "tent(lr=0.0016)"}
    assert {one.method for one in found.standings} == named
    assert found.ruled_out.keys() == named - {found.method} and all(found.ruled_out.values())
    assert found.method in found.sentence or found.method == "frozen"
    adapter = holdfast.adapt(model, found.method, source=found.source)
    assert adapter(loader(1)[0][0]).shape == (28, 7)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert [one.label for one in found.table.rows] == [one.method for one in found.standings]
    assert len(lines) == len(json.loads((tmp_path / "plan.json").read_text())["rungs"])
    stored = json.loads((tmp_path / "rehearsal.json").read_text())
    assert stored["method"] == found.method and stored["sentence"] == found.sentence
    assert holdfast.Source.load(tmp_path / "source.safetensors").counts.sum() == 12 * 28 / 2


def test_a_standing_is_what_the_adapter_does_on_the_stream(tmp_path):
    """Written out: the images of the first stream of the last rung, one batch after the other."""
    found = rehearse(tmp_path, methods=["tent(lr=0.01)"], **FEW)
    model = net()
    flows = []

    class Watching(Shown):
        def __init__(self, flow):
            flows.append(flow)
            super().__init__(flow)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "Shown", Watching)
        rehearse(None, methods=["tent(lr=0.01)"], **FEW)
    adapter = holdfast.adapt(model, "tent(lr=0.01)")
    right = images = 0
    for batch in flows[-2]:  # of the last rung
        right += int((adapter(batch.images).argmax(1) == batch.labels).sum())
        images += len(batch.labels)
    (standing,) = (one for one in found.standings if one.method == "tent(lr=0.01)")
    assert standing.by_stream["continual"] == pytest.approx(100 * right / images)


class StoppedError(Exception):
    pass


def stop_after(monkeypatch, count):
    """Somebody pulls the plug in the evaluation after so many."""
    done = []

    def evaluated(adapter, shown, tell):
        if len(done) == count:
            evaluate(adapter, shown, lambda images: (_ for _ in ()).throw(StoppedError))
        done.append(adapter.method.names)
        return evaluate(adapter, shown, tell)

    monkeypatch.setattr(session, "evaluate", evaluated)
    return done


@pytest.mark.parametrize("count", [0, 3, 14])
def test_stopped_and_resumed_is_never_stopped(tmp_path, monkeypatch, count):
    options = {"methods": ["tent", "bn+steady"], **FEW}
    monkeypatch.setattr(session, "plan_rungs", lambda *given: ([Rung(0, 4), Rung(1, 2)], 1.0))
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    rehearse(whole, **options)
    with monkeypatch.context() as patch:
        stop_after(patch, count)
        with pytest.raises(StoppedError):
            rehearse(parted, **options)
    assert not (parted / "rehearsal.json").exists()
    plan = (parted / "plan.json").read_bytes()
    with monkeypatch.context() as patch:
        done = stop_after(patch, 10**6)
        patch.setattr(session, "time_batches", None)  # the plan is stored, and nothing timed again
        rehearse(parted, resume=True, **options)
    assert (parted / "plan.json").read_bytes() == plan
    assert ending(parted) == ending(whole)
    files = sorted(path.name for path in (whole / "evaluations").iterdir())
    assert sorted(path.name for path in (parted / "evaluations").iterdir()) == files
    assert len(done) == len(files) - count  # what was done is not done again
    assert len(files) == 2 * (6 + 4)


def test_what_was_stopped_needs_to_be_told_to_go_on(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        stop_after(patch, 1)
        with pytest.raises(StoppedError):
            rehearse(tmp_path, **FEW)
    with pytest.raises(ValueError, match="was stopped: pass --resume"):
        rehearse(tmp_path, **FEW)


def test_what_is_finished_is_read_and_not_done_again(tmp_path, monkeypatch):
    first = rehearse(tmp_path, **FEW)
    monkeypatch.setattr(session, "evaluate", None)
    again = rehearse(tmp_path, **FEW)
    assert again == first


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"batches": 10}, "differs in images"),
        ({"methods": ["bn"]}, "differs in methods"),
        ({"streams": ["continual"]}, "differs in streams"),
        ({"minutes": 0.031}, "differs in minutes"),
        ({"seed": 1}, "differs in images, seed"),
        ({"severities": (5,)}, "differs in severities"),
    ],
)
def test_the_folder_of_another_rehearsal_is_left_alone(tmp_path, options, expected):
    rehearse(tmp_path, **FEW)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json")}
    with pytest.raises(ValueError, match=f"{expected}: choose another folder"):
        rehearse(tmp_path, resume=True, **{**FEW, **options})
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.json")} == before


@pytest.mark.parametrize("text", ["{", "[]", '{"right": [1], "images": [], "seconds": 0}', "{}"])
def test_a_damaged_file_is_told(tmp_path, text):
    rehearse(tmp_path, **FEW)
    path = min((tmp_path / "evaluations").iterdir())
    path.write_text(text)
    with pytest.raises(ValueError, match=r"is damaged \(.*delete it to have it made again"):
        rehearse(tmp_path, **FEW)
    path.unlink()
    rehearse(tmp_path, resume=True, **FEW)


def test_what_does_not_fit_the_model_is_left_out_and_named():
    model = net(toy_net(group_norm))
    found = holdfast.rehearse(
        model, loader(), methods=["bn+steady", "tent"], batch=BATCH, minutes=0.03, **FEW
    )
    assert "batch norm" in found.ruled_out["bn+steady"].lower()
    assert found.ruled_out["bn+steady"].startswith("does not fit: ")
    assert {one.method for one in found.standings} >= {"frozen", "tent"}
    assert found.page()


def test_where_adapting_harms_it_is_kept_frozen():
    """Steps that are far too long, single classes in small batches, and hardly any drift."""
    streams = ["clean", "correlated(gamma=0.001,batch=4)"]
    found = rehearse(methods=["tent(lr=1)"], streams=streams, severities=(1,), minutes=0.04)
    assert found.method == "frozen"
    assert found.sentence.startswith("Keep it frozen")
    assert "tent(lr=1.0)" in found.ruled_out


def test_where_methods_are_one_and_the_same_the_differences_are_noise():
    found = rehearse(methods=["tent(lr=0)", "tent(lr=1e-12)"], severities=(5,), **FEW)
    assert set(found.alike) >= {"bn", "tent(lr=0.0)", "tent(lr=1e-12)"} or found.method == "frozen"
    gains = {one.method: one.over_bn for one in found.standings if one.over_bn is not None}
    assert gains["tent(lr=0.0)"].mean == 0


def test_a_method_that_helps_wins():
    """Statistics of other images than those that come, which those of the batch replace."""
    model = net()
    with torch.no_grad():
        model[1].norm2.running_mean += model[1].norm2.running_var.sqrt()
    found = holdfast.rehearse(
        model, loader(), methods=["bn"], batch=BATCH, minutes=0.04, streams=["clean", "continual"]
    )
    assert found.method == "bn"
    assert found.sentence.startswith("Take bn: +")
    assert found.ruled_out["frozen"].startswith("−")


def test_an_adapter_that_breaks_off_is_reported():
    class Breaks:
        last = holdfast.Last()

        def __call__(self, images):
            raise RuntimeError("no memory left\nat all")

    shown = [(torch.zeros(4, 3, 16, 16), torch.zeros(4), torch.ones(4, dtype=torch.bool))]
    found = evaluate(Breaks(), shown)
    assert (found.failed, found.right) == ("no memory left", ())
    assert isinstance(found, Evaluation)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"minutes": 0}, "minutes is a number above 0"),
        ({"minutes": float("nan")}, "minutes is a number above 0"),
        ({"minutes": 1e-5}, "minutes more. Give more minutes, or name fewer methods or streams"),
        ({"batch": 1}, "batch is a whole number from 2"),
        ({"severities": ()}, "severities are one or more"),
        ({"severities": (6,)}, "severity is a whole number from 1 to 5"),
        ({"methods": ["tentt"]}, "Did you mean 'tent'"),
        ({"methods": "tent"}, r"write methods=\["),
        ({"streams": "clean"}, r"write streams=\["),
        ({"images": 0}, "images is a whole number from 1"),
        ({"head": "nothing"}, "nothing"),
    ],
)
def test_mistakes_are_told_and_leave_nothing(tmp_path, options, expected):
    folder = tmp_path / "new"
    with pytest.raises(ValueError, match=expected):
        rehearse(folder, **options)
    assert not list(folder.rglob("*.json"))


def test_images_of_a_model_in_float64():
    model = net().double()
    found = holdfast.rehearse(model, loader(), methods=["bn"], batch=BATCH, minutes=0.03, **FEW)
    assert found.method in ("frozen", "bn")


def test_the_documentations_code_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[2] / "docs" / "rehearse.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    monkeypatch.setattr(rehearsal, "candidates", lambda methods: ["frozen", "bn"])
    monkeypatch.setattr(rehearsal, "scenes", lambda streams, batch: scenes(FEW["streams"], BATCH))
    code = code.replace("minutes=10", "minutes=0.03, batch=16")
    names = {"holdfast": holdfast, "model": net(), "labelled_loader": loader()}
    exec(code, names)
    assert names["adapter"](loader(1)[0][0]).shape == (28, 7)
    assert (tmp_path / "rehearsal" / "rehearsal.json").exists()
