"""The slots of a method, filled for one network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from holdfast.engine.draws import Draws
from holdfast.engine.network import Network
from holdfast.engine.options import Options
from holdfast.parts.learn import Learn, Settle
from holdfast.parts.predict import Prediction, Refine
from holdfast.parts.task import Task
from holdfast.parts.terms import Term
from holdfast.parts.upkeep import Upkeep
from holdfast.recipes.compose import Composition
from holdfast.source.source import Source
from holdfast.util.files import text_hash


@dataclass(frozen=True)
class Slots:
    """What a method does with a batch.

    episode_steps: how many steps are taken on each image by itself; 0: a batch is one whole.
    """

    method: Composition
    task: Task
    terms: list[Term]
    prediction: Prediction
    refine: list[Refine]
    settle: list[Settle]
    upkeep: list[Upkeep]
    learn: Learn | None
    episode_steps: int

    @property
    def answers(self) -> str:
        """Which kind of answer it gives before it has learnt: with that, what such an answer is
        worth is kept in a source."""
        by = self.task.normalisation
        settings = "" if repr(by) == f"{type(by).__name__}()" else repr(by)
        kinds = [_kind(by, settings)]
        kinds += [_kind(part, part.extra_repr()) for part in (self.prediction, *self.refine)]
        return "-".join(kinds)

    @property
    def answers_between(self) -> bool:
        """Whether a batch is predicted while it is learnt from."""
        return self.learn is not None and self.learn.answers

    @property
    def networks(self) -> list[Network]:
        """The network that adapts, and those beside it."""
        return [self.task.network, *self.task.companions]

    def told(self) -> Mapping[str, Any]:
        """What the prediction says of a batch, upkeep, and statistics: those of the first network
        that recorded it."""
        known = [network.statistics for network in self.networks if network.statistics is not None]
        by_statistics = next(
            (told for told in (statistics.told() for statistics in known) if told), {}
        )
        by_upkeep = {name: value for rule in self.upkeep for name, value in rule.told().items()}
        return {**by_statistics, **by_upkeep, **self.prediction.told()}


def _kind(part: object, settings: str) -> str:
    name = type(part).__name__
    return f"{name}({text_hash(settings)[:8]})" if settings else name


def fill(method: Composition, model: nn.Module, source: Source | None, options: Options) -> Slots:
    """Ask a method for what goes into each slot."""
    given = [model]

    def fresh() -> Network:
        return Network(
            given[0],
            head=options.head,
            memory_format=options.memory_format,
            compile=options.compile,
        )

    network = fresh()
    if network.head_name is not None:
        settled = method.for_classes(network.head_rows)
        network.counts_on_head |= settled != method
        method = settled
    host, methods = method.host, method.methods
    selection = host.selection()
    chosen = selection.parameters(network, host.name)
    draws = Draws(options.seed, network.device)
    task = Task(network, chosen, selection.statistics, source, draws, options.input_range, fresh)
    for part in methods:
        task.normalisation = part.normalisation(task, task.normalisation)
    network.normalise(task.normalisation)
    terms = [term for part in methods for term in part.terms(task)]
    prediction = host.prediction(task)
    refine = [rule for part in methods for rule in part.refine(task)]
    settle = [rule for part in methods for rule in part.settling(task)]
    upkeep = [rule for part in methods for rule in part.upkeep(task)]
    # A term may have parts that train along, such as a projector.
    beside = {
        f"{term.label}.{name}": parameter
        for term in terms
        for name, parameter in term.named_parameters()
    }
    learn = host.learning(task, {**chosen, **beside})
    for part in methods:
        part.prepare(task, learn)
    if learn is not None:
        learn.settle = settle  # now, since steps before the stream are none of its
    for companion in task.companions:  # such as a teacher, which may be all that predicts
        companion.counts_on_head |= network.counts_on_head
    given.clear()  # the caller's model is the caller's again
    steps = host.episode_steps()
    if steps:
        _check_episodes(method.names, network, learn, options)
    return Slots(method, task, terms, prediction, refine, settle, upkeep, learn, steps)


def _check_episodes(names: str, network: Network, learn: Learn | None, options: Options) -> None:
    if learn is None or learn.at_once:
        raise ValueError(f"{names} works in episodes, so it needs a step that can be proposed.")
    if network.by_batch:
        raise ValueError(
            f"{names} works on one image at a time, which batch statistics cannot normalise: "
            "it needs statistics that serve single images, such as the source's."
        )
    if options.window is not None:
        raise ValueError(
            f"window={options.window} has no use here: {names} looks at each image by itself."
        )
