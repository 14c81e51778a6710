import copy

import pytest
import torch
from plain_steady import by_width as plain_by_width
from toys import CLASSES, inputs_of, textures, toy_net

from holdfast import Source
from holdfast.engine.network import Network
from holdfast.source.point import Point
from holdfast.source.split import Split, by_width, describe, two_means


def plain_two_means(z):
    """Point by point, from the signs of each of the first three principal components: the widest
    gap between groups that are not too small."""
    centred, best = z - z.mean(0), (None, 0.0)
    for direction in torch.linalg.svd(centred).Vh[:3]:
        second = centred @ direction > 0
        for _ in range(10):
            one, other = z[~second].mean(0), z[second].mean(0)
            second = torch.stack([(p - other).norm() < (p - one).norm() for p in z])
        if min(second.sum(), (~second).sum()) < max(2, len(z) / 16):
            continue
        one, other = z[~second].mean(0), z[second].mean(0)
        line = (other - one) / (other - one).norm()
        within = sum(
            float((p - (other if s else one)) @ line) ** 2 for p, s in zip(z, second, strict=True)
        )
        best = max(
            best,
            (second, float(((one - other) ** 2).sum()) / (within / len(z))),
            key=lambda b: b[1],
        )
    return best


@pytest.mark.parametrize("shape", [(12, 4), (6, 30)])
def test_two_means(shape):
    generator = torch.Generator().manual_seed(4)
    z = torch.randn(5, *shape, generator=generator, dtype=torch.float64)
    z[:, ::3] += 3
    second, ratio = two_means(z)
    for each, got, found in zip(z, second, ratio, strict=True):
        expected, apart = plain_two_means(each)
        assert torch.equal(got, expected) or torch.equal(~got, expected)
        assert float(found) == pytest.approx(apart)


def test_a_gap_is_found_where_points_vary_more_in_something_else():
    z = torch.randn(40, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 0.2
    z[:, 0] = torch.linspace(-3, 3, 40)
    kind = torch.arange(40) % 2 == 0
    z[kind, 1] += 3
    second, ratio = two_means(z)
    assert torch.equal(second, kind) or torch.equal(~second, kind)
    expected, apart = plain_two_means(z)
    assert torch.equal(second, expected) or torch.equal(~second, expected)
    assert float(ratio) == pytest.approx(apart) and apart > 50


def test_the_tail_of_a_wide_group_stays_with_it_beside_a_narrow_one():
    generator = torch.Generator().manual_seed(1)
    wide = torch.randn(32, 3, generator=generator, dtype=torch.float64)
    narrow = 4 + 0.02 * torch.randn(32, 3, generator=generator, dtype=torch.float64)
    wide[0] = 3.0
    z, kind = torch.cat([wide, narrow]), torch.arange(64) >= 32
    half_way, _ = two_means(z)
    half_way = half_way if half_way[-1] else ~half_way
    assert half_way[0] and torch.equal(half_way[32:], kind[32:])
    for second in (half_way, ~half_way):
        got = by_width(z, second)
        assert torch.equal(got, kind) or torch.equal(got, ~kind)
    # Equal points are no division by zero.
    equal = torch.cat([torch.zeros(8, 3), torch.ones(8, 3)]).double()
    assert torch.equal(by_width(equal, torch.arange(16) > 7), torch.arange(16) > 7)


def test_groups_by_width_are_as_restated():
    """Also where one would become too small, which leaves them as they were the round before."""
    generator = torch.Generator().manual_seed(2)
    for _ in range(100):
        z = torch.randn(18, 2, generator=generator, dtype=torch.float64) ** 3
        z[:6] = 0.1 * z[:6] + 1
        second = torch.rand(18, generator=generator) < 0.3
        if 2 <= second.sum() <= 16:
            groups = [(~second).nonzero().flatten(), second.nonzero().flatten()]
            expected = plain_by_width(z, groups)[1].tolist()
            assert by_width(z, second).nonzero().flatten().tolist() == expected


@pytest.mark.filterwarnings("ignore:The source's labels")
def test_the_split_tells_two_kinds_apart_and_leaves_source_batches_whole():
    net, generator = toy_net(), torch.Generator().manual_seed(0)
    network = Network(net)
    # Of one kind, which the toys' own source is not.
    batches = [(textures(14, generator), torch.arange(14) % CLASSES) for _ in range(12)]
    batches = [(images.float(), labels) for images, labels in batches]
    budgets = Source.from_loader(net, batches).budgets_of(network, lambda: network)
    split, (first,) = budgets.split, budgets.layers["norm1"]
    images = torch.cat([images for images, _ in batches])
    x = inputs_of(net, images, "norm1")[0]
    mean, var = x.mean((2, 3)), x.var((2, 3), correction=0)
    z = describe(mean.double(), var.double())
    w = net.norm1.weight.detach().double() ** 2
    w = (w / w.sum()).repeat(2)
    expected = (z - z.mean(0)) / z.std(0, correction=0) * w.sqrt()
    torch.testing.assert_close(split.place(mean, var), expected, rtol=1e-5, atol=1e-6)
    anywhere = copy.copy(first)
    anywhere.unexplained_limits = (-100.0,) * 10  # as if every batch lay beyond the source's
    apart, parted = 0, 0
    for _ in range(200):
        some = torch.randint(len(images), (32,), generator=generator)
        apart += len(split.groups(anywhere, mean[some], var[some])) > 0
        parted += len(split.groups(first, mean[some], var[some])) > 0
    assert 0 < apart <= 24 and parted <= 2
    strange = mean.clone()
    strange[::2] += 9 * mean.std(0)
    one, other = split.groups(first, strange[:32], var[:32])
    assert one.tolist() == list(range(0, 32, 2)) and other.tolist() == list(range(1, 32, 2))
    # Too few, in all or of one kind.
    assert split.groups(anywhere, strange[:7], var[:7]) == ()
    odd = mean[:32].clone()
    odd[5] += 9 * mean.std(0)
    assert split.groups(anywhere, odd, var[:32]) == ()


def test_moments_from_elsewhere_meet_what_is_known_of_the_layer_there(monkeypatch):
    """On a GPU health measures moments on the CPU, and points are where the network is."""
    asked = []

    def beyond(self, mean, var, limit):
        asked.append((mean.device, mean.dtype, var.device))
        return torch.zeros(())

    monkeypatch.setattr(Point, "beyond", beyond)
    first = Point(torch.ones(3, 4, dtype=torch.float64), None, [0.0] * 10, [0.0] * 10).to("meta")
    split = Split(torch.zeros(8), torch.ones(8), torch.ones(4), [0.0] * 7)
    assert split.groups(first, torch.zeros(9, 4), torch.ones(9, 4)) == ()
    assert asked == [(torch.device("meta"), torch.float64, torch.device("meta"))]
