"""Stored runs as a data frame, for a notebook."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from holdfast.results.gather import gather


def frame(*paths: str | Path) -> pl.DataFrame:
    """A row for each run below some folders: its method, seed, data and stream, whether it is
    finished, then every metric, as docs/benchmark.md names them, and accuracy by domain."""
    rows = [
        {
            "method": run.title,
            "seed": run.seed,
            "data": run.option("data"),
            "stream": run.manifest.stream,
            "finished": run.finished,
            **{name: run.metric(name) for name in run.metrics},
        }
        for run in gather(*paths).runs
    ]
    # Runs may differ in their domains, and one without a metric may come first.
    return pl.DataFrame(rows, infer_schema_length=None)
