"""Spec strings of methods and streams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import strategies as st

import holdfast
from holdfast.data.streams import kinds, parse
from soak.hostile.door import Door, Harm
from soak.hostile.images import things

VALUES = (
    *("0", "1", "-1", "1e-3", "1e999", "-inf", "nan", "none", "true", "FALSE", "0x10", "1_000"),
    *("10**9", "99999999999999999999", "soft", "'soft'", '"all"', "''", "é", "1,2", "(", "all"),
)


@st.composite
def written(draw: st.DrawFn, kinds_by_name: dict[str, Any], most: int) -> str:
    """Nearly what it should be: names and settings that are there, and some that are not."""
    parts = []
    for _ in range(draw(st.integers(1, most))):
        name = draw(st.sampled_from(sorted(kinds_by_name)))
        known = [setting.name for setting in kinds_by_name[name].settings()] or ["lr"]
        settings = st.tuples(
            st.one_of(
                st.sampled_from(known), st.sampled_from(["lr", "x", "", "batch", "__class__"])
            ),
            st.sampled_from(["=", "=", "=", " = ", "==", "", ":"]),
            st.one_of(st.sampled_from(VALUES), st.floats().map(str), st.text(max_size=4)),
        )
        given = ",".join(map("".join, draw(st.lists(settings, max_size=3))))
        parts.append(f"{name}({given})" if given or draw(st.booleans()) else name)
    text = draw(st.sampled_from(["+", "+", "+", " + ", "++", ",", ""])).join(parts)
    if draw(st.booleans()):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.text(max_size=3)) + text[at + draw(st.integers(0, 3)) :]
    return text


def texts(kinds_by_name: dict[str, Any], most: int) -> st.SearchStrategy[Any]:
    # A place such as `module:Class` is an order to import it, so that none is made up here.
    return st.one_of(
        written(kinds_by_name, most),
        st.text(max_size=40),
        st.text("()+=,'\" aetnbl01.-", max_size=30),
        st.just("(" * 5_000),
        st.just("tent+" * 3_000),
        things(),
    ).filter(lambda text: not isinstance(text, str) or ":" not in text)


class MethodDoor(Door):
    name = "method spec"

    def __init__(self, folder: Path):
        self.known = holdfast.methods()

    def inputs(self) -> st.SearchStrategy[Any]:
        return texts(self.known, 3)

    def attempt(self, given: Any) -> None:
        method = holdfast.compose(given)
        if holdfast.compose(str(method)) != method:
            raise Harm("what it is written as reads back as something else")

    def state(self) -> str:
        return " ".join(holdfast.methods())

    def describe(self, given: Any) -> str:
        return repr(given)[:300]


class StreamDoor(MethodDoor):
    name = "stream spec"

    def __init__(self, folder: Path):
        self.known = kinds()

    def inputs(self) -> st.SearchStrategy[Any]:
        return texts(self.known, 1)

    def attempt(self, given: Any) -> None:
        stream = parse(given)
        if parse(str(stream)) != stream:
            raise Harm("what it is written as reads back as something else")

    def state(self) -> str:
        return " ".join(kinds())
