"""`holdfast rehearse`: which method, which settings, and is it worth it?"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from holdfast.cli.options import Many, Specs

OUT = Path("rehearsal")
# A seed of the embedded benchmark that its network was not trained on.
UNSEEN = 1


@dataclass(frozen=True)
class Rehearse:
    """Rehearse the drift before deployment, on labelled images of the source: which method, which
    settings, and is it worth it?"""

    data: str = "glyphs-c"
    """The data that the model is for: its model and its source images are taken where none are
    named. No image and no label of its test domains is read."""
    model: str | None = None
    """As `run` takes it, such as resnet20:weights.safetensors or package.module:factory. Default:
    what comes with the data."""
    source: str | None = None
    """Labelled clean images, best ones that the model was not trained on: a set by name, an .npz
    file, a folder of classes. Default: what belongs to the data."""
    minutes: float = 10.0
    """How long it may take."""
    method: Specs = ()
    """As `run` takes them, once for each; each is tried with the settings that it tunes. frozen and
    bn always are."""
    stream: Many = ()
    """clean, continual, 'small batches', correlated, recurring, or a stream as `run` takes it; once
    for each. Default: these five."""
    severity: tyro.conf.UseAppendAction[tuple[int, ...]] = ()
    """Of the corruptions, once for each. Default: 1, 3 and 5."""
    batch: Annotated[int, tyro.conf.arg(aliases=["--batch-size"])] = 64
    """Images that come at a time."""
    images: int | None = None
    """How many images are read, at most. Default: 4,000, or 4 for each class."""
    root: str | None = None
    """Where sets lie. Default: $HOLDFAST_DATA, else the folder data."""
    classes: str | None = None
    """A file that names the classes in order, one a line."""
    size: int | None = None
    """Side that images of folders are resized and cropped to. Default: 224."""
    mean: str | None = None
    """Of the input normalisation that the model's weights were trained with."""
    std: str | None = None
    """The same, of the standard deviation."""
    head: str | None = None
    """Name of the model's layer that maps features to logits. Default: the last linear one."""
    device: str | None = None
    """As torch names it. Default: cuda where there is one, else cpu."""
    threads: int | None = None
    """Of the processor. Default: one for each core."""
    seed: int = 0
    """Of the order of images, and of the methods' own randomness."""
    out: Path = OUT
    """Folder for all of it: the page rehearsal.html, rehearsal.json, the source."""
    resume: bool = False
    """Go on with what was stopped."""

    def run(self) -> None:
        import torch

        import holdfast
        from holdfast.bench.given import share_of_cores
        from holdfast.bench.materials import Materials
        from holdfast.bench.opening import shuffled
        from holdfast.bench.plan import Run
        from holdfast.bench.shown import MODELS
        from holdfast.cli.run import show_blocks
        from holdfast.data.glyphs import Glyphs
        from holdfast.report.follow import write
        from holdfast.util.threads import threads

        usual = "cuda" if torch.cuda.is_available() else "cpu"
        given = ("data", "model", "source", "root", "classes", "size", "mean", "std", "head")
        named = {name: getattr(self, name) for name in given}
        count = share_of_cores(1) if self.threads is None else self.threads
        run = Run.of("frozen", **named, device=self.device or usual, threads=count)
        if self.model is None and self.data not in MODELS:
            raise ValueError(
                f"Which model is to be rehearsed for {self.data}? Pass --model, such as "
                "resnet20:path/to/weights.safetensors or package.module:factory."
            )
        materials = Materials(self.out / "cache")
        model = materials.model(run)
        # The embedded net's images can be drawn anew, so that it has not seen them.
        drawn = self.source is None and self.data == "glyphs-c"
        images = Glyphs("train", seed=UNSEEN) if drawn else materials.source_images(run)
        with threads(count):
            found = holdfast.rehearse(
                model,
                shuffled(images),
                minutes=self.minutes,
                methods=self.method,
                streams=self.stream,
                batch=self.batch,
                severities=self.severity or (1, 3, 5),
                images=self.images,
                head=self.head,
                seed=self.seed,
                folder=self.out,
                resume=self.resume,
                tell=lambda line: print(line, file=sys.stderr, flush=True),
            )
        page = self.out / "rehearsal.html"
        write(page, found.page())
        show_blocks(found.document())
        print(f"Page: {page}")
        print(f"Source: {self.out / 'source.safetensors'}")
