import math

import pytest
import torch
from follow import TOLERANCE, close
from plain import PlainSgd, PlainToy, entropy
from running import KINDS, run
from toys import settled_net, state_of, stream, toy_net, toy_source

import holdfast
from holdfast import Lame

AFFINITIES = ("rbf", "knn", "linear")


def plain_weights(features, affinity, k, symmetric):
    unit = [f / f.norm() for f in features]
    count = len(unit)
    distance = [[float((a - b).norm()) for b in unit] for a in unit]
    if affinity == "rbf":
        kth = [sorted(row)[min(k, count) - 1] for row in distance]  # counting itself
        sigma = sum(kth) / count
        rows = [[math.exp(-(d**2) / (2 * sigma**2)) for d in row] for row in distance]
    elif affinity == "knn":
        rows = []
        for i, row in enumerate(distance):
            others = sorted((j for j in range(count) if j != i), key=row.__getitem__)[:k]
            rows.append([float(j in others) for j in range(count)])
    else:
        rows = [[float(a @ b) for b in unit] for a in unit]
    w = torch.tensor(rows, dtype=features.dtype)
    return (w + w.T) / 2 if symmetric else w


def plain_lame(features, logits, affinity="rbf", k=5, symmetric=False):
    """Y and after how many rounds it settled; None: never."""
    w = plain_weights(features, affinity, k, symmetric)
    u = -torch.log(torch.softmax(logits, 1) + 1e-10)
    y, before = torch.softmax(-u, 1), None
    for number in range(1, 101):
        a = w @ y
        y = torch.softmax(-u + a, 1)
        e = (u * y - a * y + y * torch.log(y.clamp(min=1e-20))).sum()
        if number >= 3 and abs(e - before) <= 1e-8 * abs(before):
            return y, number
        before = e
    return y, None


SETTINGS = [
    *((affinity, 5, symmetric) for affinity in AFFINITIES for symmetric in (False, True)),
    *((affinity, k, False) for affinity in ("rbf", "knn") for k in (2, 3, 40)),
]


def spec_of(affinity, k, symmetric):
    written = f"affinity={affinity},neighbours={k},symmetric={str(symmetric).lower()}"
    return f"lame({written})"


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("affinity", "k", "symmetric"), SETTINGS)
def test_lame_on_the_source_model(affinity, k, symmetric, dtype):
    """Fewer images than neighbours in the last batch."""
    net = settled_net(dtype)
    lame = spec_of(affinity, k, symmetric)
    adapter, host = holdfast.adapt(net, f"frozen+{lame}"), holdfast.adapt(net, "frozen")
    before, changed = state_of(adapter), 0
    for index, images in enumerate(stream(dtype=dtype, last=4)):
        got, logits, features = adapter(images), host(images), host.features(images)
        y, rounds = plain_lame(features.double(), logits.double(), affinity, k, symmetric)
        assert rounds is None or rounds > 3
        close(got.double(), y.log(), dtype, f"ln Y of batch {index}")
        changed += int((got.argmax(1) != logits.argmax(1)).sum())
    assert changed
    after = state_of(adapter)
    kept = [name for name in before if not name.startswith(("watch", "health", "batches"))]
    assert all(torch.equal(after[name], before[name]) for name in kept)


def test_what_leaves_is_a_distribution():
    adapter = holdfast.adapt(settled_net(torch.float32), "lame")
    for images in stream():
        got = adapter(images)
        torch.testing.assert_close(got.exp().sum(1), torch.ones(len(images)))
        assert got.isfinite().all() and (got <= 0).all()


def test_the_defaults():
    (lame,) = holdfast.compose("frozen+lame").plugins
    assert (lame.affinity, lame.neighbours, lame.symmetric) == ("rbf", 5, False)
    for preset in ("cifar100-c", "imagenet-c"):
        assert holdfast.compose("frozen+lame", preset=preset).plugins == (lame,)


def test_alone_it_is_on_the_source_model():
    net = settled_net(torch.float32)
    alone, on_frozen = (holdfast.adapt(net, spec) for spec in ("lame", "frozen+lame"))
    for images in stream():
        assert torch.equal(alone(images), on_frozen(images))


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_a_host_learns_from_what_is_not_refined(dtype):
    net = toy_net(dtype=dtype)
    adapter, toy = holdfast.adapt(net, "tent(lr=0.002)+lame"), PlainToy(net)
    optimizer = PlainSgd(toy, 0.002)
    for index, images in enumerate(stream(dtype=dtype, last=5)):
        features, logits = toy(images)
        y, _ = plain_lame(features.detach().double(), logits.detach().double())
        close(adapter(images).double(), y.log(), dtype, f"ln Y of batch {index}")
        optimizer.step(entropy(logits).mean())
        for name in toy.trained:
            close(adapter.model.get_parameter(name), toy.w[name], dtype, name)


HOSTS = {
    "eata(redundancy=2)": "student",
    "cotta(augment_below=0.8,views=3,restore=0.1)": "teacher's first view",
    "cotta(augment_below=0)": "teacher",
    "cotta(augment_below=0,predict=student)": "student",
    "rotta(capacity=12,every=20)": "teacher",
    "rmt(warmup_samples=28,lr=0.001)": "student",
    "t3a(keep=3)": "student",
}


@pytest.mark.parametrize(("host", "whose"), HOSTS.items())
def test_features_are_those_of_the_network_that_predicts(net, host, whose):
    """And the logits are what the host gives, whatever made them."""
    source = toy_source(net)
    adapter, plain = (holdfast.adapt(net, s, source=source) for s in (f"{host}+lame", host))
    images = [*stream(KINDS), stream(("some",), seed=4)[0]]
    run(adapter, images[:-1]), run(plain, images[:-1])
    logits, seen = plain.predict(images[-1]), plain.features(images[-1])
    if whose != "student":
        network = plain._slots.task.teacher.network
        with torch.no_grad():
            view = images[-1]
            if "view" in whose:
                view = plain._slots.prediction.augment.copy()(view)
            seen = network.feature(*network(network.prepare(view)))
    y, _ = plain_lame(seen.double(), logits.double())
    close(adapter.predict(images[-1]).double(), y.log(), torch.float32, host)


def test_it_wins_on_sorted_streams_and_ruins_shuffled_ones():
    """Noisy features around a hundred classes, and logits that are not very sure."""
    (lame,) = holdfast.compose("frozen+lame").plugins
    generator = torch.Generator().manual_seed(0)
    rows = torch.nn.functional.normalize(torch.randn(100, 32, generator=generator), dim=1)

    def accuracies(labels):
        features = rows[labels] + 0.3 * torch.randn(len(labels), 32, generator=generator)
        logits = 5 * features @ rows.T
        refined = map(lame.refined, features.split(64), logits.split(64))
        found = (logits, torch.cat(list(refined)))
        return [float((each.argmax(1) == labels).double().mean()) for each in found]

    ordered = torch.arange(100).repeat_interleave(64)
    plain, with_lame = accuracies(ordered)
    assert plain < 0.8 and with_lame > 0.99
    plain, with_lame = accuracies(ordered[torch.randperm(6400, generator=generator)])
    assert plain > 0.65 and with_lame < 0.1


def test_one_image_alone_keeps_its_class_and_gets_surer():
    net = settled_net(torch.float64)
    for affinity in AFFINITIES:
        adapter = holdfast.adapt(net, f"lame(affinity={affinity})")
        for image in stream(("some",), torch.float64)[0].split(1):
            p, y = net(image).detach().softmax(1), adapter(image).exp()
            assert torch.equal(y.argmax(1), p.argmax(1))
            if affinity == "knn":  # no other is near
                torch.testing.assert_close(y, p)
            else:
                assert y.max() > p.max()


def test_a_window_is_a_batch():
    net = settled_net(torch.float32)
    windowed, whole = (holdfast.adapt(net, "lame", window=w) for w in (16, None))
    first, second = stream(("some", "all"))
    windowed(first)
    assert torch.equal(windowed(second[:4]), whole(torch.cat([first[4:], second[:4]]))[-4:])


@pytest.mark.parametrize("affinity", AFFINITIES)
def test_images_that_are_all_alike(affinity):
    adapter = holdfast.adapt(settled_net(torch.float32), f"lame(affinity={affinity})")
    image = stream(("some",))[0][1:2]
    for images in (image.repeat(9, 1, 1, 1), torch.zeros_like(image).repeat(9, 1, 1, 1)):
        got = adapter(images)
        assert got.isfinite().all() and adapter.last.refused is None
        assert len(got.argmax(1).unique()) == 1


def test_a_feature_of_zeros_is_at_distance_one():
    features = torch.tensor([[0.0, 0.0], [3.0, 0.0], [0.0, 2.0]])
    (lame,) = holdfast.compose("frozen+lame(neighbours=2)").plugins
    weights = lame.weights(features)
    assert torch.equal(weights.diagonal(), torch.ones(3))
    torch.testing.assert_close(weights[0, 1], torch.tensor(math.exp(-0.5)))  # σ is 1
    torch.testing.assert_close(weights[1, 2], torch.tensor(math.exp(-1.0)))


@pytest.mark.parametrize("host", ["frozen", "bn", "tent(lr=0.01)"])
def test_exports_refine_where_there_is_a_batch(net, host):
    """One for single images is the host's: of these, no class would change."""
    adapter, plain = (holdfast.adapt(net, spec) for spec in (f"{host}+lame", host))
    run(adapter, stream(KINDS)), run(plain, stream(KINDS))
    images = stream(("some",), seed=4)[0].contiguous(memory_format=torch.channels_last)
    exported = adapter.frozen(statistics="batch")
    assert torch.equal(exported(images), adapter.predict(images))
    assert not torch.equal(exported(images), plain.predict(images))
    assert torch.equal(adapter.frozen()(images), plain.frozen()(images))


def test_what_answers_are_worth_is_kept_for_each_affinity(net):
    kinds = {holdfast.adapt(net, f"frozen+{spec_of(*each)}")._slots.answers for each in SETTINGS}
    assert len(kinds) == len(SETTINGS)
    assert holdfast.adapt(net, "bn")._slots.answers == "ByBatch-Student"


@pytest.mark.parametrize("host", ["roid", "cmf"])
@pytest.mark.parametrize("correct", ["logits", "probabilities"])
def test_a_host_that_corrects_its_output_is_refused(host, correct):
    with pytest.raises(ValueError, match=rf"write {host}\(correct=false\)\+lame"):
        holdfast.compose(f"{host}(correct={correct})+lame")
    holdfast.compose(f"{host}(correct=false)+lame")


@pytest.mark.parametrize("spec", ["tent+lame+prior", "tent+prior+lame", "lame+prior"])
def test_it_does_not_go_with_a_correction_of_logits(spec):
    """Of log-probabilities, a product pushes frequent classes down."""
    with pytest.raises(ValueError, match=r"one of the two, as in tent\+prior or tent\+lame"):
        holdfast.compose(spec)


def test_a_host_that_answers_image_by_image_has_no_batch_for_it():
    with pytest.raises(ValueError, match=r"no batch to go by: write bn\+lame"):
        holdfast.compose("memo+lame")


def test_bad_settings():
    with pytest.raises(ValueError, match=r"affinity takes 'rbf' or 'knn' or 'linear'"):
        Lame(affinity="cosine")
    with pytest.raises(ValueError, match=r"neighbours takes a whole number at least 1"):
        Lame(neighbours=0)
