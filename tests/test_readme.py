"""The README's code runs, block after block, as it stands there."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from methods_in_readme import BLOCK, with_table
from toy_methods import TOYS
from toys import source_batches, stream, toy_net

import holdfast

README = (Path(__file__).parent.parent / "README.md").read_text()


def large(images):
    """Large enough to be corrupted."""
    return torch.nn.functional.interpolate(images, scale_factor=2)


def test_the_readmes_code_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.S)
    assert len(blocks) >= 5
    batches = [large(images) for images in stream(("all", "some"))]
    loader = [(large(images), labels) for images, labels in source_batches()]
    names = {"model": toy_net(), "train_loader": loader, "stream": batches}
    names["images"] = batches[0]
    for block in blocks:
        if "normalized(" in block or "glyphs" in block:  # other models than the rest
            exec(block, dict(names))
            continue
        exec(block, names)
    assert names["logits"].shape == (16, 7)
    assert (tmp_path / "state.safetensors").exists()
    assert isinstance(names["plain"], torch.nn.Module)


def test_the_readmes_table_of_methods_is_up_to_date():
    """If not: python tools/methods_in_readme.py."""
    assert with_table(README) == README


@pytest.mark.usefixtures("toy_methods")
def test_the_table_has_a_row_for_each_method_hosts_first():
    """Also for one that goes on a host only, and for one that is told with a bar."""

    @holdfast.register("toy-bar")
    @dataclass(frozen=True)
    class Bar(TOYS["toy-centre"]):
        """Takes |x| away."""

        needs_host: ClassVar[bool] = True

    _, _, *rows = BLOCK.search(with_table(README))[0].splitlines()
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]
    assert all(len(row) == 4 for row in cells)
    names, kinds = ([row[column] for row in cells] for column in (0, 1))
    assert sorted(names) == sorted(f"`{name}`" for name in holdfast.methods())
    is_host = [kind.startswith("host") for kind in kinds]
    assert is_host == sorted(is_host, reverse=True) and not all(is_host)
    assert names == sorted(names[: sum(is_host)]) + sorted(names[sum(is_host) :])
    assert rows[names.index("`toy-bar`")] == r"| `toy-bar` | plug-in | Takes \|x\| away. | – |"
