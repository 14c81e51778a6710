"""debias(balance=auto), restated image by image."""

import math
import warnings

import pytest
import torch
from follow import TOLERANCE, assert_none_some_all, follow
from plain import PlainAdam, PlainSgd, PlainToy, entropy, limit
from plain_methods import plain_fisher, source_features
from toys import CLASSES, images_of, source_batches, stream

import holdfast
from holdfast.parts import balance

KAPPA, WIDTH, BACK, OLD, FREQUENCY, RAREST = 0.006, 0.06, 0.03, 0.9, 0.05, 0.1


def plain_width(net, batches):
    """Prototypes, and the root of the mean squared distance to them: over images − classes."""
    f = torch.cat([source_features(net, images) for images, _ in batches])
    y = torch.cat([labels for _, labels in batches])
    prototypes = {c: f[y == c].mean(0) for c in set(y.tolist())}
    total = 0.0
    for feature, label in zip(f, y.tolist(), strict=True):
        for one, other in zip(feature.tolist(), prototypes[label].tolist(), strict=True):
            total += (one - other) ** 2
    return prototypes, math.sqrt(total / (len(y) - len(prototypes)))


def plain_average(old, new):
    if not new:
        return old
    return new if old is None else OLD * old + (1 - OLD) * new


class Rule:
    """What is known along the stream, and the weights for a batch. Numbers are floats."""

    def __init__(self, toy, width, *, lr, momentum, adam, count, width_share):
        self.width, self.width_share = width, width_share
        self.lr, self.momentum, self.adam, self.count = lr, momentum, adam, count
        self.length = math.sqrt(
            sum(float((toy.w[name].detach() ** 2).sum()) for name in toy.trained)
        )
        self.entropy = self.host = self.ema = self.gain = None
        self.frequency = [1 / CLASSES] * CLASSES
        self.weights = sum(toy.w[name].numel() for name in toy.trained)

    def class_weights(self, labels):
        found = [1 / max(CLASSES * self.frequency[c], RAREST) for c in labels]
        return [one * len(found) / sum(found) for one in found]

    def pace(self, share):
        """What a step moves, as a share of the most it may."""
        if self.adam:
            moves = self.lr * math.sqrt(self.weights)
        elif self.gain is None:
            return share * (self.lr > 0)
        else:
            moves = self.width_share * self.width / self.gain
        return share * min(1, moves / (KAPPA * self.length))

    def pull(self, share, entropy, host):
        """With the averages that this batch leads to."""
        if self.lr == 0:
            return 0.0
        if self.adam:
            return share * (entropy if host is None else host) / self.count
        if self.gain is None:
            return share * entropy / 3
        way = self.pace(share) * KAPPA * self.length
        return way * (1 - self.momentum) / (self.lr * self.gain * self.count)


def force(loss, features):
    """Σ of the lengths of each image's gradient."""
    (found,) = torch.autograd.grad(loss, features)
    return sum(float(row.norm()) for row in found)


def restate(
    *,
    host=None,
    lr=0.001,
    momentum=0.9,
    adam=False,
    rho=0.0,
    ema=True,
    src=True,
    known=CLASSES,
    width_share=WIDTH,
):
    def build(net):
        toy = PlainToy(net)
        optimizer = PlainAdam(toy, lr, momentum) if adam else PlainSgd(toy, lr, momentum)
        batches = [(x, y % known) for x, y in source_batches(net.fc.weight.dtype)]
        ps, width = plain_width(net, batches)
        start = [toy.w[name].detach().clone() for name in toy.trained]
        rule = Rule(
            toy,
            width,
            lr=lr,
            momentum=momentum,
            adam=adam,
            count=ema + src,
            width_share=width_share,
        )
        fisher = plain_fisher(net, images_of(batches)) if host == "eata" else []
        pt = [row / row.norm() for row in net.fc.weight.detach().clone()]
        toy.rule, toy.pt, memory = rule, pt, {"batches": 0}

        def reliable(logits):
            h = entropy(logits)
            return [i for i in range(len(h)) if h[i] < limit(0.4, logits)]

        def ema_loss(f, kept, labels):
            unit = torch.stack([p / p.norm() for p in pt])
            weights = rule.class_weights([labels[i] for i in kept])
            each = [-torch.log_softmax(unit @ f[i], 0)[labels[i]] for i in kept]
            return sum(w * one for w, one in zip(weights, each, strict=True)) / len(kept)

        def src_loss(f, kept, labels):
            kept = [i for i in kept if labels[i] in ps]
            if not kept:
                return None
            weights = rule.class_weights([labels[i] for i in kept])
            each = [((ps[labels[i]] - f[i]) ** 2).sum() / width**2 for i in kept]
            return sum(w * one for w, one in zip(weights, each, strict=True)) / len(kept)

        def own_losses(f, kept, labels):
            """Without those that abstain."""
            found = {}
            if kept and ema:
                found["ema"] = ema_loss(f, kept, labels)
            if kept and src and (loss := src_loss(f, kept, labels)) is not None:
                found["src"] = loss
            return found

        def host_loss(images, logits, among):
            """Of these logits, and whether it goes through them at all."""
            h, kept = entropy(logits), reliable(logits)
            if host == "tent":
                return h.mean()
            if host == "sar" and (kept := [i for i in kept if i in among]):
                return sum(h[i] for i in kept) / len(kept)
            if host == "toy-part" and kept:
                return entropy(toy(images[kept].flip(3))[1]).mean()
            if host == "eata" and kept and not memory["batches"]:  # redundancy=0: then none is kept
                return sum((limit(0.4, logits) - h[i].detach()).exp() * h[i] for i in kept) / len(
                    kept
                )
            return None

        def weigh(images, features, logits, kept, labels):
            """Weights of both terms, the sum of all forces, and the averages that go on."""
            leaf = features.detach().requires_grad_()
            own = own_losses(leaf, kept, labels)
            if not own:
                return {"ema": 0.0, "src": 0.0}, None, {}
            forces = {name: force(loss, leaf) for name, loss in own.items()}
            through = leaf @ toy.w["fc.weight"].T + toy.w["fc.bias"]
            of_host = 0.0
            if host != "toy-part" and (loss := host_loss(images, through, kept)) is not None:
                of_host = force(loss, leaf)
            through = leaf @ toy.w["fc.weight"].T + toy.w["fc.bias"]
            of_entropy = force(entropy(through)[kept].mean(), leaf)
            new = {
                "entropy": plain_average(rule.entropy, of_entropy),
                "host": plain_average(rule.host, of_host),
            }
            pull = rule.pull(len(kept) / len(images), new["entropy"], new["host"])
            weights = {"src": pull * width / 2}
            if ema:
                new["ema"] = plain_average(rule.ema, forces["ema"])
                weights["ema"] = pull / new["ema"]
            return weights, of_host + sum(weights[n] * forces[n] for n in forces), new

        def total_of(images, weights, among):
            features, logits = toy(images)
            labels, kept = logits.argmax(1).tolist(), reliable(logits)
            own = own_losses(features, kept, labels)
            parts = [weights[name] * loss for name, loss in own.items()]
            loss = host_loss(images, logits, among)
            parts += [] if loss is None else [loss]
            for f, s, name in zip(fisher, start, toy.trained, strict=bool(fisher)):
                parts += [50 * (f * (toy.w[name] - s) ** 2).sum()] if parts else []
            return sum(parts) if parts else None

        def climbed(images, weights, gradients, among):
            norm = sum((g * g).sum() for g in gradients).sqrt()
            before = [toy.w[name].detach().clone() for name in toy.trained]
            with torch.no_grad():
                for name, g in zip(toy.trained, gradients, strict=True):
                    toy.w[name] += rho * g / (norm + 1e-12)
            total = total_of(images, weights, among)
            found = None if total is None else toy.gradients(total)
            with torch.no_grad():
                for name, value in zip(toy.trained, before, strict=True):
                    toy.w[name].copy_(value)
            return found

        def take_in(features, kept, labels, prediction, new, norm, forces):
            back = BACK * rule.pace(len(kept) / len(labels))
            for name, value in new.items():
                setattr(rule, name, value)
            if forces:
                rule.gain = plain_average(rule.gain, norm / forces)
            for c in range(CLASSES):
                rule.frequency[c] += FREQUENCY * (prediction[c] - rule.frequency[c])
                of_class = [features[i].detach() for i in kept if labels[i] == c]
                if ema and of_class:
                    mean = sum(of_class) / len(of_class)
                    pt[c] = 0.996 * pt[c] + 0.004 * mean / mean.norm()
            with torch.no_grad():
                for name, source in zip(toy.trained, start, strict=True):
                    toy.w[name] -= back * (toy.w[name] - source)

        def step(images):
            features, logits = toy(images)
            labels, kept = logits.argmax(1).tolist(), reliable(logits)
            weights, forces, new = weigh(images, features, logits, kept, labels)
            total = total_of(images, weights, kept)
            if total is None:
                if rho:  # SAR's optimiser steps all the same
                    optimizer.apply([torch.zeros_like(toy.w[name]) for name in toy.trained])
                return logits
            memory["batches"] += host == "eata" and bool(kept)
            gradients = toy.gradients(total)
            norm = math.sqrt(sum(float((g * g).sum()) for g in gradients))
            if rho:
                gradients = climbed(images, weights, gradients, kept)
                gradients = gradients or [torch.zeros_like(toy.w[name]) for name in toy.trained]
            if forces is not None:
                prediction = torch.softmax(logits, 1).detach().mean(0).tolist()
                take_in(features, kept, labels, prediction, new, norm, forces)
            optimizer.apply(gradients)
            return logits

        return step, toy

    return build


CASES = {
    "alone": ("debias(lr=0.001,balance=auto)", {}),
    "without momentum": ("debias(lr=0.01,momentum=0,balance=auto)", {"lr": 0.01, "momentum": 0.0}),
    "on tent": ("tent(lr=0.001)+debias(balance=auto)", {"host": "tent"}),
    "with Adam": (
        "tent(lr=0.001,optimizer=adam)+debias(balance=auto)",
        {"host": "tent", "adam": True},
    ),
    "with Adam, alone": ("debias(lr=0.001,optimizer=adam,balance=auto)", {"adam": True}),
    # From the second batch on the host says nothing.
    "on a silent host": (
        "eata(lr=0.001,redundancy=0,fisher_weight=50)+debias(balance=auto)",
        {"host": "eata"},
    ),
    "on SAM": (
        "sar(lr=0.002,rho=0.1,reset_below=0)+debias(balance=auto)",
        {"host": "sar", "lr": 0.002, "rho": 0.1},
    ),
    "on a host that learns from a view": (
        "toy-part(lr=0.001)+debias(balance=auto)",
        {"host": "toy-part"},
    ),
    "ema only": ("tent(lr=0.001)+debias(balance=auto,lambda_src=0)", {"host": "tent", "src": 0}),
    "src only": ("tent(lr=0.001)+debias(balance=auto,lambda_ema=0)", {"host": "tent", "ema": 0}),
}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("spec", "plain"), CASES.values(), ids=CASES)
def test_the_rule(toy_methods, spec, plain, dtype):
    _, counts, spoke = follow(spec, restate(**plain), dtype)
    assert_none_some_all(counts)
    assert len(counts) >= 12
    assert spoke >= {name for name in ("ema", "src") if plain.get(name, True)}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("host", [None, "tent"])
def test_features_move_no_faster_than_classes_are_wide(monkeypatch, host, dtype):
    """The toy net's weights do little to its features, so that a narrower limit has to do."""
    monkeypatch.setattr(balance, "WIDTH", 0.002)
    paces = []

    def build(net):
        step, toy = restate(host=host, width_share=0.002)(net)
        paces.append(toy.rule.pace)
        return step, toy

    plugin = "debias(lr=0.001,balance=auto)" if host is None else "debias(balance=auto)"
    follow(plugin if host is None else f"tent(lr=0.001)+{plugin}", build, dtype, moves=False)
    assert 0 < paces[0](1.0) < 0.9


def partly_known(net):
    """A source that has images of five of the seven classes."""
    dtype = net.fc.weight.dtype
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return holdfast.Source.from_loader(net, [(x, y % 5) for x, y in source_batches(dtype)])


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("settings", [{}, {"ema": 0}], ids=["both", "src only"])
def test_classes_that_the_source_has_not(settings, dtype):
    given = ",lambda_ema=0" if settings else ""
    spec = f"tent(lr=0.001)+debias(balance=auto{given})"
    plain = restate(host="tent", known=5, **settings)
    adapter, *_ = follow(spec, plain, dtype, source_of=partly_known)
    adapter(stream(("all",), dtype)[0])
    assert 0 < adapter.last.images["src"] < adapter.last.reliable


def test_averages_and_frequencies_are_the_restated_ones():
    toys = []

    def build(net):
        step, toy = restate(host="tent")(net)
        toys.append(toy)
        return step, toy

    adapter, *_ = follow("tent(lr=0.001)+debias(balance=auto)", build, torch.float64)
    state, rule = adapter._state.tensors(), toys[0].rule
    for name in ("entropy", "host", "ema", "gain"):
        assert float(state[f"terms/balance/{name}"]) == pytest.approx(getattr(rule, name), rel=1e-7)
    found = state["terms/balance/shares.frequency"].tolist()
    assert found == pytest.approx(rule.frequency, rel=1e-7)
    assert torch.allclose(state["terms/ema/prototypes"], torch.stack(toys[0].pt), atol=1e-9)
