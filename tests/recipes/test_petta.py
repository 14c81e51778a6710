import math

import pytest
import torch
from follow import TOLERANCE, close
from laws import saved_half_way_goes_on
from plain import NORM_AFFINE, PlainAdam, PlainSgd
from plain_memory import PlainTimelyMemory, RobustToy
from plain_methods import source_features
from toys import (
    CLASSES,
    assert_same_state,
    settled_net,
    source_batches,
    state_of,
    stream,
    toy_net,
    toy_source,
)

import holdfast
from holdfast.util.settings import Value


def ce(target, logits):
    return -(torch.softmax(target, 1) * torch.log_softmax(logits, 1)).sum(1)


class PlainPetta:
    def __init__(
        self,
        net,
        *,
        lr=1e-3,
        optimizer="adam",
        capacity=64,
        bn_momentum=0.05,
        teacher_momentum=0.999,
        loss="ce",
        regularizer="cosine",
        lambda_reg=10,
        lambda_anchor=1,
        adaptive=True,
    ):
        self.student = RobustToy(net, bn_momentum)
        self.teacher, self.anchor = (RobustToy(net, bn_momentum, trained=()) for _ in range(2))
        self.optimizer = (PlainAdam if optimizer == "adam" else PlainSgd)(self.student, lr)
        self.memory = PlainTimelyMemory(capacity, 1, 1)
        self.loss, self.regularizer = loss, regularizer
        self.lambda_reg, self.lambda_anchor = lambda_reg, lambda_anchor
        self.alpha, self.adaptive, self.gamma = 1 - teacher_momentum, adaptive, 0.0
        self.first = {name: net.get_parameter(name).detach().clone() for name in NORM_AFFINE}
        images = torch.cat([x for x, _ in source_batches(net.fc.weight.dtype)])
        features = source_features(net, images)
        labels = net(images).argmax(1)
        self.source = {}
        for c in range(CLASSES):
            own = features[labels == c]
            if len(own) > 1:
                self.source[c] = own.mean(0), own.var(0, correction=1)
        self.means = {c: mean for c, (mean, _) in self.source.items()}

    def __call__(self, images):
        with torch.no_grad():
            features, logits = self.teacher.seen(images, training=False)
        labels = logits.argmax(1)
        for image, row in zip(images, logits, strict=True):
            p = torch.softmax(row, 0)
            uncertainty = -sum((x * torch.log(x + 1e-6)).item() for x in p)
            self.memory.add(image, int(row.argmax()), uncertainty)
        present = [c for c in self.source if (labels == c).any()]
        apart = [
            ((self.means[c] - self.source[c][0]) ** 2 / (self.source[c][1] + 1e-6)).mean()
            for c in present
        ]
        self.gamma = 1 - math.exp(-float(sum(apart) / len(apart))) if apart else 0.0
        for c in present:
            own = features[labels == c].mean(0)
            self.means[c] = 0.95 * self.means[c] + 0.05 * own
        self.update()
        return logits

    def update(self):
        images = torch.stack([image for image, _, _ in self.memory.items()])
        with torch.no_grad():
            target = self.teacher.logits(images, training=True)
        plain = self.student.logits(images, training=True)
        with torch.no_grad():
            anchor = self.anchor.logits(images, training=True)
        view = self.student.logits(images.flip(3), training=True)
        if self.loss == "symmetric":
            four = ce(target, plain) + ce(plain, target) + ce(target, view) + ce(view, target)
            total = four.mean() / 4
        else:
            total = ce(target, view).mean()
        total = total + self.lambda_anchor * ce(anchor, view).mean()
        pairs = [(self.student.w[name], self.first[name]) for name in NORM_AFFINE]
        if self.regularizer == "cosine":
            pull = -sum((p @ o) / (p.norm() * o.norm()) for p, o in pairs) / len(pairs)
        else:
            pull = sum(((p - o) ** 2).sum() for p, o in pairs) / len(pairs)
        if self.regularizer != "none":
            strength = self.gamma if self.adaptive else 1
            total = total + self.lambda_reg * strength * pull
        self.optimizer.step(total)
        alpha = self.alpha * (1 - self.gamma if self.adaptive else 1)
        for name in NORM_AFFINE:
            old, new = self.teacher.w[name], self.student.w[name].detach()
            self.teacher.w[name] = (1 - alpha) * old + alpha * new


def compare(dtype, batches=None, make=settled_net, **settings):
    """Logits, γ, weights and statistics of all three nets, and the memory, after every batch."""
    net = make(dtype=dtype)
    adapter = holdfast.adapt(net, spec(**settings), source=toy_source(net))
    plain = PlainPetta(net, **settings)
    gammas = []
    for index, images in enumerate(batches or stream(dtype=dtype, last=5)):
        predicted = adapter.predict(images)
        got, expected = adapter(images), plain(images)
        assert torch.equal(predicted, got)
        close(got, expected, dtype, f"logits of batch {index}")
        if plain.adaptive:
            gammas.append(plain.gamma)
            assert adapter.last.gamma == pytest.approx(plain.gamma, abs=TOLERANCE[dtype])
        assert (adapter.last.forwards, adapter.last.backwards) == (4 + bool(plain.lambda_anchor), 1)
        assert adapter.last.stepped
        nets = [("student", adapter.network, plain.student)]
        nets += [("teacher", adapter._slots.task.teacher.network, plain.teacher)]
        if plain.lambda_anchor:
            nets += [("anchor", adapter._slots.task.anchor, plain.anchor)]
        for who, network, toy in nets:
            for name, weight in network.model.named_parameters():
                close(weight, toy.w[name], dtype, f"{who}'s {name} after batch {index}")
            for name, stored in toy.stored.items():
                for kind, value in zip(("mean", "var"), stored, strict=True):
                    got = network.model.get_buffer(f"{name}.running_{kind}")
                    close(got, value, dtype, f"{who}'s {kind} of {name} after batch {index}")
        state = state_of(adapter)
        ages = sorted((state["memory/clock"] - state["memory/born"]).tolist())
        assert ages == sorted(age for _, _, age in plain.memory.items())
    if gammas:
        assert gammas[0] == 0 and max(gammas) > 0.001
    for name in NORM_AFFINE:
        assert torch.equal(plain.anchor.w[name], net.get_parameter(name))
        assert (plain.student.w[name] - net.get_parameter(name)).abs().max() > 1e-4
    return adapter, plain


def spec(augment="flip", **settings: Value):
    written = (f"{name}={value}" for name, value in {**settings, "augment": augment}.items())
    return f"petta({','.join(written)})"


FAST = {"lr": 0.01, "optimizer": "sgd", "bn_momentum": 0.2, "teacher_momentum": 0.9}
SMALL = {**FAST, "capacity": 10}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("loss", ["symmetric", "ce"])
@pytest.mark.parametrize("regularizer", ["cosine", "l2", "none"])
def test_petta(regularizer, loss, dtype):
    compare(dtype, regularizer=regularizer, loss=loss, **SMALL)


@pytest.mark.parametrize(
    "settings",
    [
        {"adaptive": False},
        {"adaptive": False, "regularizer": "l2", "lambda_reg": 0.3},
        {"lambda_anchor": 0},
        {"lambda_anchor": 0, "loss": "symmetric"},
        {"lambda_reg": 0},
        {"lambda_reg": 200},
        {"optimizer": "adam", "lr": 0.002},
        {"capacity": 64},
    ],
    ids=str,
)
def test_settings(settings):
    compare(torch.float64, **SMALL | settings)


def test_single_images():
    batches = torch.cat(stream(("some", "all"), torch.float64)).split(1)
    compare(torch.float64, batches, loss="symmetric", **SMALL | {"capacity": 5, "lr": 0.001})


def test_defaults_are_those_released():
    compare(torch.float64)
    for preset, loss in ((None, "ce"), ("imagenet-c", "ce"), ("cifar100-c", "symmetric")):
        host = holdfast.compose("petta", preset=preset).host
        assert (host.lr, host.optimizer, host.momentum) == (1e-3, "adam", 0.9)
        assert (host.capacity, host.bn_momentum, host.teacher_momentum) == (64, 0.05, 0.999)
        assert (host.regularizer, host.lambda_reg, host.lambda_anchor) == ("cosine", 10, 1)
        assert (host.loss, host.adaptive, host.augment) == (loss, True, "rotta")


def test_classes_hardly_predicted_on_source_images_are_left_out():
    """The toy net by its own statistics predicts few classes; nothing turns NaN."""
    net = toy_net(dtype=torch.float64)
    counts = PlainPetta(net).source
    assert 0 < len(counts) < CLASSES
    _, plain = compare(torch.float64, make=toy_net, **SMALL)
    adapter = holdfast.adapt(net, spec(), source=toy_source(net))
    known = adapter._slots.prediction.known
    assert known.nonzero().flatten().tolist() == sorted(plain.source)
    one = net.fc.bias.detach().clone()
    with torch.no_grad():  # a class that no source image belongs to is all that is predicted
        missing = next(c for c in range(CLASSES) if c not in plain.source)
        adapter._slots.task.teacher.network.model.fc.bias[missing] += 1e4
    adapter(stream(("all",), torch.float64)[0])
    assert adapter.last.gamma == 0 and adapter.last.stepped
    assert torch.equal(net.fc.bias, one)


def test_a_class_predicted_once_on_source_images_is_left_out_too():
    """One image has no variance; with 0 for it, the class's divergence would be all there is."""
    net = settled_net(torch.float64)
    images = torch.cat([x for x, _ in source_batches(torch.float64)])
    labels = net(images).argmax(1)
    once = int(labels.bincount(minlength=CLASSES).argmax())
    kept = (labels != once) | (torch.arange(len(labels)) == (labels == once).nonzero()[0])
    loader = [(images[kept], torch.arange(int(kept.sum())) % CLASSES)]
    adapter = holdfast.adapt(net, spec(**SMALL), source=holdfast.Source.from_loader(net, loader))
    divergence = adapter._slots.prediction
    assert not divergence.known[once] and divergence.known.any()
    batch = images[labels == once][:4]
    for _ in range(3):
        adapter(batch)
        assert (adapter.predict(batch).argmax(1) == once).all()
        assert adapter.last.gamma == 0 and adapter.last.stepped


def test_of_a_window_only_the_newest_count():
    net = settled_net(torch.float64)
    batches = torch.cat(stream(("some", "all"), torch.float64)).split(2)
    with_window, without = (
        holdfast.adapt(net, spec(**SMALL), source=toy_source(net), window=window)
        for window in (8, None)
    )
    for images in batches:
        close(with_window(images), without(images), torch.float64, "logits")
        assert with_window.last.gamma == pytest.approx(without.last.gamma, abs=1e-9)


@pytest.mark.parametrize("loss", ["symmetric", "ce"])
def test_saved_in_the_middle_goes_on_bit_for_bit(loss, tmp_path):
    net = settled_net(torch.float32)
    adapter = holdfast.adapt(net, spec("rotta", loss=loss, capacity=10), source=toy_source(net))
    saved_half_way_goes_on(adapter, net, tmp_path / "state", stream(last=5))


def test_an_update_that_fails_leaves_all_as_it_was():
    net = settled_net(torch.float32)
    adapter = holdfast.adapt(net, spec(**SMALL), source=toy_source(net))
    first, second, third = stream(("some", "all", "some"))
    adapter(first)
    before = state_of(adapter)
    with (
        adapter.model.fc.register_forward_hook(lambda layer, x, output: output * torch.inf),
        pytest.warns(UserWarning, match="NaN or Inf"),
    ):
        adapter(second)
    assert_same_state(state_of(adapter), before)
    adapter(third)
    assert adapter.last.stepped


def test_what_it_needs_and_what_it_does_not_go_with():
    with pytest.raises(ValueError, match=r"petta needs gaussians.*from_loader"):
        holdfast.adapt(toy_net(), "petta")
    holdfast.adapt(toy_net(), "petta(adaptive=false)")
    with pytest.raises(ValueError, match=r"petta does not normalise by the batch's statistics"):
        holdfast.compose("petta+steady")
