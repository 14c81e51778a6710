"""Distances in feature space, against the paper's formulas with all features kept."""

import dataclasses
import json

import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from toys import CLASSES, stream, toy_net, toy_source

import holdfast
from holdfast.bench.metrics.analysis import SCHEMA, Distances, Geometry

C, D = 6, 5


def plain(domain, features, labels, source, counts, prototypes=None, visit=0):
    """The paper's formulas, with loops."""
    features, source = features.double(), source.double()
    members = {c: features[labels == c] for c in range(len(source)) if (labels == c).any()}
    true = {c: sum(rows) / len(rows) for c, rows in members.items()}
    known = [c for c in range(len(source)) if counts[c] > 0]

    def distance(one, other):
        return float(((one - other) ** 2).sum())

    def cosine(one, other):
        return float(one.double() @ other / (one.double().norm() * other.norm()))

    def mean(values):
        values = list(values)
        return sum(values) / len(values) if values else None

    intra = {c: mean(distance(true[c], f) for f in members[c]) for c in members}
    inter = {c: mean(distance(true[c], true[i]) for i in true if i != c) for c in true}
    some = len(true) > 1
    to_source = to_target = None
    if prototypes is not None:
        to_source = mean(cosine(prototypes[c], source[c]) for c in known)
        to_target = mean(cosine(prototypes[c], true[c]) for c in true)
    return Distances(
        domain,
        visit,
        gap=mean(distance(source[c], true[c]) for c in true if c in known),
        intra=mean(intra.values()),
        inter=mean(inter.values()) if some else None,
        ratio=mean(intra[c] / inter[c] for c in true) if some else None,
        similarity_source=to_source,
        similarity_target=to_target,
        classes=len(true),
        source_classes=len([c for c in true if c in known]),
        images=int((labels >= 0).sum()),
    )


def assert_close(got, expected, rel=1e-9):
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        for name, value in dataclasses.asdict(other).items():
            if isinstance(value, float):
                value = pytest.approx(value, rel=rel, abs=1e-12)
            assert getattr(one, name) == value, name


def made(images=60, seed=0, classes=C, offset=0.0):
    """Features of classes that lie apart, with labels in no order."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    source = 2 * normal(C, D)
    labels = torch.randint(classes, (images,), generator=generator)
    features = (source[labels] + 0.3 + 0.7 * normal(images, D) + offset).float()
    return source, features, labels, nn.functional.normalize(source + normal(C, D), dim=1)


def geometry_of(source, counts=None):
    return Geometry(source, torch.ones(C, dtype=torch.int64) if counts is None else counts)


@settings(max_examples=60, deadline=None)
@given(
    cuts=st.sets(st.integers(1, 59), max_size=20),
    classes=st.integers(2, C),
    unscored=st.integers(0, 9),
    seed=st.integers(0, 1000),
)
def test_distances_are_the_papers_however_batches_are_cut(cuts, classes, unscored, seed):
    source, features, labels, prototypes = made(60, seed, classes)
    labels[torch.arange(60) % 10 < unscored] = -1
    counts = torch.tensor([3, 0, 2, 1, 1, 5])
    geometry = geometry_of(source, counts)
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), 60], strict=True):
        geometry.update(
            features[start:end], labels[start:end], "fog", visit=2, prototypes=prototypes
        )
    expected = plain("fog", features, labels, source, counts, prototypes, visit=2)
    assert_close(geometry.distances, [expected])


def test_by_hand():
    """Two classes on a line: means 1 and 7, P^s at 0 and 4; inter is the same 36 for both."""
    geometry = Geometry(torch.tensor([[0.0, 0.0], [4.0, 0.0]]), torch.tensor([1, 1]))
    features = torch.tensor([[0.0, 0.0], [2.0, 0.0], [5.0, 0.0], [9.0, 0.0], [99.0, 0.0]])
    prototypes = torch.tensor([[3.0, 4.0], [0.0, 2.0]])
    geometry.update(features, torch.tensor([0, 0, 1, 1, -1]), "fog", prototypes=prototypes)
    (got,) = geometry.distances
    assert got.gap == (1 + 9) / 2
    assert got.intra == (1 + 4) / 2
    assert got.inter == 36
    assert got.ratio == pytest.approx((1 / 36 + 4 / 36) / 2)
    assert got.similarity_target == pytest.approx((0.6 + 0) / 2)
    # The cosine to a source prototype that is 0 is 0.
    assert got.similarity_source == 0
    assert (got.classes, got.source_classes, got.images) == (2, 2, 4)


@pytest.mark.parametrize("offset", [1e4, -3e5])
def test_features_far_from_the_origin_and_the_source_lose_nothing(offset):
    source, features, labels, prototypes = made(200, 3)
    features = features.double() + offset
    geometry = geometry_of(source)
    for start in range(0, 200, 7):
        part = slice(start, start + 7)
        geometry.update(features[part], labels[part], "fog", prototypes=prototypes)
    expected = plain("fog", features, labels, source, torch.ones(C), prototypes)
    assert_close(geometry.distances, [expected])
    # Moving everything moves neither what is within nor what is between classes.
    near = plain("fog", features - offset, labels, source, torch.ones(C))
    assert geometry.distances[0].intra == pytest.approx(near.intra, rel=1e-8)
    assert geometry.distances[0].inter == pytest.approx(near.inter, rel=1e-8)


def test_a_stretch_ends_where_the_domain_or_the_visit_changes():
    source, features, labels, prototypes = made(80, 1)
    geometry = geometry_of(source)
    names = ["fog", "fog", "snow", ("fog", "snow") * 5, ("snow", "rain") * 5, "fog", "fog", "fog"]
    visits = [0, 0, 0, 0, 0, 0, 1, 1]
    moving = prototypes.clone()
    ends = {}
    for index, (name, visit) in enumerate(zip(names, visits, strict=True)):
        part = slice(10 * index, 10 * index + 10)
        moving += 0.3 * features[part].mean(0)  # in place, as debias moves its prototypes
        domains = (name,) * 10 if index == 1 else name
        geometry.update(features[part], labels[part], domains, visit=visit, prototypes=moving)
        ends[index] = moving.clone()
    stretches = [("fog", 0, 0, 2), ("snow", 0, 2, 3), ("mixed", 0, 3, 5), ("fog", 0, 5, 6)]
    expected = [
        plain(
            domain,
            features[10 * start : 10 * end],
            labels[10 * start : 10 * end],
            source,
            torch.ones(C),
            ends[end - 1],
            visit,
        )
        for domain, visit, start, end in [*stretches, ("fog", 1, 6, 8)]
    ]
    assert_close(geometry.distances, expected)


def test_what_is_not_defined_is_none():
    source, features, labels, prototypes = made(20, 2)
    geometry = geometry_of(source, torch.tensor([0, 1, 1, 1, 1, 1]))
    assert geometry.rows() == []
    geometry.update(features, torch.zeros(20, dtype=torch.int64), "one class", prototypes=None)
    geometry.update(features, torch.full((20,), -1), "none scored", prototypes=prototypes)
    geometry.update(torch.ones(20, D), labels, "one point")
    geometry.update(features[:0], labels[:0], "empty")
    geometry.update(features * torch.nan, labels, "diverged")
    one, unscored, point, empty, diverged = geometry.distances
    assert (one.classes, one.source_classes, one.gap, one.inter, one.ratio) == (1, 0, *[None] * 3)
    assert one.intra > 0 and one.similarity_target is one.similarity_source is None
    assert (unscored.classes, unscored.images, unscored.intra) == (0, 0, None)
    assert unscored.similarity_target is None and unscored.similarity_source is not None
    assert (point.intra, point.inter, point.ratio) == (0, 0, None) and point.gap > 0
    assert (empty.images, empty.intra) == (0, None)
    assert (diverged.gap, diverged.intra, diverged.inter) == (None, None, None)
    json.dumps(geometry.rows(), allow_nan=False)


def test_a_diverged_stretch_leaves_no_trace_in_the_next():
    source, features, labels, _ = made(20, 2)
    geometry = geometry_of(source)
    geometry.update(features * torch.inf, labels, "diverged")
    geometry.update(features, labels, "fog")
    expected = plain("fog", features, labels, source, torch.ones(C))
    assert_close(geometry.distances[1:], [expected])


@pytest.mark.parametrize("stop", [0, 1, 3, 4, 7])
def test_stopped_and_restored_is_the_same_bit_for_bit(tmp_path, stop):
    source, features, labels, prototypes = made(80, 5)
    domains = ["fog", "fog", "snow", "snow", "snow", "fog", "fog", "fog"]

    def run(geometry, batches):
        for index in batches:
            part = slice(10 * index, 10 * index + 10)
            geometry.update(
                features[part],
                labels[part],
                domains[index],
                prototypes=(prototypes + 0.1 * index).float(),
            )

    whole, first, second = geometry_of(source), geometry_of(source), geometry_of(source)
    run(whole, range(8))
    run(first, range(stop))
    first.save(tmp_path / "analysis.safetensors")
    halfway = first.rows()
    run(first, range(stop, 8))
    second.load(tmp_path / "analysis.safetensors")
    assert second.rows() == halfway
    run(second, range(stop, 8))
    loaded = geometry_of(source)
    run(loaded, range(3))
    loaded.load(tmp_path / "analysis.safetensors")
    run(loaded, range(stop, 8))
    assert whole.rows() == first.rows() == second.rows() == loaded.rows()
    assert len(whole.rows()) == 3


def test_memory_is_flat_and_rows_are_a_table():
    source, features, labels, _ = made(20)
    geometry = geometry_of(source)
    sizes = set()
    for _ in range(5):
        geometry.update(features, labels.to(torch.uint8), "fog")
        held = (value for value in vars(geometry).values() if isinstance(value, torch.Tensor))
        sizes.add(sum(tensor.numel() for tensor in held))
    assert len(sizes) == 1
    table = pl.DataFrame(geometry.rows(), schema=SCHEMA)
    assert table.columns == [field.name for field in dataclasses.fields(Distances)]
    assert table["images"].to_list() == [100] and table["similarity_target"].to_list() == [None]


def test_works_across_inference_mode():
    source, features, labels, prototypes = made(20)
    with torch.inference_mode():
        geometry = geometry_of(source.clone())
        geometry.update(features.clone(), labels, "fog", prototypes=prototypes.clone())
    geometry.update(features.clone().requires_grad_(), labels, "fog", prototypes=prototypes)
    both = torch.cat([features, features]), torch.cat([labels, labels])
    assert_close(geometry.distances, [plain("fog", *both, source, torch.ones(C), prototypes)])


@pytest.mark.parametrize("spec", ["frozen", "tent", "eata+debias"])
def test_of_an_adapter_on_a_stream(spec):
    """Beside a hook on the head that keeps every feature the adapter sees."""
    net = toy_net(dtype=torch.float64)
    source = toy_source(net)
    adapter = holdfast.adapt(net, spec, source=source)
    geometry = Geometry(source.prototypes, source.counts)
    kept = []
    names = ["fog"] * 3 + ["snow"] * 3 + ["fog"] * 2
    ends = {}
    labels = torch.randint(CLASSES, (8, 16), generator=torch.Generator().manual_seed(0))
    for index, images in enumerate(stream(("all", "some") * 4, torch.float64)):
        features = adapter.features(images)
        with adapter.model.fc.register_forward_pre_hook(lambda _, x: kept.append(x[0].detach())):
            adapter(images)
        now = adapter.prototypes
        geometry.update(
            features, labels[index], (names[index],) * 16, visit=index // 6, prototypes=now
        )
        ends[index] = now
    expected = [
        plain(
            names[start],
            torch.cat(kept[start:end]),
            labels[start:end].flatten(),
            source.prototypes,
            source.counts,
            ends[end - 1],
            visit,
        )
        for start, end, visit in ((0, 3, 0), (3, 6, 0), (6, 8, 1))
    ]
    assert_close(geometry.distances, expected)
    assert (expected[0].similarity_source is None) == ("debias" not in spec)
    if "debias" in spec:
        assert len({one.similarity_source for one in expected}) == 3
