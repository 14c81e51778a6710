"""What is measured of a run."""

from holdfast.util.imports import require

require("polars", "holdfast.bench")
