"""The command line: one file a command that runs or shows runs, `main` for the rest."""

from __future__ import annotations

import sys

from holdfast.util.imports import EXTRAS, MissingExtraError


def start() -> int:
    """What `holdfast` calls: without the packages of an extra, it says which one to install."""
    try:
        from holdfast.cli.main import main

        return main()
    except ImportError as error:
        if error.name not in EXTRAS:
            raise
        print("holdfast:", MissingExtraError(error.name, "This command"), file=sys.stderr)
        return 2
