"""The README's code runs, block after block, as it stands there."""

import re
from pathlib import Path

import torch
from methods_in_readme import with_table
from toys import source_batches, stream, toy_net

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
