"""Stored runs: read, grouped over seeds, compared, and written as tables. Whoever shows them needs
nothing of the benchmark but the names below."""

from holdfast.bench.compared import FACTS
from holdfast.bench.metrics.recorder import Recorder
from holdfast.bench.metrics.seen import MIXED
from holdfast.bench.plan import short
from holdfast.bench.sweep import CHOSEN
from holdfast.data.readers.layouts import CLEAN

__all__ = ["CHOSEN", "CLEAN", "FACTS", "MIXED", "Recorder", "short"]
