"""The front door: public names are typed to a checker, and loaded when they are used."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import holdfast

ROOT = Path(__file__).parent.parent


def names_for_a_checker():
    """What is imported under TYPE_CHECKING."""
    tree = ast.parse(Path(holdfast.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    return {name.asname for node in block.body for name in node.names}


def test_a_checker_knows_every_name_that_there_is():
    methods = {method.__name__ for method in holdfast.methods().values()}
    assert names_for_a_checker() == methods | set(holdfast.__all__) == set(dir(holdfast))


def test_every_name_is_there_and_modules_do_not_shadow_it():
    for name in ("explain.doctor", "models.normalization", "recipes.eata"):
        import_module(f"holdfast.{name}")
    assert all(callable(getattr(holdfast, name)) for name in names_for_a_checker())
    with pytest.raises(AttributeError, match="no attribute 'Eatta'"):
        holdfast.Eatta  # noqa: B018


def test_importing_holdfast_does_not_import_torch():
    code = "import sys, holdfast; holdfast.__version__; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


SCRIPT = """
import holdfast
from torch import Tensor, nn

def serve(model: nn.Module, images: Tensor) -> Tensor:
    adapter = holdfast.adapt(model, holdfast.Eata(lr=1e-3), holdfast.Debias(alpha=0.99))
    reveal_type(holdfast.Eata)
    fleet = holdfast.Fleet(model, "tent", folder="streams", resident=100)
    found: dict[str, Tensor] = fleet.step({"camera-7": images}, refused={})
    state: str = fleet.health("camera-7").state
    rate: float = holdfast.Eata().resolved().lr
    return adapter(images)
"""


def test_a_users_script_is_checked(tmp_path):
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text(SCRIPT)
    bad.write_text(SCRIPT.replace("Debias(", "Debiass(") + "holdfast.Eata(lrr=1)\n")
    command = [sys.executable, "-m", "mypy", "--strict", str(good), str(bad)]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    errors = [line for line in found.splitlines() if ": error:" in line]
    assert '-> holdfast.recipes.eata.Eata"' in found
    assert len(errors) == 2 and all("bad.py" in line for line in errors)
    assert '"Debiass"' in errors[0] and '"lrr"' in errors[1]
