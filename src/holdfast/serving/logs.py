"""The log of a server, as a person reads it."""

from __future__ import annotations

import logging
import sys
import warnings
from pathlib import Path


def start_log(path: Path | None) -> None:
    """One line an event, with its time, into a file or to the terminal."""
    try:
        handler = logging.StreamHandler(sys.stderr) if path is None else logging.FileHandler(path)
    except OSError as error:
        raise ValueError(f"Cannot write the log {path} ({error}): choose another --log.") from None
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
    log = logging.getLogger("holdfast.serving")
    log.handlers[:] = [handler]
    log.setLevel(logging.INFO)
    log.propagate = False
    server = logging.getLogger("uvicorn")
    server.handlers[:] = [handler]
    server.setLevel(logging.WARNING)
    # What a fleet warns of is in the log already, with the stream's name.
    warnings.filterwarnings("ignore", module=r"holdfast\.serving\.")
