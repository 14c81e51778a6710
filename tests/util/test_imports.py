"""What adapting needs is little, and what is missing for the rest says which extra brings it."""

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from holdfast import cli
from holdfast.util.imports import EXTRAS, require

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
IMPORTED_AS = {
    "pillow": "PIL",
    "prometheus-client": "prometheus_client",
    "vl-convert-python": "vl_convert",
}


def test_the_extras_are_those_of_the_project():
    known = {
        IMPORTED_AS.get(name, name): extra
        for extra, needs in PROJECT["optional-dependencies"].items()
        if extra not in ("all", "dev", "docs")
        for name in (Requirement(need).name for need in needs)
        if name != "holdfast"
    }
    assert known == EXTRAS


def core_only(folder: Path) -> Path:
    """A folder with links to what the project's own dependencies bring, and nothing else."""
    folder.mkdir()
    waiting, met = [Requirement(text) for text in PROJECT["dependencies"]], set()
    while waiting:
        need = waiting.pop()
        if need.name in met or (need.marker and not need.marker.evaluate({"extra": ""})):
            continue
        met.add(need.name)
        distribution = metadata.distribution(need.name)
        waiting += map(Requirement, distribution.requires or ())
        for name in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            if not (folder / name).exists():  # several of CUDA's own share a folder
                (folder / name).symlink_to(distribution.locate_file(name))
    return folder


START = """
import sys
sys.path[:0] = [{core!r}, {src!r}]
from importlib.util import find_spec
"""

# As a person uses it in production, from the source's statistics to a frozen model.
ADAPT = """
import json
print([name for name in ("polars", "kornia", "tyro", "altair", "rich", "PIL") if find_spec(name)])
import torch, holdfast
from holdfast.models import resnet20
torch.manual_seed(0)
model = holdfast.normalized(resnet20(10), (0.5,) * 3, (0.25,) * 3).eval()
images = torch.rand(4, 8, 3, 16, 16)
loader = [(batch, torch.randint(10, (8,))) for batch in images]
source = holdfast.Source.from_loader(model, loader)
for spec in ("tent", "eata(entropy_factor=2,redundancy=1)+debias", "cotta"):
    adapter = holdfast.adapt(model, spec, source=source)
    adapter(images[0])
    adapter.save({state!r})
    again = holdfast.load({state!r}, model)
    print(torch.equal(adapter(images[1]), again(images[1])), adapter.last.stepped)
    print(tuple(adapter.frozen()(images[2][:1]).shape))
try:
    holdfast.adapt(model, "tent+consistency")
except ImportError as error:
    print(error)
try:
    import holdfast.data.glyphs
except ImportError as error:
    print(error)
try:
    from holdfast.bench import Recorder
except ImportError as error:
    print(error)
found = str(holdfast.doctor(model, images[0], method=("tent", "tent+consistency")))
print(json.dumps(found))
"""

COMMAND = """
from holdfast.cli import start
sys.argv = ["holdfast", "methods"]
raise SystemExit(start())
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("core")
    start = START.format(core=str(core_only(folder / "packages")), src=str(ROOT / "src"))

    def run(script, **values):
        command = [sys.executable, "-S", "-I", "-c", start + script.format(**values)]
        return subprocess.run(command, capture_output=True, text=True)

    return run


def test_the_core_alone_adapts(run, tmp_path):
    done = run(ADAPT, state=str(tmp_path / "state.safetensors"))
    assert done.returncode == 0, done.stderr
    importable, *adapted, consistency, data, bench, diagnosis = done.stdout.splitlines()
    assert importable == "[]"
    assert adapted == ["True True", "(1, 10)"] * 3
    needs = "{} needs {}, which is not installed: pip install 'holdfast[{}]'."
    assert consistency == needs.format("augment=strong", "kornia", "augment")
    assert data == needs.format("holdfast.data", "PIL", "bench")
    assert bench == needs.format("holdfast.bench", "polars", "bench")
    lines = json.loads(diagnosis).splitlines()
    assert lines[0] == "Normalized(ResNetCifar)"
    assert "✓  tent              fits" in lines
    assert f"✗  tent+consistency  {consistency}" in lines


def test_the_command_without_its_packages_says_which_extra(run):
    done = run(COMMAND)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("holdfast: This command needs ")
    assert done.stderr.endswith("is not installed: pip install 'holdfast[bench]'.\n")


def test_a_report_without_charts_says_which_extra(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "altair", None)  # as if it were not installed
    for name in [name for name in sys.modules if name.startswith("holdfast.report")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "argv", ["holdfast", "report", str(tmp_path)])
    assert cli.start() == 2
    said = capsys.readouterr().err
    assert said.startswith("holdfast: holdfast.report needs altair, ")
    assert "'holdfast[report]'" in said


def test_what_no_extra_brings_is_left_as_it_is(monkeypatch):
    def broken():
        raise ModuleNotFoundError("No module named 'own'", name="own")

    monkeypatch.setattr("holdfast.cli.main.main", broken)
    with pytest.raises(ModuleNotFoundError, match="'own'"):
        cli.start()


def test_what_is_there_is_no_error():
    require("rich", "A table")
