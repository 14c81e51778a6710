import re

import pytest
import torch
from follow import TOLERANCE, close
from laws import saved_half_way_goes_on
from plain import NORM_AFFINE, PlainAdam, PlainSgd
from plain_memory import PlainBalancedMemory, PlainFifo, StoredToy, smoothed_entropy
from torch import nn
from toys import CLASSES, assert_same_state, settled_net, state_of, stream, toy_net, toy_source

import holdfast
from holdfast.explain.card import card


class PlainNote:
    """One image at a time."""

    def __init__(
        self,
        net,
        *,
        lr=1e-4,
        optimizer="adam",
        weight_decay=0,
        capacity=64,
        every=64,
        bn_momentum=0.01,
        iabn=True,
        iabn_k=4,
        memory="balanced",
        statistics="running",
        loss="mean",
    ):
        self.net = StoredToy(net, bn_momentum, iabn_k if iabn else None)
        self.optimizer = (PlainAdam if optimizer == "adam" else PlainSgd)(self.net, lr)
        self.memory = (PlainFifo if memory == "fifo" else PlainBalancedMemory)(capacity)
        self.every, self.decay, self.count = every, weight_decay, 0
        self.by_batch, self.divisor = statistics == "batch", CLASSES if loss == "mean" else 1

    def __call__(self, images):
        whole, found = None, []
        if self.by_batch:
            with torch.no_grad():
                whole = self.net.logits(images, training=True, record=False)
        for index, image in enumerate(images):
            with torch.no_grad():
                row = self.net.logits(image[None], training=False)[0]
            row = row if whole is None else whole[index]
            self.memory.count = self.count
            self.memory.add(image, int(row.argmax()))
            found.append(row)
            self.count += 1
            if self.count % self.every == 0:
                self.update()
        return torch.stack(found)

    def update(self):
        images = torch.stack([image for _, image in self.memory.items()])
        logits = self.net.logits(images, training=True, record=not self.by_batch)
        loss = smoothed_entropy(logits).mean() / self.divisor
        squares = sum((self.net.w[name] ** 2).sum() for name in NORM_AFFINE)
        self.optimizer.step(loss + self.decay / 2 * squares)


def compare(dtype, batches=None, **settings):
    """Logits, weights, statistics and the memory, after every batch."""
    net = settled_net(dtype)
    adapter, plain = holdfast.adapt(net, spec(**settings)), PlainNote(net, **settings)
    for index, images in enumerate(batches or stream(dtype=dtype, last=5)):
        start, end = plain.count, plain.count + len(images)
        updates = end // plain.every - start // plain.every
        looks = 1 if plain.by_batch else updates + (end % plain.every > 0)
        close(adapter(images), plain(images), dtype, f"logits of batch {index}")
        assert (adapter.last.forwards, adapter.last.backwards) == (looks + updates, updates)
        assert adapter.last.stepped == adapter.last.due == (updates > 0)
        for name, weight in adapter.model.named_parameters():
            close(weight, plain.net.w[name], dtype, f"{name} after batch {index}")
        for name, stored in plain.net.stored.items() if not plain.by_batch else ():
            for kind, value in zip(("mean", "var"), stored, strict=True):
                got = adapter.model.get_buffer(f"{name}.running_{kind}")
                close(got, value, dtype, f"{kind} of {name} after batch {index}")
        assert_same_memory(adapter, plain)
    if plain.count >= plain.every:
        for name in NORM_AFFINE:
            assert (plain.net.w[name] - net.get_parameter(name)).abs().max() > 1e-5
    return adapter, plain


def assert_same_memory(adapter, plain):
    state, items = state_of(adapter), plain.memory.items()
    assert state["memory/born"].tolist() == [born for born, _ in items]
    assert torch.equal(state["memory/images"], torch.stack([image for _, image in items]))
    assert int(state["memory/clock"]) == plain.count


def spec(evict="oldest", **settings):
    settings = {**settings, "evict": evict}
    for name, (other, value) in holdfast.Note.unused.items():
        if settings.get(other) == value:
            settings.pop(name, None)
    written = (f"{name}={value}" for name, value in settings.items())
    return f"note({','.join(written)})"


FAST = {"lr": 0.02, "optimizer": "sgd", "bn_momentum": 0.1}
SMALL = {**FAST, "every": 10, "capacity": 10}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("every", "capacity"), [(10, 10), (5, 12), (7, 3), (16, 14), (20, 64)])
def test_note(every, capacity, dtype):
    """Steps in the middle of a batch, several in one, none in some; a memory that fills and one
    that does not."""
    _, plain = compare(dtype, every=every, capacity=capacity, **FAST)
    met = plain.memory.met
    assert met["room"] == min(capacity, plain.count)
    if capacity < 15:
        assert met["largest"] and met["own"]


@pytest.mark.parametrize(
    "settings",
    [
        {"iabn": False},
        {"iabn_k": 0},
        {"iabn_k": 0.5},
        {"memory": "fifo"},
        {"memory": "fifo", "capacity": 24},
        {"loss": "sum", "lr": 0.003},
        {"weight_decay": 0.1},
        {"optimizer": "adam", "lr": 0.002},
        {"optimizer": "adam", "lr": 0.002, "weight_decay": 5e-4},
        {"statistics": "batch"},
        {"statistics": "batch", "iabn": False, "memory": "fifo"},
        {"every": 1, "capacity": 4, "lr": 0.001},
        {"bn_momentum": 0},
        {"bn_momentum": 1},
    ],
    ids=str,
)
def test_settings(settings):
    compare(torch.float64, **SMALL | settings)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_a_batch_is_its_images_one_by_one(dtype):
    """Whatever its size: smaller than `every`, no divisor of it, or larger."""
    images = torch.cat(stream(("some", "all", "none", "some"), dtype))
    compare(dtype, images.split(1), **SMALL)
    adapters = [holdfast.adapt(settled_net(dtype), spec(**SMALL)) for _ in range(3)]
    got = [
        torch.cat([adapter(batch) for batch in images.split(size)])
        for adapter, size in zip(adapters, (1, 7, 64), strict=True)
    ]
    assert adapters[2].last.backwards == 6
    for other in got[1:]:
        close(other, got[0], dtype, "logits")


def test_defaults_are_those_released():
    compare(torch.float64)
    for preset, decay in ((None, 0), ("imagenet-c", 0), ("cifar100-c", 5e-4)):
        host = holdfast.compose("note", preset=preset).host
        assert (host.lr, host.optimizer, host.momentum) == (1e-4, "adam", 0.9)
        assert (host.capacity, host.every, host.bn_momentum) == (64, 64, 0.01)
        assert (host.iabn, host.iabn_k, host.loss) == (True, 4, "mean")
        assert (host.memory, host.evict, host.statistics) == ("balanced", "random", "running")
        assert host.weight_decay == decay
    assert "`capacity` images" in card("note").memory


def test_predict_answers_as_the_next_image_would_be_and_changes_nothing():
    """In the middle of a window; a batch that a step falls into is not answered as a whole."""
    net = settled_net(torch.float64)
    adapter, plain = holdfast.adapt(net, spec(**SMALL)), PlainNote(net, **SMALL)
    first, second = stream(("all", "some"), torch.float64)
    adapter(first)
    plain(first)
    before = state_of(adapter)
    predicted = adapter.predict(second)
    assert_same_state(state_of(adapter), before)
    with torch.no_grad():
        close(predicted, plain.net.logits(second, training=False), torch.float64, "predict")
        close(adapter.frozen()(second), predicted, torch.float64, "frozen")
    got = adapter(second)
    close(got[:4], predicted[:4], torch.float64, "before the step")  # 16 of 20 have come
    assert (got[4:] - predicted[4:]).abs().max() > 1e-4
    assert not torch.equal(adapter.predict(second), predicted)


def test_batch_statistics_need_a_batch():
    adapter = holdfast.adapt(settled_net(torch.float32), spec(statistics="batch", **SMALL))
    image = stream(("all",))[0][:1]
    with pytest.raises(ValueError, match=r"batch of one.*window=W"):
        adapter(image)
    assert holdfast.adapt(settled_net(torch.float32), spec(**SMALL))(image).shape == (1, CLASSES)


@pytest.mark.parametrize("iabn", [True, False])
def test_batch_statistics_as_exported(iabn):
    adapter = holdfast.adapt(
        settled_net(torch.float32), spec(statistics="batch", iabn=iabn, **SMALL)
    )
    for images in stream(("some", "all")):
        adapter(images)
    images = stream(("some",), seed=4)[0].contiguous(memory_format=torch.channels_last)
    assert torch.equal(adapter.frozen(statistics="batch")(images), adapter.predict(images))
    assert adapter.frozen()(images[:1]).isfinite().all()


@pytest.mark.parametrize("memory", ["balanced", "fifo"])
def test_saved_in_the_middle_of_a_window_goes_on_bit_for_bit(memory, tmp_path):
    net = settled_net(torch.float32)
    adapter = holdfast.adapt(net, spec("random", memory=memory, lr=0.001, every=9, capacity=10))
    batches = stream(last=5)
    assert sum(map(len, batches[: len(batches) // 2])) % 9  # of every=9: a window is half full
    saved_half_way_goes_on(adapter, net, tmp_path / "state", batches)


def test_what_is_dropped_depends_on_the_seed():
    def kept(seed):
        adapter = holdfast.adapt(settled_net(torch.float32), spec("random", **SMALL), seed=seed)
        for images in stream():
            adapter(images)
        return state_of(adapter)["memory/born"].tolist()

    assert kept(0) == kept(0) != kept(1)


def test_nothing_of_a_batch_remains_if_a_later_update_in_it_fails():
    adapter = holdfast.adapt(settled_net(torch.float32), spec(**SMALL | {"lr": 1e38, "every": 20}))
    first, *rest = stream(("some", "all", "some"))
    adapter(first)
    before, rest = state_of(adapter), torch.cat(rest)
    expected = adapter.predict(rest)
    with pytest.warns(UserWarning, match="NaN or Inf"):
        logits = adapter(rest)
    assert torch.equal(logits, expected)
    assert_same_state(state_of(adapter), before)
    assert all(parameter.grad is None for parameter in adapter.model.parameters())
    assert not adapter.last.stepped
    adapter(rest[:8])  # one update alone is well
    assert adapter.last.stepped and adapter.last.refused is None


def test_images_of_another_size_than_those_in_memory():
    adapter = holdfast.adapt(settled_net(torch.float32), spec(**SMALL))
    adapter(stream(("some",))[0])
    before = state_of(adapter)
    with pytest.raises(ValueError, match=r"memory.*\b8\b.*\b12\b.*reset\(\)"):
        adapter(torch.rand(4, 3, 12, 12))
    assert_same_state(state_of(adapter), before)


@pytest.mark.parametrize("host", ["note", "sotta(threshold=0.3)", "petta"])
def test_debias_learns_from_the_memory_too(host):
    net = settled_net(torch.float32)
    small = host.replace(")", ",") if "(" in host else f"{host}("
    every = "" if host == "petta" else ",every=20"
    adapter = holdfast.adapt(net, f"{small}capacity=12{every})+debias", source=toy_source(net))
    before, spoke = adapter.prototypes, set()
    for images in stream(("all", "some", "all")):
        adapter(images)
        spoke |= adapter.last.losses.keys()
    assert spoke >= {"ema", "src"}
    assert not torch.equal(adapter.prototypes, before)


def test_what_it_does_not_go_with():
    for host, other in (("note", "note(statistics=batch,iabn=false)"), ("sotta", "eata")):
        expected = rf"{host} does not normalise by the batch's.*write {re.escape(other)}\+steady"
        with pytest.raises(ValueError, match=expected):
            holdfast.compose(f"{host}+steady")
        holdfast.compose(f"{other}+steady")
    net = toy_net()
    net.norm1 = torch.nn.BatchNorm2d(8, track_running_stats=False)
    with pytest.raises(ValueError, match=r"running statistics.*track_running_stats"):
        holdfast.adapt(net, "note")


@pytest.mark.parametrize("host", ["note", "sotta(threshold=0)"])
def test_one_image_of_one_pixel_is_learnt_from_in_a_view_too(host):
    """As a net with BatchNorm1d has it: one value a channel."""
    torch.manual_seed(0)
    parts = nn.Flatten(), nn.Linear(3 * 8 * 8, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 5)
    written = host.replace(")", ",") if "(" in host else f"{host}("
    adapter = holdfast.adapt(
        nn.Sequential(*parts).eval(), f"{written}every=1,capacity=1)+consistency(augment=flip)"
    )
    for _ in range(3):
        adapter(torch.rand(2, 3, 8, 8))
        assert adapter.last.stepped and "consistency" in adapter.last.losses


@pytest.mark.parametrize(
    ("spec", "instead"),
    [
        ("note(memory=fifo,evict=oldest)", "note(memory=fifo), or note(evict=oldest)"),
        ("note(iabn=false,iabn_k=2)", "note(iabn=false), or note(iabn_k=2.0)"),
        ("note(statistics=batch,bn_momentum=0.1)", "note(statistics=batch), or"),
        ("sotta(rho=0,exclude=layer3)", "sotta(rho=0.0), or sotta(exclude=layer3)"),
        ("petta(regularizer=none,lambda_reg=2)", "petta(regularizer=none), or"),
        ("tent+reservoir(models=1,evict=idle)", "reservoir(models=1), or reservoir(evict=idle)"),
        ("tent+aetta(dropout=0)", "dropout takes"),
    ],
)
def test_a_setting_that_would_do_nothing_is_an_error(spec, instead):
    with pytest.raises(ValueError, match=re.escape(instead)):
        holdfast.compose(spec)
    # What is written out in full reads back.
    for alone in ("note(memory=fifo)", "note(iabn=false,statistics=batch)", "sotta(rho=0)"):
        written = str(holdfast.compose(alone))
        assert str(holdfast.compose(written)) == written


def test_a_float16_model_stays_finite():
    """Where Adam's usual ε is 0, and many squared gradients are."""
    adapter = holdfast.adapt(settled_net(torch.float32).half(), "note(every=16,capacity=16)")
    for images in stream(("all", "some", "all", "some")):
        assert adapter(images.half()).isfinite().all()
        assert adapter.last.stepped and adapter.last.refused is None
    assert all(weight.isfinite().all() for weight in adapter.model.parameters())
