"""ASR against a plain restatement, on several hosts: with a partial reset, a whole one and none."""

import math

import pytest
import torch
from follow import TOLERANCE, follow
from plain import NORM_AFFINE, PlainToy, entropy, limit
from plain_hosts import DEBIAS, EATA, HOSTS, PlainHost
from toys import CLASSES, assert_same_state, state_of, stream, toy_net, toy_source

import holdfast


class PlainAsr:
    """Level, sums and goal beside a host."""

    def __init__(self, net, *, start=0.5, drift=0.15, weight=5, keep=0.5, slope=20, **host):
        self.host, self.source = PlainHost(net, **host), PlainToy(net)
        self.start, self.drift, self.weight, self.keep = start, drift, weight, keep
        self.slope = slope
        self.level, self.pull, self.goal = math.log(CLASSES * start), 0, None
        self.clear()
        self.shares, self.pulled = [], 0

    def clear(self):
        zeros = {name: torch.zeros_like(w) for name, w in self.host.source.items()}
        self.squares, self.weights, self.batches = dict(zeros), dict(zeros), 0

    def take_in(self, loss):
        gradients = torch.autograd.grad(
            loss, [self.host.toy.w[name] for name in NORM_AFFINE], retain_graph=True
        )
        for name, gradient in zip(NORM_AFFINE, gradients, strict=True):
            self.squares[name] = self.squares[name] + gradient**2

    def step(self, images):
        host, w = self.host, self.host.toy.w
        logits, drives, holds = host.objective(images)
        loss = holds if drives is None else drives + holds
        if torch.is_tensor(loss) and loss.requires_grad:
            self.take_in(loss)
        for name in NORM_AFFINE:
            self.weights[name] = self.weights[name] + w[name].detach().clone()
        self.batches += 1
        if drives is not None:
            if self.goal is not None:
                information, place = self.goal
                for name in NORM_AFFINE:
                    loss = (
                        loss + self.pull * (information[name] * (w[name] - place[name]) ** 2).sum()
                    )
                self.pulled += self.pull > 0
            host.descend(loss)
        self.check(images, logits.detach())
        return logits

    def check(self, images, logits):
        p = torch.softmax(logits.double().mean(0), 0)
        h = -(p * torch.log(p)).sum().item()
        with torch.no_grad():
            source = self.source(images)[1]
        apart = (source.argmax(1) != logits.argmax(1)).double().mean().item()
        self.pull = self.weight * apart**2
        if h < self.level:
            self.reset(h)
        else:
            mu = 1 - self.drift * (1 - apart)
            self.level = mu * self.level + (1 - mu) * h

    def reset(self, h):
        mean = [
            {name: total[name] / self.batches for name in NORM_AFFINE}
            for total in (self.squares, self.weights)
        ]
        if self.goal is None:
            self.goal = mean
        else:
            self.goal = [
                {name: 0.9 * old[name] + 0.1 * new[name] for name in NORM_AFFINE}
                for old, new in zip(self.goal, mean, strict=True)
            ]
        self.clear()
        share = max(self.keep - self.slope * (self.level - h), 0)
        self.shares.append(share)
        self.host.reset([name for i, name in enumerate(NORM_AFFINE) if i < share * 4])
        self.level = math.log(CLASSES * self.start)


def followed(host, dtype, **settings):
    made = []

    def restate(net):
        made.append(PlainAsr(net, **settings, **HOSTS[host]))
        return made[0].step, made[0].host.toy

    written = ",".join(f"{name}={value}" for name, value in settings.items())
    adapter, counts, _ = follow(f"{host}+asr({written})", restate, dtype, moves=False)
    rule, plain = adapter._slots.upkeep[-1], made[0]
    tolerance = TOLERANCE[dtype]
    assert float(rule.level) == pytest.approx(plain.level, abs=tolerance)
    assert float(rule.pull) == pytest.approx(plain.pull, abs=tolerance)
    assert int(rule.batches) == plain.batches
    flat = torch.cat([plain.squares[name] for name in NORM_AFFINE])
    torch.testing.assert_close(rule.squares, flat, atol=tolerance, rtol=tolerance * 10)
    return counts, plain


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("host", HOSTS)
def test_it_resets_in_part(host, dtype):
    _, plain = followed(host, dtype, start=0.93, weight=400, slope=0.3, keep=0.8)
    kept = {sum(i < share * 4 for i in range(4)) for share in plain.shares}
    assert kept & {1, 2, 3} and len(plain.shares) > 1
    assert plain.pulled or DEBIAS not in host


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("host", HOSTS)
def test_it_pulls(host, dtype):
    """All weights stay, so that labels become others than the source model's."""
    weight = 2 if DEBIAS in host else 400
    _, plain = followed(host, dtype, start=0.93, weight=weight, slope=0.02, keep=0.85)
    assert plain.pulled and len(plain.shares) > 1


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("host", HOSTS)
def test_a_level_that_stays_low_leads_to_no_reset(host, dtype):
    _, plain = followed(host, dtype, start=0.05, drift=0.02)
    assert plain.shares == [] and plain.goal is None
    assert plain.level > math.log(CLASSES * 0.05) + 0.1


def test_defaults_are_the_published_ones():
    _, plain = followed(EATA, torch.float64)
    assert plain.shares


def test_far_below_the_level_nothing_stays():
    _, plain = followed(EATA, torch.float64, start=1.0, slope=1000)
    assert plain.shares and set(plain.shares) == {0}


def test_the_level_follows_the_entropy_of_the_mean_logits():
    net = toy_net()
    adapter = holdfast.adapt(net, "tent(lr=0)+asr(start=0.3,drift=0.5)")
    (images,) = stream(("all",))
    adapter(images)
    p = torch.softmax(adapter.predict(images).double().mean(0), 0)
    h = float(-(p * p.log()).sum())
    level = adapter._slots.upkeep[0].level
    assert float(level) == pytest.approx(0.5 * math.log(0.3 * CLASSES) + 0.5 * h, abs=1e-6)


def test_without_a_step_the_gradient_of_the_anchor_counts():
    """EATA: no image survives; the Fisher term still has a gradient."""
    net = toy_net(dtype=torch.float64)
    adapter = holdfast.adapt(net, f"{EATA}+asr(start=0.001,drift=0)", source=toy_source(net))
    rule = adapter._slots.upkeep[0]
    some, none = stream(("some", "none"), torch.float64)
    adapter(none)
    assert not adapter.last.stepped and not rule.squares.any()  # nothing has moved yet
    assert int(rule.batches) == 1
    adapter(some)
    before, weights = rule.squares.clone(), dict(adapter.model.named_parameters())
    fisher = adapter._slots.terms[1]
    moved = torch.cat([weights[name].detach() - net.get_parameter(name) for name in NORM_AFFINE])
    adapter(none)
    assert not adapter.last.stepped and adapter.last.backwards == 0
    expected = (50 * 2 * fisher.information * moved) ** 2
    torch.testing.assert_close(rule.squares - before, expected, rtol=1e-8, atol=1e-14)
    assert int(rule.batches) == 3


def test_on_sar_the_gradient_is_that_of_the_first_look():
    net = toy_net(dtype=torch.float64)
    adapter = holdfast.adapt(net, "sar(exclude=none)+asr(start=0.001)")
    toy = PlainToy(net)
    (images,) = stream(("some",), torch.float64)
    adapter(images)
    logits = toy(images)[1]
    h = entropy(logits)
    found = toy.gradients(h[h < limit(0.4, logits)].mean())
    expected = torch.cat([each.reshape(-1) ** 2 for each in found])
    torch.testing.assert_close(adapter._slots.upkeep[-1].squares, expected, rtol=1e-8, atol=1e-14)
    assert int(adapter._slots.upkeep[-1].batches) == 1


def test_a_reset_begins_averages_and_optimiser_anew_and_keeps_the_first_tensors():
    net = toy_net()
    spec = f"{EATA}+{DEBIAS}+asr(start=1,slope=0,keep=0.5)"
    adapter = holdfast.adapt(net, spec, source=toy_source(net))
    fresh = state_of(adapter)
    adapter(stream(("some",))[0])
    now = state_of(adapter)
    assert bool(now["upkeep/0/known"]) and not int(now["upkeep/0/batches"])
    same = {n for n in fresh if n.startswith("model/norm") and torch.equal(now[n], fresh[n])}
    assert same == {"model/norm2.weight", "model/norm2.bias"}
    rest = [n for n in fresh if n.startswith(("terms/", "optimizer/"))]
    assert_same_state({n: now[n] for n in rest}, {n: fresh[n] for n in rest})


def test_a_teacher_keeps_what_its_student_keeps():
    net = toy_net()
    spec = "cotta(views=1,lr=0.01,restore=0,teacher_momentum=0.5)+asr(start=1,slope=0)"
    adapter = holdfast.adapt(net, spec)
    adapter(stream(("some",))[0])
    own, teacher = dict(net.named_parameters()), adapter._slots.task.teacher.parameters
    names = list(own)
    moved = [n for n in names if not torch.equal(teacher[n], own[n])]
    assert moved and set(moved) <= set(names[: len(names) // 2])


def test_costs():
    method = holdfast.compose("eata+asr")
    assert method.forwards == (2, 2) and method.backwards == (0, 1)


@pytest.mark.parametrize("spec", ["asr", "asr+debias"])
def test_alone_it_is_an_error_that_says_what_to_write(spec):
    with pytest.raises(ValueError, match=r"asr has nothing to act on alone.*tent\+asr"):
        holdfast.compose(spec)


def test_on_a_host_with_a_memory_it_is_an_error():
    with pytest.raises(ValueError, match=r"rotta learns from a memory.*eata\+asr"):
        holdfast.compose("rotta+asr")


def test_where_predictions_go_by_running_statistics_the_anchor_learns_alike():
    """Weights that stay where they are leave every label as it was."""
    net = toy_net()
    spec = "ttac(lr=0)+asr(start=0.001)"
    adapter = holdfast.adapt(net, spec, source=toy_source(net))
    rule = adapter._slots.upkeep[0]
    rule.pull.fill_(1)
    for images in stream(("all", "some", "all")):
        adapter(images)
        assert float(rule.pull) == 0


def test_on_a_host_that_learns_from_a_view_it_goes_by_that_view():
    """The batch itself is never learnt from, so that nothing more is recorded of it."""
    net, spec = toy_net(), "adacontrast(lr=0,queue=64,augment=flip,weak=none)"
    source = toy_source(net)
    alone = holdfast.adapt(net, spec, source=source)
    adapter = holdfast.adapt(net, f"{spec}+asr(start=0.2,drift=0.1)", source=source)
    toy, level = PlainToy(net), math.log(0.2 * CLASSES)
    for images in stream(("all", "all")):
        assert torch.equal(adapter(images), alone(images))
        p = torch.softmax(toy(images.flip(3))[1].detach().double().mean(0), 0)
        level = 0.9 * level + 0.1 * float(-(p * p.log()).sum())
        rule = adapter._slots.upkeep[-1]
        assert float(rule.pull) == 0 and float(rule.level) == pytest.approx(level, abs=1e-5)
