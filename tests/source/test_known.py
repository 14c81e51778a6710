import pytest
import torch
from toys import CLASSES, source_batches, toy_net, toy_source

import holdfast
from holdfast import Source
from holdfast.engine.network import Network


def test_classes_are_as_wide_as_an_unbiased_variance_says():
    net = toy_net(dtype=torch.float64)
    source = toy_source(net)
    network = Network(net)
    spread, images = float(source.tensors["spread/source"]), int(source.counts.sum())
    width = source.class_width(network, "source", lambda: network)
    assert width**2 == pytest.approx(spread * images / (images - CLASSES), rel=1e-12)


def test_one_image_a_class_tells_no_width():
    net = toy_net()
    source = Source.from_loader(net, source_batches(batches=1, size=CLASSES))
    holdfast.adapt(net, "debias", source=source)
    with pytest.raises(ValueError, match=r"7 source images of 7 classes.*two or more.*fixed"):
        holdfast.adapt(net, "debias(balance=auto)", source=source)
