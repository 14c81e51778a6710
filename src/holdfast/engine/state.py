"""All that changes along a stream: by name, so that it can be saved, put back and begun anew."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor

from holdfast.engine.fallback import Fallback
from holdfast.engine.last import Activity, Watch
from holdfast.engine.monitor import Monitor
from holdfast.engine.options import Options
from holdfast.engine.slots import Slots
from holdfast.parts.predict import Route
from holdfast.util import files

# What a collapse or a reset rule takes back; the rest only observes.
LEARNT = ("model/", "teacher/", "optimizer/", "terms/", "prediction/", "refine/")

# What a route chooses between: what was learnt, and what reset rules count.
ROUTED = (*LEARNT, "upkeep/")

# What a guard puts back: what was learnt, also in the states that are not at hand.
GUARDED = (*LEARNT, "route/")

# Names that older files may not hold: what only observes, and begins anew.
SINCE_0_1 = re.compile(r"activity/(taken|due|told)|statistics/\d+/weight|health/.*|fallback/.*")

# Numbers of batches, and of steps that Adam has taken.
COUNTS = re.compile(r"batches|optimizer/.*\.step")


def learnt(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The part of a state that was learnt."""
    return {name: tensor for name, tensor in state.items() if name.startswith(LEARNT)}


def routed(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The part of a state that a route chooses between."""
    return {name: tensor for name, tensor in state.items() if name.startswith(ROUTED)}


def guarded(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The part of a state that a guard puts back."""
    return {name: tensor for name, tensor in state.items() if name.startswith(GUARDED)}


class State:
    """The state of a method's parts, of what watches it, the window, and the number of batches.

    fresh, fresh_draws: as it was at the beginning.
    healthy, latest: for a guard that acts, what was learnt when all was known to be well, and at a
    later time of which that is not known yet.
    """

    healthy: dict[str, Tensor]
    latest: dict[str, Tensor]

    def __init__(self, slots: Slots, options: Options):
        network = slots.task.network
        self.slots = slots
        self.learn = slots.learn
        self.draws = slots.task.draws
        self.keeps_healthy = options.guard in ("rollback", "fallback")
        self.window = Window(options.window)
        self.watch = Watch(network.head_rows) if network.head_name else None
        self.activity = Activity()
        self.monitor = Monitor(options.health, options.measures_every, network, options.seed)
        self.fallback = Fallback()
        self.batches = torch.zeros((), dtype=torch.int64)
        self.route: Route | None = None
        self.route = self._find_route()
        self.fresh = self.snapshot()
        self.fresh_draws = self.draws.state
        self.healthy = self.latest = guarded(self.fresh)

    def _find_route(self) -> Route | None:
        task, known = self.slots.task, routed(self.tensors())
        by_method = {part.name: part.route(task, known) for part in self.slots.method.methods}
        routes = {name: route for name, route in by_method.items() if route is not None}
        if len(routes) > 1:
            raise ValueError(
                f"{' and '.join(routes)} each choose the state that a batch meets: leave one out."
            )
        return next(iter(routes.values()), None)

    def tensors(self, without: Collection[str] = ()) -> dict[str, Tensor]:
        """Every tensor that changes, by name, but those of the parts that are left out; the
        tensors themselves."""
        changing = {"batches": self.batches}
        for part, tensors in self._parts().items():
            if part not in without:
                changing |= {
                    f"{part}/{name}": tensor.detach() for name, tensor in tensors().items()
                }
        return changing

    def _parts(self) -> dict[str, Callable[[], Mapping[str, Tensor]]]:
        slots, task, learn = self.slots, self.slots.task, self.learn
        parts: dict[str, Callable[[], Mapping[str, Tensor]]] = {
            "model": lambda: task.parameters,
            "optimizer": learn.tensors if learn else dict,
            "watch": self.watch.state_dict if self.watch else dict,
            "activity": self.activity.state_dict if learn else dict,
            "health": self.monitor.state_dict,
            "fallback": self.fallback.state_dict if self.keeps_healthy else dict,
            "prediction": slots.prediction.state_dict,
            "route": self.route.state_dict if self.route else dict,
        }
        parts |= {f"terms/{term.label}": term.state_dict for term in slots.terms}
        parts |= {f"refine/{i}": rule.state_dict for i, rule in enumerate(slots.refine)}
        parts |= {f"model/settle/{i}": rule.state_dict for i, rule in enumerate(slots.settle)}
        parts |= {f"upkeep/{i}": rule.state_dict for i, rule in enumerate(slots.upkeep)}
        if "teacher" in vars(task):  # only if a slot asked for one
            parts["teacher"] = lambda: task.teacher.parameters
        for index, network in enumerate(slots.networks):
            if network.statistics is not None:
                # Where predictions depend on them, statistics are a part of what was learnt.
                kind = "model/statistics" if network.statistics.learnt else "statistics"
                parts[f"{kind}/{index}"] = partial(getattr, network.statistics, "tensors")
        return parts

    def snapshot(self) -> dict[str, Tensor]:
        """A copy of every tensor that changes."""
        return {name: tensor.clone() for name, tensor in self.tensors().items()}

    @torch.no_grad()
    def write(self, state: Mapping[str, Tensor]) -> None:
        tensors = self.tensors()
        with torch.inference_mode(False):
            for name, tensor in state.items():
                tensors[name].copy_(tensor)

    @contextmanager
    def meeting(self, state: Mapping[str, Tensor]) -> Iterator[None]:
        """With these values inside, and then with those of before."""
        tensors = self.tensors()
        before = {name: tensors[name].clone() for name in state}
        try:
            self.write(state)
            yield
        finally:
            self.write(before)

    def reset(self) -> None:
        """All is as at the beginning."""
        self.write(self.fresh)
        self.draws.state = self.fresh_draws
        self.load_extra_state({})
        self.healthy = self.latest = guarded(self.fresh)

    def forget(self, *, optimizer: bool = True, keep: Collection[str] = ()) -> None:
        """Take back what was learnt, but for weights of these names, with or without the
        optimiser's state; counters go on."""
        stays = {f"{part}/{name}" for part in ("model", "teacher") for name in keep}
        fresh = {name: value for name, value in learnt(self.fresh).items() if name not in stays}
        if not optimizer:
            fresh = {n: t for n, t in fresh.items() if not n.startswith("optimizer/")}
        self.write(fresh)

    def collapsed(self, logits: Tensor) -> bool:
        """Whether predictions have just collapsed."""
        watch = self.watch
        adapts = self.learn is not None or bool(learnt(self.fresh))
        # A layer taken for the head that is not has another number of classes.
        if watch is None or not adapts or logits.shape[1] != len(watch.frequency):
            return False
        watch(logits.argmax(1))
        # Not when the watch says so, but when the source model's answers do not explain it.
        return self.monitor.collapses(watch)

    def remember(self) -> None:
        """Now and then, while all is well: what is put back when it no longer is."""
        if self.watch is not None and not self.monitor.harm.rings and self.watch.settled():
            self.healthy, self.latest = self.latest, guarded(self.snapshot())

    def go_back(self) -> None:
        """To what was learnt when all was well."""
        self.write(self.healthy)
        if self.learn is not None:
            self.learn.load_extra_state({})  # the model that went wrong chose what is in it
        self.latest = self.healthy
        if self.watch is not None:
            self.watch.start()

    def distance(self) -> float:
        """The distance of the weights that train from the source's, relative to the length of
        those."""
        trained = self.slots.task.parameters
        if not trained:
            return 0.0
        start = [self.fresh[f"model/{name}"] for name in trained]
        moved = torch._foreach_sub([parameter.detach() for parameter in trained.values()], start)
        norm = torch.nn.utils.get_total_norm
        return float(norm(moved) / norm(start).clamp_min(1e-12))

    def extra_state(self) -> dict[str, Tensor]:
        """What else there is, of a size that is not known before the stream: images."""
        images = self.window.images
        extra = {} if images is None else {"window": images}
        if self.learn is not None:
            extra |= {f"memory/{name}": t for name, t in self.learn.extra_state().items()}
        return extra

    def load_extra_state(self, saved: Mapping[str, Tensor]) -> None:
        """Take back what `extra_state` gave; nothing: begin without."""
        images = saved.get("window")
        prepare = self.slots.task.network.prepare
        self.window.images = None if images is None else prepare(images)
        if self.learn is not None:
            self.learn.load_extra_state(files.under("memory/", saved))

    def saved(self, *, images: bool = True) -> dict[str, Tensor]:
        """All that a file holds of it, with or without the images that it keeps."""
        extra = self.extra_state() if images else {}
        tensors = {**self.tensors(), **extra, "draws": self.draws.state}
        if self.keeps_healthy:
            tensors |= {f"healthy/{name}": value for name, value in self.healthy.items()}
            # A copy, since the two may be one, and a file holds no tensor twice.
            tensors |= {f"latest/{name}": value.clone() for name, value in self.latest.items()}
        return tensors

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Take over what `saved` gave, in this version or an older one."""
        tensors = self.tensors()
        names = [n for n in tensors if n in saved or not SINCE_0_1.fullmatch(n)]
        expected = {name: tensors[name] for name in names} | {"draws": self.draws.state}
        if self.keeps_healthy:
            for snapshot in ("healthy", "latest"):
                expected |= {f"{snapshot}/{n}": t for n, t in guarded(tensors).items()}
        files.check_alike(saved, expected)
        files.check_numbers(saved)
        for name in names:
            if COUNTS.fullmatch(name) and saved[name] < 0:
                raise ValueError(f"{name!r} counts below 0; expected 0 or more")
        self.write({name: saved[name] for name in names})
        for network in self.slots.networks:
            if network.statistics is not None:
                network.statistics.loaded()
        self.draws.state = saved["draws"]
        self.load_extra_state(saved)
        if self.keeps_healthy:
            self.healthy = files.under("healthy/", saved)
            self.latest = files.under("latest/", saved)

    def begin(self) -> Callable[[], None]:
        """A batch begins; what is given undoes it, leaving all as it was."""
        networks, learn = self.slots.networks, self.learn
        for network in networks:
            network.forwards = 0
            if network.statistics is not None:
                network.statistics.snapshot()
        # Whether more than statistics changes before a batch has proved good, or before the source
        # model has seen it, which may fail too.
        at_once = learn is not None and learn.at_once
        at_once = at_once or self.route is not None or self.slots.episode_steps > 0
        at_once = at_once or self.monitor.due or bool(self.fallback.active)
        draws, tensors, extra = self.draws.state, dict[str, Tensor](), dict[str, Tensor]()
        if at_once:
            tensors, extra = self.snapshot(), self.extra_state()

        def undo() -> None:
            self.draws.state = draws
            for network in networks:
                if network.statistics is not None:
                    network.statistics.restore()
            if learn is not None:
                learn.clear()
            self.write(tensors)
            if at_once:
                self.load_extra_state(extra)

        return undo


class Window:
    """The latest images of a stream, where batches are small: up to `size` − 1, for the next batch
    to come after; without a size, none."""

    def __init__(self, size: int | None):
        self.size = size
        self.images: Tensor | None = None

    def join(self, batch: Tensor) -> Tensor:
        """What is looked at: the batch, after as many of the images held as there is room for."""
        if self.size is None or self.images is None:
            return batch
        if self.images.shape[1:] != batch.shape[1:]:
            raise ValueError(
                f"The window holds images of shape {tuple(self.images.shape[1:])}, this one is "
                f"{tuple(batch.shape[1:])}: keep one size, or reset() first."
            )
        return torch.cat([self.images, batch])[-max(self.size, len(batch)) :]

    def after(self, joined: Tensor) -> Tensor | None:
        """What it will hold; a copy, since a model may write into its input."""
        return None if self.size is None else joined[1 - self.size :].clone()
