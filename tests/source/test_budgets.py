"""Budgets against plain restatements, image by image."""

import math

import numpy as np
import pytest
import torch
from plain_steady import place, unexplained
from torch import nn
from toys import CLASSES, FEATURES, inputs_of, source_batches, toy_net, toy_source

import holdfast
from holdfast import Source
from holdfast.engine.network import Network
from holdfast.source.budgets import DRAWS, SIZES, Drawn, Moments
from holdfast.source.point import Point, label_directions
from holdfast.source.split import two_means


def budgets_of(net, source, **settings):
    return source.budgets_of(Network(net), lambda: Network(net), **settings)


def moments(x):
    """Of a batch as a whole, over all axes but 1."""
    rows = x.transpose(0, 1).flatten(1)
    return rows.mean(1), ((rows - rows.mean(1, keepdim=True)) ** 2).mean(1)


def drift(x, m0, v0, w):
    m, v = moments(x)
    moved = (m - m0) ** 2 / (v0 + 1e-5)
    spread = 0.5 * torch.log((v + 1e-5) / (v0 + 1e-5)) ** 2
    return float((w * (moved + spread)).sum())


def directions(places):
    """The first eight principal axes of the places of classes, if these have so many, each of a
    length whose square is how far it counts."""
    centred, most = places - places.mean(0), min(8, len(places) - 1)
    _, sizes, axes = np.linalg.svd(centred.numpy(), full_matrices=False)
    spread = sizes[:most] ** 2
    share = spread / (spread + 0.1 * spread.mean())
    return torch.from_numpy(axes[:most] * np.sqrt(share)[:, None])


class Flat(nn.Module):
    """BatchNorm1d, a layer without scales, and one that runs twice."""

    def __init__(self):
        super().__init__()
        self.one = nn.Linear(192, 10)
        self.norm1 = nn.BatchNorm1d(10)
        self.two = nn.Linear(10, 10)
        self.norm2 = nn.BatchNorm1d(10, affine=False)
        self.fc = nn.Linear(10, CLASSES)

    def forward(self, images):
        x = self.norm1(self.one(images.flatten(1))).relu()
        x = self.norm2(self.two(x)).relu()
        return self.fc(self.norm2(self.two(x)))


def flat_net(dtype=torch.float64):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        net = Flat().double()
        with torch.no_grad():
            net.norm1.weight.uniform_(0.5, 1.5)
        net.train()
        for images, _ in source_batches(torch.float64, seed=8):
            net(images)
    return net.eval().to(dtype)


CASES = [
    (toy_net(dtype=torch.float64), "norm1", 0),
    (toy_net(dtype=torch.float64), "norm2", 0),
    (flat_net(), "norm1", 0),
    (flat_net(), "norm2", 0),
    (flat_net(), "norm2", 1),
]


@pytest.mark.parametrize(("net", "layer", "use"), CASES)
def test_points_and_limits_are_those_of_the_layers_inputs(net, layer, use):
    batches = source_batches(torch.float64)
    budgets = budgets_of(net, Source.from_loader(net, batches), skew=0.3, quantile=0.9)
    images, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
    x = inputs_of(net, images, layer)[use]
    rows = x.transpose(0, 1).flatten(1)
    m0, v0 = rows.mean(1), rows.var(1, correction=0)
    scale = net.get_submodule(layer).weight
    square = torch.ones(len(m0)).double() if scale is None else scale.detach() ** 2
    w = square / square.sum()
    point = budgets.layers[layer][use]
    for got, expected in ((point.mean, m0), (point.var, v0), (point.weight, w)):
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-12)
    classes = [x[labels == label] for label in labels.unique()]
    axes = directions(torch.stack([place(*moments(own), m0, v0, w) for own in classes]))
    outer = [each.T @ each for each in (point.by_labels, axes)]  # axes have no sign
    torch.testing.assert_close(*outer, rtol=1e-6, atol=1e-9)
    drawn = Drawn(labels, 0.3)
    for number, size in enumerate(SIZES):
        found, rest = [], []
        for counts in drawn.counts[size].long():
            chosen = torch.repeat_interleave(torch.arange(len(images)), counts)
            assert len(chosen) == size
            found.append(drift(x[chosen], m0, v0, w))
            rest.append(unexplained(*moments(x[chosen]), m0, v0, w, axes))
        usual = max(np.quantile(np.reshape(found, (3, DRAWS))[:2], 0.9, axis=1))
        assert point.limits[number] == pytest.approx(math.log(usual), abs=1e-8)
        assert point.limit(size) == pytest.approx(usual, rel=1e-8)
        levels = (0.9, 0.9, 0.98)  # sorted batches come in rows: they are to be five times as rare
        every = max(map(np.quantile, np.reshape(rest, (3, DRAWS)), levels))
        assert point.unexplained_limit(size) == pytest.approx(every, rel=1e-6)
    torch.testing.assert_close(
        point.drift(rows[:, :9].mean(1), rows[:, :9].var(1, correction=0)).item(),
        drift(rows[:, :9].T, m0, v0, w),
    )
    torch.testing.assert_close(
        point.unexplained(rows[:, :9].mean(1), rows[:, :9].var(1, correction=0)).item(),
        unexplained(*moments(rows[:, :9].T), m0, v0, w, axes),
    )


def test_between_sizes_limits_lie_on_straight_lines_and_end_at_512():
    net = toy_net()
    point = budgets_of(net, toy_source(net)).layers["norm2"][0]
    low, high = point.limit(16), point.limit(32)
    share = math.log(24 / 16) / math.log(2)
    assert point.limit(24) == pytest.approx(
        math.exp((1 - share) * math.log(low) + share * math.log(high))
    )
    assert point.limit(512) == point.limit(513) == point.limit(10**6)


def test_the_split_allows_for_what_sorted_and_skewed_source_batches_do():
    net, batches = toy_net(dtype=torch.float64), source_batches(torch.float64)
    split = budgets_of(net, Source.from_loader(net, batches), skew=0.3, quantile=0.9).split
    images, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
    x = inputs_of(net, images, "norm1")[0]
    place = split.place(x.mean((2, 3)), x.var((2, 3), correction=0))
    sizes = [size for size in SIZES if size >= 8]
    largest = set()
    for size, limit in zip(sizes, split.limits, strict=True):
        kinds = [
            np.quantile([float(two_means(place[draw])[1]) for draw in draws[size]], 0.9)
            for draws in Drawn(labels, 0.3).kinds
        ]
        largest.add(int(np.argmax(kinds)))
        assert limit == pytest.approx(math.log(max(kinds)), abs=1e-8)
    assert len(largest) > 1  # not by random batches alone


def test_runs_are_of_few_classes_and_random_draws_of_many():
    labels = torch.arange(1000) % 10
    drawn = Drawn(labels, 0.1)
    of = torch.nn.functional.one_hot(labels).float()
    classes = ((drawn.counts[32] @ of) > 0).sum(1).float()
    random, skewed, in_order = classes.reshape(3, DRAWS)
    assert random.mean() > 9
    assert 2 < skewed.mean() < 6
    assert in_order.max() == 2 and in_order.mean() < 1.5
    # With 100 a class is spread evenly over the slots: each has a block of ten of it.
    even = ((Drawn(labels, 100.0).counts[32] @ of).amax(1))[DRAWS : 2 * DRAWS]
    skewed = (drawn.counts[32] @ of).amax(1)[DRAWS : 2 * DRAWS]
    assert even.mean() < 13 and skewed.mean() > 20


def test_features_have_a_point_of_their_own_also_without_batch_norm():
    net = nn.Sequential(
        nn.Flatten(), nn.Linear(192, FEATURES), nn.ReLU(), nn.Linear(FEATURES, CLASSES)
    )
    batches = source_batches()
    budgets = budgets_of(net, Source.from_loader(net, batches))
    assert not budgets.layers and budgets.split is None
    features = net[:3](torch.cat([images for images, _ in batches])).detach()
    torch.testing.assert_close(budgets.features.mean, features.mean(0))
    torch.testing.assert_close(budgets.features.var, features.var(0, correction=0))
    torch.testing.assert_close(budgets.features.weight, torch.full((FEATURES,), 1 / FEATURES))
    assert budgets.features.limit(64) < budgets.features.limit(4)


def test_a_layer_that_sees_several_rows_an_image():
    class Patches(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(48)
            self.fc = nn.Linear(48, CLASSES)

        def forward(self, images):
            rows = images.reshape(len(images) * 4, 48)
            return self.fc(self.norm(rows).reshape(len(images), 4, 48).mean(1))

    net = Patches().eval()
    batches = source_batches()
    budgets = budgets_of(net, Source.from_loader(net, batches))
    (point,) = budgets.layers["norm"]
    rows = torch.cat([images for images, _ in batches]).reshape(-1, 48)
    assert point.rows == 4 and budgets.split is None
    torch.testing.assert_close(point.mean, rows.mean(0))
    torch.testing.assert_close(point.var, rows.var(0, correction=0))


def test_they_are_made_once_kept_in_the_file_and_draw_from_no_global_generator(tmp_path):
    net = toy_net()
    source = toy_source(net)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    one = budgets_of(net, source)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()
    source.save(tmp_path / "source")
    loaded = Source.load(tmp_path / "source")
    other = budgets_of(net, loaded)
    assert [p.limits for p in one.layers["norm1"]] == [p.limits for p in other.layers["norm1"]]
    assert list(one.layers) == list(other.layers) == ["norm1", "norm2"]
    again = budgets_of(net, toy_source(net))
    assert again.layers["norm2"][0].limits == one.layers["norm2"][0].limits
    assert again.split.limits == one.split.limits
    # Other settings are other budgets, for which a file without a loader has nothing to go by.
    with pytest.raises(ValueError, match=r"holds no budgets.*Source\.load\(path, loader=…\)"):
        budgets_of(net, loaded, skew=0.5)
    skewed = budgets_of(net, source, quantile=0.5).layers["norm2"][0].limits
    assert all(low < high for low, high in zip(skewed, one.layers["norm2"][0].limits, strict=True))


@pytest.mark.parametrize("classes", [1, 2, 3, 12, 40])
def test_labels_explain_a_batch_of_one_class_and_nothing_across(classes):
    generator = torch.Generator().manual_seed(classes)
    size, spread = 20, min(classes - 1, 5)
    flat, _ = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))
    places = torch.randn(classes, spread, generator=generator, dtype=torch.float64) @ flat[:spread]
    found = label_directions(places)
    assert len(found) == min(8, classes - 1) and bool(found.isfinite().all())
    across = flat[spread:]  # directions in which classes are all alike
    assert float((across @ found.T).norm()) < 1e-6
    for own in places - places.mean(0) if spread else []:
        left = own @ own - ((found @ own) ** 2).sum()
        assert 0 < left < 0.5 * own @ own


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_what_labels_do_not_explain_is_told_in_full_under_autocast(dtype):
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(200, 6, generator=generator)
    moments = torch.stack([torch.zeros(6), torch.ones(6), torch.full((6,), 1 / 6)])
    main = torch.zeros(1, 12)
    main[0, :6] = 0.995 / 6**0.5
    point, batch = Point(moments, main), (5 + 0.3 * mean, torch.ones(200, 6))
    expected = point.unexplained(*batch)
    assert (expected < 0.1 * point.drift(*batch)).all()
    with torch.autocast("cpu", dtype):
        torch.testing.assert_close(point.unexplained(*batch), expected)


def test_one_image_of_a_class_says_nothing_of_its_spread():
    """Where a layer sees one number of each, its variance is 0."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.cat([torch.arange(100) % 5, torch.tensor([5])])
    features = torch.randn(101, 6, generator=generator) + labels[:, None]
    moments = Moments(None, torch.full((6,), 1 / 6).double(), 1, features, torch.zeros(101, 6))
    table = torch.stack([features.mean(0), features.var(0), moments.weight]).double()
    of_means = Drawn(labels, 0.1).point(table, moments).by_labels[0, :6].square().sum()
    assert of_means > 0.5
    # Where no class has two, these have to do.
    assert len(Drawn(torch.arange(7), 0.1).classes) == 7


def test_a_model_that_makes_nan_of_the_source_is_told(tmp_path):
    net = toy_net()
    source = toy_source(net)
    with torch.no_grad():
        net.norm1.bias[0] = math.nan
    with pytest.raises(ValueError, match="source images is NaN or Inf"):
        budgets_of(net, source)


def test_budgets_of_an_older_holdfast_are_made_again(tmp_path):
    net = toy_net()
    source = toy_source(net)
    expected = budgets_of(net, source).layers["norm2"][0].unexplained_limits
    before = {n.replace("budgets/4/", "budgets/3/"): t for n, t in source.tensors.items()}
    source.tensors = {n: t for n, t in before.items() if "/by_labels/" not in n}
    source.save(tmp_path / "source")
    advice = (
        r"older holdfast.*Source\.load\(path, loader=…\).*holdfast\.load\(path, model, source=…\)"
    )
    with pytest.raises(ValueError, match=advice):
        budgets_of(net, Source.load(tmp_path / "source"))
    loaded = Source.load(tmp_path / "source", loader=source_batches())
    assert budgets_of(net, loaded).layers["norm2"][0].unexplained_limits == expected


@pytest.mark.filterwarnings("ignore:The source's labels")
def test_only_the_first_samples_count():
    net = toy_net()
    batches = source_batches(batches=5)
    few = budgets_of(net, Source.from_loader(net, batches), samples=20)
    images = torch.cat([images for images, _ in batches])[:20]
    x = inputs_of(net, images, "norm1")[0]
    torch.testing.assert_close(few.layers["norm1"][0].mean, x.mean((0, 2, 3)), rtol=1e-5, atol=1e-6)


def test_labels_are_needed():
    net = toy_net()
    source = Source(
        holdfast.engine.network.fingerprint(net), {}, head="fc", loader=[source_batches()[0][0]]
    )
    with pytest.raises(ValueError, match=r"\(images, labels\)"):
        budgets_of(net, source)
