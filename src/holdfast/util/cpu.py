"""Make torch fast on a CPU: two settings of the process, which torch leaves as they are.

libgomp's idle threads spin while they wait, so that beside other busy processes a step takes many
times as long; and glibc gives large freed blocks back to the system, so that every step pays for
fresh pages again.
"""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import sys
from contextlib import suppress
from dataclasses import dataclass

# glibc's numbers for mallopt, from malloc.h.
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
GIB = 1 << 30

WAIT = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
# Spin for a third of a millisecond before: to be woken takes longer than a small layer does.
SLEEP = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "30000"}
MEMORY = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")

_memory_is_kept = False


@dataclass(frozen=True)
class CpuTuning:
    """What `tune_cpu` did, or why it did not; `missing` is what is left to do by hand."""

    wait_policy: str
    memory: str
    missing: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"Waiting threads: {self.wait_policy}. Freed memory: {self.memory}."


def tune_cpu() -> CpuTuning:
    """Have idle threads sleep soon instead of spinning, and freed memory be kept for the next step.

    Call it before torch is imported, since threads are set up then. What the environment says
    already is left alone, and so is a system without glibc.

    >>> import holdfast
    >>> print(holdfast.tune_cpu())  # doctest: +ELLIPSIS
    Waiting threads: .... Freed memory: ....
    """
    missing = []
    given = _given(WAIT)
    if given:
        wait_policy = f"left as {given} says"
    elif "torch" in sys.modules:
        wait_policy = "not set, since torch was imported before"
        missing.append(
            "idle threads spin: call holdfast.tune_cpu() before importing torch, or set "
            "OMP_WAIT_POLICY=passive"
        )
    else:
        os.environ.update(SLEEP)
        wait_policy = f"sleep ({', '.join(f'{name}={value}' for name, value in SLEEP.items())})"
    return CpuTuning(wait_policy, _keep_memory(), tuple(missing))


def untuned() -> list[str]:
    """What of it is missing in this process, for advice."""
    missing = []
    if not _given(WAIT):
        missing.append("idle threads spin")
    if _has_glibc() and not _memory_is_kept and not _given(MEMORY):
        missing.append("freed memory goes back to the system after every step")
    return missing


def _keep_memory() -> str:
    global _memory_is_kept
    given = _given(MEMORY)
    if given:
        return f"left as {given} says"
    if not _has_glibc():
        return "left to the system, which has no glibc"
    libc = ctypes.CDLL(None)
    # Some versions of glibc take a threshold of 32 MB at most. A trim threshold of −1 is the
    # largest there is: never.
    wanted = (
        (M_MMAP_THRESHOLD, (GIB, GIB // 32)),
        (M_TRIM_THRESHOLD, (-1,)),
        (M_TOP_PAD, (GIB // 4,)),
    )
    _memory_is_kept = all(
        any(libc.mallopt(number, value) for value in values) for number, values in wanted
    )
    return "kept for the next step" if _memory_is_kept else "left as it was: mallopt refused"


def _given(names: tuple[str, ...]) -> str | None:
    """The first of these variables that is set."""
    return next((name for name in names if os.environ.get(name)), None)


def _has_glibc() -> bool:
    return platform.libc_ver()[0] == "glibc"


def release_memory() -> None:
    """Give freed memory back to the system, where the C library can: what one method has kept for
    its steps does not fit those of the next."""
    gc.collect()
    with suppress(OSError, AttributeError):  # a C library other than glibc has none
        ctypes.CDLL(None).malloc_trim(0)
