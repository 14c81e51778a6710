"""What is exported serves as well as what it was exported from: ruling by accuracy."""

import pytest
import torch

import holdfast
from holdfast.data import glyphs
from holdfast.data.streams import parse

# With less to do before the stream, or for each batch.
SHORT = {
    "rmt": "rmt(warmup_samples=320)",
    "cotta": "cotta(views=4)",
    "memo": "memo(views=2)",
}


@pytest.fixture(scope="module")
def model():
    return glyphs.model()


@pytest.fixture(scope="module")
def source(model):
    return holdfast.Source.from_loader(model, glyphs.source_loader(1000))


@pytest.fixture(scope="module")
def after_snow():
    """By domain: four batches of snow and three of the domain, and then more of it."""

    def batches(domain):
        stream = parse(f"continual(limit=576,order='snow,{domain}',clean=false)")
        found = list(stream.over(glyphs.benchmark(), seed=0))
        return found[5:12], found[12:]

    return {domain: batches(domain) for domain in ("fog", "contrast")}


def accuracy(predict, batches):
    with torch.no_grad():
        right = sum(int((predict(b.images).argmax(1) == b.labels).sum()) for b in batches)
    return 100 * right / sum(len(b.labels) for b in batches)


SPECS = [method.example() for method in holdfast.methods().values()]
CASES = [(spec, "fog") for spec in [*SPECS, "t3a(statistics=batch)", "eata+debias"]]
CASES += [("bn(alpha=0.1)", "fog"), ("bn(prior=16)", "fog"), ("bn(statistics=running)", "fog")]
# There statistics are far from those before.
CASES += [("bn", "contrast"), ("tent", "contrast"), ("debias", "contrast")]


@pytest.mark.parametrize(("name", "domain"), CASES)
def test_frozen_serves_the_next_batches_of_a_domain_as_predict_does(
    name, domain, model, source, after_snow
):
    past, future = after_snow[domain]
    adapter = holdfast.adapt(model, SHORT.get(name, name), source=source)
    for batch in past:
        adapter(batch.images)
    predicted, frozen = (accuracy(each, future) for each in (adapter.predict, adapter.frozen()))
    assert frozen > predicted - 3
