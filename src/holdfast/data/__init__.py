"""Data: corruption sets, the corruption maker, streams, the embedded set, downloads."""

from holdfast.util.extras import require

require("PIL", "holdfast.data")
