"""Every script in examples/ runs, and the method it teaches learns."""

import runpy
import sys
from pathlib import Path

import pytest
import torch
from asgi import Client
from toys import stream, toy_net

import holdfast

EXAMPLES = Path(__file__).parent.parent / "examples"
SHORT = {
    "own_model": [],
    "own_loop": ["--limit", "16"],
    "new_method": ["--limit", "16"],
    "thread_pool": [],
}


@pytest.fixture
def unregistered():
    """What an example registers is not there for other tests."""
    from holdfast.recipes import registry as spec

    before = dict(spec.methods())
    yield
    spec._registry.clear()
    spec._registry.update(before)


NAMES = {path.stem for path in EXAMPLES.glob("*.py")}


@pytest.mark.parametrize("name", sorted(NAMES - {"fastapi_app", "ray_serve"}))
def test_an_example_runs(name, tmp_path, monkeypatch, capsys, unregistered):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, *SHORT[name]])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    expected = {
        "own_model": "batch 10:",
        "own_loop": "mean of 16 domains",
        "new_method": "infomax+debias:",
        "thread_pool": "not saved: []",
    }
    assert expected[name] in printed


def test_the_app_of_the_example_answers(tmp_path, monkeypatch):
    pytest.importorskip("fastapi", reason="fastapi is not installed")
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(EXAMPLES / "fastapi_app.py"))
    client = Client(names["app"], "http://127.0.0.1")
    assert len(client.post("/noise/camera-7").json()) == 4
    assert client.get("/v2/streams/camera-7").json()["images_in_state"] == 4
    assert "holdfast_images_total 4.0" in client.get("/metrics").text
    assert names["service"].drain() == []


def test_the_method_of_the_example_learns_what_its_equation_says(unregistered):
    runpy.run_path(str(EXAMPLES / "new_method.py"))
    net, (images,) = toy_net(dtype=torch.float64), stream(("all",), torch.float64)
    weights = {}
    for diversity in (0, 1e-4, 1.0):
        adapter = holdfast.adapt(net, f"infomax(diversity={diversity},momentum=0)")
        adapter(images)
        weights[diversity] = {name: p.clone() for name, p in adapter.model.named_parameters()}
    # The same gradient by hand: mean of H(p) minus H of the mean of p.
    lr = 2.5e-4
    plain = toy_net(dtype=torch.float64).requires_grad_(False)
    for layer in (plain.norm1, plain.norm2):
        layer.requires_grad_(True).train()
    p = plain(images).softmax(1)
    entropy, of_mean = torch.special.entr(p).sum(1).mean(), torch.special.entr(p.mean(0)).sum()
    (entropy - of_mean).backward()
    for name, parameter in plain.named_parameters():
        if parameter.grad is not None:
            expected = parameter - lr * parameter.grad
            torch.testing.assert_close(weights[1.0][name], expected.detach(), rtol=0, atol=1e-10)
    assert any(not torch.equal(weights[0][name], weights[1e-4][name]) for name in weights[0])
