import math

import pytest
import torch
from follow import TOLERANCE, close
from plain import PlainAdam, PlainSgd, PlainToy
from plain_methods import (
    ALL,
    MOVING,
    PlainDebias,
    compared,
    follow_teacher,
    odd,
    soft_ce,
    symmetric_ce,
)
from toys import KINDS, stream, toy_net, toy_source

import holdfast


def restate(
    *,
    lr,
    momentum=0.9,
    nesterov=True,
    adam=False,
    below=0.665,
    views=3,
    flips=lambda call: True,
    loss="symmetric",
    restore=0,
    teacher_momentum=0.9,
    predict="teacher",
    debias=None,
    consistency=False,
):
    """`flips(call)` says whether the call-th view (from 1) is flipped; `restore` is 0 or 1."""

    def build(net):
        student = PlainToy(net, trained=ALL)
        teacher, anchor = PlainToy(net, trained=()), PlainToy(net, trained=())
        optimizer = (
            PlainAdam(student, lr) if adam else PlainSgd(student, lr, momentum, nesterov=nesterov)
        )
        plug = PlainDebias(net, **debias) if debias else None
        calls = [0]

        def step(images):
            features, logits = student(images)
            confidence = torch.softmax(anchor(images)[1], 1).max(1).values
            if confidence.mean() < below:
                target = 0
                for _ in range(views):
                    calls[0] += 1
                    view = images.flip(3) if flips(calls[0]) else images
                    target = target + teacher(view)[1] / views
            else:
                target = teacher(images)[1]
            each = symmetric_ce if loss == "symmetric" else lambda s, t: soft_ce(t, s)
            total = each(logits, target).mean()
            if plug:
                total = total + plug(features, logits)
            if consistency:
                total = total + soft_ce(logits.detach(), student(images.flip(3))[1]).mean()
            optimizer.step(total)
            follow_teacher(teacher, student, teacher_momentum)
            if restore:
                with torch.no_grad():
                    for name in ALL:
                        student.w[name].copy_(anchor.w[name])
            return target if predict == "teacher" else logits

        return step, student, teacher

    return build


def follow_both(spec, build, dtype, *, moves=True, **options):
    """Run beside the restatement: logits, student and teacher after every batch.

    Returns the adapter, and the forwards of each batch.
    """
    net = toy_net(dtype=dtype)
    adapter = holdfast.adapt(net, spec, source=toy_source(net), **options)
    step, student, teacher = build(net)
    start = {name: student.w[name].detach().clone() for name in MOVING}
    forwards = []
    for index, images in enumerate(stream(KINDS, dtype, last=5)):
        got, expected = adapter(images), step(images)
        forwards.append(adapter.last.forwards)
        close(got, expected, dtype, f"logits of batch {index}")
        own = dict(adapter.model.named_parameters())
        for name in compared(spec):
            close(own[name], student.w[name], dtype, f"{name} after batch {index}")
            taught = adapter._slots.task.teacher.parameters[name]
            close(taught, teacher.w[name], dtype, f"the teacher's {name} after batch {index}")
    if moves:
        assert all((student.w[name] - start[name]).abs().max() > 1e-4 for name in MOVING)
    assert all((teacher.w[name] - start[name]).abs().max() > 1e-4 for name in MOVING)
    return adapter, forwards


def cotta(**settings):
    """Small rates: the toy net is steep, and rounding in float32 grows with them."""
    base = {"lr": 0.0005, "augment_below": 0.665, "views": 3, "restore": 0, "augment": "flip"}
    every = base | {"teacher_momentum": 0.9} | settings
    return f"cotta({','.join(f'{name}={value}' for name, value in every.items())})"


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("loss", ["ce", "symmetric"])
@pytest.mark.parametrize(("augment", "flips"), [("flip", lambda call: True), ("alternate", odd)])
def test_cotta(augment, flips, loss, dtype):
    """Three views a batch: where they alternate, the next batch goes on with the other kind."""
    spec = cotta(augment=augment, loss=loss)
    _, forwards = follow_both(spec, restate(lr=0.0005, loss=loss, flips=flips), dtype)
    # With student and anchor: three views, or the images themselves.
    assert forwards == [3, 5, 3, 5, 3, 5, 5, 5, 3, 3, 5, 3]


@pytest.mark.parametrize(
    "settings",
    [
        {"predict": "student"},
        {"nesterov": False},
        {"momentum": 0, "nesterov": False},
        {"momentum": 0.5},
        {"restore": 1, "predict": "student", "loss": "ce"},
        {"teacher_momentum": 0.5},
        {"views": 1},
    ],
    ids=str,
)
def test_every_setting(settings):
    spec = cotta(lr=0.005, **settings)
    moves = "restore" not in settings
    follow_both(spec, restate(lr=0.005, **settings), torch.float64, moves=moves)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_restoring_all(dtype):
    spec = cotta(lr=0.005, restore=1)
    follow_both(spec, restate(lr=0.005, restore=1), dtype, moves=False)


def test_adam():
    """Views on every batch, since Adam turns a gradient of rounding into a step."""
    spec = cotta(optimizer="adam", lr=0.001, loss="ce", augment_below=1)
    follow_both(spec, restate(adam=True, lr=0.001, loss="ce", below=1), torch.float64)


def test_restoring_all_leaves_the_source():
    net = toy_net()
    adapter = holdfast.adapt(net, cotta(restore=1))
    for images in stream():
        adapter(images)
        for name, weight in adapter.model.named_parameters():
            assert torch.equal(weight, net.get_parameter(name))


def test_restoring_touches_the_student_alone():
    """One batch, with and without: the same teacher and momentum; each element of the student is
    the source's or the trained one."""
    net = toy_net(dtype=torch.float64)
    with_it, without = (holdfast.adapt(net, cotta(restore=p)) for p in (0.3, 0))
    images = stream(("some",), torch.float64)[0]
    assert torch.equal(with_it(images), without(images))
    for name, taught in without._slots.task.teacher.parameters.items():
        assert torch.equal(with_it._slots.task.teacher.parameters[name], taught)
    for name, state in without._slots.learn.tensors().items():
        assert torch.equal(with_it._slots.learn.tensors()[name], state)
    for name, trained in without.model.named_parameters():
        got, source = with_it.model.get_parameter(name), net.get_parameter(name)
        assert torch.equal(torch.where(got == source, trained, got), trained)


def test_each_element_returns_by_a_draw_of_its_own():
    """Within five standard deviations of the binomial: in all, in each tensor, and for pairs of
    neighbours in a tensor and of steps in a row, which fall together with p²."""
    p = 0.3
    net = toy_net(dtype=torch.float64)
    adapter = holdfast.adapt(net, cotta(lr=0.005, restore=p))
    steps = []
    for images in stream(KINDS * 2, torch.float64):
        adapter(images)
        own = dict(adapter.model.named_parameters())
        steps.append({n: (own[n] == net.get_parameter(n)).flatten() for n in MOVING})
    returned = {name: torch.stack([step[name] for step in steps]) for name in MOVING}
    everything = torch.cat(list(returned.values()), 1)
    assert everything.numel() > 25_000
    checks = {name: (mask, p) for name, mask in returned.items()}
    checks["all"] = everything, p
    checks["neighbours"] = everything[:, 1::2] & everything[:, :-1:2], p * p
    checks["steps in a row"] = everything[1::2] & everything[:-1:2], p * p
    for what, (mask, share) in checks.items():
        tolerance = 5 * math.sqrt(share * (1 - share) / mask.numel())
        assert mask.double().mean().item() == pytest.approx(share, abs=tolerance), what


def test_views_and_anchor_run_only_where_they_matter():
    net = toy_net()
    images = stream(("some",))[0]
    for below, forwards in ((0, 2), (0.5, 3), (0.9, 6)):
        adapter = holdfast.adapt(net, f"cotta(augment=flip,views=4,augment_below={below})")
        adapter(images)
        assert adapter.last.forwards == forwards
        assert adapter.last.backwards == 1


def test_a_confidence_at_the_limit_takes_no_views():
    """All probabilities are 1, which is not below 1."""
    net = toy_net()
    with torch.no_grad():
        net.fc.weight.mul_(1e3)
    images = stream(("all",))[0]
    assert (torch.softmax(PlainToy(net, ())(images)[1], 1).max(1).values == 1).all()
    adapter = holdfast.adapt(net, "cotta(augment=flip,views=4,augment_below=1)")
    adapter(images)
    assert adapter.last.forwards == 3


def test_settings_are_the_papers():
    for preset in (None, "imagenet-c"):
        host = holdfast.compose("cotta", preset=preset).host
        assert (host.optimizer, host.lr, host.momentum, host.nesterov) == ("sgd", 1e-4, 0.9, True)
        assert (host.augment_below, host.restore, host.loss) == (0.1, 0.001, "symmetric")
        assert (host.views, host.teacher_momentum, host.select) == (32, 0.999, "all")
        assert (host.predict, host.augment) == ("teacher", "cotta")
    host = holdfast.compose("cotta", preset="cifar100-c").host
    assert (host.optimizer, host.lr, host.momentum, host.nesterov) == ("adam", 1e-3, 0.9, False)
    assert (host.augment_below, host.restore, host.loss) == (0.72, 0.01, "ce")
    assert (host.views, host.teacher_momentum, host.predict) == (32, 0.999, "teacher")


def test_debias_replaces_prediction_and_rate_unless_they_are_written():
    for preset in (None, "imagenet-c", "cifar100-c"):
        host = holdfast.compose("cotta+debias", preset=preset).host
        assert (host.predict, host.lr) == ("student", 1e-4)
        assert host.optimizer == ("adam" if preset == "cifar100-c" else "sgd")
        host = holdfast.compose("cotta(lr=0.02,predict=teacher)+debias", preset=preset).host
        assert (host.predict, host.lr) == ("teacher", 0.02)
    weightless = "cotta+debias(lambda_ema=0,lambda_src=0)"
    for preset in (None, "cifar100-c"):
        plain = holdfast.compose("cotta", preset=preset).host
        assert holdfast.compose(weightless, preset=preset).host == plain


@pytest.mark.parametrize("preset", [None, "cifar100-c"])
def test_debias_without_weight_is_cotta_bit_for_bit(preset):
    net = toy_net()
    one, other = (
        holdfast.adapt(net, f"cotta(augment=alternate,views=3){plugin}", preset=preset)
        for plugin in ("", "+debias(lambda_ema=0,lambda_src=0)")
    )
    for images in stream(KINDS[:6]):
        assert torch.equal(one(images), other(images))
    for name, weight in one.model.named_parameters():
        assert torch.equal(weight, other.model.get_parameter(name))


DEBIAS = {"ema": 2, "src": 50, "divisor": 1024}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("predict", ["student", "teacher"])
def test_cotta_with_debias(predict, dtype):
    """The plug-in looks at the student; by itself it makes the student answer."""
    written = {"predict": "teacher"} if predict == "teacher" else {}
    spec = cotta(lr=0.0002, **written)
    follow_both(f"{spec}+debias", restate(lr=0.0002, predict=predict, debias=DEBIAS), dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_cotta_with_both_plugins(dtype):
    spec = cotta(lr=0.0002) + "+debias+consistency(augment=flip)"
    build = restate(lr=0.0002, predict="student", debias=DEBIAS, consistency=True)
    _, forwards = follow_both(spec, build, dtype)
    assert set(forwards) == {4, 6}


def test_its_own_augmentation():
    net = toy_net()
    adapter = holdfast.adapt(net, "cotta(augment_below=1,views=2)+consistency(augment=cotta)")
    for images in stream(("some", "all", "none")):
        logits = adapter(images)
        assert logits.isfinite().all() and adapter.last.stepped
        assert len(adapter.last.losses) == 2
        assert adapter.last.forwards == 5
