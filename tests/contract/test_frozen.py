"""What is exported serves as well as what it was exported from: ruling by accuracy."""

import pytest
import torch

import holdfast
from holdfast.data import glyphs
from holdfast.data.streams import parse

# With less to do before the stream, or for each batch.
SHORT = {"rmt": "rmt(warmup_samples=320)", "cotta": "cotta(views=4)"}


@pytest.fixture(scope="module")
def model():
    return glyphs.model()


@pytest.fixture(scope="module")
def source(model):
    return holdfast.Source.from_loader(model, glyphs.source_loader(1000))


@pytest.fixture(scope="module")
def fog():
    flow = parse("continual(limit=640,order=fog,clean=false)").over(glyphs.benchmark(), seed=0)
    batches = list(flow)
    return batches[:4], batches[4:]


def accuracy(predict, batches):
    with torch.no_grad():
        right = sum(int((predict(b.images).argmax(1) == b.labels).sum()) for b in batches)
    return 100 * right / sum(len(b.labels) for b in batches)


@pytest.mark.parametrize("name", [*holdfast.methods(), "eata+debias"])
def test_frozen_serves_the_next_batches_of_a_domain_as_predict_does(name, model, source, fog):
    past, future = fog
    adapter = holdfast.adapt(model, SHORT.get(name, name), source=source)
    for batch in past:
        adapter(batch.images)
    predicted, frozen = (accuracy(each, future) for each in (adapter.predict, adapter.frozen()))
    assert frozen > predicted - 3
    if name != "frozen":
        assert predicted > accuracy(model, future) - 3  # and it is not worse than no method at all
