"""Data: corruption sets, the corruption maker, streams, the embedded set, downloads."""

from holdfast.util.imports import require

require("PIL", "holdfast.data")
