"""`from holdfast.parts import …` gives a method's author what is needed, to a checker too."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

from holdfast import parts


def names_for_a_checker():
    """What is imported under TYPE_CHECKING, by module."""
    tree = ast.parse(Path(parts.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    return {name.asname: node.module for node in block.body for name in node.names}


def test_every_name_is_there_and_is_that_of_the_checker():
    assert set(dir(parts)) == names_for_a_checker().keys()
    for name, module in names_for_a_checker().items():
        assert getattr(parts, name) is getattr(import_module(module), name)
    with pytest.raises(AttributeError, match="no attribute 'Said'"):
        parts.Said  # noqa: B018
