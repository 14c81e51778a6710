"""Packages that adapting does not need: extras bring them, `pip install 'holdfast[bench]'`."""

from __future__ import annotations

from importlib.util import find_spec

_BENCH = ("PIL", "filelock", "msgspec", "polars", "pooch", "rich", "tomli", "tyro")

# The extra that brings a package, by the name it is imported under.
EXTRAS = {
    "kornia": "augment",
    **dict.fromkeys(_BENCH, "bench"),
    **dict.fromkeys(("altair", "jinja2", "vl_convert"), "report"),
    "ray": "ray",
}


class MissingExtraError(ImportError, ValueError):
    """What was asked for needs a package that is not installed."""

    def __init__(self, package: str, what: str):
        super().__init__(
            f"{what} needs {package}, which is not installed: "
            f"pip install 'holdfast[{EXTRAS[package]}]'.",
            name=package,
        )


def require(package: str, what: str) -> None:
    """An error at once, instead of in the middle of the work, where a package is not there."""
    if find_spec(package) is None:
        raise MissingExtraError(package, what)
