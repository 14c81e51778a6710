import copy

import pytest
import torch
from follow import TOLERANCE, close
from plain import PlainToy
from toys import stream, toy_net

import holdfast


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_frozen_is_the_source_model(dtype):
    net = toy_net(dtype=dtype)
    adapter = holdfast.adapt(net, "frozen")
    for images in stream(dtype=dtype, last=1):
        close(adapter(images), net(images), dtype, "logits")
    assert not adapter.last.stepped


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_bn_normalises_each_batch_by_itself(dtype):
    net = toy_net(dtype=dtype)
    plain = PlainToy(net, trained=())
    adapter = holdfast.adapt(net, "bn")
    for images in stream(dtype=dtype, last=5):
        close(adapter(images), plain(images)[1], dtype, "logits")
    assert (adapter(images) - net(images)).abs().max() > 0.01


def test_bn_keeps_the_weights():
    net = toy_net()
    before = copy.deepcopy(net.state_dict())
    adapter = holdfast.adapt(net, "bn")
    for images in stream():
        adapter(images)
    for name, weight in adapter.model.named_parameters():
        assert torch.equal(weight, before[name])


def test_bn_on_a_net_without_batch_norm_says_what_to_do():
    with pytest.raises(ValueError, match=r"bn .*no batch norm layer.*frozen"):
        holdfast.adapt(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3)), "bn")
