import pytest
import torch
from follow import TOLERANCE, close
from laws import saved_half_way_goes_on
from plain import NORM_AFFINE, PlainAdam, PlainSgd
from plain_memory import PlainBalancedMemory, StoredToy, smoothed_entropy
from toys import assert_same_state, settled_net, state_of, stream

import holdfast


class PlainSotta:
    """One image at a time; SAM by hand."""

    def __init__(
        self,
        net,
        *,
        lr=1e-3,
        optimizer="adam",
        weight_decay=0,
        rho=0.05,
        capacity=64,
        every=64,
        bn_momentum=0.2,
        threshold=0.99,
        exclude="layer4",
    ):
        trained = tuple(name for name in NORM_AFFINE if not rho or exclude not in name)
        self.net = StoredToy(net, bn_momentum, trained=trained)
        self.optimizer = (PlainAdam if optimizer == "adam" else PlainSgd)(self.net, lr)
        self.memory = PlainBalancedMemory(capacity)
        self.every, self.decay, self.rho, self.threshold = every, weight_decay, rho, threshold
        self.count = 0

    def __call__(self, images):
        found = []
        for image in images:
            with torch.no_grad():
                row = self.net.logits(image[None], training=False)[0]
            if torch.softmax(row, 0).max() >= self.threshold:
                self.memory.count = self.count
                self.memory.add(image, int(row.argmax()))
            found.append(row)
            self.count += 1
            if self.count % self.every == 0 and self.memory.items():
                self.update()
        return torch.stack(found)

    def update(self):
        w, trained = self.net.w, self.net.trained
        images = torch.stack([image for _, image in self.memory.items()])
        found = self.net.gradients(smoothed_entropy(self.net.logits(images, training=True)).mean())
        if self.rho:
            norm = sum((g * g).sum() for g in found).sqrt()
            before = {name: w[name].detach().clone() for name in trained}
            with torch.no_grad():
                for name, g in zip(trained, found, strict=True):
                    w[name] += self.rho * g / (norm + 1e-12)
            again = smoothed_entropy(self.net.logits(images, training=True)).mean()
            found = self.net.gradients(again)
            with torch.no_grad():
                for name in trained:
                    w[name].copy_(before[name])
        # A sum whose gradient is what was found, and the decay's.
        loss = sum((g * w[name]).sum() for name, g in zip(trained, found, strict=True))
        self.optimizer.step(loss + self.decay / 2 * sum((w[name] ** 2).sum() for name in trained))


def compare(dtype, batches=None, **settings):
    net = settled_net(dtype)
    adapter, plain = holdfast.adapt(net, spec(**settings)), PlainSotta(net, **settings)
    stepped = []
    for index, images in enumerate(batches or stream(dtype=dtype, last=5)):
        start, end = plain.count, plain.count + len(images)
        due = end // plain.every > start // plain.every
        close(adapter(images), plain(images), dtype, f"logits of batch {index}")
        assert adapter.last.due == due
        stepped.append(adapter.last.stepped)
        assert adapter.last.backwards % (2 if plain.rho else 1) == 0
        for name, weight in adapter.model.named_parameters():
            close(weight, plain.net.w[name], dtype, f"{name} after batch {index}")
        for name, stored in plain.net.stored.items():
            for kind, value in zip(("mean", "var"), stored, strict=True):
                got = adapter.model.get_buffer(f"{name}.running_{kind}")
                close(got, value, dtype, f"{kind} of {name} after batch {index}")
        state, items = state_of(adapter), plain.memory.items()
        assert int(state["memory/clock"]) == plain.count
        assert ("memory/images" in state) == bool(items)
        if items:
            assert state["memory/born"].tolist() == [born for born, _ in items]
            images = torch.stack([image for _, image in items])
            assert torch.equal(state["memory/images"], images)
    return adapter, plain, stepped


def spec(evict="oldest", **settings):
    written = (f"{name}={value}" for name, value in {**settings, "evict": evict}.items())
    return f"sotta({','.join(written)})"


# Small rates: a climb along a small gradient makes much of its rounding.
FAST = {"lr": 0.001, "optimizer": "sgd", "threshold": 0.4, "bn_momentum": 0.05}
SMALL = {**FAST, "every": 10, "capacity": 6}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("every", "capacity"), [(10, 6), (5, 9), (7, 3), (16, 14), (20, 64)])
def test_sotta(every, capacity, dtype):
    """Steps in the middle of a batch, several in one, none in some; a memory that fills and one
    that does not; images that are not confident."""
    _, plain, stepped = compare(dtype, every=every, capacity=capacity, **FAST)
    assert any(stepped)
    assert sum(plain.memory.met.values()) < plain.count
    if capacity < 10:
        assert plain.memory.met["largest"] and plain.memory.met["own"]
    for name in NORM_AFFINE:
        assert (plain.net.w[name] - settled_net(dtype).get_parameter(name)).abs().max() > 1e-4


@pytest.mark.parametrize(
    "settings",
    [
        {"rho": 0},
        {"rho": 0.5},
        {"exclude": "norm2"},
        {"weight_decay": 0.1},
        {"optimizer": "adam", "lr": 0.002},
        {"optimizer": "adam", "lr": 0.002, "weight_decay": 5e-4, "rho": 0},
        {"bn_momentum": 0},
        {"bn_momentum": 1},
        {"threshold": 0},
        {"every": 1, "capacity": 4, "lr": 0.0001},
    ],
    ids=str,
)
def test_settings(settings):
    compare(torch.float64, **SMALL | settings)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_without_a_confident_image_no_step_is_taken(dtype):
    """Until one comes: then the memory holds it alone."""
    net = settled_net(dtype)
    dark = stream(("none",) * 3, dtype)
    sure = stream(("all",), dtype)[0]
    with torch.no_grad():
        sure = sure[net(sure).softmax(1).amax(1) > 0.9][:1]
    assert len(sure)
    batches = [*dark, torch.cat([dark[0], sure]), *stream(("some", "none"), dtype, seed=3)]
    adapter, plain, stepped = compare(dtype, batches[:3], **SMALL | {"threshold": 0.9})
    assert not any(stepped) and not plain.memory.items()
    assert adapter.last.step_rate == 0
    _, plain, stepped = compare(dtype, batches[:4], **SMALL | {"threshold": 0.9, "every": 5})
    assert len(plain.memory.items()) == 1 and stepped == [False, False, False, True]
    compare(dtype, batches, **SMALL | {"threshold": 0.9, "every": 5})


def test_an_empty_memory_saved_in_the_middle_of_a_window(tmp_path):
    """How many images have come is known to the loaded one."""
    net = settled_net(torch.float32)
    adapter = holdfast.adapt(net, spec(**SMALL | {"threshold": 0.9}))
    adapter(stream(("none",), size=7)[0])
    adapter.save(tmp_path / "state")
    loaded = holdfast.load(tmp_path / "state", net)
    assert_same_state(state_of(loaded), state_of(adapter))
    for images in stream(("all", "some", "none")):
        assert torch.equal(loaded(images), adapter(images))
        assert_same_state(state_of(loaded), state_of(adapter))
    assert adapter.last.due


@pytest.mark.parametrize("evict", ["random", "oldest"])
def test_saved_in_the_middle_of_a_window_goes_on_bit_for_bit(evict, tmp_path):
    net = settled_net(torch.float32)
    adapter = holdfast.adapt(net, spec(evict, **SMALL | {"every": 9}))
    batches = stream(last=5)
    assert sum(map(len, batches[: len(batches) // 2])) % 9  # of every=9: a window is half full
    saved_half_way_goes_on(adapter, net, tmp_path / "state", batches)


def test_defaults_are_those_released():
    compare(torch.float64)
    for preset, threshold, decay in (("imagenet-c", 0.33, 0), ("cifar100-c", 0.66, 5e-4)):
        host = holdfast.compose("sotta", preset=preset).host
        assert (host.lr, host.optimizer, host.momentum) == (1e-3, "adam", 0.9)
        assert (host.rho, host.exclude, host.evict) == (0.05, "layer4", "random")
        assert (host.capacity, host.every, host.bn_momentum) == (64, 64, 0.2)
        assert (host.threshold, host.weight_decay) == (threshold, decay)


@pytest.mark.parametrize(
    ("classes", "threshold"), [(2, 0.99), (10, 0.99), (11, 0.66), (100, 0.66), (101, 0.33)]
)
def test_the_threshold_follows_the_number_of_classes(classes, threshold):
    method = holdfast.compose("sotta")
    assert method.host.threshold is None and method.host.weight_decay == 0
    assert method.for_classes(classes).host.threshold == threshold


def test_predict_answers_as_the_next_image_would_be_and_changes_nothing():
    net = settled_net(torch.float64)
    adapter, plain = holdfast.adapt(net, spec(**SMALL)), PlainSotta(net, **SMALL)
    first, second = stream(("all", "some"), torch.float64)
    adapter(first)
    plain(first)
    before = state_of(adapter)
    predicted = adapter.predict(second)
    assert_same_state(state_of(adapter), before)
    with torch.no_grad():
        close(predicted, plain.net.logits(second, training=False), torch.float64, "predict")
        close(adapter.frozen()(second), predicted, torch.float64, "frozen")
    close(adapter(second)[:4], predicted[:4], torch.float64, "before the step")


def test_what_trains_leaves_out_the_last_stage_unless_there_is_no_climb():
    net = torch.nn.Sequential()
    net.add_module("conv", torch.nn.Conv2d(3, 4, 3))
    net.add_module("norm", torch.nn.BatchNorm2d(4))
    net.add_module("layer4", torch.nn.BatchNorm2d(4))
    net.add_module("flat", torch.nn.Flatten())
    net.add_module("fc", torch.nn.Linear(4 * 36, 3))
    for rho, trained in ((0.05, {"norm"}), (0, {"norm", "layer4"})):
        adapter = holdfast.adapt(net, f"sotta(rho={rho})")
        names = {name for name, p in adapter.model.named_parameters() if p.requires_grad}
        assert {name.split(".")[0] for name in names} == trained
