"""Every script in examples/ runs."""

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
SHORT = {"own_model": [], "own_loop": ["--limit", "16"], "new_method": ["--limit", "16"]}


@pytest.fixture
def unregistered():
    """What an example registers is not there for other tests."""
    from holdfast import spec

    before = dict(spec._registry)
    yield
    spec._registry.clear()
    spec._registry.update(before)


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.py")))
def test_an_example_runs(name, tmp_path, monkeypatch, capsys, unregistered):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, *SHORT[name]])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    expected = {
        "own_model": "batch 10:",
        "own_loop": "mean of 16 domains",
        "new_method": "infomax+debias:",
    }
    assert expected[name] in printed
