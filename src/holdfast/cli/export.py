"""`holdfast export`: what was learnt, in a file for another runtime."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from holdfast.exporting.formats import ENDINGS, FORMATS, To, find_format
from holdfast.exporting.place import check_free
from holdfast.util.words import listed

if TYPE_CHECKING:
    from torch import Tensor, nn

    from holdfast.data.images import Images
    from holdfast.source.source import Source

# The embedded network's images can be drawn.
EMBEDDED = "glyphs"
# Most images that statistics are taken from.
CALIBRATION = 512


@dataclass(frozen=True)
class Export:
    """Write what an adapter has learnt into a file for another runtime, have that run it on real
    images, and compare. What differs, or has changed its precision, is not written."""

    state: tyro.conf.Positional[Path]
    """As adapter.save(path) wrote it."""
    model: str
    """The model that was adapted, as `run` takes it: resnet20:weights.safetensors,
    package.module:factory, path/to/file.py:factory, torchvision:NAME, timm:NAME, glyphs."""
    to: tyro.conf.UseAppendAction[tuple[To, ...]] = ()
    """The format, once for each: pt2 (torch alone loads it), onnx, openvino, executorch. Default:
    what the ending of --out says."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o", "--output"])] = None
    """The file; an ending that is missing is added: .pt2, .onnx, .xml, .pte. Default: the name of
    the state, in the current folder."""
    images: str | None = None
    """Real images to compare on, as the model gets them: a folder of images or of class folders, an
    .npz or .npy file, or a set by name, such as cifar10. Default: those of the embedded model."""
    statistics: Literal["stream", "batch"] = "stream"
    """Of batch norm: averages over the stream's recent batches, or those of each batch that the
    file is given, as adapter.predict has it; not every method can be exported so."""
    calibrate: str | None = None
    """Images to take these averages from instead, up to 512 of them, named as --images are."""
    source: str | None = None
    """Labelled source images, for a method that replays them (rmt): a set by name, an .npz file, a
    folder of classes. Default: those of the embedded model."""
    tolerance: float = 1e-5
    """How far logits may be apart, as a share of the largest one, or of 1 if that is larger."""
    batch: Annotated[int, tyro.conf.arg(aliases=["--batch-size"])] = 64
    """The largest batch that is tried; of executorch, the largest that the file takes."""
    root: str | None = None
    """Where sets lie. Default: $HOLDFAST_DATA, else the folder data."""
    size: int | None = None
    """Side that images of a folder are resized and cropped to. Default: as they are, or 224 where
    they differ in size."""
    mean: str | None = None
    """Of the input normalisation that the model's weights were trained with."""
    std: str | None = None
    """The same, of the standard deviation."""
    device: str = "cpu"
    """Of the weights in a pt2 file, as torch names it; other formats leave it to who loads them."""
    force: bool = False
    """Replace a file that is there."""

    def run(self) -> None:
        targets = self.targets()
        for to, path in targets.items():
            check_free((path, *FORMATS[to].beside(path)), self.force)
            find_format(path, to)

        import holdfast
        from holdfast.bench.shown import check_device
        from holdfast.engine.checks import check_images
        from holdfast.exporting.make import export
        from holdfast.models.find import find_model
        from holdfast.models.normalization import parse_normalization

        check_device(self.device)
        model = find_model(self.model, parse_normalization(self.mean, self.std)).eval()
        adapter = holdfast.load(self.state, model.to(self.device), self._source(model))
        images = self._read(self.images, self.batch + 4, "--images, real images to compare on")
        check_images(images, adapter.options.input_range, convolutional=adapter.network.is_conv)
        print(adapter)
        module = adapter.frozen(self._calibration(), statistics=self.statistics)
        for to, path in targets.items():
            done = export(
                module,
                path,
                images=images,
                to=to,
                tolerance=self.tolerance,
                batch=self.batch,
                overwrite=self.force,
            )
            print(done)

    def targets(self) -> dict[str, Path]:
        """The file of each format."""
        out = Path(self.state.stem) if self.out is None else self.out
        named = ENDINGS.get(out.suffix)
        formats = self.to or (() if named is None else (named.name,))
        if not formats:
            raise ValueError(f"Which format? Pass --to, once for each: {listed(FORMATS)}.")
        if named is not None and set(formats) != {named.name}:
            raise ValueError(
                f"{out} ends in that of {named.name}, and --to says {listed(formats)}: leave the "
                "ending out, and each format adds its own."
            )
        if named is not None:
            return {named.name: out}
        return {to: out.with_name(out.name + FORMATS[to].ending) for to in formats}

    def _read(self, what: str | None, most: int, option: str) -> Tensor:
        """Images of a file or a folder, or of a set by name."""
        import torch

        from holdfast.explain.images import read_images
        from holdfast.explain.normalisations import spread

        what = self._usual(what)
        if what is None:
            raise ValueError(f"Pass {option}: a folder, an .npz or .npy file, or a set by name.")
        if Path(what).exists():
            return read_images(Path(what), most, self.size).images
        found = self._open(what, "test")
        return torch.stack([found[place][0] for place in spread(len(found), most)])

    def _open(self, name: str, split: str) -> Images:
        from holdfast.bench.opening import open_alike
        from holdfast.bench.options import DataOptions

        return open_alike(DataOptions(root=self.root, size=self.size), name, split=split)

    def _calibration(self) -> list[Tensor] | None:
        if self.calibrate is None:
            return None
        images = self._read(self.calibrate, CALIBRATION, "--calibrate").to(self.device)
        return [images[at : at + self.batch] for at in range(0, len(images), self.batch)]

    def _source(self, model: nn.Module) -> Source | None:
        """What a state does not hold."""
        from holdfast.bench.opening import shuffled
        from holdfast.engine.adapter import KIND
        from holdfast.engine.network import fingerprint
        from holdfast.source.source import Source
        from holdfast.util import files

        what = self._usual(self.source)
        if what is None:
            return None
        header, _ = files.read(self.state, KIND)
        loader = shuffled(self._open(what, "train"))
        return Source(fingerprint(model), {}, head=header.get("head"), loader=loader)

    def _usual(self, what: str | None) -> str | None:
        return EMBEDDED if what is None and self.model == EMBEDDED else what
