import pytest
import torch
from follow import TOLERANCE, close
from plain import PlainToy
from plain_contrast import PROJECTOR, Part, contrast, descend, plain_prototypes, projector
from plain_methods import (
    ALL,
    MOVING,
    WARM,
    PlainDebias,
    compared,
    follow_teacher,
    odd,
    rmt,
    symmetric_ce,
)
from toys import KINDS, source_batches, stream, toy_net, toy_source

import holdfast


def restate(
    *,
    lr=0.00005,
    momentum=0.9,
    nesterov=True,
    adam=False,
    teacher_momentum=0.9,
    temperature=0.1,
    contrastive=1,
    replay=1,
    warm=0,
    flips=lambda call: True,
    debias=None,
):
    def build(net, adapter):
        student, teacher = PlainToy(net, trained=ALL), PlainToy(net, trained=())
        settings = {"lr": lr, "momentum": momentum, "nesterov": nesterov}
        parts = [Part(student.w, ALL, adam, settings)]
        if contrastive:
            for name, weight in projector(adapter).items():
                student.w[name] = weight.detach().clone().requires_grad_(True)
            parts.append(Part(student.w, PROJECTOR, adam, settings))
        batches = source_batches(net.fc.weight.dtype)
        prototypes = plain_prototypes(net, batches)
        plug = PlainDebias(net, **debias) if debias else None
        for i in range(warm):
            images, _ = batches[i % len(batches)]
            loss = symmetric_ce(student(images)[1], teacher(images)[1]).mean()
            descend(parts, loss, lr * (i + 1) / warm)
            follow_teacher(teacher, student, teacher_momentum)
        calls = [0]

        def step(images):
            (f, z), target = student(images), teacher(images)[1]
            view = images.flip(3) if flips(calls[0] + 1) else images
            other_f, other_z = student(view)
            loss = (0.5 * symmetric_ce(z, target) + 0.5 * symmetric_ce(other_z, target)).mean()
            if contrastive:
                apart = contrast(student.w, prototypes, f, other_f, temperature)
                loss = loss + contrastive * apart
            if replay:
                x, y = batches[(warm + calls[0]) % len(batches)]
                chosen = torch.log_softmax(student(x)[1], 1)[range(len(y)), y]
                loss = loss - replay * chosen.mean()
            if plug:
                loss = loss + plug(f, z)
            descend(parts, loss, lr)
            follow_teacher(teacher, student, teacher_momentum)
            calls[0] += 1
            return z + target

        return step, student, teacher

    return build


def follow_rmt(spec, build, dtype, **options):
    """Run beside the restatement: logits, student, projector and teacher after every batch."""
    net = toy_net(dtype=dtype)
    adapter = holdfast.adapt(net, spec, source=toy_source(net), **options)
    step, student, teacher = build(net, adapter)
    start = {name: tensor.detach().clone() for name, tensor in student.w.items()}

    def compare(when):
        own = dict(adapter.model.named_parameters())
        taught = adapter._slots.task.teacher.parameters
        for name in compared(spec):
            close(own[name], student.w[name], dtype, f"{name} {when}")
            close(taught[name], teacher.w[name], dtype, f"the teacher's {name} {when}")
        for name, weight in projector(adapter).items():
            close(weight, student.w[name], dtype, f"{name} {when}")

    compare("before the stream")
    for index, images in enumerate(stream(KINDS, dtype, last=5)):
        got, expected = adapter(images), step(images)
        close(got, expected, dtype, f"logits of batch {index}")
        compare(f"after batch {index}")
    for name in (*MOVING, *projector(adapter)):
        assert (student.w[name] - start[name]).abs().max() > 1e-4
    return adapter


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("augment", "flips"), [("flip", lambda call: True), ("alternate", odd)])
def test_rmt(augment, flips, dtype):
    adapter = follow_rmt(rmt(augment=augment), restate(flips=flips), dtype)
    assert adapter.last.backwards == 1
    shapes = [tuple(weight.shape) for weight in projector(adapter).values()]
    assert shapes == [(128, 12), (128,), (128, 128), (128,)]


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_rmt_after_a_warm_up(dtype):
    """Eight steps over three batches: replay goes on with the third."""
    follow_rmt(rmt(warmup_samples=WARM * 14 + 5), restate(warm=WARM), dtype)


@pytest.mark.parametrize(
    ("settings", "plain"),
    [
        ("optimizer=adam", {"adam": True}),
        ("optimizer=adam,warmup_samples=70", {"adam": True, "warm": 5}),
        ("nesterov=false,warmup_samples=70", {"nesterov": False, "warm": 5}),
        ("momentum=0.5", {"momentum": 0.5}),
        ("temperature=0.7", {"temperature": 0.7}),
        ("teacher_momentum=0.5,warmup_samples=14", {"teacher_momentum": 0.5, "warm": 1}),
        ("weight_contrastive=0.5,weight_replay=2", {"contrastive": 0.5, "replay": 2}),
        ("weight_contrastive=0", {"contrastive": 0}),
        ("weight_replay=0,warmup_samples=28", {"replay": 0, "warm": 2}),
        ("weight_contrastive=0,weight_replay=0", {"contrastive": 0, "replay": 0}),
    ],
)
def test_every_setting(settings, plain):
    written = dict(pair.split("=") for pair in settings.split(","))
    plain = {"lr": 0.0005, **plain}
    adapter = follow_rmt(rmt(lr=0.0005, **written), restate(**plain), torch.float64)
    # Images, their view, the teacher's images; and source images where they are replayed.
    assert adapter.last.forwards == 3 + (plain.get("replay", 1) > 0)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("preset", "ema"), [(None, 0.5), ("cifar100-c", 1.0)])
def test_rmt_with_debias(preset, ema, dtype):
    """On the student's features; RMT's prediction stays."""
    spec = rmt(warmup_samples=70, optimizer="sgd", nesterov=True) + "+debias"
    plain = restate(warm=5, debias={"ema": ema, "src": 0.01, "divisor": 1})
    follow_rmt(spec, plain, dtype, preset=preset)


def test_settings_are_the_papers():
    for preset in (None, "imagenet-c", "cifar100-c"):
        found = holdfast.compose("rmt+debias", preset=preset)
        host, plugin = found.host, found.plugins[0]
        adam = preset == "cifar100-c"
        assert (host.optimizer, host.lr) == (("adam", 1e-4) if adam else ("sgd", 0.01))
        assert (host.momentum, host.nesterov, host.select) == (0.9, not adam, "all")
        assert (host.teacher_momentum, host.temperature, host.augment) == (0.999, 0.1, "cotta")
        assert (host.weight_contrastive, host.weight_replay) == (1, 1)
        assert host.warmup_samples == 50_000
        assert (plugin.src_reduction, plugin.lambda_src) == ("sum", 0.01)
        assert plugin.lambda_ema == (1.0 if adam else 0.5)
        assert holdfast.compose("rmt", preset=preset).host == host  # nothing is replaced


class Exploding(torch.autograd.Function):
    """Harmless forwards, a gradient of Inf."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * float("inf")


def test_a_warm_up_whose_gradient_explodes_is_an_error_and_keeps_nothing(tmp_path):
    net = toy_net()
    source = holdfast.Source.from_loader(net, source_batches(), cache=tmp_path)
    net.norm2.register_forward_hook(lambda layer, inputs, output: Exploding.apply(output))
    with pytest.raises(ValueError, match=r"diverged.*gradient is not finite"):
        holdfast.adapt(net, rmt(warmup_samples=28), source=source)
    assert not any(name.startswith("work/") for name in source.tensors)
    assert not list(tmp_path.iterdir())


def test_a_one_shot_iterator_cannot_calibrate_two_networks():
    net = toy_net()
    adapter = holdfast.adapt(net, rmt(), source=toy_source(net))
    with pytest.raises(ValueError, match="one-shot iterator: give a DataLoader or a list"):
        adapter.frozen(calibrate=iter(stream()))
    adapter.frozen(calibrate=stream())
