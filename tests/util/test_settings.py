"""Whole numbers, however they are written."""

import numpy as np
import pytest

from holdfast.util.settings import whole


@pytest.mark.parametrize("value", [5, 5.0, np.int64(5), np.float32(5)])
def test_five_is_five(value):
    assert whole(value, "count") == 5
    assert type(whole(value, "count")) is int


@pytest.mark.parametrize("value", [True, 1.5, "5", None, float("nan"), float("inf"), 7, -1])
def test_anything_else_or_out_of_bounds_is_an_error(value):
    with pytest.raises(ValueError, match="count is a whole number from 0 to 6, not"):
        whole(value, "count", 0, 6)
