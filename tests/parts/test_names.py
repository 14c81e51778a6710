"""`from holdfast.parts import …` gives a method's author what is needed, to a checker too."""

import subprocess
import sys

import pytest

from holdfast import parts


def test_a_name_that_is_not_there_is_an_error():
    assert parts.Task.__module__ == "holdfast.parts.task"
    with pytest.raises(AttributeError, match="no attribute 'Said'"):
        parts.Said  # noqa: B018


@pytest.mark.parametrize("first", ["parts", "parts.learn", "engine.adapter", "engine.step", "api"])
def test_whichever_module_comes_first_all_can_be_imported(first):
    code = f"import holdfast.{first}, holdfast.engine.adapter; from holdfast.parts import Task"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
