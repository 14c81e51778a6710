"""`holdfast serve`, from a command to answers and back to a quiet end."""

import json
import os
import shutil
import signal
import sys
import threading
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import torch
from asgi import Client
from net_file import NET

import holdfast
from holdfast import cli
from holdfast.bench.materials import Materials
from holdfast.bench.plan import Run
from holdfast.cli.main import main
from holdfast.cli.serve import Serve
from holdfast.cli.served_model import open_model, open_source
from holdfast.data import glyphs
from holdfast.models.find import find_model
from holdfast.util import files


@pytest.fixture
def net(tmp_path):
    (tmp_path / "net.py").write_text(NET)
    return f"{tmp_path / 'net.py'}:make"


def body(images):
    data = images.flatten().tolist()
    shape = list(images.shape)
    return {"inputs": [{"name": "images", "datatype": "FP32", "shape": shape, "data": data}]}


def ask(front, images, stream="a"):
    client = Client(front.app, "http://127.0.0.1")
    headers = {"x-session-id": stream}
    return client.post("/v2/models/model/infer", json=body(images), headers=headers)


def test_a_model_of_ones_own_without_source_serves_single_images(net, tmp_path):
    folder = tmp_path / "streams"
    front = Serve(model=net, size=8, folder=folder, threads=1).build(None)
    try:
        assert front.served.method == "eta+debias" and front.served.shape == (3, 8, 8)
        answer = ask(front, torch.rand(1, 3, 8, 8))
        assert answer.status_code == 200, answer.text
        assert answer.json()["outputs"][0]["shape"] == [1, 5]
    finally:
        assert front.service.drain() == []
    assert list((folder / "states").glob("*.safetensors"))


@pytest.mark.filterwarnings("ignore:The source's labels")  # the net is not trained
def test_labelled_images_give_a_source_that_a_restart_has_again(net, tmp_path):
    folder, source = tmp_path / "streams", tmp_path / "source.npz"
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (60, 32, 32, 3), np.uint8)
    np.savez(source, images=images, labels=np.arange(60) % 5)
    named = Serve(model=net, source=str(source), folder=folder, threads=1)
    shown = torch.rand(1, 3, 32, 32)
    for expected in (1, 2):
        front = named.build(None)
        try:
            assert front.served.method == "eata+debias+steady" and front.served.side == 32
            assert ask(front, shown).status_code == 200
            assert front.service.fleet.notes("a")["images"] == expected  # it goes on
        finally:
            front.service.drain()
    (kept,) = (folder / "sources").iterdir()
    front = Serve(model=net, source=str(kept), size=32, folder=folder, threads=1).build(None)
    assert front.served.method == "eata+debias+steady"
    front.service.drain()


def clean_accuracy(path):
    """Of the source model, on clean images that estimates were calibrated on."""
    _, tensors = files.read(path, "a source")
    (key,) = (n.removesuffix("rows") for n in tensors if n.endswith("Student/rows"))
    clean = (tensors[f"{key}groups"] == 0) & ~tensors[f"{key}few"]
    return float(tensors[f"{key}rows"][clean, 1].mean())


@pytest.mark.filterwarnings("ignore:The source's labels")
def test_estimates_are_calibrated_on_validation_images(net, tmp_path):
    """A net that is right of all of these, and of a fifth of the source's."""
    images = np.random.default_rng(0).integers(0, 256, (80, 32, 32, 3), np.uint8)
    shown = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    predicted = find_model(net).eval()(shown).argmax(1).numpy()
    labels = {"source": np.arange(80) % 5, "right": predicted, "wrong": (predicted + 1) % 5}
    paths = {name: str(tmp_path / f"{name}.npz") for name in labels}
    for name, path in paths.items():
        np.savez(path, images=images, labels=labels[name])
    found = {}
    for name in ("source", "right", "wrong"):
        folder = tmp_path / name
        given = None if name == "source" else paths[name]
        named = Serve(model=net, source=paths["source"], validation=given, folder=folder, threads=1)
        named.build(None).service.drain()
        (kept,) = (folder / "sources").iterdir()
        found[name] = clean_accuracy(kept)
    assert found["right"] == 1 and found["wrong"] == 0 < found["source"] < 1
    # Also in place of those that a saved source was calibrated on.
    run = Run.of("frozen", model=net, source=str(kept), validation=paths["right"])
    source, _ = open_source(run, open_model(run, Materials(tmp_path / "cache")), tmp_path)
    holdfast.adapt(find_model(net), "eata+debias+steady", source=source)
    source.save(tmp_path / "anew.safetensors")
    assert clean_accuracy(tmp_path / "anew.safetensors") == 1


def open_for(net, folder, **given):
    run = Run.of("frozen", model=net, **given)
    return open_source(run, open_model(run, Materials(folder / "cache")), folder)


@pytest.mark.filterwarnings("ignore:The source's labels")
def test_what_is_kept_goes_by_what_files_hold(net, tmp_path):
    """Other images under the same name are not taken for those that were calibrated on."""
    images = np.random.default_rng(0).integers(0, 256, (80, 32, 32, 3), np.uint8)
    given = {name: str(tmp_path / f"{name}.npz") for name in ("source", "validation")}
    places = []
    for labels in (np.arange(80) % 5, np.arange(80) % 5, np.arange(1, 81) % 5):
        for path in given.values():
            np.savez(path, images=images if "source" in path else images[::-1], labels=labels)
        places.append(open_for(net, tmp_path, **given)[1])
    assert places[0] == places[1] != places[2]
    # A saved source's new calibration is kept too, in another file than its own.
    source, _ = open_for(net, tmp_path, **given)
    source.save(tmp_path / "mine.safetensors")
    given["source"] = str(tmp_path / "mine.safetensors")
    assert open_for(net, tmp_path, **given)[1].parent == tmp_path / "sources"


def test_validation_images_that_cannot_serve_are_refused(net, tmp_path):
    def validation(count=80, side=32, labels=5):
        path = tmp_path / f"{count}-{side}-{labels}.npz"
        images = np.random.default_rng(count).integers(0, 256, (count, side, side, 3), np.uint8)
        np.savez(path, images=images, labels=np.arange(count) % labels)
        return str(path)

    source = validation(81)
    with pytest.raises(ValueError, match=r"has 3 images.*give 64 at least"):
        open_for(net, tmp_path, source=source, validation=validation(3))
    with pytest.raises(ValueError, match=r"of side 16, .* images of side 32"):
        open_for(net, tmp_path, source=source, validation=validation(side=16))
    with pytest.raises(ValueError, match="has a label 6, and the model knows 5 classes"):
        open_for(net, tmp_path, source=source, validation=validation(labels=7))
    with pytest.raises(ValueError, match=r"--validation calibrates .* pass --source"):
        open_for(net, tmp_path, validation=validation())
    with pytest.raises(ValueError, match="has the images of the source: leave it out"):
        open_for(
            net, tmp_path, source=source, validation=shutil.copy(source, tmp_path / "copy.npz")
        )


def test_a_saved_source_serves_the_embedded_network_too(tmp_path):
    loader = glyphs.source_loader(100)
    holdfast.Source.from_loader(glyphs.model(), loader).save(tmp_path / "mine.safetensors")
    run = Run.of("frozen", source=str(tmp_path / "mine.safetensors"))
    served = open_model(run, Materials(tmp_path / "cache"))
    source, _ = open_source(run, served, tmp_path)
    assert served.side == 32 and int(source.counts.sum()) == 100


def test_it_serves_until_it_is_told_to_end_and_saves(net, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HOLDFAST_TOKEN", "a-token-that-nobody-guesses")
    log = tmp_path / "log"
    found = []

    def visit():
        try:
            while "serving model" not in (log.read_text() if log.exists() else ""):
                ended.wait(0.02)
            (line,) = [line for line in log.read_text().splitlines() if "serving model" in line]
            address = line.partition(" at ")[2].partition(",")[0]
            request = urllib.request.Request(
                f"{address}v2/models/model/infer",
                json.dumps(body(torch.rand(2, 3, 8, 8))).encode(),
                {"x-session-id": "a", "Authorization": "Bearer a-token-that-nobody-guesses"},
            )
            with urllib.request.urlopen(request, timeout=60) as answer:
                found.append(json.load(answer))
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    ended, visitor = threading.Event(), threading.Thread(target=visit)
    visitor.start()
    folder = tmp_path / "streams"
    options = ["--model", net, "--size", "8", "--threads", "1", "--port", "0", "-m", "tent"]
    assert main(["serve", *options, "--folder", str(folder), "--log", str(log)]) == 0
    visitor.join()
    assert found[0]["parameters"] == {"stream": "a", "repeated": False}
    assert [path.name for path in (folder / "states").glob("*.safetensors")] == ["a.safetensors"]
    told = log.read_text()
    assert "0 streams so far" in told and "all streams are saved; 2 images served" in told
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--host", "0.0.0.0"], "--token"),
        (["--token", "short"], "16 printable"),
        (["--port", "70000"], "Cannot listen"),
        (["--host", "no.such.host.invalid", "--token", "x" * 16], "Cannot listen"),
        (["--batch", "0"], "batch is a number of at least 1"),
        (["--max-body", "0"], "--max-body"),
        (["--data", "cifar100-c"], "--model"),
        (["--model", "{net}", "--size", "1", "-m", "tent"], "pass --size"),
        (["--model", "{net}", "--size", "8", "-m", "tentt"], "Did you mean"),
        (["--model", "{net}", "--size", "8", "-m", "eata"], "source"),
        (["--model", "{net}", "--source", "nowhere.safetensors", "--size", "8"], "nowhere"),
    ],
)
def test_a_mistake_is_told(options, expected, net, tmp_path, capsys):
    given = [option.format(net=net) for option in options]
    folder = tmp_path / "streams"
    named = ["serve", "--port", "0", "--threads", "1", "--folder", str(folder)]
    assert main([*named, *given]) == 2
    assert expected in capsys.readouterr().err
    assert not list(folder.glob("states/*"))


def test_without_its_packages_it_names_the_extra(monkeypatch, capsys):
    monkeypatch.setattr("holdfast.util.imports.find_spec", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["holdfast", "serve"])
    assert cli.start() == 2
    assert "pip install 'holdfast[serve]'" in capsys.readouterr().err
    assert not Path("streams").exists()
