"""reservoir: a bank of models, one for each style that a stream brings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from holdfast import Method, register, setting
from holdfast.parts import Learn, Learnt, Network, Route, Routed, Step, Task
from holdfast.source.styles import Styles, style_of

# AdamW on the centroids, with torch's defaults.
LR, DECAY, BETAS, EPSILON = 1e-4, 0.01, (0.9, 0.999), 1e-8


class Centroids(NamedTuple):
    """How far each is from the mean source style, and AdamW's state."""

    moved: Tensor
    first: Tensor
    second: Tensor
    steps: int

    def opened(self, slot: int, at: Tensor) -> Centroids:
        """With a new one in this place; AdamW begins anew for all."""
        moved = torch.cat([self.moved, at[None]])
        if slot < len(self.moved):
            moved = moved[:-1]
            moved[slot] = at
        return Centroids(moved, torch.zeros_like(moved), torch.zeros_like(moved), 0)

    def stepped(self, gradient: Tensor) -> Centroids:
        steps, (beta1, beta2) = self.steps + 1, BETAS
        first = beta1 * self.first + (1 - beta1) * gradient
        second = beta2 * self.second + (1 - beta2) * gradient.square()
        scale = (second / (1 - beta2**steps)).sqrt() + EPSILON
        moved = self.moved * (1 - LR * DECAY) - LR * first / (1 - beta1**steps) / scale
        return Centroids(moved, first, second, steps)


class Bank(Route):
    """For each style a model: all that is learnt. A batch is learnt from with the model whose
    centroid is nearest to its style, and predicted with a mean of all, the nearer the more.

    opened: how many models there are. moved, first, second, steps: `Centroids`. styles: of earlier
    batches, so many `held` of all `seen`. used: the last batch that each model met. nominal: of how
    many images source batches are; one of another size scatters otherwise, and never opens a model,
    of which it is `said` once. size: of the batch before.
    """

    steps: Tensor
    held: Tensor
    seen: Tensor
    batches: Tensor
    size: Tensor

    def __init__(self, method: Reservoir, task: Task, learnt: Learnt):
        super().__init__()
        self.method, self.task = method, task
        known, self.source = task.cached(method.styles)
        self.mean, self.limit, self.nominal = known.mean, known.limit, task.batch_size
        self._told: dict[str, Any] = {}
        self.fresh = {name: tensor.clone() for name, tensor in learnt.items()}
        self.weights = {f"model/{name}" for name in task.parameters}
        for index, tensor in enumerate(learnt.values()):
            rows = tensor.expand(method.models, *tensor.shape).clone()
            self.register_buffer(f"bank{index}", rows)
        zeros = self.mean.new_zeros(method.models, len(self.mean))
        self.moved, self.first = nn.Buffer(zeros.clone()), nn.Buffer(zeros.clone())
        self.second = nn.Buffer(zeros.clone())
        self.styles = nn.Buffer(self.mean.new_zeros(method.buffer, len(self.mean)))
        self.used = nn.Buffer(torch.zeros(method.models, dtype=torch.int64))
        for name in ("steps", "held", "seen", "batches", "size"):
            self.register_buffer(name, torch.zeros((), dtype=torch.int64))
        self.opened = nn.Buffer(torch.ones((), dtype=torch.int64))
        self.said = nn.Buffer(torch.zeros((), dtype=torch.bool))

    @property
    def bank(self) -> dict[str, Tensor]:
        """Everything that is learnt, by name, one row a model."""
        return {name: self.get_buffer(f"bank{i}") for i, name in enumerate(self.fresh)}

    def forward(self, images: Tensor, learnt: Learnt) -> Routed:
        self._told = {}
        style = style_of(self.source, images, self.method.style_layers)
        opened = int(self.opened)
        moments = self.first[:opened], self.second[:opened], int(self.steps)
        now = Centroids(self.moved[:opened], *moments)
        slot = self._slot(len(images), _distances(style[None], self.mean + now.moved).min())
        new: Learnt = {}
        if slot is not None:
            new = self._new_model(images, learnt, opened)
            now = now.opened(slot, style - self.mean)
        rows = torch.cat([self.styles[: int(self.held)], style[None]])
        near, gradient = self._nearness(rows, now.moved)
        chosen = int(near.argmax())
        index = self._place(len(now.moved))
        models = {name: rows[: len(now.moved)] for name, rows in self.bank.items()}
        learn = {name: new.get(name, rows[chosen]) for name, rows in models.items()}
        predict = None
        if self.method.ensemble and len(now.moved) > 1:
            predict = dict(learn)
            for name in self.weights:
                bank_rows = models[name]
                if slot is not None:
                    bank_rows = bank_rows.clone()
                    bank_rows[slot] = new[name]
                predict[name] = torch.tensordot(near.to(bank_rows), bank_rows, 1)

        def commit(learnt: Learnt) -> None:
            self._keep(chosen, learnt, now.stepped(gradient))
            self._remember(style, index)
            met = {"model": chosen, "models": len(now.moved)}
            self._told = {**met, **self._notice(len(images))}

        return Routed(learn, predict, commit)

    def told(self) -> Mapping[str, Any]:
        return self._told

    def _notice(self, images: int) -> dict[str, Any]:
        """What a person should know of a stream of such batches. Not of one alone: a window that
        fills up has another size each time."""
        stays = images == int(self.size)
        self.size.fill_(images)
        if not stays or images == self.nominal or self.said:
            return {}
        self.said.fill_(True)
        return {
            "notice": f"reservoir: the stream has batches of {images} images, and the source's "
            f"loader has batches of {self.nominal}: only a batch of {self.nominal} opens a model. "
            "Make the source with a loader of the stream's batch size."
        }

    def _slot(self, images: int, distance: Tensor) -> int | None:
        """Where a new model goes, if the batch is so far from all that it opens one."""
        if images != self.nominal or not distance > self.limit:
            return None
        if int(self.opened) < self.method.models:
            return int(self.opened)
        return int(self.used.argmin()) if self.method.evict == "idle" else None

    def _new_model(self, images: Tensor, learnt: Learnt, opened: int) -> Learnt:
        """Weights and the optimiser's state of the model that knows most of these images, or the
        source's; the rest is as at the beginning."""
        if self.method.start == "source":
            return self.fresh
        best = self._surest(images, learnt, opened)
        carried = ("model/", "optimizer/")
        copied = {n: rows[best] for n, rows in self.bank.items() if n.startswith(carried)}
        return {**self.fresh, **copied}

    def _surest(self, images: Tensor, learnt: Learnt, opened: int) -> int:
        """The model of the largest mutual information between images and labels."""
        own = {name: tensor for name, tensor in learnt.items() if name.startswith("model/")}
        before = {name: tensor.clone() for name, tensor in own.items()}
        scores = []
        try:
            for model in range(opened):
                for name, tensor in own.items():
                    tensor.copy_(self.bank[name][model])
                step = Step(self.task.network, images)
                mean = step.probabilities.mean(0)
                scores.append(step.entropy.mean() - torch.special.entr(mean).sum())
        finally:
            for name, tensor in own.items():
                tensor.copy_(before[name])
        return int(torch.stack(scores).argmin())

    def _nearness(self, rows: Tensor, moved: Tensor) -> tuple[Tensor, Tensor]:
        """How near each centroid is to the last row, as shares of 1; and the gradient that has
        every row near one centroid, and all centroids near some."""
        with torch.enable_grad():
            moved = moved.detach().clone().requires_grad_(True)
            log_w = (-_distances(rows, self.mean + moved)).log_softmax(1)
            w = log_w.exp()
            mean = w.mean(0)
            loss = -(w * log_w).sum(1).mean() + (mean * (mean + 1e-8).log()).sum()
            (gradient,) = torch.autograd.grad(loss, moved)
        return w[-1].detach(), gradient

    def _place(self, opened: int) -> int | None:
        """Where a style goes among those held: behind them while there is room; then as reservoir
        sampling has it (None: it is left out), or behind them when the oldest has gone (-1)."""
        filled, method = int(self.held), self.method
        if filled * method.models < opened * method.buffer:
            return filled
        if method.sampling == "fifo":
            return -1
        with self.task.draws.scope():
            drawn = int(torch.randint(int(self.seen) + 1, ()))
        return drawn if drawn < filled else None

    def _remember(self, style: Tensor, index: int | None) -> None:
        filled = int(self.held)
        if index == -1:
            self.styles[:filled] = torch.cat([self.styles[1:filled], style[None]])
        elif index is not None:
            self.styles[index] = style
        self.seen.add_(1)
        if index == filled:
            self.held.add_(1)
        elif int(self.seen) > 10 * filled:
            self.seen.fill_(filled)  # so that new styles keep coming in

    def _keep(self, chosen: int, learnt: Learnt, centroids: Centroids) -> None:
        for name, rows in self.bank.items():
            rows[chosen] = learnt[name]
        opened = len(centroids.moved)
        for all_of, own in zip((self.moved, self.first, self.second), centroids[:3], strict=True):
            all_of[:opened] = own
        self.steps.fill_(centroids.steps)
        self.opened.fill_(opened)
        self.batches.add_(1)
        self.used[chosen] = self.batches


def _distances(rows: Tensor, centroids: Tensor) -> Tensor:
    # By differences: the quicker way by products loses what is near.
    return torch.cdist(rows, centroids, compute_mode="donot_use_mm_for_euclid_dist")


@register("reservoir")
@dataclass(frozen=True)
class Reservoir(Method):
    """Keeps a model for each style of batches, and predicts with a mean of those that are near.

    s = log variances behind the first convolutions;  w = softmax(−‖s − c‖);  θ = Σ w_k θ_k
    """

    paper: ClassVar[str] = (
        "ReservoirTTA: Prolonged test-time adaptation for evolving and recurring domains (LTS5)"
    )
    note: ClassVar[str] = (
        "Once the bank is full it never forgets, and a style that is new then shares the nearest "
        "model: evict=idle has the model go that was unused longest. A low quantile fills the bank "
        "within a few domains. Styles know nothing of labels, so that a shift of classes opens no "
        "model. They are taken behind convolutions of the source model, where the released code "
        "takes those of a VGG-19. How far apart styles are by chance is taken from the source's "
        "loader, which is to have batches as large as the stream's: only a batch of that size "
        "opens a model. The host's averages, prototypes and reset rules belong to "
        "each model by itself (debias was not published with it); a new one begins with weights "
        "and optimiser state of another, and nothing else. The released runs have Nesterov's "
        "momentum on (nesterov=true of the host), and on CIFAR batches of 200, Adam at 1e-3 and "
        "eata(redundancy=0.1,fisher_weight=2000); settings of the host are its own here. buffer is "
        "64 in the released code and 1024 in all its configurations, as here. frozen() exports the "
        "model that was met last."
    )
    memory: ClassVar[str] = (
        "all that is learnt (weights that train, the optimiser's state, averages) once more for "
        "each model, and all of these twice again (as they began, for reset(), and as they were "
        "while a batch is looked at); a copy of the network, and the styles of earlier batches"
    )
    unused: ClassVar = {"evict": ("models", 1)}
    plugin: ClassVar[bool] = True
    standalone: ClassVar[bool] = False
    needs_host: ClassVar[bool] = True
    routes: ClassVar[bool] = True
    neutral: ClassVar = {"models": 1}

    models: int = setting(16, "most models in the bank", at_least=1)
    buffer: int = setting(1024, "most styles of earlier batches that are held", at_least=1)
    quantile: float = setting(
        0.999, "share of pairs of source batches nearer than a new style is", at_least=0, at_most=1
    )
    sampling: Literal["reservoir", "fifo"] = setting(
        "reservoir", "which styles are held: a random part of all, or the latest"
    )
    start: Literal["mi", "source"] = setting(
        "mi", "a new model is a copy of the one that tells most of the batch, or of the source"
    )
    ensemble: bool = setting(True, "predict with a mean of all models; false: with the nearest")
    style_layers: int = setting(3, "convolutions whose outputs make a style", at_least=1)
    evict: Literal["none", "idle"] = setting(
        "none", "when the bank is full: nothing more opens, or the model unused longest goes"
    )

    def objection(self, host: Method | None) -> str | None:
        extras = None
        if host is not None and host.keeps_samples:
            extras = "images or features one by one"
        elif host is not None and "teacher_momentum" in host.given:
            extras = "a teacher beside the network"
        if host is not None and extras is not None:
            return (
                f"{host.name} keeps {extras}, which each model of a bank would have to have for "
                "itself: put reservoir on a method that learns by a step on the batch alone, as in "
                "eata+reservoir."
            )
        if host is not None and host.predicts_after() and self.has_effect() and self.ensemble:
            return (
                f"{host.name} predicts after the update, with the one model that learnt, so that "
                f"a mean of all has no use: write {host.name}(predict=before)+reservoir, or "
                f"{host.name}+reservoir(ensemble=false)."
            )
        return super().objection(host)

    def styles(self, task: Task) -> tuple[Styles, Network]:
        """Of the source, and its model, to take others behind its convolutions."""
        known = task.styles(layers=self.style_layers, quantile=self.quantile)
        return known, task.fresh().uncompiled()

    def prepare(self, task: Task, learn: Learn | None) -> None:
        if self.has_effect():
            task.cached(self.styles)

    def route(self, task: Task, learnt: Learnt) -> Route | None:
        return Bank(self, task, learnt) if self.has_effect() else None

    def needs(self) -> tuple[str, ...]:
        return ("styles",) if self.has_effect() else ()

    def forwards_beside(self) -> tuple[int, int]:
        if not self.has_effect():
            return 0, 0
        tried = self.models - (self.evict == "none") if self.start == "mi" else 0
        return 0, int(self.ensemble) + tried
