"""The code on pages: found, and run page by page in a scratch folder.

A fenced block runs, unless the line above it says why not: `<!-- not run: needs a GPU -->`. One
that takes long runs in `make test-full`: `<!-- slow: why -->`.
"""

import glob
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import tyro
from PIL import Image
from toys import source_batches, staged_net, stream

from holdfast.cli.main import Command, main
from holdfast.models import resnet20

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent.parent
FENCE = re.compile(
    r"^(?P<mark><!-- (?P<why>[^\n]*?) -->\n)?"
    r"^(?P<ticks>```+)(?P<language>[^\n`]*)\n(?P<code>.*?)^(?P=ticks)$",
    re.MULTILINE | re.DOTALL,
)
MARKS = {"not run": "never", "slow": "slow"}
# What is shown and not run: equations, what a program prints; and what Sphinx itself takes.
SHOWN = {"text"}
MODELS = """
from torch import nn

def make():
    pooled = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), pooled, nn.Linear(8, 10))
"""


@dataclass(frozen=True)
class Block:
    line: int
    language: str
    code: str
    when: str
    """always, slow or never."""
    why: str


def blocks(text: str) -> list[Block]:
    """The blocks of a page that are code."""
    found = []
    for match in FENCE.finditer(text):
        language = match["language"].strip()
        if language.startswith("{") or language in SHOWN:
            continue
        mark, _, why = (match["why"] or "").partition(": ")
        line = text.count("\n", 0, match.start("ticks")) + 1
        when = MARKS.get(mark, "always")
        found.append(Block(line, language, match["code"], when, why if when != "always" else ""))
    return found


def commands(block: Block) -> list[list[str]]:
    """The words of each command of a block, patterns of files filled in."""
    lines = block.code.replace("\\\n", " ").splitlines()
    split = (shlex.split(line, comments=True) for line in lines)
    return [words for words in split if words]


def large(images):
    """Large enough to be corrupted."""
    return torch.nn.functional.interpolate(images, scale_factor=2)


def fill(folder: Path) -> dict[str, object]:
    """What is the reader's own: files in the current folder, and names of Python."""
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / "my_package").mkdir()
    (folder / "my_package" / "models.py").write_text(MODELS)
    torch.manual_seed(0)
    torch.save(resnet20(10).state_dict(), folder / "weights.pt")
    pixels = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
    np.savez(folder / "labelled.npz", images=pixels, labels=np.arange(40) % 10)
    for index, picture in enumerate(pixels[:20]):
        place = folder / "photos" / f"class-{index % 10}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(place / f"{index}.png")
    batches = [large(images) for images in stream(("all", "some"))]
    loader = [(large(images), labels) for images, labels in source_batches()]
    return {
        "model": staged_net(),
        "train_loader": loader,
        "validation_loader": loader,
        "labelled_loader": loader * 8,  # a rehearsal takes some hundreds
        "stream": batches,
        "images": batches[0],
    }


def run(block: Block, names: dict[str, object]) -> None:
    """Run a block, in the current folder; of one that is not run, see that it could be read."""
    if block.language == "toml":
        tomllib.loads(block.code)
    elif block.language == "python":
        code = compile("\n" * block.line + block.code, "the page", "exec")
        if block.when != "never":
            exec(code, names)
    elif block.language == "sh":
        for words in commands(block):
            if block.when == "never":
                check_options(words)
            else:
                command(words)
    else:
        raise AssertionError(f"line {block.line}: a block of code says that it is python, sh, toml")


def command(words: list[str]) -> None:
    assert words[0] == "holdfast", f"{shlex.join(words)}: what is not holdfast's is marked not run"
    found = [sorted(glob.glob(word)) or [word] for word in words[1:]]
    assert main([word for some in found for word in some]) == 0, shlex.join(words)


def check_options(words: list[str]) -> None:
    """A command that is not run has no option that holdfast lacks."""
    if words[0] == "holdfast":
        omitted = (tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes)
        tyro.cli(Command, prog="holdfast", args=words[1:], config=omitted)
