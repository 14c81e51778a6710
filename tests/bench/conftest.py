"""Shared by the benchmark's tests: a small set-up on the embedded data."""

import pytest

from holdfast.bench import materials as materials_module
from holdfast.bench.materials import Materials

# Two corruptions and clean images.
STREAM = "continual(order='fog,contrast,original',clean=false)"


@pytest.fixture(scope="session")
def materials(tmp_path_factory):
    """Few source images, since each is drawn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(materials_module, "DRAWN_IMAGES", 640)
        yield Materials(tmp_path_factory.mktemp("cache"))
