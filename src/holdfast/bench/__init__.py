"""The benchmark: runs, their figures and their store, the paper's experiments, sweeps."""

from holdfast.bench.metrics import Recorder
from holdfast.bench.plan import Run
from holdfast.bench.run import perform

__all__ = ["Recorder", "Run", "perform"]
