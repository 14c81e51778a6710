"""What a process holds along a stream: resident memory, live objects, the size of a state file."""

from __future__ import annotations

import gc
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import holdfast

STATUS = Path("/proc/self/status")


def resident_mb() -> float:
    """Resident memory of this process; NaN where the system does not tell."""
    if not STATUS.exists():
        return float("nan")
    return int(STATUS.read_text().partition("VmRSS:")[2].split()[0]) * 1024 / 1e6


def state_bytes(adapter: holdfast.Adapter) -> int:
    """How long the adapter's state file is, without its header, in which numbers are written out
    as text."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state"
        adapter.save(path)
        header = int.from_bytes(path.read_bytes()[:8], "little")
        return path.stat().st_size - header


@dataclass
class Meter:
    """Measurements at intervals, of which those after the warm-up count."""

    images: list[int] = field(default_factory=list)
    resident: list[float] = field(default_factory=list)
    objects: list[int] = field(default_factory=list)
    state: list[int] = field(default_factory=list)

    def measure(self, images: int, adapter: holdfast.Adapter) -> None:
        self.state.append(state_bytes(adapter))
        gc.collect()
        self.images.append(images)
        self.objects.append(len(gc.get_objects()))
        self.resident.append(resident_mb())

    @property
    def growth_mb(self) -> float:
        """By how much resident memory grew from the first measurement to the last, on the line
        that fits all of them best."""
        if len(self.images) < 2:
            return float("nan")
        slope = np.polyfit(self.images, self.resident, 1)[0]
        return float(slope * (self.images[-1] - self.images[0]))

    def findings(self, most_mb: float, most_objects: int = 2_000) -> list[str]:
        """What grew."""
        findings = []
        if not self.growth_mb <= most_mb:  # a NaN, too: nothing was measured
            findings.append(
                f"resident memory grew by {self.growth_mb:.1f} MB, admitted {most_mb:g}"
            )
        if self.objects[-1] - self.objects[0] > most_objects:
            findings.append(
                f"live Python objects grew from {self.objects[0]:,} to {self.objects[-1]:,}"
            )
        if len(set(self.state)) > 1:
            findings.append(
                f"the state file grew from {self.state[0]:,} to {max(self.state):,} bytes"
            )
        return findings

    def summary(self) -> dict[str, object]:
        span = self.images[-1] - self.images[0]
        per_million = self.growth_mb / max(span, 1) * 1e6
        return {
            "resident MB min": f"{min(self.resident):.1f}",
            "max": f"{max(self.resident):.1f}",
            "slope in MB per million images": f"{per_million:.2f}",
            "live objects": f"{self.objects[0]:,} to {self.objects[-1]:,}",
            "state file bytes": f"{self.state[0]:,} to {self.state[-1]:,}",
        }
