import pytest
import torch
from follow import TOLERANCE, assert_none_some_all, close, follow
from plain import NORM_AFFINE, PlainToy, entropy, limit
from toys import KINDS, stream, toy_net

import holdfast


class Diary:
    """What a restatement went through: losses, resets, and how many images each climb lost."""

    def __init__(self):
        self.losses, self.resets, self.lost = [], [], []


def restate(
    *,
    lr=0.002,
    momentum=0.9,
    rho=0.05,
    factor=0.4,
    below=0.0,
    keep=False,
    trained=NORM_AFFINE,
    diary=None,
):
    """SAM by hand. A batch without a reliable image has a gradient of zero, and steps."""
    diary = diary or Diary()

    def build(net):
        toy = PlainToy(net, trained=trained)
        start = {name: toy.w[name].detach().clone() for name in trained}
        velocity = {name: torch.zeros_like(toy.w[name]) for name in trained}
        memory = {"e": None}

        def climb_and_look(images, first, reliable):
            """The loss at the top of the climb, and its gradients: None without images left."""
            gradients = toy.gradients(sum(first[i] for i in reliable) / len(reliable))
            norm = sum((g * g).sum() for g in gradients).sqrt()
            before = {name: toy.w[name].detach().clone() for name in trained}
            with torch.no_grad():
                for name, g in zip(trained, gradients, strict=True):
                    toy.w[name] += rho * g / (norm + 1e-12)
            _, logits = toy(images)
            h = entropy(logits)
            still = [i for i in reliable if h[i] < limit(factor, logits)]
            diary.lost.append(len(reliable) - len(still))
            loss = sum(h[i] for i in still) / len(still) if still else None
            found = toy.gradients(loss) if still else None
            with torch.no_grad():
                for name in trained:
                    toy.w[name].copy_(before[name])
            return loss, found

        def step(images):
            _, logits = toy(images)
            h, loss, gradients = entropy(logits), None, None
            reliable = [i for i in range(len(h)) if h[i] < limit(factor, logits)]
            if reliable:
                loss, gradients = climb_and_look(images, h, reliable)
            diary.losses.append(None if loss is None else loss.item())
            if loss is not None:
                e = memory["e"]
                memory["e"] = loss.item() if e is None else 0.9 * e + 0.1 * loss.item()
            for index, name in enumerate(trained):
                g = gradients[index] if gradients else torch.zeros_like(velocity[name])
                velocity[name] = momentum * velocity[name] + g
                with torch.no_grad():
                    toy.w[name] -= lr * velocity[name]
            diary.resets.append(memory["e"] is not None and memory["e"] < below)
            if diary.resets[-1]:
                with torch.no_grad():
                    for name in trained:
                        toy.w[name].copy_(start[name])
                memory["e"] = memory["e"] if keep else None
            return logits

        return step, toy

    return build


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_sar(dtype):
    diary = Diary()
    _, counts, _ = follow(
        "sar(lr=0.002,rho=0.1,reset_below=0)", restate(rho=0.1, diary=diary), dtype
    )
    assert_none_some_all(counts)
    assert any(diary.lost)  # images that the climb made unreliable


@pytest.mark.parametrize(
    ("settings", "plain"),
    [
        ("momentum=0", {"momentum": 0}),
        ("rho=0", {"rho": 0}),
        ("entropy_factor=0.2", {"factor": 0.2}),
        ("exclude=layer4", {}),  # matches nothing here
    ],
)
def test_every_setting(settings, plain):
    follow(f"sar(lr=0.002,reset_below=0,{settings})", restate(**plain), torch.float64)


def test_a_climb_that_leaves_no_reliable_image():
    """The average stays, and momentum goes on."""
    diary = Diary()
    build = restate(rho=0.5, factor=0.05, diary=diary)
    spec = "sar(lr=0.002,reset_below=0,rho=0.5,entropy_factor=0.05)"
    _, counts, _ = follow(spec, build, torch.float64)
    assert any(n and loss is None for (n, _), loss in zip(counts, diary.losses, strict=True))


def test_excluded_layers_stay_as_they_are():
    trained = ("norm1.weight", "norm1.bias")
    adapter, *_ = follow(
        "sar(lr=0.002,reset_below=0,exclude=norm2)",
        restate(trained=trained),
        torch.float64,
        trained=trained,
    )
    net = toy_net(dtype=torch.float64)
    for name, weight in adapter.model.named_parameters():
        assert name in trained or torch.equal(weight, net.get_parameter(name))


def test_excluding_all_is_an_error():
    with pytest.raises(ValueError, match="exclude"):
        holdfast.adapt(toy_net(), "sar(exclude=norm)")


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("after", ["clear", "keep"])
def test_a_low_average_takes_the_weights_back_and_leaves_momentum(after, dtype):
    """Momentum would show: the restatement keeps its own over the reset, and goes on with it."""
    diary = Diary()
    build = restate(factor=0.7, below=0.24, keep=after == "keep", diary=diary)
    spec = f"sar(lr=0.002,entropy_factor=0.7,reset_below=0.24,after_reset={after})"
    adapter, *_ = follow(spec, build, dtype, moves=False)
    first = diary.resets.index(True)
    assert 0 < first < len(KINDS) - 2
    # Kept low, the average resets again with the next batch, though it has no reliable image.
    assert KINDS[first + 1] == "none" and diary.resets[first + 1] == (after == "keep")
    assert max(tensor.abs().max() for tensor in adapter._slots.learn.tensors().values()) > 1e-2


def test_weights_are_the_sources_after_a_reset_and_coast_from_there():
    net = toy_net()
    adapter = holdfast.adapt(net, "sar(lr=0.01,reset_below=0.3)")
    reset, dark = stream(("all", "none"))
    adapter(reset)
    for name, weight in adapter.model.named_parameters():
        assert torch.equal(weight, net.get_parameter(name))
    adapter(dark)
    assert adapter.last.reliable == 0
    moved = [
        (adapter.model.get_parameter(n) - net.get_parameter(n)).abs().max() for n in NORM_AFFINE
    ]
    assert min(moved) > 1e-6


def test_momentum_moves_weights_on_batches_without_reliable_images():
    net = toy_net(dtype=torch.float64)
    adapter = holdfast.adapt(net, "sar(lr=0.01,reset_below=0)")
    some, dark = stream(("some", "none"), torch.float64)
    adapter(dark)
    for name, weight in adapter.model.named_parameters():
        assert torch.equal(weight, net.get_parameter(name))
    adapter(some)
    once = {name: weight.detach().clone() for name, weight in adapter.model.named_parameters()}
    adapter(dark)
    for name in NORM_AFFINE:
        first = once[name] - net.get_parameter(name)
        close(adapter.model.get_parameter(name), once[name] + 0.9 * first, torch.float64, name)


def test_losses_and_passes_of_a_batch():
    """The loss is the second look's; without reliable images there need not be one."""
    net = toy_net(dtype=torch.float64)
    diary = Diary()
    step, _ = restate(rho=0.5, diary=diary)(net)
    adapter = holdfast.adapt(net, "sar(lr=0.002,rho=0.5,reset_below=0)")
    for images in stream(dtype=torch.float64):
        step(images)
        adapter(images)
        last = adapter.last
        if diary.losses[-1] is None:
            assert not last.losses and last.forwards in (1, 2)
        else:
            assert last.losses["entropy"] == pytest.approx(diary.losses[-1], abs=1e-8)
            assert (last.forwards, last.backwards) == (2, 2)


def test_settings():
    for preset in (None, "imagenet-c", "cifar100-c"):
        host = holdfast.compose("sar", preset=preset).host
        assert (host.optimizer, host.lr, host.momentum, host.nesterov) == (
            "sgd",
            2.5e-4,
            0.9,
            False,
        )
        assert (host.rho, host.entropy_factor, host.reset_below) == (0.05, 0.4, 0.2)
        assert (host.after_reset, host.exclude, host.select) == ("clear", "layer4", "norm")
