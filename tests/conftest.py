"""Shared by all tests: one thread each, since two tests run at a time."""

import os
import sys
from pathlib import Path

import pytest

import holdfast

holdfast.tune_cpu()  # before torch is loaded

import torch  # noqa: E402
from own_methods import MINE  # noqa: E402
from toy_methods import TOYS  # noqa: E402
from toys import toy_net  # noqa: E402

from holdfast.bench import materials as materials_module  # noqa: E402
from holdfast.bench.materials import Materials  # noqa: E402
from holdfast.recipes import registry as spec  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture
def real_data() -> Path:
    folder = os.environ.get("HOLDFAST_DATA")
    if not folder:
        pytest.skip("HOLDFAST_DATA names no folder with real data")
    return Path(folder)


@pytest.fixture(scope="module")
def net():
    return toy_net()


@pytest.fixture
def toy_methods(monkeypatch):
    """Known where this is asked for alone: laws ask every registered method."""
    monkeypatch.setattr(spec, "_registry", spec.methods())
    for name, method in TOYS.items():
        holdfast.register(name)(method)


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    """A current folder with methods of one's own, in `mine.py`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(spec, "_registry", spec.methods())
    (tmp_path / "mine.py").write_text(MINE)
    yield tmp_path
    sys.modules.pop("mine", None)


@pytest.fixture(scope="session", autouse=True)
def few_images_for_health():
    """Runs watch their health, which most tests are not about: they draw and corrupt few images."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(materials_module, "HEALTH_SOURCE", 128)
        patch.setattr(materials_module, "DRIFTED_IMAGES", 8)
        yield


@pytest.fixture(scope="session")
def materials(tmp_path_factory):
    """Few source images, since each is drawn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(materials_module, "DRAWN_IMAGES", 640)
        yield Materials(tmp_path_factory.mktemp("cache"))
