"""Shared by all tests: one thread each, since two tests run at a time."""

import os
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture
def real_data() -> Path:
    folder = os.environ.get("HOLDFAST_DATA")
    if not folder:
        pytest.skip("HOLDFAST_DATA names no folder with real data")
    return Path(folder)
