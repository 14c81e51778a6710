import pytest
import torch
from follow import TOLERANCE, assert_none_some_all, follow
from hypothesis import given, settings
from hypothesis import strategies as st
from plain import PlainSgd, PlainToy, entropy, limit
from plain_methods import plain_fisher, plain_source_prototypes
from toys import CLASSES, FEATURES, images_of, source_batches, stream, toy_net

import holdfast
from holdfast.recipes.debias import EmaPrototypes


def restate(
    *,
    lr=0.001,
    host=None,
    alpha=0.996,
    ema=2.0,
    src=20.0,
    normalize=True,
    use_filter=True,
    soft=False,
    divisor=1024.0,
    factor=0.4,
    redundancy=0.6,
    fisher_weight=50.0,
    consistency=0.0,
):
    """The paper's algorithm, one image and one class at a time; views are mirror images."""

    def build(net):
        toy = PlainToy(net)
        optimizer = PlainSgd(toy, lr)
        batches = source_batches(net.fc.weight.dtype)
        ps = plain_source_prototypes(net, batches)
        fisher = plain_fisher(net, images_of(batches)) if host == "eata" else []
        start = [toy.w[name].detach().clone() for name in toy.trained]
        rows = net.fc.weight.detach().clone()
        pt = [row / row.norm() if normalize else row for row in rows]
        memory = {"q": None}

        def host_loss(logits, h):
            if host == "tent":
                return h.mean()
            if host == "eata":
                p, q = torch.softmax(logits, 1).detach(), memory["q"]
                keep = [i for i in range(len(h)) if h[i] < limit(0.4, logits)]
                if q is not None:
                    keep = [
                        i for i in keep if abs(q @ p[i] / (q.norm() * p[i].norm())) < redundancy
                    ]
                if keep:
                    mean = p[keep].mean(0)
                    memory["q"] = mean if q is None else 0.9 * q + 0.1 * mean
                    e0 = limit(0.4, logits)
                    return sum((e0 - h[i].detach()).exp() * h[i] for i in keep) / len(keep)
            return None

        def step(images):
            features, logits = toy(images)
            h = entropy(logits)
            parts = [part for part in (host_loss(logits, h),) if part is not None]
            reliable = [i for i in range(len(h)) if not use_filter or h[i] < limit(factor, logits)]
            label = logits.argmax(1)
            if reliable:
                unit = torch.stack([p / p.norm() for p in pt])
                if ema:
                    losses = []
                    for i in reliable:
                        scores = torch.log_softmax(unit @ features[i], 0)
                        target = torch.softmax(logits[i], 0).detach()
                        losses.append(-(target @ scores) if soft else -scores[label[i]])
                    parts.append(ema * sum(losses) / len(reliable))
                if src:
                    squares = [((ps[label[i]] - features[i]) ** 2).sum() for i in reliable]
                    parts.append(src * sum(squares) / len(reliable) / divisor)
                for c in range(CLASSES):
                    of_class = [features[i].detach() for i in reliable if label[i] == c]
                    if of_class:
                        mean = sum(of_class) / len(of_class)
                        mean = mean / mean.norm() if normalize else mean
                        pt[c] = alpha * pt[c] + (1 - alpha) * mean
            if consistency:
                _, other = toy(images.flip(3))
                target = torch.softmax(logits, 1).detach()
                losses = [
                    -(t @ torch.log_softmax(o, 0)) for t, o in zip(target, other, strict=True)
                ]
                parts.append(consistency * sum(losses) / len(losses))
            if parts:
                loss = sum(parts)
                for f, s, name in zip(fisher, start, toy.trained, strict=bool(fisher)):
                    loss = loss + fisher_weight * (f * (toy.w[name] - s) ** 2).sum()
                optimizer.step(loss)
            return logits

        toy.pt = pt
        return step, toy

    return build


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("spec", "plain"),
    {
        "alone": ("debias(lr=0.001)", {}),
        "on tent": ("tent(lr=0.001)+debias", {"host": "tent", "src": 50}),
        "on eata": (
            "eata(lr=0.0003,redundancy=0.6,fisher_weight=50)+debias",
            {"host": "eata", "src": 50, "lr": 0.0003},
        ),
        # With redundancy 0 the entropy part is left out from the second batch on.
        "on eata that keeps none": (
            "eata(lr=0.0003,redundancy=0,fisher_weight=50)+debias",
            {"host": "eata", "src": 50, "redundancy": 0, "lr": 0.0003},
        ),
        "on eata with consistency": (
            "eata(lr=0.0003,redundancy=0.6,fisher_weight=50)+debias+consistency(augment=flip)",
            {"host": "eata", "src": 50, "lr": 0.0003, "consistency": 1.0},
        ),
    }.values(),
)
def test_debias(spec, plain, dtype):
    _, counts, spoke = follow(spec, restate(**plain), dtype)
    assert_none_some_all(counts)
    assert {"ema", "src"} <= spoke


@pytest.mark.parametrize(
    ("settings", "plain"),
    [
        ("lambda_src=0", {"src": 0}),
        ("lambda_ema=0", {"ema": 0}),
        ("normalize=false", {"normalize": False}),
        ("filter=false", {"use_filter": False}),
        ("filter=false,normalize=false", {"use_filter": False, "normalize": False}),
        ("labels=soft", {"soft": True}),
        ("src_reduction=mean", {"divisor": FEATURES}),
        ("src_reduction=sum,lambda_src=0.01", {"divisor": 1, "src": 0.01}),
        ("alpha=0.5", {"alpha": 0.5}),
        ("lambda_ema=0.7,lambda_src=7", {"ema": 0.7, "src": 7}),
        ("entropy_factor=0.2", {"factor": 0.2}),
    ],
)
def test_every_switch_of_the_ablations(settings, plain):
    spec = f"tent(lr=0.001)+debias({settings})"
    build = restate(**{"host": "tent", "src": 50, **plain})
    follow(spec, build, torch.float64)


def test_prototypes_follow_the_paper():
    toys = []

    def build(net):
        step, toy = restate(alpha=0.9)(net)
        toys.append(toy)
        return step, toy

    adapter, *_ = follow("debias(lr=0.001,alpha=0.9)", build, torch.float64)
    got = adapter._state.tensors()["terms/ema/prototypes"]
    assert torch.allclose(got, torch.stack(toys[0].pt), rtol=0, atol=1e-10)


def test_source_prototypes_are_class_means_of_the_untouched_model():
    net = toy_net(dtype=torch.float64)
    batches = source_batches(torch.float64)
    source = holdfast.Source.from_loader(net, batches)
    expected = plain_source_prototypes(net, batches)
    assert torch.allclose(source.prototypes, expected, rtol=0, atol=1e-12)
    assert source.counts.tolist() == [6] * CLASSES


def test_source_prototypes_by_batch_statistics():
    net = toy_net(dtype=torch.float64)
    batches = source_batches(torch.float64)
    source = holdfast.Source.from_loader(net, batches)
    holdfast.adapt(net, "debias(statistics=batch)", source=source)
    plain = PlainToy(net, trained=())
    f = torch.cat([plain(images)[0] for images, _ in batches])
    y = torch.cat([labels for _, labels in batches])
    expected = torch.stack([f[y == c].mean(0) for c in range(CLASSES)])
    assert torch.allclose(source.tensors["prototypes/batch"], expected, rtol=0, atol=1e-12)
    assert (expected - source.prototypes).abs().max() > 1e-3


def test_presets_are_the_papers_letter():
    for preset in ("cifar100-c", "imagenet-c"):
        on_host = holdfast.compose("eata+debias", preset=preset).plugins[0]
        alone = holdfast.compose("debias", preset=preset).host
        assert (on_host.lambda_ema, on_host.lambda_src, on_host.alpha) == (2, 50, 0.996)
        assert (alone.lambda_ema, alone.lambda_src, alone.lr) == (2, 20, 2.5e-4)
        assert on_host.src_reduction == alone.src_reduction == "mean"
    assert holdfast.compose("debias").host.src_reduction == "scaled"


def test_classes_without_source_images_are_left_out_of_alignment():
    net = toy_net()
    batches = [(images, labels % 5) for images, labels in source_batches()]
    with pytest.warns(UserWarning, match=r"2 of 7 classes .*5, 6"):
        source = holdfast.Source.from_loader(net, batches)
    adapter = holdfast.adapt(net, "debias(filter=false)", source=source)
    images = stream(("all",))[0]
    known = int((adapter.predict(images).argmax(1) < 5).sum())
    adapter(images)
    assert 0 < known < len(images)
    assert adapter.last.images == {"ema": len(images), "src": known}


def make_term(rows, alpha=0.9, normalize=True):
    return EmaPrototypes(holdfast.Debias(alpha=alpha, normalize=normalize).resolved(), rows)


batches = st.lists(st.integers(0, 4), min_size=1, max_size=12)


@settings(max_examples=30, deadline=None)
@given(labels=batches, seed=st.integers(0, 10**6), alpha=st.floats(0, 1))
def test_update_touches_the_batchs_classes_only_and_ignores_order(labels, seed, alpha):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    features = torch.rand(len(labels), 3, generator=generator, dtype=torch.float64)
    y = torch.tensor(labels)
    one, other = make_term(rows, alpha), make_term(rows, alpha)
    before = one.prototypes.clone()
    one.update(features, y)
    turn = torch.randperm(len(labels), generator=generator)
    other.update(features[turn], y[turn])
    assert torch.allclose(one.prototypes, other.prototypes, atol=1e-12)
    absent = [c for c in range(5) if c not in labels]
    assert torch.equal(one.prototypes[absent], before[absent])
    # A blend of unit vectors is never longer than one.
    assert one.norms.max() <= 1 + 1e-12
    assert torch.allclose(one.norms, one.prototypes.norm(dim=1), atol=1e-12)
