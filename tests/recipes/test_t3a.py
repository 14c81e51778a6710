import copy

import pytest
import torch
from follow import TOLERANCE, close
from plain import PlainToy, entropy
from plain_methods import source_features
from torch import nn
from toys import assert_same_state, settled_net, state_of, stream

import holdfast


class PlainBank:
    """For each class a list of (entropy, feature, whether it is a row of the head)."""

    def __init__(self, weight, bias, keep):
        self.weight, self.bias, self.keep = weight.detach(), bias.detach(), keep
        self.lists = [[] for _ in weight]
        self.evicted = self.rows_evicted = 0
        for row in self.weight:
            self.enter(row, is_row=True)

    def head(self, z):
        return (self.weight * z).sum(1) + self.bias

    def enter(self, z, is_row=False):
        logits = self.head(z)
        self.lists[int(logits.argmax())].append((entropy(logits[None]).item(), z, is_row))

    def prune(self):
        for members in self.lists:
            members.sort(key=lambda member: member[0])  # a stable sort: of two alike the earlier
            self.evicted += len(members[self.keep :])
            self.rows_evicted += sum(is_row for _, _, is_row in members[self.keep :])
            del members[self.keep :]

    def prototypes(self):
        rows = []
        for members in self.lists:
            total = torch.zeros_like(self.weight[0])
            for _, z, _ in members:
                total = total + z / max(z.norm().item(), 1e-12)
            rows.append(total / max(total.norm().item(), 1e-12))
        return torch.stack(rows)

    def predict(self, features):
        return torch.stack([(self.prototypes() * z).sum(1) for z in features])

    def __call__(self, features):
        for z in features:
            self.enter(z)
        self.prune()
        return self.predict(features)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("statistics", ["source", "batch"])
@pytest.mark.parametrize("keep", [1, 2, 3, 100])
def test_t3a(keep, statistics, dtype):
    net = settled_net(dtype)
    weights = {name: p.detach().clone() for name, p in net.named_parameters()}
    adapter = holdfast.adapt(net, f"t3a(keep={keep},statistics={statistics})")
    bank, by_batch = PlainBank(net.fc.weight, net.fc.bias, keep), PlainToy(net, trained=())
    for index, images in enumerate(stream(dtype=dtype, last=5)):
        z = source_features(net, images) if statistics == "source" else by_batch(images)[0]
        close(adapter(images), bank(z), dtype, f"logits of batch {index}")
        assert (adapter.last.forwards, adapter.last.backwards) == (1, 0)
        assert not adapter.last.stepped
        for name, weight in adapter.model.named_parameters():
            assert torch.equal(weight, weights[name])
    assert (bank.evicted > 0) == (keep < 100)
    assert (bank.rows_evicted > 0) == (keep < 100)


@pytest.mark.parametrize("preset", [None, "imagenet-c", "cifar100-c"])
def test_a_hundred_supports_are_kept_unless_told_otherwise(preset):
    assert holdfast.compose("t3a", preset=preset).host.keep == 100


def test_predict_takes_the_batch_in_and_forgets_it():
    net = settled_net(torch.float64)
    adapter = holdfast.adapt(net, "t3a(keep=2)")
    bank = PlainBank(net.fc.weight, net.fc.bias, 2)
    first, second, third = stream(("some", "all", "some"), torch.float64)
    adapter(first), bank(source_features(net, first))
    before = state_of(adapter)
    seen = adapter.predict(second)
    adapter.predict(third)
    assert_same_state(state_of(adapter), before)
    assert torch.equal(adapter(second), seen)
    close(seen, bank(source_features(net, second)), torch.float64, "predict")


@pytest.mark.parametrize("keep", [1, 2, 100])
def test_in_frozen_each_image_joins_the_prototypes_for_itself(keep):
    net = settled_net(torch.float64)
    adapter = holdfast.adapt(net, f"t3a(keep={keep},statistics=source)")
    bank = PlainBank(net.fc.weight, net.fc.bias, keep)
    *past, images = stream(("some", "some", "none", "all"), torch.float64)
    # Sure ones, which replace a support of a full class, and others, which do not.
    images = torch.cat([images, past[0], 1.1 * past[1].clamp_max(0.9)])
    for each in past:
        adapter(each), bank(source_features(net, each))
    without = bank.predict(source_features(net, images))
    alone = [copy.deepcopy(bank)(z[None]) for z in source_features(net, images)]
    joined = (torch.cat(alone) - without).abs().amax(1) > 1e-6
    assert joined.any() and (keep == 100 or not joined.all())
    frozen = adapter.frozen()
    close(frozen(images), torch.cat(alone), torch.float64, "frozen")
    close(frozen(images[:1]), alone[0], torch.float64, "frozen, one image")
    exported = torch.export.export(frozen, (images,)).module()
    close(exported(images), torch.cat(alone), torch.float64, "exported")


def small_net(weight, bias):
    """The feature is the image itself: what supports are can be chosen by hand."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, len(weight))).double()
    with torch.no_grad():
        net[1].weight.copy_(torch.tensor(weight))
        net[1].bias.copy_(torch.tensor(bias))
    return net.eval()


def images_of(*features):
    return torch.tensor(features, dtype=torch.float64).view(-1, 1, 2, 2)


def test_of_two_equally_sure_supports_the_earlier_stays():
    """The head does not see the last two pixels, so that the images' entropies are the same."""
    net = small_net([[3.0, 0, 0, 0], [0, 3.0, 0, 0]], [0.0, 0.0])
    adapter = holdfast.adapt(net, "t3a(keep=2)")
    # Class 0 holds its row, which is the surest there is, and has room for one more.
    adapter(images_of((0.8, 0, 0.6, 0), (0.8, 0, 0, 0.6)))
    adapter(images_of((0.8, 0, 0.3, 0.3)))
    total = torch.tensor([1.0, 0, 0, 0]) + torch.tensor([0.8, 0, 0.6, 0])
    prototype = (total / total.norm()).double()
    got = adapter(images_of((0.1, 0, 0, 0), (0.1, 0, 1, 0), (0.1, 0, 0, 1)))
    want = torch.stack([0.1 * prototype[0], 0.1 * prototype[0] + prototype[2], 0.1 * prototype[0]])
    close(got[:, 0], want, torch.float32, "logits of class 0")


def test_the_bias_labels_rows_but_has_no_part_in_prediction():
    """Without the bias each row would be its own class; with it, row 1 supports class 0, and class
    1, which has no support, has the logit 0."""
    net = small_net([[2.0, 0, 0, 0], [0, 1.0, 0, 0], [0, 0, 2.0, 0]], [1.5, 0.0, 0.0])
    adapter = holdfast.adapt(net, "t3a(keep=5)")
    bank = PlainBank(net[1].weight, net[1].bias, 5)
    assert [len(members) for members in bank.lists] == [2, 0, 1]
    images = images_of((0.9, 0.2, 0, 0.3), (0.1, 0.1, 0.9, 0.5))
    got = adapter(images)
    close(got, bank(images.flatten(1)), torch.float64, "logits")
    assert torch.equal(got[:, 1], torch.zeros(2, dtype=torch.float64))
