"""AdaContrast beside a plain restatement of its two nets, bank and queue."""

import copy

import pytest
import torch
import torch.nn.functional as F
from follow import TOLERANCE, close
from plain_methods import ALL
from running import run
from toys import CLASSES, FEATURES, GAIN, state_of, stream, toy_net, toy_source

import holdfast
from holdfast.engine.draws import Draws
from holdfast.explain.card import card
from holdfast.parts.augment import AUGMENTATIONS, Augment

SMALL = {"queue": 40, "warmup": 40, "neighbours": 3, "lr": 2e-4, "teacher_momentum": 0.9}


def spec(**settings):
    given = {**SMALL, "weak": "flip", "augment": "alternate", **settings}
    return f"adacontrast({','.join(f'{name}={value}' for name, value in given.items())})"


def forward(net, images):
    """Features and logits, in whatever mode the norm layers are."""
    x = net.norm1(net.conv1(images)).relu()
    x = net.norm2(net.conv2(x)).relu().mean((2, 3))
    features = x * (GAIN * images.mean((1, 2, 3)))[:, None]
    return features, net.fc(features)


def training(net, on):
    for layer in (net.norm1, net.norm2):
        layer.train(on)


class Plain:
    """All in the order of the facts: the slow net follows as a batch begins."""

    def __init__(self, net, queue, labels, **settings):
        self.s = {**SMALL, "temperature": 0.07, "weight_decay": 1e-4, "released": False}
        self.s |= {"label": 1, "contrastive": 1, "diversity": 1, **settings}
        self.student, self.slow = copy.deepcopy(net), copy.deepcopy(net)
        for both in (self.student, self.slow):
            both.requires_grad_(False)
            training(both, True)
        self.student.requires_grad_(True)
        self.velocity = {n: torch.zeros_like(p) for n, p in self.student.named_parameters()}
        self.queue, self.labels, self.at = queue.clone(), labels.clone(), 0
        self.bank_features = net.fc.weight.new_zeros(0, FEATURES).detach()
        self.bank_shares = net.fc.weight.new_zeros(0, CLASSES).detach()
        self.pointer, self.seen, self.voted = 0, 0, 0

    def vote(self, f):
        with torch.no_grad():
            votes = []
            for row in f:
                cosine = F.cosine_similarity(row[None], self.bank_features, dim=1)
                nearest = cosine.argsort(descending=True)[: self.s["neighbours"]]
                votes.append(self.bank_shares[nearest].mean(0).argmax())
        self.voted += 1
        return torch.stack(votes)

    def remember(self, f, p):
        size, count = self.s["queue"], len(f)
        for row, share in zip(f, p, strict=True):
            if self.s["released"]:
                break
            if len(self.bank_features) < size:
                self.bank_features = torch.cat([self.bank_features, row[None]])
                self.bank_shares = torch.cat([self.bank_shares, share[None]])
            else:  # the oldest goes
                self.bank_features = torch.cat([self.bank_features[1:], row[None]])
                self.bank_shares = torch.cat([self.bank_shares[1:], share[None]])
        if not self.s["released"]:
            return
        if len(self.bank_features) < size:
            self.bank_features = torch.cat([self.bank_features, f])
            self.bank_shares = torch.cat([self.bank_shares, p])
        else:
            for k in range(count):
                place = (self.pointer + k) % len(self.bank_features)
                self.bank_features[place], self.bank_shares[place] = f[k], p[k]
        self.pointer = (self.pointer + count) % len(self.bank_features)

    def __call__(self, images):
        s = self.s
        weak, first, second = images.flip(3), images.flip(3), images
        with torch.no_grad():
            f_w, z_w = forward(self.student, weak)
        taught = z_w.argmax(1) if self.seen < s["warmup"] else self.vote(f_w)
        f, z = forward(self.student, first)
        with torch.no_grad():
            m = s["teacher_momentum"]
            pairs = zip(self.slow.parameters(), self.student.parameters(), strict=True)
            for mine, its in pairs:
                mine.copy_(m * mine + (1 - m) * its)
            keys = F.normalize(forward(self.slow, second)[0], dim=1)
        q = F.normalize(f, dim=1)
        similarity = torch.cat([(q * keys).sum(1, keepdim=True), q @ self.queue.T], 1)
        similarity = similarity / s["temperature"]
        for k in range(len(images)):
            place = (self.at + k) % len(self.queue)
            self.queue = self.queue.clone()
            self.queue[place], self.labels[place] = keys[k], taught[k]
        self.at = (self.at + len(images)) % len(self.queue)
        contrast = 0
        for k in range(len(images)):
            others = [similarity[k, 1 + j] for j in range(40) if self.labels[j] != taught[k]]
            every = torch.stack([similarity[k, 0], *others])
            contrast = contrast - torch.log_softmax(every, 0)[0] / len(images)
        labels = F.cross_entropy(z, taught)
        mean = torch.softmax(z, 1).mean(0)
        diversity = (mean * torch.log(mean + 1e-8)).sum()
        loss = s["label"] * labels + s["contrastive"] * contrast + s["diversity"] * diversity
        names, weights = zip(*self.student.named_parameters(), strict=True)
        gradients = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            for name, weight, g in zip(names, weights, gradients, strict=True):
                g = g + s["weight_decay"] * weight
                self.velocity[name] = 0.9 * self.velocity[name] + g
                weight -= s["lr"] * (g + 0.9 * self.velocity[name])
            f_slow, z_slow = forward(self.slow, weak)
            self.remember(f_slow, torch.softmax(z_slow, 1))
            self.seen += len(images)
            training(self.student, False)
            answer = forward(self.student, images)[1]
            training(self.student, True)
        return answer


def beside(dtype, settings, restated):
    net = toy_net(dtype=dtype)
    adapter = holdfast.adapt(net, spec(**settings))
    view = adapter._slots.learn.view
    plain = Plain(net, view.queue.column0, view.queue.column1, **restated)
    for number, images in enumerate(stream(dtype=dtype, last=5)):
        close(adapter(images), plain(images), dtype, f"logits of batch {number}")
        assert adapter.last.stepped and adapter.last.forwards == 5
        for name in ALL:
            mine, its = (net.get_parameter(name) for net in (adapter.model, plain.student))
            close(mine, its, dtype, f"{name} after batch {number}")
    return net, adapter, plain


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("settings", "restated"),
    [
        ({}, {}),
        ({"ring": "released"}, {"released": True}),
        (
            {"weight_label": 0.5, "weight_contrastive": 0.3, "weight_diversity": 2},
            {"label": 0.5, "contrastive": 0.3, "diversity": 2},
        ),
        ({"weight_decay": 0.5, "temperature": 0.5}, {"weight_decay": 0.5, "temperature": 0.5}),
    ],
)
def test_adacontrast(settings, restated, dtype):
    """Twelve batches: past the warm-up, past the ends of queue and bank, and a smaller last one."""
    net, adapter, plain = beside(dtype, settings, restated)
    assert plain.seen == 181 > 4 * 40 and plain.voted == 9  # from the fourth batch on
    view, size = adapter._slots.learn.view, len(plain.bank_features)
    features, shares = view.bank.rows()
    assert len(features) == size == (48 if settings.get("ring") == "released" else 40)
    # The restatement's bank is in the order of time.
    order = slice(None) if plain.s["released"] else (torch.arange(40) + int(view.bank.place)) % 40
    close(shares[order], plain.bank_shares, dtype, "bank")
    close(features[order], F.normalize(plain.bank_features, dim=1), dtype, "features of the bank")
    close(view.queue.column0, plain.queue, dtype, "queue")
    assert torch.equal(view.queue.column1, plain.labels)
    frozen = adapter.frozen()
    for name in ("norm1", "norm2"):
        mine, its = frozen.get_submodule(name), plain.student.get_submodule(name)
        close(mine.running_mean, its.running_mean, dtype, name)
        close(mine.running_var, its.running_var, dtype, name)
        assert (its.running_mean - net.get_submodule(name).running_mean).abs().max() > 0.01
    state = state_of(adapter)
    slow = plain.slow.norm1.running_mean
    close(state["model/statistics/1/norm1.running_mean"], slow, dtype, "the slow net's statistics")
    moved = [(plain.student.get_parameter(n) - net.get_parameter(n)).abs().max() for n in ALL]
    assert min(moved) > 1e-7


def test_the_queue_begins_with_random_directions_and_labels():
    net = toy_net()
    queues = [
        holdfast.adapt(net, "adacontrast(queue=5000)", seed=seed)._slots.learn.view.queue
        for seed in (0, 0, 1)
    ]
    keys, labels = queues[0].rows()
    assert keys.shape == (5000, FEATURES)
    torch.testing.assert_close(keys.norm(dim=1), torch.ones(5000))
    assert keys.mean(0).abs().max() < 0.02
    shares = torch.bincount(labels, minlength=CLASSES) / 5000
    assert (shares - 1 / CLASSES).abs().max() < 0.03
    assert torch.equal(keys, queues[1].rows()[0]) and not torch.equal(keys, queues[2].rows()[0])
    assert int(queues[0].place) == 0


def test_a_term_of_weight_0_is_left_out():
    for name in ("label", "contrastive", "diversity"):
        adapter = holdfast.adapt(toy_net(), spec(**{f"weight_{name}": 0}))
        adapter(stream(("all",))[0])
        assert adapter.last.losses.keys() == {"label", "contrastive", "diversity"} - {name}


def test_of_a_window_only_the_newest_enter_bank_and_queue():
    adapter = holdfast.adapt(toy_net(), spec(warmup=4), window=8)
    images = torch.cat(stream(("some", "all")))
    for start in range(0, 20, 4):
        adapter(images[start : start + 4])
    view = adapter._slots.learn.view
    assert int(view.seen) == int(view.bank.held) == int(view.queue.place) == 20


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_debias_sees_the_strong_view(dtype):
    """With all else left out but its prototypes."""
    net = toy_net(dtype=dtype)
    off = {"weight_label": 0, "weight_contrastive": 0, "weight_diversity": 0, "weight_decay": 0}
    given = spec(**off, momentum=0) + "+debias(lambda_src=0,lambda_ema=1)"
    adapter = holdfast.adapt(net, given, source=toy_source(net))
    images = stream(("all",), dtype)[0]
    other = copy.deepcopy(net)
    training(other, True)
    features, logits = forward(other, images.flip(3))
    p = logits.softmax(1)
    kept = (-(p * p.log()).sum(1) < 0.4 * torch.tensor(CLASSES).log()).nonzero().flatten()
    rows = F.normalize(net.fc.weight.detach(), dim=1)
    loss = F.cross_entropy(features[kept] @ rows.T, logits.argmax(1)[kept])
    (gradient,) = torch.autograd.grad(loss, other.conv1.weight)
    adapter(images)
    assert adapter.last.reliable == len(kept) > 0
    expected = other.conv1.weight - 2e-4 * gradient
    close(adapter.model.conv1.weight, expected, dtype, "weights")
    assert gradient.abs().max() > 1e-3


def test_presets_are_the_defaults():
    for preset in (None, "cifar100-c", "imagenet-c"):
        host = holdfast.compose("adacontrast", preset=preset).host
        assert (host.lr, host.momentum, host.nesterov) == (2e-4, 0.9, True)
        assert (host.optimizer, host.weight_decay, host.select) == ("sgd", 1e-4, "all")
        assert (host.queue, host.neighbours, host.warmup) == (16384, 10, 1024)
        assert (host.teacher_momentum, host.temperature, host.ring) == (0.999, 0.07, "oldest")
        assert (host.weight_label, host.weight_contrastive, host.weight_diversity) == (1, 1, 1)
        assert (host.weak, host.augment) == ("weak", "adacontrast")
    text = str(card("adacontrast"))
    assert "ring=released" in text and "features of single images" in text
    assert card("adacontrast").forwards == "5"


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"write eata\+steady, or bn\+steady"):
        holdfast.compose("adacontrast+steady")
    adapter = holdfast.adapt(toy_net(), spec(ring="released"))
    with pytest.raises(ValueError, match="up to 1024 images"):
        adapter(stream(("all",))[0].repeat(65, 1, 1, 1))


@pytest.mark.parametrize("name", ["weak", "adacontrast"])
def test_views_are_drawn_by_image(name):
    images = torch.cat(stream(("all",) * 16))
    images[1:] = images[0]
    augment = Augment(AUGMENTATIONS[name], Draws(0, torch.device("cpu")))
    with augment.draws.restored():
        views = augment(images)
    assert views.shape == images.shape and views.min() >= 0 and views.max() <= 1
    assert torch.equal(augment(images), views)
    assert not torch.equal(augment(images), views)
    kinds = {tuple(view.flatten().tolist()) for view in views}
    flips = (views == images.flip(-1)).flatten(1).all(1).float().mean()
    if name == "weak":
        assert len(kinds) == 2 and flips == pytest.approx(0.5, abs=0.1)
        return
    # 8 % keep their colours: 0.2 · 0.8 · 0.5, of which half are flipped.
    plain = (views == images).flatten(1).all(1).float().mean()
    assert plain + flips == pytest.approx(0.08, abs=0.06)
    assert len(kinds) > 200
    grey = (views - views.mean(1, keepdim=True)).abs().amax((1, 2, 3)) < 1e-5
    assert grey.float().mean() == pytest.approx(0.2, abs=0.08)


def test_what_enters_the_bank_has_to_be_finite():
    """Of the slow net's weak view alone, which no loss is made of."""
    adapter = holdfast.adapt(toy_net(), spec())
    run(adapter, stream(("some", "all")))
    before = state_of(adapter)
    slow, calls = adapter._slots.task.teacher.network.model, []

    def poison(layer, inputs, output):
        calls.append(1)
        return output * float("nan") if len(calls) == 2 else output

    with slow.fc.register_forward_hook(poison), pytest.warns(UserWarning, match="NaN or Inf"):
        adapter(stream(("all",))[0])
    after = state_of(adapter)
    assert all(torch.equal(after[name], value) for name, value in before.items())
