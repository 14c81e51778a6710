"""Images of a stream that was never shown, and what a recorder makes of them."""

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from holdfast.bench.metrics.recorder import Recorder
from holdfast.bench.metrics.seen import Seen

C = 5
NAN = math.nan
DOMAINS = ("snow", "fog", "original")


class Image(NamedTuple):
    domain: str
    label: int
    predicted: int
    confidence: float
    entropy: float


def borders():
    """Edges of both binnings as torch and as numpy round them, and their neighbours."""
    for bins in (15, 20):
        for edge in (*torch.linspace(0, 1, bins + 1).numpy(), *np.linspace(0, 1, bins + 1)):
            edge = np.float32(edge)
            yield from (edge, np.nextafter(edge, np.float32(0)), np.nextafter(edge, np.float32(1)))


BORDERS = sorted({float(border) for border in borders()})
CONFIDENCES = st.sampled_from(BORDERS) | st.floats(0, 1, width=32)
IMAGES = st.builds(
    Image,
    st.sampled_from(DOMAINS),
    st.integers(-1, C - 1),
    st.integers(0, C - 1),
    CONFIDENCES,
    st.floats(0, 1.5, width=32),
)
STREAMS = st.lists(IMAGES, min_size=1, max_size=60)


def batch_of(shown, number=0, /, **did):
    domains, labels, predicted, confidence, entropy = zip(*shown, strict=True)
    return Seen(
        number,
        0,
        domains,
        np.array(labels, np.int32),
        np.array(predicted, np.int32),
        np.array(confidence, np.float32),
        np.array(entropy, np.float32),
        **did,
    )


def recorded(*batches):
    recorder = Recorder(C)
    for number, images in enumerate(batches):
        recorder.update(batch_of(images, number))
    return recorder


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else math.nan


def is_close(value, expected):
    return value == pytest.approx(expected, rel=1e-9, abs=1e-12, nan_ok=True)


def cut(images, places):
    """The images in batches, cut at the places."""
    places = sorted({0, len(images), *(place % len(images) for place in places)})
    return [images[a:b] for a, b in pairwise(places)]
