import pytest
import torch
from follow import TOLERANCE, close
from plain import NORM_AFFINE, PlainToy
from plain_contrast import PROJECTOR, Part, contrast, descend, plain_prototypes, projector
from plain_methods import PlainDebias, odd
from toys import KINDS, source_batches, state_of, stream, toy_net, toy_source

import holdfast


def santa(**settings):
    """Small rates: the toy net is steep, and rounding in float32 grows with them."""
    base = {"lr": 0.0001, "augment": "flip"}
    return f"santa({','.join(f'{name}={value}' for name, value in (base | settings).items())})"


def restate(
    *,
    lr=0.0001,
    momentum=0.9,
    nesterov=True,
    adam=False,
    temperature=0.1,
    anchored=1,
    contrastive=1,
    flips=lambda call: True,
    debias=None,
):
    def build(net, adapter):
        student, source = PlainToy(net), PlainToy(net, trained=())
        settings = {"lr": lr, "momentum": momentum, "nesterov": nesterov}
        parts = [Part(student.w, NORM_AFFINE, adam, settings)]
        if contrastive:
            for name, weight in projector(adapter).items():
                student.w[name] = weight.detach().clone().requires_grad_(True)
            parts.append(Part(student.w, PROJECTOR, adam, settings))
        prototypes = plain_prototypes(net, source_batches(net.fc.weight.dtype))
        plug = PlainDebias(net, **debias) if debias else None
        calls = [0]

        def step(images):
            calls[0] += 1
            f, z = student(images)
            other_f, other_z = student(images.flip(3) if flips(calls[0]) else images)
            said = torch.log_softmax(source(images)[1], 1)
            loss = 0
            for i in range(len(images)):
                p, other = torch.softmax(z[i], 0), torch.softmax(other_z[i], 0)
                apart = -0.5 * (p * said[i]).sum() - 0.5 * (other * said[i]).sum()
                loss = loss + anchored * apart / len(images)
            if contrastive:
                apart = contrast(student.w, prototypes, f, other_f, temperature)
                loss = loss + contrastive * apart
            if plug:
                loss = loss + plug(f, z)
            descend(parts, loss, lr)
            return z

        return step, student

    return build


def follow_santa(spec, build, dtype, **options):
    """Run beside the restatement: logits, norm layers and projector after every batch; the rest
    of the network stays."""
    net = toy_net(dtype=dtype)
    adapter = holdfast.adapt(net, spec, source=toy_source(net), **options)
    step, student = build(net, adapter)
    start = {name: tensor.detach().clone() for name, tensor in student.w.items()}
    for index, images in enumerate(stream(KINDS, dtype, last=5)):
        close(adapter(images), step(images), dtype, f"logits of batch {index}")
        for name, weight in adapter.model.named_parameters():
            close(weight, student.w[name], dtype, f"{name} after batch {index}")
        for name, weight in projector(adapter).items():
            close(weight, student.w[name], dtype, f"the projector's {name} after batch {index}")
    for name in (*NORM_AFFINE, *projector(adapter)):
        assert (student.w[name] - start[name]).abs().max() > 1e-4
    for name, weight in adapter.model.named_parameters():
        assert name in NORM_AFFINE or torch.equal(weight, net.get_parameter(name))
    return adapter


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("augment", "flips"), [("flip", lambda call: True), ("alternate", odd)])
def test_santa(augment, flips, dtype):
    adapter = follow_santa(santa(augment=augment), restate(flips=flips), dtype)
    shapes = [tuple(weight.shape) for weight in projector(adapter).values()]
    assert shapes == [(128, 12), (128,), (128, 128), (128,)]
    assert (adapter.last.forwards, adapter.last.backwards) == (3, 1)
    assert adapter.last.losses.keys() == {"anchor", "contrastive"}


@pytest.mark.parametrize(
    ("settings", "plain", "forwards"),
    [
        ("optimizer=adam", {"adam": True}, 3),
        ("nesterov=false", {"nesterov": False}, 3),
        ("momentum=0,nesterov=false", {"momentum": 0, "nesterov": False}, 3),
        ("temperature=0.7", {"temperature": 0.7}, 3),
        ("weight_anchor=3,weight_contrastive=0.5", {"anchored": 3, "contrastive": 0.5}, 3),
        ("weight_contrastive=0", {"contrastive": 0}, 3),
        ("weight_anchor=0", {"anchored": 0}, 2),
        ("weight_anchor=0,augment=alternate", {"anchored": 0, "flips": odd}, 2),
        ("weight_contrastive=0,augment=alternate", {"contrastive": 0, "flips": odd}, 3),
        ("augment=none", {"flips": lambda call: False}, 3),
    ],
)
def test_every_setting(settings, plain, forwards):
    written = dict(pair.split("=") for pair in settings.split(","))
    plain = {"lr": 0.0005, **plain}
    adapter = follow_santa(santa(lr=0.0005, **written), restate(**plain), torch.float64)
    assert adapter.last.forwards == forwards


def test_without_both_terms_it_is_batch_norm():
    net = toy_net()
    adapter = holdfast.adapt(net, "santa(weight_anchor=0,weight_contrastive=0)")
    renewed = holdfast.adapt(net, "bn")
    for images in stream(KINDS):
        assert torch.equal(adapter(images), renewed(images))
        assert not adapter.last.stepped and adapter.last.forwards == 1


def test_the_anchor_alone_makes_sure_of_the_source_models_classes():
    """In the other direction there would be no gradient at the source's own answers, which are the
    first ones; and no way below their entropy."""
    net = toy_net(dtype=torch.float64)
    images = stream(("some",), torch.float64)[0]
    adapter = holdfast.adapt(net, santa(lr=0.01, weight_contrastive=0, augment="none"))
    first = adapter.predict(images)
    least = float(-(first.softmax(1) * first.log_softmax(1)).sum(1).mean())
    losses = []
    for _ in range(20):
        adapter(images)
        losses.append(adapter.last.losses["anchor"])
    assert losses[0] == pytest.approx(least, abs=1e-8)
    assert losses[-1] < least - 0.02


def test_the_anchor_stays_where_it_was():
    net = toy_net()
    adapter = holdfast.adapt(net, "santa", source=toy_source(net))
    images = stream(("some",))[0]
    for batch in stream(KINDS):
        adapter(batch)
    with torch.no_grad():
        anchored = adapter._slots.task.anchor(adapter.network.prepare(images))[1]
    renewed = holdfast.adapt(net, "bn")
    torch.testing.assert_close(anchored, renewed(images), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(adapter.predict(images), renewed.predict(images), atol=1e-2)


def test_views_are_counted_once_whoever_keeps_count(tmp_path):
    """And go on where they were after loading."""
    net = toy_net()
    for written in ("", ",weight_anchor=0", ",weight_contrastive=0"):
        adapter = holdfast.adapt(net, f"santa(augment=alternate{written})", source=toy_source(net))
        first, *rest = stream(KINDS)
        adapter(first)
        counted = [v for n, v in state_of(adapter).items() if n.endswith("augment.calls")]
        assert counted == [1]
        adapter.save(tmp_path / "state")
        loaded = holdfast.load(tmp_path / "state", net)
        for images in rest:
            assert torch.equal(loaded(images), adapter(images))


def test_the_projector_is_drawn_from_the_seed():
    net = toy_net()
    source = toy_source(net)
    one, same, other = (
        projector(holdfast.adapt(net, "santa", source=source, seed=seed)) for seed in (0, 0, 1)
    )
    for name in PROJECTOR:
        assert torch.equal(one[name], same[name]) and not torch.equal(one[name], other[name])


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_with_debias(dtype):
    spec = santa() + "+debias(src_reduction=mean)"
    plain = restate(debias={"ema": 2, "src": 50, "divisor": 12})
    follow_santa(spec, plain, dtype)


def test_it_needs_prototypes_for_the_contrast_alone():
    with pytest.raises(ValueError, match=r"santa needs prototypes.*Source\.from_loader"):
        holdfast.adapt(toy_net(), "santa")
    holdfast.adapt(toy_net(), "santa(weight_contrastive=0)")


def test_presets():
    for preset in (None, "imagenet-c", "cifar100-c"):
        host = holdfast.compose("santa", preset=preset).host
        adam = preset == "cifar100-c"
        assert (host.optimizer, host.lr) == (("adam", 1e-3) if adam else ("sgd", 0.01))
        assert (host.momentum, host.nesterov, host.select) == (0.9, not adam, "norm")
        assert (host.temperature, host.weight_anchor, host.weight_contrastive) == (0.1, 1, 1)
        assert host.augment == "cotta"
