"""Streams: kinds of drift over a data set, as typed values with spec strings.

flow = parse("correlated(gamma=0.1)").over(glyphs.benchmark(), seed=0)
for batch in flow:
    logits = adapter(batch.images)
"""

from holdfast.data.streams.flow import Batch as Batch
from holdfast.data.streams.flow import Flow as Flow
from holdfast.data.streams.kinds import Continual as Continual
from holdfast.data.streams.kinds import Endless as Endless
from holdfast.data.streams.kinds import Gradual as Gradual
from holdfast.data.streams.kinds import Mixed as Mixed
from holdfast.data.streams.kinds import Noisy as Noisy
from holdfast.data.streams.kinds import Paced as Paced
from holdfast.data.streams.kinds import Single as Single
from holdfast.data.streams.kinds import Switching as Switching
from holdfast.data.streams.labels import Correlated as Correlated
from holdfast.data.streams.labels import LabelShift as LabelShift
from holdfast.data.streams.labels import Recurring as Recurring
from holdfast.data.streams.spec import Stream as Stream
from holdfast.data.streams.spec import kinds as kinds
from holdfast.data.streams.spec import parse as parse
