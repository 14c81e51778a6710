import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.data import streams
from holdfast.data.corrupt.corruptions import CORRUPTIONS
from holdfast.data.streams import Continual, Correlated, Endless, Gradual, Noisy, Single, parse
from holdfast.data.streams.papers import ORDERS, ordered


def values(one):
    if one.choices:
        return st.sampled_from(one.choices)
    if one.name == "order":
        return st.sampled_from([*ORDERS, "random", "fog,snow", "frost, fog"])
    low = one.at_least or 0
    high = 1e6 if one.at_most is None else one.at_most
    kinds = {
        int: st.integers(int(low), int(high)),
        float: st.floats(low, high, allow_subnormal=False),
        bool: st.booleans(),
    }
    return kinds[one.kind]


@st.composite
def typed_values(draw):
    kind = draw(st.sampled_from([*streams.kinds().values()]))
    given = {}
    for one in kind.settings():
        if kind is Endless and one.name in ("severity", "clean"):
            continue
        if draw(st.booleans()):
            given[one.name] = draw(values(one))
    return kind(**given)


@given(typed_values())
def test_a_value_reads_back_from_its_string(value):
    assert parse(str(value)) == value


@given(st.text(max_size=30))
def test_any_text_is_a_stream_or_a_clear_error(text):
    try:
        parse(text)
    except ValueError as error:
        message = str(error)
        assert message.endswith(".")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("continual", Continual()),
        (" Continual ( ) ", Continual()),
        ("continual(order=random,order_seed=3)", Continual(order="random", order_seed=3)),
        ("continual(order='fog,snow')", Continual(order="fog,snow")),
        ("correlated(gamma=.01, sampler=NOTE)", Correlated(gamma=0.01, sampler="note")),
        ("gradual(first=falling)", Gradual(first="falling")),
        ("noisy(kind=other)", Noisy(kind="other")),
    ],
)
def test_what_people_write(text, value):
    assert parse(text) == value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("continuel", "Did you mean 'continual'"),
        ("correlated(gama=1)", "Did you mean 'gamma'"),
        ("correlated(gamma=0)", "at least 1e-06"),
        ("correlated(gamma=1,gamma=1)", "given twice"),
        ("continual(order='fog,')", "order='fog,' has an empty name"),
        ("continual(order=' ')", "has an empty name"),
        ("single(batch=2)", "at most 1"),
        ("correlated(gamma=1", "Cannot read the stream"),
        ("correlated+noisy", "Cannot read the stream"),
        ("endless(severity=0.3)", "multiple of 0.25"),
        ("endless(order=fog)", "two or more"),
    ],
)
def test_errors_say_what_is_wrong(text, says):
    with pytest.raises(ValueError, match=says):
        parse(text)


def test_defaults_are_not_written_out():
    assert str(Correlated(gamma=0.1)) == "correlated"
    assert str(Single(limit=10)) == "single(limit=10)"


def test_every_order_shows_every_corruption_once():
    for name in (*ORDERS, "random"):
        assert sorted(ordered(name, 1)) == sorted(CORRUPTIONS)
    assert len({ordered(name, 0) for name in ORDERS}) == 11  # RoTTA's is one of CoTTA's ten
    assert ORDERS["cotta5"] == ORDERS["rotta"]
    assert ORDERS["rotta"][:3] == ("motion_blur", "snow", "fog")


def test_random_orders_differ_by_their_seed_and_keep_clean_last():
    orders = {Continual(order="random", order_seed=seed).domains() for seed in range(3)}
    assert len(orders) == 3
    assert all(order[-1] == "original" for order in orders)


@pytest.mark.parametrize("spec", [None, 5, b"continual", ["continual"]])
def test_a_stream_is_a_text(spec):
    with pytest.raises(ValueError, match="A stream is written like"):
        parse(spec)
