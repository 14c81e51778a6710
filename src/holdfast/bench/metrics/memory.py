"""The most memory that was in use."""

from __future__ import annotations

import ctypes
import gc
import math
from contextlib import suppress
from pathlib import Path

import torch

STATUS = Path("/proc/self/status")
MEGABYTE = 1e6


class PeakMemory:
    """The most memory in use since it was made, in MB: the device's on a GPU, the process's
    otherwise. NaN where the system does not tell."""

    def __init__(self, device: torch.device):
        self.device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        elif STATUS.exists():
            # What earlier work left behind is none of what comes next.
            gc.collect()
            with suppress(OSError, AttributeError):  # a C library other than glibc has none
                ctypes.CDLL(None).malloc_trim(0)
            # The high-water mark starts anew; where it may not, it is that of the process so far.
            with suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5")

    def read(self) -> float:
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) / MEGABYTE
        try:
            text = STATUS.read_text()
        except OSError:
            return math.nan
        _, found, rest = text.partition("VmHWM:")
        return int(rest.split()[0]) * 1024 / MEGABYTE if found else math.nan
