"""The most memory in use, from a moment on."""

import gc
import sys

import pytest
import torch

from holdfast.bench.run import STATUS, PeakMemory


class Knot:
    """Holds 100 MB in small pieces, and itself."""

    def __init__(self):
        self.itself = self
        self.pieces = [bytearray(4000) for _ in range(25_000)]


def resident():
    return int(STATUS.read_text().partition("VmRSS:")[2].split()[0]) * 1024 / 1e6


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is known of it")
def test_what_earlier_work_left_behind_does_not_count():
    gc.disable()
    try:
        Knot()
        above = bytearray(4000)  # so that nothing below it goes back by itself
        before = resident()
        after = PeakMemory(torch.device("cpu")).read()
    finally:
        gc.enable()
    assert len(above) and after < before - 80
