"""The report: stored runs as one page, as pictures, and as tables for a paper."""

from holdfast.util.imports import require

require("altair", "holdfast.report")
