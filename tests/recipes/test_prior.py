"""prior: what it gives, and that nobody takes it for log-probabilities."""

import pytest
import torch
from drifting import calibrated, home_net, images_of
from toys import CLASSES, KINDS, assert_same_state, state_of, stream, toy_net, toy_source

import holdfast
from holdfast import HealthOptions
from holdfast.explain.card import card

HOSTS = ["frozen", "bn", "tent(lr=0.002)", "cotta(augment_below=0)", "t3a(keep=3)"]


def corrected(z):
    """Class by class."""
    images, classes = z.shape
    m = [float(z.softmax(1)[:, c].mean()) for c in range(classes)]
    s = max(1 / images, 1 / classes) / max(m)
    prior = [(value + s) / (1 + s * classes) for value in m]
    assert sum(prior) == pytest.approx(1)
    return torch.stack([z[:, c] * prior[c] for c in range(classes)], 1)


@pytest.mark.parametrize("host", HOSTS)
def test_logits_times_the_smoothed_frequency_of_each_class(host):
    """More images than classes, and in the last batch fewer; nothing that is learnt changes."""
    net = toy_net(dtype=torch.float64)
    source = toy_source(net)
    plain, refined = (holdfast.adapt(net, s, source=source) for s in (host, f"{host}+prior"))
    differs = False
    for images in stream(KINDS, torch.float64, last=5):
        before, after = plain(images), refined(images)
        assert torch.allclose(after, corrected(before), rtol=0, atol=1e-10)
        assert torch.equal(refined.last.uncorrected, before)
        differs |= bool((before.argmax(1) != after.argmax(1)).any())
    assert_same_state(
        {n: t for n, t in state_of(plain).items() if not n.startswith(("watch", "health"))},
        {n: t for n, t in state_of(refined).items() if not n.startswith(("watch", "health"))},
    )
    assert differs or "tent" not in host


def test_predict_and_answer_tell_before_what_a_call_returns():
    net = toy_net()
    adapter = holdfast.adapt(net, "tent+prior")
    for images in stream(("some", "all")):
        predicted, answer = adapter.predict(images), adapter.answer(images)
        got = adapter(images)
        assert torch.equal(predicted, got) and torch.equal(answer.logits, got)
        assert torch.equal(answer.uncorrected, adapter.last.uncorrected)
        assert not torch.equal(answer.uncorrected, got)
    plain = holdfast.adapt(net, "tent")
    answer = plain.answer(images)
    assert answer.logits is answer.uncorrected
    plain(images)
    assert plain.last.uncorrected is None


@pytest.mark.usefixtures("toy_methods")
def test_of_several_refinements_the_last_before_it_gives_probabilities():
    net = toy_net()
    images = stream(("some", "all", "some"))
    centred, mixed = (holdfast.adapt(net, f"tent+toy-{one}") for one in ("centre", "mix"))
    behind = holdfast.adapt(net, "tent+toy-centre+prior")
    first = holdfast.adapt(net, "tent+prior+toy-centre")
    both = holdfast.adapt(net, "tent+toy-mix+prior+toy-centre")
    plain = holdfast.adapt(net, "tent")
    for batch in images:
        logits = plain(batch)
        behind(batch), first(batch), both(batch)
        assert torch.equal(behind.last.uncorrected, centred(batch))
        assert torch.equal(first.last.uncorrected, logits)
        assert torch.equal(both.last.uncorrected, mixed(batch))


def test_a_window_is_corrected_as_a_whole():
    net = toy_net()
    images = torch.cat(stream(("some",)))
    single, whole = holdfast.adapt(net, "frozen+prior", window=4), holdfast.adapt(net, "frozen")
    by_batch = holdfast.adapt(net, "bn+prior", window=4)
    for t in range(1, 9):
        window = images[max(0, t - 4) : t]
        expected = corrected(whole(window))[-1:]
        assert torch.allclose(single(images[t - 1 : t]), expected, atol=1e-5)
        assert torch.equal(single.last.uncorrected, whole(window)[-1:])
        by_batch(images[t - 1 : t])
        assert by_batch.last.uncorrected.shape == (1, CLASSES)


def test_frozen_corrects_each_batch_or_serves_single_images_as_they_are():
    net = toy_net()
    adapter, plain = holdfast.adapt(net, "tent+prior"), holdfast.adapt(net, "tent")
    for images in stream(("some", "all")):
        adapter(images), plain(images)
    images = stream(("some",), seed=4)[0].contiguous(memory_format=torch.channels_last)
    assert torch.equal(adapter.frozen()(images), plain.frozen()(images))
    exact = adapter.frozen(statistics="batch")
    for batch in (images, images[:5]):
        assert torch.equal(exact(batch), adapter.predict(batch))
    assert "does not correct" in card("tent+prior").parts[1].note


# Health.


@pytest.fixture(scope="module")
def net():
    return home_net()


@pytest.fixture(scope="module")
def source(net):
    return calibrated(net)


@pytest.mark.parametrize(("host", "refined"), [("tent", "tent+prior"), ("bn", "bn+prior")])
def test_health_goes_by_probabilities(net, source, host, refined):
    options = {"source": source, "health": HealthOptions(every=1)}
    plain, other = (holdfast.adapt(net, spec, **options) for spec in (host, refined))
    for images in images_of("clean", 2) + images_of("noise", 3):
        logits = other(images)
        plain(images)
        for name in ("confidence", "entropy", "source_confidence", "source_entropy"):
            assert getattr(other.health, name) == getattr(plain.health, name)
        wrong = logits.softmax(1).amax(1).mean()
        assert abs(float(wrong) - other.health.confidence) > 0.1
    # Of what was calibrated: confidence and entropy of each image, and confidence of each batch.
    mine, hosts = (a._state.monitor.calibration for a in (other, plain))
    assert torch.equal(mine.images[:2], hosts.images[:2])
    assert torch.equal(mine.rows[:, 2], hosts.rows[:, 2])


def test_an_estimate_sees_the_labels_that_leave(net, source):
    """What disagrees with the source model are the answers, corrected as they are."""
    from holdfast.engine.estimators import COLUMNS, Measured
    from holdfast.engine.last import Answer

    adapter = holdfast.adapt(net, "bn+prior", source=source)
    (images,) = images_of("noise")
    seen = adapter._state.monitor.reference(images)
    wrong = (seen.logits.argmax(1) + 1) % CLASSES
    scores = torch.nn.functional.one_hot(wrong, CLASSES).double()
    found = Measured.of(Answer(scores, seen.logits.double()), seen)
    assert (found.kinds[:, COLUMNS.index("apart")] == 1).all()
    sure = seen.logits.double().softmax(1)
    assert torch.allclose(found.confidences, sure.amax(1).cpu())
    assert torch.allclose(found.evenness[0], found.evenness[1])


@pytest.mark.parametrize("guard", ["rollback", "fallback"])
def test_while_the_source_model_answers_its_logits_are_as_they_are(net, source, guard):
    adapter = holdfast.adapt(net, "tent+prior", source=source, guard=guard)
    (images,) = images_of("clean")
    adapter(images)
    assert adapter.last.uncorrected is not None
    if guard == "rollback":
        return
    adapter._state.fallback.start()
    answer = adapter.answer(images)
    assert torch.equal(answer.logits, answer.uncorrected)
    torch.testing.assert_close(adapter(images), net(images), atol=1e-5, rtol=1e-5)
    assert adapter.last.uncorrected is None and adapter.last.fallback


def test_both_corrections_are_calibrated_apart():
    net = toy_net()
    answers = {
        correct: holdfast.adapt(net, f"roid(correct={correct})")._slots.answers
        for correct in ("logits", "probabilities", "none")
    }
    assert len(set(answers.values())) == 3


@pytest.mark.parametrize(
    "spec", ["roid", "roid(correct=probabilities)", "cmf", "tent+prior", "tent+ensemble", "tent"]
)
def test_what_a_method_says_is_what_its_refinements_do(spec):
    """The card and notes go by the one, the engine by the other."""
    adapter = holdfast.adapt(toy_net(), spec)
    says = all(method.keeps_probabilities() for method in adapter.method.methods)
    assert says == all(rule.keeps_probabilities for rule in adapter._slots.refine)
    adapter(stream(("some",))[0])
    assert says == (adapter.last.uncorrected is None)
