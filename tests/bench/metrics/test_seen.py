"""One batch as a row: its values against plain arithmetic, and there and back through a file."""

import math
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from toys import CLASSES, stream, toy_net, toy_source

import holdfast
from holdfast.bench.metrics.seen import SCHEMA, Seen
from holdfast.bench.store import frame
from holdfast.engine.health import Health
from holdfast.engine.last import Last

INF, NAN = float("inf"), float("nan")


def plain(logits):
    """Predicted class, confidence and entropy of one image, with Python's numbers."""
    top = max(logits)
    weights = [math.exp(one - top) for one in logits]
    shares = [one / sum(weights) for one in weights]
    entropy = -sum(p * math.log(p) for p in shares if p > 0)
    return logits.index(top), max(shares), entropy


@given(
    hnp.arrays(
        np.float32,
        st.tuples(st.integers(1, 6), st.integers(1, 8)),
        elements=st.floats(-60, 60, width=32),
    )
)
@settings(deadline=None)
def test_predictions_are_those_of_a_plain_softmax(logits):
    seen = Seen.of(torch.from_numpy(logits), [0] * len(logits), "snow", batch=0)
    expected = [plain(row) for row in logits.tolist()]
    assert seen.predicted.tolist() == [one[0] for one in expected]
    np.testing.assert_allclose(seen.confidence, [one[1] for one in expected], rtol=1e-5)
    np.testing.assert_allclose(seen.entropy, [one[2] for one in expected], rtol=1e-4, atol=1e-5)


def test_the_prediction_is_the_largest_logit_even_where_probabilities_round_to_one_value():
    logits = torch.tensor([[0.0, 1e-9, 0.0]])
    assert len(set(logits.softmax(1)[0].tolist())) == 1
    assert Seen.of(logits, [1], "snow", batch=0).predicted.tolist() == [1]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits_have_their_softmax_in_full(dtype):
    half = torch.randn(5, 9, generator=torch.Generator().manual_seed(0)).to(dtype)
    seen, full = (Seen.of(one, [0] * 5, "snow", batch=0) for one in (half, half.float()))
    assert seen.row() == full.row()
    assert seen.confidence.dtype == np.float32


def test_double_logits_have_theirs_in_double():
    logits = torch.tensor([[1e9, 1e9 + 1]], dtype=torch.float64)  # float32 cannot tell these apart
    seen = Seen.of(logits, [0], "snow", batch=0)
    assert seen.predicted.tolist() == [1]
    assert seen.confidence[0] == pytest.approx(1 / (1 + math.exp(-1)), rel=1e-6)


def test_what_is_looked_at_leaves_the_device_at_once(monkeypatch):
    def forbidden(self, *args):
        raise AssertionError("a number was looked at by itself")

    for name in ("item", "tolist", "__bool__", "__float__", "__int__"):
        monkeypatch.setattr(torch.Tensor, name, forbidden)
    copies, cpu = [], torch.Tensor.cpu
    monkeypatch.setattr(torch.Tensor, "cpu", lambda self: copies.append(self.shape) or cpu(self))
    Seen.of(torch.randn(8, 5), np.zeros(8, int), "snow", batch=0)
    assert len(copies) == 1


@pytest.mark.parametrize("bad", [[NAN, 0, 1], [INF, 0, 1], [-INF, -INF, -INF]])
def test_an_image_without_a_softmax_has_no_prediction_and_knows_nothing(bad):
    seen = Seen.of(torch.tensor([[0.0, 3, 0], bad]), [1, 2], "snow", batch=0)
    assert seen.predicted.tolist() == [1, -1]
    assert seen.confidence[1] == 0
    assert seen.entropy[1] == pytest.approx(math.log(3))
    alone = Seen.of(torch.tensor([[0.0, 3, 0]]), [1], "snow", batch=0)
    assert seen.confidence[0] == alone.confidence[0]
    assert seen.row()["correct"] == 1


def test_a_logit_of_minus_infinity_only_rules_out_its_class():
    seen = Seen.of(torch.tensor([[-INF, 2.0, 1.0]]), [1], "snow", batch=0)
    assert seen.predicted.tolist() == [1]
    assert seen.confidence[0] == pytest.approx(1 / (1 + math.exp(-1)))
    assert seen.entropy[0] == pytest.approx(plain([2.0, 1.0])[2])


def test_an_intruder_without_a_softmax_is_not_correct():
    row = Seen.of(torch.tensor([[NAN, 0.0]]), [-1], "snow", batch=0).row()
    assert (row["scored"], row["correct"]) == (0, 0)


@pytest.mark.parametrize(
    "labels",
    [
        torch.tensor([2, -1, 0]),
        np.array([2, -1, 0]),
        [2, -100, 0],
        torch.tensor([2, -7, 0], dtype=torch.int8),
    ],
)
def test_labels_come_as_people_have_them_and_any_negative_one_is_not_scored(labels):
    seen = Seen.of(torch.eye(3), labels, "snow", batch=0)
    assert seen.labels.tolist() == [2, -1, 0]
    row = seen.row()
    assert (row["images"], row["scored"], row["correct"]) == (3, 2, 0)


def test_unsigned_labels_are_labels():
    seen = Seen.of(torch.eye(3), torch.tensor([0, 1, 2], dtype=torch.uint8), "snow", batch=0)
    assert seen.row()["correct"] == 3


@pytest.mark.parametrize(
    ("logits", "labels", "domains", "message"),
    [
        (torch.eye(3), [0, 1], "a", "shape \\(2,\\) for 3 images"),
        (torch.eye(3), [[0], [1], [2]], "a", "shape \\(3, 1\\) for 3 images"),
        (torch.eye(3), [0, 1, 3], "a", "A label is 3, but logits have 3 classes"),
        (torch.eye(3), [0, 1, 2**32], "a", "A label is 4294967296"),
        (torch.eye(3), [0.0, 1.0, 2.0], "a", r"float64; expected class indices, as in labels.long"),
        (torch.eye(3), [0, 1, 2], ("a", "b"), "2 domains of 3 images"),
        (torch.zeros(3), [0], "a", r"shape \(3,\).*expected floats of shape \(images, classes\)"),
        (torch.zeros(0, 3), [], "a", "at least one of each"),
        (torch.zeros(1, 3).long(), [0], "a", "int64; expected floats"),
        (np.eye(3), [0, 1, 2], "a", "must be a torch.Tensor, not ndarray"),
    ],
)
def test_what_does_not_fit_is_said(logits, labels, domains, message):
    with pytest.raises(ValueError, match=message):
        Seen.of(logits, labels, domains, batch=0)


def test_what_the_adapter_did_is_taken_over():
    last = Last(
        batch=9,
        losses={"entropy": 0.5},
        images={"entropy": 3},
        reliable=4,
        stepped=True,
        refused="why",
        forwards=2,
        backwards=1,
        seconds=0.25,
    )
    seen = Seen.of(torch.eye(3), [0, 1, 2], "snow", batch=7, visit=2, missed=True, last=last)
    assert (seen.batch, seen.visit, seen.missed) == (7, 2, True)
    assert (seen.losses, seen.images, seen.reliable) == ({"entropy": 0.5}, {"entropy": 3}, 4)
    assert (seen.stepped, seen.refused, seen.forwards, seen.backwards) == (True, "why", 2, 1)
    assert seen.time == 0.25
    timed = Seen.of(torch.eye(3), [0, 1, 2], "snow", batch=7, last=last, time=2.0, memory=3.0)
    assert (timed.time, timed.memory) == (2.0, 3.0)
    bare = Seen.of(torch.eye(3), [0, 1, 2], "snow", batch=7)
    assert math.isnan(bare.time) and math.isnan(bare.memory)
    assert bare.row()["time"] is None and bare.row()["memory"] is None


def test_one_domain_is_named_and_several_are_listed():
    def row(*domains):
        return Seen.of(torch.eye(3), [0, 1, 2], domains, batch=0).row()

    assert [row("fog", "fog", "fog")[name] for name in ("domain", "domains")] == ["fog", None]
    several = row("fog", "snow", "fog")
    assert several["domain"] == "mixed" and several["domains"] == ["fog", "snow", "fog"]
    called = row("mixed", "mixed", "mixed")
    assert Seen.from_row(called).domains == ("mixed",) * 3


# There and back.

SHARE = st.floats(0, 1, width=32)
TERMS = ("entropy", "ema", "src")


@st.composite
def batches(draw):
    count = draw(st.integers(1, 5))

    def one_each(values, dtype):
        return np.array(draw(st.lists(values, min_size=count, max_size=count)), dtype)

    names = st.sampled_from(["fog", "snow", "mixed", "frost+fog"])
    spoke = draw(st.lists(st.sampled_from(TERMS), unique=True))
    numbers = st.integers(0, 2**40)
    return Seen(
        batch=draw(numbers),
        visit=draw(numbers),
        domains=tuple(draw(st.lists(names, min_size=count, max_size=count))),
        labels=one_each(st.integers(-1, 999), np.int32),
        predicted=one_each(st.integers(-1, 999), np.int32),
        confidence=one_each(SHARE, np.float32),
        entropy=one_each(st.floats(0, 7, width=32), np.float32),
        missed=draw(st.booleans()),
        losses={term: draw(st.floats()) for term in spoke},
        images={term: draw(numbers) for term in spoke},
        reliable=draw(st.none() | numbers),
        stepped=draw(st.booleans()),
        refused=draw(st.none() | st.text()),
        forwards=draw(numbers),
        backwards=draw(numbers),
        time=draw(st.floats(0) | st.just(NAN)),
        memory=draw(st.floats(0) | st.just(NAN)),
    )


def same(one, other):
    """Equal, where NaN equals NaN."""
    return one == other or (one != one and other != other)


@given(st.lists(batches(), min_size=1, max_size=3))
@settings(deadline=None, max_examples=60)
def test_rows_come_back_from_a_file_as_they_were(seen):
    types = {
        **SCHEMA,
        **{f"loss/{term}": pl.Float64() for term in TERMS},
        **{f"images/{term}": pl.Int64() for term in TERMS},
    }
    rows = [one.row() for one in seen]
    assert all(set(SCHEMA) <= set(row) <= set(types) for row in rows)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        pl.DataFrame(
            [{name: row.get(name) for name in types} for row in rows], types
        ).write_parquet(path)
        table = pl.read_parquet(path)
    assert table.schema == types
    for one, row, read in zip(seen, rows, table.iter_rows(named=True), strict=True):
        back = Seen.from_row(read)
        assert back.row().keys() == row.keys()
        assert all(same(back.row()[name], value) for name, value in row.items())
        assert back.domains == one.domains
        for name in ("labels", "predicted", "confidence", "entropy"):
            value, expected = getattr(back, name), getattr(one, name)
            assert value.dtype == expected.dtype and value.tolist() == expected.tolist()
        for name in ("missed", "reliable", "stepped", "refused", "forwards", "backwards"):
            assert getattr(back, name) == getattr(one, name)
        assert same(back.time, one.time) and same(back.memory, one.memory)


@pytest.mark.parametrize("method", ["eata+debias", "rotta(capacity=8, every=16)"])
def test_the_same_stream_twice_differs_in_time_and_memory_alone(method):
    def rows():
        net = toy_net()
        adapter = holdfast.adapt(net, method, source=toy_source(net))
        for number, images in enumerate(stream()):
            logits = adapter(images)
            labels = torch.arange(len(images)) % CLASSES
            memory = torch.rand(()).item()
            yield Seen.of(
                logits, labels, "snow", batch=number, last=adapter.last, memory=memory
            ).row()

    differ, columns = set(), set()
    for one, other in zip(rows(), rows(), strict=True):
        assert one.keys() == other.keys()
        columns |= one.keys()
        differ |= {name for name in one if not same(one[name], other[name])}
    assert any(name.startswith("loss/") for name in columns)
    assert differ == {name for name in columns if "time" in name or "memory" in name}


HEALTH = Health(
    state="degrading",
    drift=0.3,
    accuracy=0.6,
    interval=(0.5, 0.7),
    frozen_accuracy=0.65,
    alarm=True,
)
AS_ROW = {
    "drift": 0.3,
    "estimated": 0.6,
    "estimated_low": 0.5,
    "estimated_high": 0.7,
    "estimated_frozen": 0.65,
    "state": "degrading",
    "alarm": True,
    "fallback": True,
}


def test_health_is_in_the_row_and_back_and_older_rows_do_not_know_it(tmp_path):
    last = Last(batch=3, fallback=True)
    told = Seen.of(torch.eye(2), [0, 1], "snow", batch=3, last=last, health=HEALTH)
    assert {name: told.row()[name] for name in AS_ROW} == AS_ROW
    frame([told.row()]).write_parquet(tmp_path / "rows.parquet")
    (row,) = pl.read_parquet(tmp_path / "rows.parquet").iter_rows(named=True)
    assert {name: Seen.from_row(row).row()[name] for name in AS_ROW} == AS_ROW
    older = Seen.from_row({name: value for name, value in row.items() if name not in AS_ROW})
    assert {name: older.row()[name] for name in AS_ROW} == dict.fromkeys(AS_ROW)


def test_what_health_does_not_know_is_none():
    row = Seen.of(torch.eye(2), [0, 1], "snow", batch=0, health=Health()).row()
    assert [row[name] for name in ("drift", "estimated", "estimated_low", "fallback")] == [None] * 4
    assert (row["state"], row["alarm"]) == ("stable", False)
