"""A toy method for each opening that does not fit the five slots. They need nothing but what their
author is told to import; the fixture `toy_methods` makes them known."""

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import nn
from toys import CLASSES

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
