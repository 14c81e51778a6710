"""A method: its settings, and the slots it fills."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from torch import nn

from holdfast.engine.norms import ByBatch, BySource, Normalisation
from holdfast.parts.descent import Descent
from holdfast.parts.learn import Learn, PlainStep, Settle
from holdfast.parts.predict import Learnt, Prediction, Refine, Route, Student
from holdfast.parts.select import Select
from holdfast.parts.task import Task
from holdfast.parts.terms import Term
from holdfast.parts.upkeep import Upkeep
from holdfast.util.settings import ByClasses, Settled, Value, setting

if TYPE_CHECKING:
    from typing_extensions import Self

Origin = Literal["written", "plug-in", "host", "alone", "preset", "default"]


@dataclass(frozen=True)
class CompositionContext:
    """Where a method stands: on which host, with which plug-ins, under which preset.

    alone: no method in its own right is there, only plug-ins.
    """

    preset: str | None = None
    host: str | None = None
    plugins: tuple[Method, ...] = ()
    alone: bool = False


ALONE = CompositionContext()


@dataclass(frozen=True)
class Method(Settled):
    """Base of all methods: a subclass names its settings and fills the slots it needs.

    A setting left at None is resolved on composition: what is written out wins, then what a
    plug-in replaces, then what holds on this host or for a plug-in that is its own host, then the
    preset, then the default. A default that follows from the number of classes waits for the model.
    Annotations tell the type of what is resolved, and slots see nothing else: `util.settings`.
    """

    paper: ClassVar[str] = ""
    predicts: ClassVar[str] = "the adapted network's logits, before the update"
    trains_also: ClassVar[str] = ""
    note: ClassVar[str] = ""
    # What it needs memory for, beside the network, one forward (and backward) and the optimiser.
    memory: ClassVar[str] = ""
    # May follow a host; and is a method in its own right, not only something to add to one.
    plugin: ClassVar[bool] = False
    standalone: ClassVar[bool] = True
    # Whether a plug-in has nothing to do without a host, so that it is an error alone.
    needs_host: ClassVar[bool] = False
    learns: ClassVar[bool] = False
    # Whether a plug-in acts through its host's steps. One that only refines predictions, or brings
    # statistics, goes on a host that never learns too.
    needs_steps: ClassVar[bool] = True
    # Whether a plug-in brings statistics that serve single images, and batches of any size.
    serves_single: ClassVar[bool] = False
    # Settings of a plug-in under which it changes nothing; None: there are none such.
    neutral: ClassVar[Mapping[str, Value] | None] = None
    # Settings that do nothing beside a value of another: {"evict": ("memory", "fifo")}.
    unused: ClassVar[Mapping[str, tuple[str, Value]]] = {}
    # Keeps images or features one by one; of a window only the newest are taken in.
    keeps_samples: ClassVar[bool] = False
    # Whether those are images themselves, which its state file then holds.
    keeps_images: ClassVar[bool] = False
    # Keeps several states, and chooses which one a batch meets.
    routes: ClassVar[bool] = False
    # A rule of its own takes back what was learnt.
    resets: ClassVar[bool] = False
    # Without a gradient the optimiser still steps, so that momentum moves weights.
    steps_without_gradient: ClassVar[bool] = False
    # Whether, on norm layers that go by the batch, several streams can take its step at once: it
    # looks at a batch through the step's logits and features alone, and runs no network itself.
    groups: ClassVar[bool] = False
    backwards: ClassVar[int] = 0
    # How often, at least and at most, terms are asked of a batch.
    passes: ClassVar[tuple[int, int]] = (1, 1)
    # What is worth trying at other values before deployment: multiples of what it is set to.
    tunes: ClassVar[Mapping[str, tuple[float, ...]]] = {}
    presets: ClassVar[Mapping[str, Mapping[str, Value]]] = {}
    # Values for a plug-in that is its own host.
    alone: ClassVar[Mapping[str, Value]] = {}
    # Values of its own on a certain host, whatever the preset (None) or with one.
    on: ClassVar[Mapping[tuple[str, str | None], Mapping[str, Value]]] = {}
    # Settings of a certain host that it replaces, while it acts.
    replaces: ClassVar[Mapping[str, Mapping[str, Value]]] = {}

    def __post_init__(self) -> None:
        for declared in self.settings():
            object.__setattr__(self, declared.name, declared.check(getattr(self, declared.name)))

    def resolved(self, context: CompositionContext = ALONE) -> Self:
        """With every setting filled in; a plug-in on a host, all but those of the host."""
        values: dict[str, Value] = {}
        for origin in reversed(self.origins(context).values()):
            values |= origin
        if context.host is not None:
            values = {name: value for name, value in values.items() if name not in HOST_SETTINGS}
        return replace(self, **values)

    def origins(self, context: CompositionContext) -> dict[Origin, Mapping[str, Value]]:
        """Where values come from, what wins first."""
        host = context.host or ""
        replaced: dict[str, Value] = {}
        for plugin in context.plugins:
            replaced |= plugin.replaces.get(self.name, {}) if plugin.has_effect() else {}
        return {
            "written": self.given,
            "plug-in": replaced,
            "host": {**self.on.get((host, None), {}), **self.on.get((host, context.preset), {})},
            "alone": self.alone if context.alone else {},
            "preset": self.presets.get(context.preset or "", {}),
            "default": {
                declared.name: declared.default
                for declared in self.settings()
                if declared.default is not None and not isinstance(declared.default, ByClasses)
            },
        }

    def for_classes(self, classes: int) -> Self:
        """With those settings filled in whose default follows from the number of classes."""
        unset = (declared for declared in self.settings() if getattr(self, declared.name) is None)
        rules = {
            declared.name: declared.default
            for declared in unset
            if isinstance(declared.default, ByClasses)
        }
        return replace(self, **{name: default.rule(classes) for name, default in rules.items()})

    @classmethod
    def kind(cls) -> str:
        if not cls.plugin:
            return "host"
        if cls.needs_host:
            return "plug-in"
        return "host or plug-in" if cls.standalone else "plug-in, or alone"

    @classmethod
    def example(cls) -> str:
        """The shortest way to write it."""
        return f"tent+{cls.name}" if cls.needs_host else cls.name

    def has_effect(self) -> bool:
        """Whether it does anything: under its neutral settings it does not."""
        neutral = self.neutral
        return neutral is None or any(getattr(self, name) != neutral[name] for name in neutral)

    def conflict(self) -> str | None:
        """Which of the settings given contradict each other, and what to write instead."""
        given, kind = self.given, type(self)
        defaults = {declared.name: declared.default for declared in self.settings()}
        for name, (other, value) in self.unused.items():
            # A method that is written out in full names defaults too.
            if given.get(other) == value and given.get(name, defaults[name]) != defaults[name]:
                first, second = (str(kind(**{key: given[key]})) for key in (other, name))
                return f"{first} has no use for {name}: write {first}, or {second}."
        return None

    def objection(self, host: Method | None) -> str | None:
        """Why, as a plug-in, it cannot act on this host (None: alone), and what to write instead.
        All settings are resolved by then."""
        if host is None and self.needs_host:
            return (
                f"{self.name} has nothing to act on alone: write it behind a method, as in "
                f"{self.example()}."
            )
        if host is not None and self.needs_host and host.episode_steps():
            why = "nothing it learns stays" if self.needs_steps else "there is no batch"
            return (
                f"{host.name} answers each image by itself and begins anew with it, so that {why} "
                f"for {self.name} to act on: put it on another method, as in {self.example()}."
            )
        if host is not None and self.name in (own := host.holds()):
            setting, _, _ = own[self.name].partition("=")
            return (
                f"{host.name} does what {self.name} does already: set its {setting}, or write "
                f"{host.name}({own[self.name]})+{self.name}."
            )
        if host is None or host.learns or not self.needs_steps:
            return None
        alone = "" if self.needs_host else f"write {self.name} alone, or "
        return (
            f"{host.name} never takes a step, so {self.name} has nothing to act on: {alone}put it "
            f"on a method that learns, as in tent+{self.name}."
        )

    def objection_after(self, before: tuple[Method, ...]) -> str | None:
        """Why, as a plug-in, it cannot come after these, the plug-ins written before it, and what
        to write instead."""
        return None

    # The slots, asked of resolved values only.

    def selection(self) -> Select:
        """What trains, and how norm layers behave."""
        return Select("nothing", BySource())

    def terms(self, task: Task) -> list[Term]:
        """What is minimised. A term of weight 0 is left out."""
        return []

    def learning(self, task: Task, parameters: Mapping[str, nn.Parameter]) -> Learn | None:
        """How a step is taken, on all that trains; None: never."""
        return None

    def prediction(self, task: Task) -> Prediction:
        """Which logits leave."""
        return Student(task.network, after=self.predicts_after())

    def settling(self, task: Task) -> list[Settle]:
        """What moves weights on at the end of each step, before a teacher follows."""
        return []

    def upkeep(self, task: Task) -> list[Upkeep]:
        """What follows a batch, when it has been answered."""
        return []

    # The openings, for what does not fit these.

    def refine(self, task: Task) -> list[Refine]:
        """What is done to the logits before they leave."""
        return []

    def route(self, task: Task, learnt: Learnt) -> Route | None:
        """Which state a batch meets; `learnt` tells names, shapes and first values of what is
        learnt."""
        return None

    def normalisation(self, task: Task, by: Normalisation) -> Normalisation:
        """By which statistics batch norm goes, if they are to be others than `by`, the host's."""
        return by

    def episode_steps(self) -> int:
        """How many steps are taken on each image by itself, from the source on and before it is
        predicted; 0: a batch is looked at as a whole, and what is learnt stays."""
        return 0

    def prepare(self, task: Task, learn: Learn | None) -> None:
        """What is done once, before the stream."""

    def predicts_after(self) -> bool:
        """Whether the logits that leave are made when the batch has been learnt from."""
        return False

    def predicting(self) -> str:
        """Which logits leave, in words."""
        return self.predicts

    def needs(self) -> tuple[str, ...]:
        """What it takes from a Source: "prototypes", "fisher", "gaussians", "budgets", "styles",
        "replay", "warm-up"."""
        return ()

    def holds(self) -> Mapping[str, str]:
        """Plug-ins that are a part of it, under these settings; and the setting that leaves each
        out, as in {"ensemble": "source_momentum=1"}."""
        return {}

    def keeps_probabilities(self) -> bool:
        """Whether the softmax of the logits that leave still are probabilities after it; if not,
        metrics that need some take the logits as they were before."""
        return True

    def advice(self, classes: int) -> str | None:
        """What someone with so many classes should know before using these settings."""
        return None

    def can_group(self) -> bool:
        """Whether it `groups`, under these settings."""
        return self.groups

    def noted(self) -> str:
        """What else to know of it, under these settings."""
        return self.note

    def takes_memory(self) -> str:
        """What for, beside the network; in words."""
        return self.memory

    def forwards(self) -> tuple[int, int]:
        """The fewest and the most forwards a batch takes, without those that plug-ins add."""
        return 1, 1

    def largest_batch(self) -> int | None:
        """The largest batch for which these bounds hold; None: any."""
        return None

    def always_drives(self) -> bool:
        """Whether some term of it makes a step happen on every batch."""
        return False

    def extra_forwards(self) -> int:
        """How many forwards its terms add to those of the host."""
        return 0

    def forwards_beside(self) -> tuple[int, int]:
        """The fewest and the most forwards that it adds to a batch beside its terms, as a
        plug-in."""
        return 0, 0


@dataclass(frozen=True)
class Learner(Method):
    """A method that takes gradient steps, on the norm layers unless `select` says otherwise."""

    learns: ClassVar[bool] = True
    backwards: ClassVar[int] = 1
    tunes: ClassVar[Mapping[str, tuple[float, ...]]] = {"lr": (0.25, 1, 4)}

    lr: float = setting(2.5e-4, "learning rate", at_least=0)
    momentum: float = setting(0.9, "momentum of SGD, first beta of Adam", at_least=0, at_most=0.999)
    optimizer: Literal["sgd", "adam"] = setting("sgd", "which optimiser takes the step")
    nesterov: bool = setting(False, "Nesterov's form of SGD's momentum")
    select: Literal["norm", "body", "all"] = setting(
        "norm", "what trains: norm layers' scale and shift, all but the head, or all"
    )

    def selection(self) -> Select:
        return Select(self.select, ByBatch())

    def resolved(self, context: CompositionContext = ALONE) -> Self:
        resolved = super().resolved(context)
        if self.nesterov is None and resolved.nesterov and not resolved.may_use_nesterov():
            return replace(resolved, nesterov=False)
        return resolved

    def may_use_nesterov(self) -> bool:
        return self.optimizer == "sgd" and self.momentum != 0

    def descent(self) -> Descent:
        return Descent(self.lr, self.momentum, self.optimizer, self.nesterov)

    def learning(self, task: Task, parameters: Mapping[str, nn.Parameter]) -> Learn:
        return PlainStep(self.descent(), parameters)


# A plug-in has these too, for when it is its own host.
HOST_SETTINGS = frozenset(field.name for field in fields(Learner)) | {"predict"}
