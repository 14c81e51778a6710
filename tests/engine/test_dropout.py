"""AETTA's estimate against a plain restatement, its masks as state, and where dropout goes."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from drifting import staged_home_net
from plain import batch_norm
from toys import CLASSES, stream, toy_net

import holdfast
from holdfast.engine.dropout import DropoutDisagreement, stages, usual_rate
from holdfast.engine.network import Network
from holdfast.engine.norms import ByBatch

KINDS = ("all", "some", "none", "all", "some")


def normalise(x, layer, by_batch):
    if by_batch:
        return batch_norm(x, layer.weight, layer.bias)
    mean, var = layer.running_mean[:, None, None], layer.running_var[:, None, None]
    scale, shift = layer.weight[:, None, None], layer.bias[:, None, None]
    return (x - mean) / (var + 1e-5).sqrt() * scale + shift


class PlainAetta:
    """Written out: ten views with a mask after each of the two stages."""

    def __init__(self, net, rate, by_batch):
        self.net, self.rate, self.by_batch = net, rate, by_batch
        self.error, self.masks = None, 0

    def dropped(self, x):
        # Python's own whole numbers, so that nothing can overflow.
        kept = [
            ((i * 2654435761 + self.masks * 2654445111) % 2**32) / 2**32 >= self.rate
            for i in range(x.numel())
        ]
        self.masks += 1
        return x * torch.tensor(kept, dtype=x.dtype).reshape(x.shape) / (1 - self.rate)

    def forward(self, images, dropout):
        x = images
        for stage in (self.net.stage1, self.net.stage2):
            for conv, norm in ((stage[0], stage[1]), (stage[3], stage[4])):
                x = normalise(F.conv2d(x, conv.weight, conv.bias, padding=1), norm, self.by_batch)
                x = x.clamp_min(0) if conv is stage[0] else x
            x = (self.dropped(x) if dropout else x).clamp_min(0)
        return x.mean((2, 3)) @ self.net.fc.weight.T + self.net.fc.bias

    @torch.no_grad()
    def __call__(self, images):
        labels = self.forward(images, False).argmax(1)
        views = [self.forward(images, True) for _ in range(10)]
        error = np.mean([(view.argmax(1) != labels).double().mean().item() for view in views])
        mean = torch.stack([torch.softmax(view, 1).mean(0) for view in views]).mean(0)
        entropy = -sum(p * math.log(p + 1e-6) for p in mean.tolist())
        raised = error / (entropy / math.log(CLASSES)) ** 3
        raised = min(max(raised, 0), 1 - 1 / CLASSES)
        if self.error is None:
            self.error = error  # the first one is taken as it is
        self.error = 0.6 * self.error + 0.4 * raised
        return 1 - self.error


def network_of(net, by_batch):
    network = Network(net)
    if by_batch:
        network.normalise(ByBatch())
    return network


@pytest.mark.parametrize("by_batch", [False, True], ids=["source", "batch"])
@pytest.mark.parametrize("rate", [0.2, 0.4, 0.9])
def test_it_is_the_plain_restatement(by_batch, rate):
    net = staged_home_net().double()
    network = network_of(net, by_batch)
    estimator = DropoutDisagreement(network, rate, masks="fixed")
    plain = PlainAetta(net, rate, by_batch)
    found = []
    for images in stream(KINDS, torch.float64):
        logits = network(network.prepare(images))[1]
        found.append(estimator(network.prepare(images), logits))
        assert found[-1] == pytest.approx(plain(images), abs=1e-9)
    assert int(estimator.calls) == plain.masks == 2 * 10 * len(KINDS)
    assert len(set(found)) == len(KINDS)  # each batch told something


def test_a_model_that_predicts_one_class_is_as_bad_as_guessing():
    """It never disagrees with itself, but for a rare image."""
    net = staged_home_net()
    with torch.no_grad():
        net.fc.weight.mul_(0.05)
        net.fc.bias.copy_(torch.tensor([0.0] * 6 + [4.0]))
    network = Network(net)
    estimator = DropoutDisagreement(network, 0.5, masks="fixed")
    for images in stream(("some",) * 20):
        images = network.prepare(images)
        logits = network(images)[1]
        logits[0, 0] += 100  # the rare one
        estimate = estimator(images, logits)
    assert estimate == pytest.approx(1 / CLASSES, abs=0.01)  # the most that an error can be


def test_the_published_rates():
    published = {10: 0.4, 100: 0.3, 1000: 0.2, 2: 0.4, 11: 0.3, 101: 0.2}
    assert {classes: usual_rate(classes) for classes in published} == published
    assert DropoutDisagreement(Network(staged_home_net())).rate == 0.4


def estimates(estimator, seed=1):
    network = estimator.network
    found = []
    for images in stream(KINDS, seed=seed):
        prepared = network.prepare(images)
        found.append(estimator(prepared, network(prepared)[1]))
    return found


def test_masks_come_from_a_random_state_of_its_own():
    one, same, other = (
        DropoutDisagreement(Network(staged_home_net()), seed=seed) for seed in (3, 3, 4)
    )
    before = torch.get_rng_state()
    found = estimates(one)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(5)
    assert estimates(same) == found
    assert estimates(other) != found


def test_masks_do_not_come_again():
    estimator = DropoutDisagreement(Network(staged_home_net()), seed=3)
    images = estimator.network.prepare(stream(("some",))[0])
    logits = estimator.network(images)[1]
    found = []
    for _ in range(3):
        estimator.seen.fill_(False)  # so that what came before tells nothing
        found.append(estimator(images, logits))
    assert len(set(found)) == 3


def test_its_buffers_are_its_state():
    estimator = DropoutDisagreement(Network(staged_home_net()), seed=3)
    estimates(estimator)
    again = DropoutDisagreement(Network(staged_home_net()), seed=99)
    again.load_state_dict(estimator.state_dict())
    assert estimates(again, seed=2) == estimates(estimator, seed=2)


def test_no_hook_stays_behind_and_no_gradient():
    network = Network(staged_home_net())
    hooks = [len(layer._forward_hooks) for layer in network.model.modules()]
    estimates(DropoutDisagreement(network))
    assert [len(layer._forward_hooks) for layer in network.model.modules()] == hooks
    assert all(p.grad is None for p in network.model.parameters())


def test_dropout_goes_after_the_stages_also_of_a_net_that_is_wrapped():
    net = staged_home_net()
    assert stages(net) == ["stage1", "stage2"]
    wrapped = holdfast.normalized(net, mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2))
    assert [name.split(".")[-1] for name in stages(wrapped)] == ["stage1", "stage2"]
    assert [wrapped.get_submodule(name) for name in stages(wrapped)] == [net.stage1, net.stage2]
    assert stages(holdfast.models.resnets.resnet20(10)) == ["layer1", "layer2", "layer3"]


def test_a_net_without_stages_is_an_error_that_says_what_to_do():
    with pytest.raises(ValueError, match=r"ToyNet has no stages.*estimator='agreement'"):
        DropoutDisagreement(Network(toy_net()))
    with pytest.raises(ValueError, match=r"no stages.*estimator='agreement'"):
        holdfast.adapt(toy_net(), "tent", health=holdfast.HealthOptions(estimator="aetta"))
