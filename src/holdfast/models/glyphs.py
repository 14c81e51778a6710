"""The network of the embedded benchmark `glyphs-c`, with its weights."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load_file

from holdfast.models.normalization import Normalized, normalized
from holdfast.models.resnets import ResNetCifar

CLASSES = 50
# How they came about: tools/train_glyphs.py.
WEIGHTS = Path(__file__).with_name("glyphs.safetensors")


def model(*, trained: bool = True) -> Normalized:
    """A ResNet-8 in eval mode, with its normalisation inside; its weights ship as float16."""
    network = normalized(ResNetCifar(1, CLASSES), (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    if trained:
        network.model.load_state_dict(load_file(WEIGHTS))
    return network.eval()
