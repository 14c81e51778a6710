"""A rehearsal as it goes on: it is timed, planned, and gone through rung after rung."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from torch import Tensor, nn

from holdfast.bench.code import code_hashes, hash_source
from holdfast.bench.opening import shuffled
from holdfast.data.streams import Flow
from holdfast.engine.adapter import Adapter
from holdfast.engine.network import fingerprint
from holdfast.recipes.compose import compose
from holdfast.rehearsal.folder import Folder
from holdfast.rehearsal.images import Parts
from holdfast.rehearsal.judge import Evaluation, Showing, survivors
from holdfast.rehearsal.perform import TIMED, Shown, begin, evaluate, time_batches
from holdfast.rehearsal.plan import ALWAYS, FROZEN, Rung, Timing, plan_rungs
from holdfast.rehearsal.scenes import Level, Scene
from holdfast.source.source import Source
from holdfast.util.cpu import release_memory
from holdfast.util.files import text_hash
from holdfast.util.progress import progress, stoppable

# The longest stream that is kept in memory.
BYTES = 2**30

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Setting:
    """What a rehearsal is asked to do."""

    methods: tuple[str, ...]
    scenes: tuple[Scene, ...]
    severities: tuple[int, ...]
    batch: int
    minutes: float
    head: str | None
    seed: int

    def made_of(self, model: nn.Module, parts: Parts) -> dict[str, Any]:
        """All that decides what comes of it; another rehearsal differs in some of it."""
        named = [method for spec in self.methods for method in compose(spec).methods]
        code = f"{code_hashes(named)} {hash_source(Path(__file__).parent)}"
        return {
            "code": text_hash(code),
            "model": fingerprint(model),
            "images": text_hash(parts.source.hash + parts.shown.hash),
            "methods": list(self.methods),
            "streams": [f"{scene.name}: {scene.stream}" for scene in self.scenes],
            "severities": list(self.severities),
            "batch": self.batch,
            "minutes": self.minutes,
            "head": self.head,
            "seed": self.seed,
        }


class Session:
    """What is needed on the way. `tell` hears of it in lines."""

    def __init__(
        self, model: nn.Module, parts: Parts, setting: Setting, folder: Folder, tell: Tell
    ):
        self.model, self.parts, self.setting = model, parts, setting
        self.folder, self.tell = folder, tell
        self.source: Source

    def open_source(self, *, stored: bool) -> None:
        """What is known of the source; `stored`: in a file that is of this rehearsal."""
        loader, cache = shuffled(self.parts.source), self.folder.path / "work"
        if stored and self.folder.source.exists():
            self.source = Source.load(self.folder.source, loader, cache=cache)
        else:
            head = self.setting.head
            self.source = Source.from_loader(self.model, loader, None, head=head, cache=cache)

    # The plan.

    def make_plan(self, made_of: Mapping[str, Any], start: float) -> dict[str, Any]:
        """Time the methods, and plan for what is left of the minutes since `start`."""
        methods, unfit = self._time_methods()
        timing = Timing(methods, self._time_making())
        sizes = [self._sizes(level) for level in range(self._highest() + 1)]
        rungs, seconds = plan_rungs(
            list(methods),
            lambda level, names: timing.cost(sizes[level], names),
            60 * self.setting.minutes - (monotonic() - start),
            len(sizes) - 1,
        )
        self.source.save(self.folder.source)
        plan = {
            "made_of": dict(made_of),
            "methods": list(methods),
            "unfit": unfit,
            "rungs": [[rung.level, rung.methods] for rung in rungs],
            "seconds": seconds,
            "seconds_per_image": methods,
        }
        self.folder.keep_plan(plan)
        return plan

    def _time_methods(self) -> tuple[dict[str, dict[int, float]], dict[str, str]]:
        """Seconds for an image by size of the batch; and why those that cannot be set up do not
        fit."""
        batches = sorted(
            {self.setting.batch, *(scene.stream.batch for scene in self.setting.scenes)}
        )
        images = self._some_images((TIMED + 1) * batches[-1])
        seconds: dict[str, dict[int, float]] = {}
        unfit: dict[str, str] = {}
        with progress("First timing", len(self.setting.methods)) as advance:
            for name in self.setting.methods:
                try:
                    seconds[name] = time_batches(self.begin(name), images, batches)
                except (ValueError, RuntimeError) as error:
                    if name == FROZEN:
                        raise
                    unfit[name] = " ".join(str(error).split())
                advance(1)
        return seconds, unfit

    def _time_making(self) -> float:
        """Seconds for an image of a stream."""
        start, flow = monotonic(), self._flow(self.setting.scenes[-1], 0)
        Shown(flow)
        return (monotonic() - start) / flow.samples

    def _some_images(self, count: int) -> Tensor:
        return self.parts.shown.images(index % len(self.parts.shown) for index in range(count))

    def _sizes(self, level: int) -> list[tuple[int, int]]:
        """Images of each stream, and how many come at a time."""
        flows = ((self._flow(scene, level), scene.stream.batch) for scene in self.setting.scenes)
        return [(flow.samples, batch) for flow, batch in flows]

    def _highest(self) -> int:
        """The longest level that there are images for, and room."""
        shown, level = self.parts.shown, 0
        largest = BYTES // shown.pixels[0].numel()
        while (
            Level.of(level + 1, self.setting.batch).images <= len(shown)
            and max(images for images, _ in self._sizes(level + 1)) <= largest
        ):
            level += 1
        return level

    def _flow(self, scene: Scene, level: int) -> Flow:
        setting = self.setting
        return scene.over(
            self.parts.shown,
            Level.of(level, setting.batch),
            setting.severities,
            setting.scenes.index(scene),
            setting.seed,
        )

    def begin(self, method: str) -> Adapter:
        return begin(self.model, method, self.source, self.setting.head, self.setting.seed)

    # The rungs.

    def perform(self, plan: Mapping[str, Any]) -> list[dict[str, Showing]]:
        """What methods made of each rung."""
        methods: list[str] = plan["methods"]
        rungs = [Rung(*values) for values in plan["rungs"]]
        showings: list[dict[str, Showing]] = []
        for number, rung in enumerate(rungs):
            if number:
                methods = survivors(showings[-1], rung.methods)
            showings.append(self._perform_rung(number, len(rungs), rung, methods, plan["methods"]))
        return showings

    def _perform_rung(
        self, number: int, count: int, rung: Rung, methods: Sequence[str], known: Sequence[str]
    ) -> dict[str, Showing]:
        scenes, sizes = self.setting.scenes, [images for images, _ in self._sizes(rung.level)]
        others = sum(method not in ALWAYS for method in methods)
        title = f"Rung {number + 1} of {count}"
        self.tell(
            f"{title}: {others} method{'s' * (others != 1)} beside frozen and bn, {sum(sizes):,} "
            f"images in {len(scenes)} stream{'s' * (len(scenes) != 1)}."
        )
        showings: dict[str, dict[str, Evaluation]] = {name: {} for name in methods}
        with progress(title, sum(sizes) * len(methods)) as advance, stoppable() as stop:

            def went_on(images: int) -> None:
                advance(images)
                if stop.asked:
                    raise KeyboardInterrupt

            for index, scene in enumerate(scenes):
                shown: Shown | None = None
                for name in methods:
                    key = number, known.index(name), index
                    evaluation = self.folder.evaluation(*key)
                    if evaluation is not None:
                        advance(sizes[index])
                    else:
                        shown = shown or Shown(self._flow(scene, rung.level))
                        release_memory()
                        evaluation = evaluate(self.begin(name), shown, went_on)
                        self.folder.keep(*key, evaluation)
                    showings[name][scene.name] = evaluation
        broken = next(
            (result.failed for result in showings[FROZEN].values() if result.failed), None
        )
        if broken is not None:
            raise ValueError(f"The model itself cannot be shown the streams: {broken}.")
        return dict(showings)
