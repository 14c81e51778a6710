"""Streams: kinds of drift over a data set, as typed values with spec strings.

flow = parse("correlated(gamma=0.1)").over(glyphs.benchmark(), seed=0)
for batch in flow:
    logits = adapter(batch.images)
"""

from holdfast.data.streams.flow import Batch, Flow
from holdfast.data.streams.kinds import (
    Continual,
    Correlated,
    Endless,
    Gradual,
    LabelShift,
    Mixed,
    Noisy,
    Paced,
    Recurring,
    Single,
)
from holdfast.data.streams.spec import Stream, kinds, parse

__all__ = [
    "Batch",
    "Continual",
    "Correlated",
    "Endless",
    "Flow",
    "Gradual",
    "LabelShift",
    "Mixed",
    "Noisy",
    "Paced",
    "Recurring",
    "Single",
    "Stream",
    "kinds",
    "parse",
]
