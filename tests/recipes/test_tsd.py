from collections import OrderedDict

import pytest
import torch
from follow import TOLERANCE, close, follow
from plain import PlainAdam, PlainSgd, PlainToy, entropy
from torch import nn
from toys import assert_same_state, state_of, stream, toy_net

import holdfast

BODY = (
    "conv1.weight",
    "conv1.bias",
    "norm1.weight",
    "norm1.bias",
    "conv2.weight",
    "conv2.bias",
    "norm2.weight",
    "norm2.bias",
)
HEAD = ("fc.weight", "fc.bias")
ALL = BODY + HEAD
# Batch norm takes these away again.
WITHOUT_GRADIENT = ("conv1.bias", "conv2.bias")


class PlainBank:
    """For each class a list of (entropy, feature, probabilities), which nothing ever revises."""

    def __init__(self, weight, bias, keep):
        self.keep, self.evicted = keep, 0
        self.lists = [[] for _ in weight]
        for row in weight.detach():
            self.enter(row, weight.detach() @ row + bias.detach())

    def enter(self, z, logits):
        z, logits = z.detach().clone(), logits.detach()
        member = entropy(logits[None]).item(), z, torch.softmax(logits, 0)
        self.lists[int(logits.argmax())].append(member)

    def prune(self):
        for members in self.lists:
            members.sort(key=lambda member: member[0])
            self.evicted += len(members[self.keep :])
            del members[self.keep :]

    def members(self):
        return [member for members in self.lists for member in members]

    def class_sums(self):
        """Of supports of length 1 in the usual sense, whatever the mode."""
        sums = []
        for members in self.lists:
            total = 0 * self.members()[0][1]
            for _, z, _ in members:
                total = total + z / (z * z).sum().sqrt()
            sums.append(total)
        return sums


def unit(vector, mode):
    size = vector.abs().sum() if mode == "official" else (vector * vector).sum().sqrt()
    return vector / size if size > 0 else vector


def kl(p, log_p, log_q):
    return (p * (log_p - log_q)).sum()


def restate(*, lr, keep, neighbours=3, weight_local=0.1, mode="official", adam=False, log=None):
    """`log` takes how many images of each batch counted."""

    def build(net, toy=None):
        toy = toy or PlainToy(net, trained=ALL if weight_local else BODY)
        optimizer = (PlainAdam if adam else PlainSgd)(toy, lr)
        toy.bank = bank = PlainBank(toy.w["fc.weight"], toy.w["fc.bias"], keep)

        def step(images):
            features, logits = toy(images)
            for z, row in zip(features, logits, strict=True):
                bank.enter(z, row)
            bank.prune()
            prototypes = [unit(each, mode) for each in bank.class_sums()]
            global_terms, local_terms = [], []
            for z, row in zip(features, logits, strict=True):
                direction = unit(z, mode)
                similarity = torch.stack([(direction * each).sum() for each in prototypes])
                s = torch.softmax(row, 0).detach()
                if mode == "official":
                    target = torch.log_softmax(s, 0)
                else:
                    target = torch.log_softmax(row, 0).detach()
                    if similarity.argmax() != row.argmax():
                        continue
                q = torch.softmax(similarity, 0)
                global_terms.append(kl(q, torch.log_softmax(similarity, 0), target))
                local_terms += neighbourhood(direction.detach(), row)
            if log is not None:
                log.append((len(global_terms), len(images)))
            if global_terms:
                loss = sum(global_terms) / len(global_terms)
                if weight_local:
                    loss = loss + weight_local * sum(local_terms) / len(local_terms)
                optimizer.step(loss)
            return logits

        def neighbourhood(direction, row):
            near = [((direction * unit(z, mode)).sum(), p) for _, z, p in bank.members()]
            near = sorted(near, key=lambda pair: -pair[0].item())[:neighbours]
            if mode == "official":
                return [-sim * ((row - p) ** 2).sum() for sim, p in near]
            return [sim * ((torch.softmax(row, 0) - p) ** 2).sum() for sim, p in near]

        return step, toy

    return build


def compare(dtype, spec, still=WITHOUT_GRADIENT, **settings):
    toys = []

    def build(net):
        step, toy = restate(**settings)(net)
        toys.append((toy, {name: toy.w[name].detach().clone() for name in ALL}))
        return step, toy

    adapter, _, _ = follow(spec, build, dtype, trained=ALL, moves=False)
    toy, start = toys[0]
    for name in ALL:
        moved = (toy.w[name] - start[name]).abs().max().item()
        assert name in still or moved > 1e-4, f"{name} moved by {moved:.1e}"
    if settings["keep"] < 100:
        assert toy.bank.evicted > 50
    return adapter


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("keep", [1, 3])
def test_official(keep, dtype):
    settings = {"lr": 1e-4, "keep": keep, "weight_local": 0.1}
    compare(dtype, f"tsd(lr=1e-4,optimizer=sgd,keep={keep},mode=official)", **settings)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_official_prototype_loss_alone(dtype):
    """The local loss would drown it. Without that one the head has no gradient."""
    still = WITHOUT_GRADIENT + HEAD
    settings = {"lr": 0.5, "keep": 3, "weight_local": 0}
    spec = "tsd(lr=0.5,optimizer=sgd,keep=3,weight_local=0,mode=official)"
    adapter = compare(dtype, spec, still, **settings)
    net = toy_net(dtype=dtype)
    assert torch.equal(adapter.model.fc.weight, net.fc.weight)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("weight_local", [0, 1])
def test_published(weight_local, dtype):
    log = []
    settings = {"lr": 5e-4, "keep": 3, "weight_local": weight_local, "mode": "published"}
    still = WITHOUT_GRADIENT if weight_local else WITHOUT_GRADIENT + HEAD
    spec = f"tsd(lr=5e-4,optimizer=sgd,keep=3,weight_local={weight_local},mode=published)"
    compare(dtype, spec, still, log=log, **settings)
    assert any(0 < count < size for count, size in log)


@pytest.mark.parametrize(("mode", "weight"), [("official", 0.1), ("published", 3)])
@pytest.mark.parametrize("neighbours", [1, 5])
def test_neighbours(neighbours, mode, weight):
    settings = {"keep": 2, "neighbours": neighbours, "weight_local": weight, "mode": mode}
    written = ",".join(f"{name}={value}" for name, value in settings.items())
    compare(torch.float64, f"tsd(lr=1e-4,optimizer=sgd,{written})", lr=1e-4, **settings)


@pytest.mark.parametrize("mode", ["official", "published"])
def test_adam(mode):
    settings = {"lr": 2e-4, "keep": 2, "mode": mode, "adam": True}
    compare(torch.float64, f"tsd(lr=2e-4,keep=2,mode={mode})", **settings)


def test_defaults_are_the_papers():
    settings = {"lr": 5e-5, "keep": 100, "adam": True}
    compare(torch.float64, "tsd", **settings)
    for preset in ("imagenet-c", "cifar100-c"):
        host = holdfast.compose("tsd", preset=preset).host
        assert (host.lr, host.optimizer, host.keep) == (5e-5, "adam", 100)
        assert (host.neighbours, host.weight_local, host.mode) == (3, 0.1, "official")


class SmallToy(PlainToy):
    """A linear layer and a head: features can be set by hand."""

    def __call__(self, images):
        w = self.w
        features = images.flatten(1) @ w["body.weight"].T + w["body.bias"]
        return features, features @ w["fc.weight"].T + w["fc.bias"]


def small_net():
    """The head prefers class 0, by its bias, where class 1 is nearer."""
    layers = {"flat": nn.Flatten(), "body": nn.Linear(4, 4), "fc": nn.Linear(4, 2)}
    net = nn.Sequential(OrderedDict(layers)).double()
    with torch.no_grad():
        net.body.weight.copy_(torch.eye(4))
        net.body.bias.zero_()
        net.fc.weight.copy_(torch.tensor([[3.0, 0, 0, 0], [0, 3.0, 0, 0]]))
        net.fc.bias.copy_(torch.tensor([2.0, 0.0]))
    return net.eval()


@pytest.mark.parametrize("keep", [3, 9])
def test_where_prototypes_and_head_disagree_nothing_is_learnt_but_the_bank_goes_on(keep):
    """With room for 3 what the head is unsure of is crowded out at once; with room for 9 it stays,
    and later batches learn from it."""

    def small(*features):
        return torch.tensor(features, dtype=torch.float64).view(-1, 1, 2, 2)

    agree, disagree = (
        small((0.9, 0.1, 0.0, 0.2), (0.05, 0.9, 0.1, 0.0)),
        small((0.1, 0.5, 0.3, 0.0), (0.1, 0.45, 0.0, 0.2)),
    )
    names, log = ("body.weight", "body.bias", *HEAD), []
    net = small_net()
    spec = f"tsd(lr=0.02,optimizer=sgd,keep={keep},weight_local=0.5,mode=published)"
    adapter = holdfast.adapt(net, spec)
    build = restate(lr=0.02, keep=keep, weight_local=0.5, mode="published", log=log)
    step, toy = build(net, SmallToy(net, trained=names))
    for images in (agree, disagree, agree, torch.cat([agree, disagree]), disagree, agree):
        before = {name: p.detach().clone() for name, p in adapter.model.named_parameters()}
        close(adapter(images), step(images), torch.float64, "logits")
        counted, _ = log[-1]
        assert adapter.last.stepped == (counted > 0)
        for name, weight in adapter.model.named_parameters():
            close(weight, toy.w[name], torch.float64, name)
            assert torch.equal(weight, before[name]) == (counted == 0)
    assert [counted for counted, _ in log] == [2, 0, 2, 2, 0, 2]


def test_one_forward_one_backward_and_predict_leaves_the_bank_alone():
    adapter = holdfast.adapt(toy_net(dtype=torch.float64), "tsd(keep=2)")
    for images in stream(("some", "all", "none"), torch.float64):
        before = state_of(adapter)
        seen = adapter.predict(images)
        assert_same_state(state_of(adapter), before)
        close(adapter(images), seen, torch.float64, "predict")
        assert (adapter.last.forwards, adapter.last.backwards) == (1, 1)
