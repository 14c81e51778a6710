"""The check of imports finds what it is for, in a tree made up for it."""

import re
from pathlib import Path

import check_imports
import pytest


def tree(folder: Path, **files: str) -> Path:
    """A package holdfast of these modules, `engine__step` for engine/step.py."""
    for name, text in files.items():
        path = folder / "holdfast" / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        for parent in path.relative_to(folder).parents[:-1]:
            (folder / parent / "__init__.py").touch()
        path.write_text(text)
    return folder


@pytest.mark.parametrize(
    "text",
    [
        "import holdfast.bench.plan",
        "from holdfast.bench import plan",
        "from holdfast.bench.plan import Run",
        "from ..bench.plan import Run",
        "from ..bench import plan",
        "def late():\n    from holdfast.bench import plan",
        "if TYPE_CHECKING:\n    from holdfast.bench import plan",
    ],
)
def test_an_import_of_what_stands_above_is_named_with_its_line(tmp_path, text):
    root = tree(tmp_path, data__reader=f"import os\n{text}\n", bench__plan="Run = 1\n")
    (violation,) = check_imports.check(root)
    line = 2 + text.count("\n")
    assert violation.startswith(f"{root}/holdfast/data/reader.py:{line}: data may not import bench")


def test_the_other_way_is_free(tmp_path):
    root = tree(tmp_path, data__reader="", bench__plan="from holdfast.data import reader\n")
    assert check_imports.check(root) == []


@pytest.mark.parametrize("late", ["", "def later():\n    ", "if TYPE_CHECKING:\n    "])
def test_a_cycle_is_named_with_each_of_its_lines(tmp_path, late):
    root = tree(
        tmp_path,
        engine__a="from holdfast.engine.b import B\n",
        engine__b="from holdfast.parts.c import C\n",
        parts__c=f"{late}from holdfast.engine.a import A\n",
        parts__aside="from holdfast.engine.a import A\n",
    )
    (violation,) = check_imports.check(root)
    assert "a cycle" in violation and "aside" not in violation
    places = re.findall(r"(\w+)\.py:(\d+)", violation)
    assert sorted(places) == [("a", "1"), ("b", "1"), ("c", "2" if late else "1")]


def test_two_cycles_are_two_violations(tmp_path):
    root = tree(
        tmp_path,
        util__a="from holdfast.util import b\n",
        util__b="from holdfast.util import a\n",
        util__c="from holdfast.util import d\n",
        util__d="from holdfast.util import c\n",
    )
    assert len(check_imports.check(root)) == 2


def test_public_names_that_are_loaded_late_may_point_down(tmp_path):
    root = tree(tmp_path, engine__adapter="from holdfast import __version__\n")
    public = root / "holdfast" / "__init__.py"
    public.write_text("def __getattr__(name):\n    from holdfast.engine import adapter\n")
    assert check_imports.check(root) == []
    public.write_text("from holdfast.engine import adapter\n")
    assert len(check_imports.check(root)) == 1


def test_a_package_without_a_rule_is_an_error(tmp_path):
    (violation,) = check_imports.check(tree(tmp_path, attic__box=""))
    assert "attic has no rule" in violation
