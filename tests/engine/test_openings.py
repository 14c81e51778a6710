"""The openings for what does not fit the five slots, each with a toy method that uses it. The
methods need nothing but what their author is told to import."""

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from plain import PlainToy
from running import KINDS, assert_equal, run
from torch import nn
from toys import CLASSES, assert_same_state, state_of, stream, toy_net

import holdfast
from holdfast import Learner, Method, setting
from holdfast.parts import (
    AUGMENTATIONS,
    Augmentation,
    ByBatch,
    BySource,
    Normalisation,
    Predicted,
    Refine,
    ResetEvery,
    Route,
    Routed,
    Select,
    Statistics,
    Student,
    Term,
    TermResult,
    features_and_logits,
)
from holdfast.recipes import registry

# Refining.


class Centre(Refine):
    """Takes the running mean of the logits away."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(CLASSES))

    def forward(self, logits, step):
        new = 0.9 * self.mean + 0.1 * logits[-step.newest :].mean(0)
        return Predicted(logits - self.mean, lambda: self.mean.copy_(new))

    def module(self, predictor, head, exact):
        return Shifted(predictor, self.mean.clone())


class Shifted(nn.Module):
    def __init__(self, predictor, by):
        super().__init__()
        self.predictor = predictor
        self.register_buffer("by", by)

    def forward(self, images):
        return self.predictor(images) - self.by


def mixed(features, logits):
    """Each image's logits are those of all, by how near their features are."""
    f = F.normalize(features, dim=1)
    return (f @ f.T).softmax(1) @ logits


class Neighbours(Refine):
    def forward(self, logits, step):
        return Predicted(mixed(step.features.detach(), logits))

    def module(self, predictor, head, exact):
        if not exact:
            return super().module(predictor, head, exact)
        return Mixed(predictor, head)


class Mixed(nn.Module):
    def __init__(self, predictor, head):
        super().__init__()
        self.predictor, self.head = predictor, head

    def forward(self, images):
        return mixed(*features_and_logits(self.predictor, self.head, images))


@dataclass(frozen=True)
class Refiner(Method):
    plugin: ClassVar[bool] = True
    standalone: ClassVar[bool] = False
    needs_steps: ClassVar[bool] = False


@dataclass(frozen=True)
class ToyCentre(Refiner):
    """Takes the running mean of the logits away."""

    def refine(self, task):
        return [Centre()]


@dataclass(frozen=True)
class ToyMix(Refiner):
    """Mixes logits of near images."""

    def refine(self, task):
        return [Neighbours()]


# Statistics that a method brings.


def blended(layer, x, alpha):
    var, mean = torch.var_mean(x, (0, 2, 3))
    mean = torch.lerp(layer.running_mean, mean, alpha)
    var = torch.lerp(layer.running_var, var, alpha)
    scale = layer.weight * (var + layer.eps).rsqrt()
    return (x - mean[:, None, None]) * scale[:, None, None] + layer.bias[:, None, None]


class Blended(nn.Module):
    def __init__(self, layer, alpha):
        super().__init__()
        self.layer, self.alpha = layer, alpha

    def forward(self, x):
        return blended(self.layer, x, self.alpha)


class BlendedStatistics(Statistics):
    by_batch = False

    def __init__(self, layers, alpha):
        super().__init__(layers)
        self.alpha = alpha

    @contextmanager
    def predicting(self):
        with ExitStack() as hooks:
            for layer in self.layers.values():
                hooks.enter_context(layer.register_forward_hook(self._blend))
            yield

    def _blend(self, layer, inputs, output):
        return blended(layer, inputs[0], self.alpha)

    @contextmanager
    def recording(self, images):
        with self.predicting():
            yield

    def write_into(self, model, statistics):
        for name in self.layers:
            model.set_submodule(name, Blended(model.get_submodule(name), self.alpha))


@dataclass(frozen=True)
class ByBlend(Normalisation):
    alpha: float

    def start(self, layers):
        return BlendedStatistics(layers, self.alpha) if layers else None


@dataclass(frozen=True)
class ToyBlend(Method):
    """Normalises by a mixture of the source's statistics and the batch's."""

    alpha: float = setting(0.3, "share of the batch", at_least=0, at_most=1)

    def selection(self):
        return Select("nothing", ByBlend(self.alpha), renews=True)


@dataclass(frozen=True)
class ToyCalm(Refiner):
    """Puts such a mixture in place of batch statistics."""

    alpha: float = setting(0.3, "share of the batch", at_least=0, at_most=1)

    def normalisation(self, task, by):
        return ByBlend(self.alpha) if by == ByBatch() else by


# Upkeep after the answer.


class Entropy(Term):
    def forward(self, step):
        return TermResult(step.entropy.mean(), len(step.images))


@dataclass(frozen=True)
class ToyEpisode(Learner):
    """Tent that answers after the update, and goes back to the source after every batch."""

    lr: float = setting(0.01, "learning rate", at_least=0)

    def terms(self, task):
        return [Entropy("entropy")]

    def prediction(self, task):
        return Student(task.network, after=True)

    def upkeep(self, task):
        return [ResetEvery(1)]


# Routing.


class Lights(Route):
    """One state for dark batches and one for bright ones; predictions are made by their mean."""

    def __init__(self, learnt, ensemble):
        super().__init__()
        self.names, self.ensemble = list(learnt), ensemble
        for index, tensor in enumerate(learnt.values()):
            self.register_buffer(f"bank{index}", torch.stack([tensor, tensor]).clone())
        self.register_buffer("batches", torch.zeros(2, dtype=torch.int64))

    def forward(self, images, learnt):
        which = int(images.mean() > 0.3)
        bank = {name: self.get_buffer(f"bank{i}") for i, name in enumerate(self.names)}

        def commit(learnt):
            for name, tensor in learnt.items():
                bank[name][which] = tensor
            self.batches[which] += 1

        mean = None
        if self.ensemble:
            mean = {n: t.mean(0) for n, t in bank.items() if n.startswith("model/")}
        return Routed({name: tensor[which] for name, tensor in bank.items()}, mean, commit)


@dataclass(frozen=True)
class ToyLights(Method):
    """Learns a state for dark batches and another for bright ones."""

    plugin: ClassVar[bool] = True
    standalone: ClassVar[bool] = False
    ensemble: bool = setting(True, "predict by the mean of both")

    def route(self, task, learnt):
        return Lights(learnt, self.ensemble)


# Episodes of one image.


class MarginalEntropy(Term):
    """Entropy of the mean prediction over views of the one image."""

    def __init__(self, augment, views):
        super().__init__("marginal")
        self.augment, self.views = augment, views

    def forward(self, step):
        views = [self.augment(step.images, ahead=index) for index in range(self.views)]
        mean = step.view(torch.cat(views)).probabilities.mean(0)
        count = self.views
        return TermResult(torch.special.entr(mean).sum(), 1, lambda: self.augment.commit(count))


def rolled(images, before):
    """Every image is moved by its own draw."""
    shifts = torch.randint(images.shape[-1], (len(images),)).tolist()
    return torch.stack([image.roll(by, -1) for image, by in zip(images, shifts, strict=True)])


ROLL = Augmentation("roll", rolled)


@dataclass(frozen=True)
class ToyMemo(Learner):
    """Learns from views of each image, and begins anew for the next."""

    lr: float = setting(0.01, "learning rate", at_least=0)
    steps: int = setting(2, "steps on each image", at_least=1)
    views: int = setting(3, "views of an image", at_least=1)
    augment: str = setting("roll", "roll, or a fixed one")

    def selection(self):
        return Select(self.select, BySource())

    def terms(self, task):
        kind = ROLL if self.augment == "roll" else AUGMENTATIONS[self.augment]
        return [MarginalEntropy(task.augment(kind), self.views)]

    def prediction(self, task):
        return Student(task.network, after=True)

    def episode_steps(self):
        return self.steps


# A view of some of the batch.


class Partly(Term):
    """Entropy of the mirrored reliable images, by their own statistics."""

    seen: ClassVar[list] = []

    def forward(self, step):
        chosen = step.chosen(0.4)
        if not len(chosen):
            return None
        view = step.view(step.images[chosen].flip(-1), of=chosen)
        self.seen.append((chosen, view))
        return TermResult(view.entropy.mean(), len(chosen))


@dataclass(frozen=True)
class ToyPart(Learner):
    """Learns from a view of the reliable images only."""

    def terms(self, task):
        return [Partly("partly")]


TOYS = {
    "toy-centre": ToyCentre,
    "toy-mix": ToyMix,
    "toy-blend": ToyBlend,
    "toy-calm": ToyCalm,
    "toy-episode": ToyEpisode,
    "toy-lights": ToyLights,
    "toy-memo": ToyMemo,
    "toy-part": ToyPart,
}


@pytest.fixture(autouse=True)
def toys(monkeypatch):
    """Known here alone: laws ask every registered method."""
    monkeypatch.setattr(registry, "_registry", registry.methods())
    for name, method in TOYS.items():
        holdfast.register(name)(method)


@pytest.fixture(scope="module")
def net():
    return toy_net()


ETA = "eta(redundancy=2)"
SPECS = [
    "bn+toy-centre",
    "frozen+toy-centre+toy-mix",
    "toy-mix",
    "t3a(keep=3)+toy-mix",
    "cotta(augment_below=0.8,views=3,restore=0.1)+toy-mix+toy-centre",
    "rotta(capacity=12,every=20)+toy-mix+toy-centre",
    f"{ETA}+toy-mix+toy-centre",
    "toy-blend",
    "bn+toy-calm",
    f"{ETA}+toy-calm+toy-centre",
    "toy-episode",
    "toy-episode+toy-centre",
    f"{ETA}+toy-lights",
    "sar+toy-lights(ensemble=false)",
    "tent(optimizer=adam)+toy-lights+toy-centre",
    "toy-memo(steps=1,views=2)",
    "toy-memo(augment=flip,steps=2,views=1)+toy-centre",
    "toy-part",
]
LAW = pytest.mark.parametrize("spec", SPECS)


# The laws, as every method has them.


@LAW
def test_saved_and_loaded_goes_on(net, spec, tmp_path):
    adapter = holdfast.adapt(net, spec)
    run(adapter, stream(KINDS))
    adapter.save(tmp_path / "state")
    loaded = holdfast.load(tmp_path / "state", net)
    assert_same_state(state_of(loaded), state_of(adapter))
    later = stream(KINDS, seed=2, last=5)
    assert_equal(run(loaded, later), run(adapter, later))
    assert_same_state(state_of(loaded), state_of(adapter))


@LAW
def test_reset_is_fresh(net, spec):
    adapter = holdfast.adapt(net, spec)
    fresh = state_of(adapter)
    first = run(adapter, stream(KINDS))
    adapter.reset()
    assert_same_state(state_of(adapter), fresh)
    assert_equal(run(adapter, stream(KINDS)), first)


@LAW
def test_predict_changes_nothing_and_is_what_leaves_before_an_update(net, spec):
    adapter = holdfast.adapt(net, spec)
    after = adapter._slots.prediction.after
    for images in stream(KINDS):
        before = state_of(adapter)
        predicted = adapter.predict(images)
        assert_same_state(state_of(adapter), before)
        got = adapter(images)
        assert after or torch.equal(predicted, got)


@LAW
def test_a_batch_that_is_not_finite_is_undone(net, spec):
    adapter = holdfast.adapt(net, spec)
    run(adapter, stream(("some", "all")))
    before = state_of(adapter)
    with ExitStack() as hooks:
        for network in adapter._slots.networks:
            fc = network.model.fc
            hooks.enter_context(fc.register_forward_hook(lambda layer, x, output: output * 1e38))
        hooks.enter_context(pytest.warns(UserWarning, match=r"not adapted to: .*NaN or Inf"))
        adapter(stream(("all",))[0])
    assert not adapter.last.stepped
    assert_same_state(state_of(adapter), before)
    fails = adapter.model.conv2.register_forward_pre_hook(lambda *_: 1 / 0)
    with fails, pytest.raises(ZeroDivisionError):
        adapter(stream(("some",))[0])
    assert_same_state(state_of(adapter), before)


@LAW
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_works_without_gradients_switched_on(net, spec, mode):
    expected = run(holdfast.adapt(net, spec), stream(KINDS))
    with mode():
        assert_equal(run(holdfast.adapt(net, spec), stream(KINDS)), expected)


# What is exported of several states is the one met last.
@pytest.mark.parametrize("spec", [spec for spec in SPECS if "toy-lights" not in spec])
def test_frozen_with_batch_statistics_agrees_with_predict(net, spec):
    adapter = holdfast.adapt(net, spec)
    run(adapter, stream(KINDS))
    images = stream(("some",), seed=4)[0].contiguous(memory_format=torch.channels_last)
    assert torch.equal(adapter.frozen(statistics="batch")(images), adapter.predict(images))


# What each opening is for.


def test_refiners_are_chained_in_the_order_written(net):
    images = stream(KINDS)
    for order in ((Centre(), Neighbours()), (Neighbours(), Centre())):
        names = {Centre: "toy-centre", Neighbours: "toy-mix"}
        spec = "+".join(["bn", *(names[type(rule)] for rule in order)])
        adapter, host = holdfast.adapt(net, spec), holdfast.adapt(net, "bn")
        for batch in images:
            expected, features = host(batch), host.features(batch)
            for rule in order:
                if isinstance(rule, Centre):
                    mean = rule.mean.clone()
                    rule.mean.copy_(0.9 * mean + 0.1 * expected.mean(0))
                    expected = expected - mean
                else:
                    expected = mixed(features, expected)
            assert torch.equal(adapter(batch), expected)


@pytest.mark.parametrize("host", [ETA, "rotta(capacity=12,every=20)", "t3a(keep=3)", "toy-episode"])
def test_what_is_learnt_comes_from_unrefined_predictions(net, host):
    refined, plain = holdfast.adapt(net, f"{host}+toy-centre"), holdfast.adapt(net, host)
    for images in stream(KINDS):
        refined(images), plain(images)
    state = state_of(refined)
    assert bool(state.pop("refine/0/mean").any()) == (host != "toy-episode")  # it forgets
    # The watch looks at what leaves.
    learnt = [name for name in state if not name.startswith("watch/")]
    assert_same_state(*({name: s[name] for name in learnt} for s in (state, state_of(plain))))


def test_a_refiner_sees_the_features_of_the_net_that_predicts(net):
    """For RoTTA that is the teacher, by its stored statistics."""
    adapter = holdfast.adapt(net, "rotta(capacity=12,every=20)+toy-mix")
    run(adapter, stream(KINDS))
    images = stream(("some",), seed=4)[0]
    teacher = holdfast.adapt(adapter._slots.task.teacher.network.plain_model(), "frozen")
    expected = mixed(teacher.features(images), teacher.predict(images))
    torch.testing.assert_close(adapter.predict(images), expected)


def test_a_refiner_sees_a_window_and_the_newest_leave(net):
    windowed, whole = (holdfast.adapt(net, "frozen+toy-mix", window=w) for w in (16, None))
    first, second = stream(("some", "all"))
    windowed(first)
    assert torch.equal(windowed(second[:4]), whole(torch.cat([first[4:], second[:4]]))[-4:])


def test_a_refiner_that_cannot_be_exported_says_so(net):
    adapter = holdfast.adapt(net, "bn+toy-mix")
    with pytest.raises(ValueError, match=r"Neighbours refines .*adapter\.predict"):
        adapter.frozen()


def test_a_plugin_that_acts_through_steps_still_needs_a_host_that_takes_some():
    with pytest.raises(ValueError, match=r"bn never takes a step, so toy-lights has nothing"):
        holdfast.compose("bn+toy-lights")


def test_upkeep_runs_after_an_answer_that_follows_the_update():
    """Back at the source after every batch, and yet what leaves was learnt."""
    net = toy_net(dtype=torch.float64)
    adapter = holdfast.adapt(net, "toy-episode(momentum=0)")
    fresh = {name: p.clone() for name, p in adapter.model.named_parameters()}
    for images in stream(("some", "all"), torch.float64):
        toy = PlainToy(net)
        logits = toy(images)[1]
        gradients = toy.gradients(torch.special.entr(logits.softmax(1)).sum(1).mean())
        with torch.no_grad():
            for name, gradient in zip(toy.trained, gradients, strict=True):
                toy.w[name] -= 0.01 * gradient
            expected = toy(images)[1]
        got = adapter(images)
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-8)
        assert (got - logits).abs().max() > 1e-3
        for name, weight in adapter.model.named_parameters():
            assert torch.equal(weight, fresh[name])


def test_each_batch_meets_the_state_it_is_routed_to(net):
    """Two streams in turns, and each state is as if the other stream were not there."""
    dark, bright = stream(("none",) * 3), stream(("all",) * 3)
    adapter = holdfast.adapt(net, "tent+toy-lights(ensemble=false)")
    alone = {kind: holdfast.adapt(net, "tent") for kind in ("dark", "bright")}
    for one, other in zip(dark, bright, strict=True):
        assert torch.equal(adapter(one), alone["dark"](one))
        assert torch.equal(adapter(other), alone["bright"](other))
    assert adapter._state.route.batches.tolist() == [3, 3]
    # What was met last is what is there.
    images = bright[0].contiguous(memory_format=torch.channels_last)
    frozen = adapter.frozen(statistics="batch")(images)
    assert torch.equal(frozen, alone["bright"].predict(images))


def test_a_batch_may_be_predicted_with_another_state_than_it_is_learnt_with(net):
    (bright,) = stream(("all",))
    adapter = holdfast.adapt(net, "tent(lr=0.01)+toy-lights")
    alone = holdfast.adapt(net, "tent(lr=0.01)")
    adapter(bright), alone(bright)
    # The mean of the state that has learnt and of the source's.
    half = toy_net()
    with torch.no_grad():
        for name, weight in half.named_parameters():
            weight.lerp_(alone.model.get_parameter(name), 0.5)
    torch.testing.assert_close(adapter.predict(bright), holdfast.adapt(half, "bn").predict(bright))
    assert torch.equal(adapter(bright), adapter(bright)) is False
    assert adapter.last.forwards == 2


def test_two_routes_are_an_error(net, monkeypatch):
    monkeypatch.setattr(holdfast.Tent, "route", ToyLights.route, raising=False)
    monkeypatch.setattr(holdfast.Tent, "ensemble", False, raising=False)
    with pytest.raises(ValueError, match="tent and toy-lights each choose the state"):
        holdfast.adapt(net, "tent+toy-lights")


def test_an_episode_is_one_image_from_the_source_on(net):
    """Views are the image mirrored; plain steps, then the image as it is."""
    adapter = holdfast.adapt(net, "toy-memo(augment=flip,views=2,momentum=0,lr=0.05)")
    fresh = state_of(adapter)
    images = stream(("some",))[0][:5]
    rows = []
    for image in images[:, None]:
        one = toy_net()
        trained = [*one.norm1.parameters(), *one.norm2.parameters()]
        for _ in range(2):
            mean = one(image.flip(-1)).softmax(1)[0]
            gradients = torch.autograd.grad(torch.special.entr(mean).sum(), trained)
            with torch.no_grad():
                for weight, gradient in zip(trained, gradients, strict=True):
                    weight -= 0.05 * gradient
        rows.append(one(image).detach())
    got = adapter(images)
    torch.testing.assert_close(got, torch.cat(rows), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(got, net(images), rtol=1e-3, atol=1e-3)
    # Nothing stays but counters, and what is predicted without an update is the source's.
    state = state_of(adapter)
    counters = ("batches", "watch/", "activity/", "draws")
    for name, tensor in state.items():
        assert name.startswith(counters) or torch.equal(tensor, fresh[name])
    torch.testing.assert_close(adapter.predict(images), net(images))
    assert adapter.last.forwards == 5 * 3 and adapter.last.backwards == 5 * 2
    assert adapter.last.images == {"marginal": 10}


def test_an_image_of_an_episode_does_not_depend_on_its_neighbours(net):
    images = stream(("some",))[0]
    whole = holdfast.adapt(net, "toy-memo(augment=flip)")(images)
    single = holdfast.adapt(net, "toy-memo(augment=flip)")
    torch.testing.assert_close(torch.cat([single(image[None]) for image in images]), whole)


def test_episodes_need_statistics_that_serve_one_image(net, monkeypatch):
    with pytest.raises(ValueError, match="window=8 has no use"):
        holdfast.adapt(net, "toy-memo", window=8)
    monkeypatch.setattr(ToyMemo, "selection", lambda self: Select(self.select, ByBatch()))
    with pytest.raises(ValueError, match="one image at a time"):
        holdfast.adapt(net, "toy-memo")


def test_statistics_are_what_a_method_brings():
    net, (images,) = toy_net(dtype=torch.float64), stream(("some",), torch.float64)
    for alpha in (0.0, 0.3, 1.0):
        plain = toy_net(dtype=torch.float64)
        for layer in (plain.norm1, plain.norm2):
            layer.register_forward_hook(lambda layer, x, _, a=alpha: blended(layer, x[0], a))
        with torch.no_grad():
            expected = plain(images)
        for spec in (f"toy-blend(alpha={alpha})", f"bn+toy-calm(alpha={alpha})"):
            adapter = holdfast.adapt(net, spec)
            torch.testing.assert_close(adapter(images), expected)
            torch.testing.assert_close(adapter.frozen()(images), expected)
            assert adapter(images[:1]).shape == (1, CLASSES)
    # On a host that does not go by the batch's there is nothing to replace.
    calm = holdfast.adapt(net, "frozen+toy-calm")
    assert torch.equal(calm(images), holdfast.adapt(net, "frozen")(images))


def test_gradients_go_through_statistics_that_a_plugin_brings():
    net, (images,) = toy_net(dtype=torch.float64), stream(("all",), torch.float64)
    adapter = holdfast.adapt(net, "tent(momentum=0,lr=0.01)+toy-calm")
    adapter(images)
    plain = toy_net(dtype=torch.float64)
    for layer in (plain.norm1, plain.norm2):
        layer.register_forward_hook(lambda layer, x, _: blended(layer, x[0], 0.3))
    torch.special.entr(plain(images).softmax(1)).sum(1).mean().backward()
    for name in ("norm1.weight", "norm2.bias"):
        expected = plain.get_parameter(name) - 0.01 * plain.get_parameter(name).grad
        torch.testing.assert_close(adapter.model.get_parameter(name), expected)


def test_an_augmentation_of_ones_own_draws_from_the_adapters_randomness(net):
    images = stream(("some",))[0]
    torch.manual_seed(5)
    one = holdfast.adapt(net, "toy-memo", seed=1)(images)
    torch.manual_seed(6)
    before = torch.get_rng_state()
    other = holdfast.adapt(net, "toy-memo", seed=1)(images)
    assert torch.equal(one, other) and torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(holdfast.adapt(net, "toy-memo", seed=2)(images), one)


@pytest.mark.parametrize("window", [None, 24])
def test_a_view_of_some_images_is_a_part_of_the_batch(net, window):
    """Normalised by themselves, recorded nowhere; and of a window, what is new is known."""
    Partly.seen.clear()
    adapter, whole = (holdfast.adapt(net, spec, window=window) for spec in ("toy-part", "bn"))
    for images in stream(("some", "all")):
        adapter(images), whole(images)
    for (chosen, view), count in zip(Partly.seen, (16, 24 if window else 16), strict=True):
        assert 0 < len(chosen) <= count and len(view.images) == len(chosen)
        assert view.newest == int((chosen >= count - 16).sum())
    assert adapter.last.forwards == 2
    # The first batch's averages: not moved by its view.
    first, other = (holdfast.adapt(net, spec) for spec in ("toy-part", "bn"))
    images = stream(("some",))[0]
    first(images), other(images)
    names = [name for name in state_of(other) if name.startswith("statistics/")]
    assert names
    assert_same_state(*({n: state_of(a)[n] for n in names} for a in (first, other)))
    chosen, view = Partly.seen[-1]
    with torch.no_grad():
        expected = PlainToy(net)(images[chosen].flip(-1))[1]
    torch.testing.assert_close(view.logits, expected, rtol=1e-4, atol=1e-4)
