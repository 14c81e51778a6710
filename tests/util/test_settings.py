"""Whole numbers, however they are written, and the types of fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from holdfast.util.settings import field_types, whole


@pytest.mark.parametrize("value", [5, 5.0, np.int64(5), np.float32(5)])
def test_five_is_five(value):
    assert whole(value, "count") == 5
    assert type(whole(value, "count")) is int


@pytest.mark.parametrize("value", [True, 1.5, "5", None, float("nan"), float("inf"), 7, -1])
def test_anything_else_or_out_of_bounds_is_an_error(value):
    with pytest.raises(ValueError, match="count is a whole number from 0 to 6, not"):
        whole(value, "count", 0, 6)


@dataclass(frozen=True)
class Base:
    count: int = 1
    size: float = 1.0


@dataclass(frozen=True)
class Derived(Base):
    # What is no field need not be readable: Python 3.10 cannot read a bare ClassVar.
    unread: ClassVar[NoSuchType] = None  # noqa: F821
    size: float | None = None
    name: str = ""


def test_types_are_those_of_fields_and_of_the_class_that_is_nearest():
    assert field_types(Derived) == {"count": int, "size": float | None, "name": str}
    assert field_types(Base) == {"count": int, "size": float}
