import math

import pytest
import torch
import torch.nn.functional as F
from follow import TOLERANCE, close
from laws import saved_half_way_goes_on
from plain import NORM_AFFINE, PlainAdam, PlainSgd
from plain_memory import PlainTimelyMemory, RobustToy
from toys import (
    assert_same_state,
    source_batches,
    state_of,
    stream,
    toy_net,
    typical_images,
)

import holdfast


class PlainRotta:
    def __init__(
        self,
        net,
        *,
        lr=1e-4,
        optimizer="adam",
        capacity=64,
        every=64,
        bn_momentum=0.05,
        teacher_momentum=0.999,
        lambda_time=1,
        lambda_uncertainty=1,
    ):
        self.student, self.teacher = (RobustToy(net, bn_momentum, t) for t in (NORM_AFFINE, ()))
        self.optimizer = (PlainAdam if optimizer == "adam" else PlainSgd)(self.student, lr)
        self.memory = PlainTimelyMemory(capacity, lambda_time, lambda_uncertainty)
        self.every, self.momentum, self.count = every, teacher_momentum, 0

    def __call__(self, images):
        logits = self.teacher.logits(images, training=False)
        for image, row in zip(images, logits, strict=True):
            p = torch.softmax(row, 0)
            uncertainty = -sum((x * torch.log(x + 1e-6)).item() for x in p)
            self.memory.add(image, int(row.argmax()), uncertainty)
            self.count += 1
            if self.count % self.every == 0:
                self.update()
        return logits

    def update(self):
        images = torch.stack([image for image, _, _ in self.memory.items()])
        target = torch.softmax(self.teacher.logits(images, training=True), 1)
        student = torch.log_softmax(self.student.logits(images.flip(3), training=True), 1)
        loss = 0.0
        for t, s, (_, _, age) in zip(target, student, self.memory.items(), strict=True):
            w = math.exp(-age / self.memory.capacity)
            loss = loss + w / (1 + w) * -(t * s).sum()
        self.optimizer.step(loss / len(images))
        for name in NORM_AFFINE:
            old, new = self.teacher.w[name], self.student.w[name].detach()
            self.teacher.w[name] = self.momentum * old + (1 - self.momentum) * new


def compare(dtype, batches=None, **settings):
    """Logits, both nets' weights and statistics, and the memory, after every batch."""
    net = toy_net(dtype=dtype)
    adapter, plain = holdfast.adapt(net, spec(**settings)), PlainRotta(net, **settings)
    for index, images in enumerate(batches or stream(dtype=dtype, last=5)):
        updates = (plain.count + len(images)) // plain.every - plain.count // plain.every
        close(adapter(images), plain(images), dtype, f"logits of batch {index}")
        assert (adapter.last.forwards, adapter.last.backwards) == (1 + 2 * updates, updates)
        assert adapter.last.stepped == (updates > 0)
        for who, model, toy in (
            ("student", adapter.model, plain.student),
            ("teacher", adapter._slots.task.teacher.network.model, plain.teacher),
        ):
            for name, weight in model.named_parameters():
                close(weight, toy.w[name], dtype, f"{who}'s {name} after batch {index}")
            for name, stored in toy.stored.items():
                for kind, value in zip(("mean", "var"), stored, strict=True):
                    got = model.get_buffer(f"{name}.running_{kind}")
                    close(got, value, dtype, f"{who}'s {kind} of {name} after batch {index}")
        state = state_of(adapter)
        ages, order = (state["memory/clock"] - state["memory/born"]).sort()
        items = sorted(plain.memory.items(), key=lambda item: item[2])
        assert ages.tolist() == [age for _, _, age in items]
        doubts = torch.tensor([doubt for _, doubt, _ in items], dtype=torch.float64)
        close(state["memory/entropies"][order], doubts, dtype, f"memory {index}")
    for name in NORM_AFFINE if plain.momentum < 0.99 else ():
        for toy in (plain.student, plain.teacher):
            assert (toy.w[name] - net.get_parameter(name)).abs().max() > 1e-4
    return adapter, plain


def spec(augment="flip", **settings):
    written = (f"{name}={value}" for name, value in {**settings, "augment": augment}.items())
    return f"rotta({','.join(written)})"


FAST = {"lr": 0.01, "optimizer": "sgd", "bn_momentum": 0.2, "teacher_momentum": 0.9}
SMALL = {**FAST, "every": 10, "capacity": 10}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("every", "capacity"), [(10, 10), (5, 10), (5, 5), (16, 14), (20, 64)])
def test_rotta(every, capacity, dtype):
    """Updates in the middle of a batch, several in one, none in some."""
    _, plain = compare(dtype, every=every, capacity=capacity, **FAST)
    if capacity == 10:  # a quota of 10/7: two of a class at most, and all rules are met
        assert all(plain.memory.seen.values())
        assert max(len(each) for each in plain.memory.lists) == 2


def test_adam():
    compare(torch.float64, **SMALL | {"lr": 0.002, "optimizer": "adam"})


def test_defaults_are_the_papers():
    compare(torch.float64)
    for preset, lr in (("imagenet-c", 1e-4), ("cifar100-c", 1e-3)):
        host = holdfast.compose("rotta", preset=preset).host
        assert (host.lr, host.optimizer, host.momentum) == (lr, "adam", 0.9)
        assert (host.capacity, host.every, host.bn_momentum) == (64, 64, 0.05)
        assert (host.teacher_momentum, host.augment) == (0.999, "rotta")


@pytest.mark.parametrize(("time", "doubt"), [(0, 1), (1, 0), (0.3, 2), (0, 0)])
def test_what_is_evicted(time, doubt):
    """With both weights 0 nothing is worse than a newcomer: the first ones stay for ever."""
    _, plain = compare(torch.float64, lambda_time=time, lambda_uncertainty=doubt, **SMALL)
    evictions = plain.memory.seen["majority"] + plain.memory.seen["own"]
    assert (evictions > 0) == (time + doubt > 0)


def test_of_two_alike_the_later_goes():
    """Two stored images tie; a surer one of their class comes; ages tell which of them is left."""
    sure = typical_images()[:1]
    dim = 0.4 * sure
    toy = RobustToy(toy_net(dtype=torch.float64), 0.2)
    p = [torch.softmax(toy.logits(each, training=False)[0], 0) for each in (dim, sure)]
    assert p[0].argmax() == p[1].argmax() and p[0].max() < p[1].max() - 0.01
    batches = [dim, dim, sure, *typical_images()[1:3].split(1)] * 2
    settings = FAST | {"lr": 0.1, "every": 5, "capacity": 14, "lambda_time": 0}
    _, plain = compare(torch.float64, batches, **settings)
    assert plain.memory.seen["own"] and plain.memory.seen["dropped"]


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_single_images(dtype):
    batches = torch.cat(stream(("some", "all", "none"), dtype)).split(1)
    compare(dtype, batches, every=3, capacity=5, **FAST)


def test_a_memory_of_one_image():
    batches = stream(("some", "all"), torch.float64, size=4)
    _, plain = compare(torch.float64, batches, every=1, capacity=1, **FAST)
    assert len(plain.memory.items()) == 1


def test_predict_is_the_teachers_and_leaves_the_memory_alone():
    adapter, plain = compare(torch.float64, **SMALL)
    before = state_of(adapter)
    images = source_batches(torch.float64)[0][0]
    expected = plain.teacher.logits(images, training=False)
    close(adapter.predict(images), expected, torch.float64, "predict")
    close(adapter.frozen()(images), expected, torch.float64, "frozen")
    assert_same_state(state_of(adapter), before)


@pytest.mark.parametrize("augment", ["flip", "alternate", "rotta"])
def test_saved_in_the_middle_goes_on_bit_for_bit(augment, tmp_path):
    """With images in memory, and samples counted towards the next update."""
    net = toy_net()
    adapter = holdfast.adapt(net, spec(augment, lr=0.001, every=10, capacity=10))
    saved_half_way_goes_on(adapter, net, tmp_path / "state", stream(last=5))


def test_images_of_another_size_than_those_in_memory():
    adapter = holdfast.adapt(toy_net(), spec(**SMALL))
    images = stream(("some", "all", "some"))
    adapter(images[0])
    before = state_of(adapter)
    with pytest.raises(ValueError, match=r"(?is)memory.*\b8\b.*\b12\b.*reset\(\)"):
        adapter(F.interpolate(images[1], (12, 12)))
    assert_same_state(state_of(adapter), before)
    adapter(images[2])
    assert adapter.last.stepped


def test_nothing_of_a_batch_remains_if_a_later_update_in_it_fails():
    """The first of two updates throws the weights so far that the second one's loss is not finite.
    Until then images were remembered, and statistics, weights, momentum and the teacher moved."""
    adapter = holdfast.adapt(toy_net(), spec(**SMALL | {"lr": 1e38, "every": 20}))
    first, *rest = stream(("some", "all", "some"))
    adapter(first)
    assert not adapter.last.stepped
    before = state_of(adapter)
    assert any(name.startswith("memory/") for name in before)
    with pytest.warns(UserWarning, match="NaN or Inf"):
        logits = adapter(torch.cat(rest))
    assert logits.isfinite().all()
    assert_same_state(state_of(adapter), before)
    assert not adapter.last.stepped
    assert all(parameter.grad is None for parameter in adapter.model.parameters())
    adapter(rest[0])  # one update alone is well
    assert adapter.last.stepped and adapter.last.refused is None
