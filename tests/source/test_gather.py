import pytest
import torch
from plain_methods import source_features
from toys import source_batches, toy_net, toy_source

import holdfast
from holdfast import Source


def test_a_model_whose_features_are_not_finite():
    net = toy_net()
    with torch.no_grad():
        net.conv2.bias[0] = torch.inf
    with pytest.raises(ValueError, match="features of the source images are NaN or Inf"):
        toy_source(net)


def test_fisher_images_may_come_alone():
    net = toy_net()
    alone = [images for images, _ in source_batches()]
    expected = Source.from_loader(net, source_batches())
    holdfast.adapt(net, "eata", source=expected)
    for loader in (alone, [[images] for images in alone]):
        source = Source.from_loader(net, source_batches(), fisher=loader)
        holdfast.adapt(net, "eata", source=source)
        name = "fisher/norm1.weight"
        assert torch.equal(source.tensors[name], expected.tensors[name])


def test_a_skipped_tail_of_one_leaves_other_prototypes_alone():
    """One image has no batch statistics; its source prototype stands all the same."""
    net = toy_net()
    (images, labels), *_ = source_batches()
    tail = (images[:1], torch.tensor([6]))
    loader = [(images, labels % 6), tail]
    source = Source.from_loader(net, loader)
    holdfast.adapt(net, "debias(statistics=batch)", source=source)
    assert source.counts[6] == 1
    assert source.tensors["counts/batch"][6] == 0


def plain_spread(net, batches):
    """Mean over images of the squared distance to the mean of their class, number by number."""
    features, labels = [], []
    for images, given in batches:
        features += source_features(net, images).tolist()
        labels += given.tolist()
    total = 0.0
    for feature, label in zip(features, labels, strict=True):
        own = [f for f, y in zip(features, labels, strict=True) if y == label]
        for place, value in enumerate(feature):
            total += (value - sum(f[place] for f in own) / len(own)) ** 2
    return total / len(labels)


def test_the_spread_of_features_is_that_of_a_plain_loop():
    net = toy_net(dtype=torch.float64)
    uneven = [(images, labels**2 % 5) for images, labels in source_batches(torch.float64)]
    with pytest.warns(UserWarning, match="no source image"):
        source = Source.from_loader(net, uneven)
    assert float(source.tensors["spread/source"]) == pytest.approx(
        plain_spread(net, uneven), rel=1e-12
    )
