import math

import pytest
import torch
from follow import TOLERANCE, assert_none_some_all, close, follow
from plain import NORM_AFFINE, PlainAdam, PlainSgd, PlainToy, entropy
from plain_methods import PlainDebias
from toys import CLASSES, group_norm, stream, toy_net, toy_source

import holdfast


def flipped(images):
    return images.flip(3)


def same(images):
    return images


def occluded(images, size=4, row=2, column=2):
    out = images.clone()
    for i in range(len(images)):
        for c in range(images.shape[1]):
            mean = images[i, c].mean()
            for y in range(row, row + size):
                for x in range(column, column + size):
                    out[i, c, y, x] = mean
    return out


class Diary:
    """How many images each filter kept, batch by batch."""

    def __init__(self):
        self.kept = []


def restate(
    *,
    lr=0.002,
    adam=False,
    nesterov=True,
    tau=0.5,
    margin=0.4,
    threshold=0.2,
    by_entropy=True,
    by_drop=True,
    destroy=flipped,
    trained=NORM_AFFINE,
    debias=None,
    diary=None,
):
    """One image after the other; only reliable ones are destroyed, as a batch of their own."""
    diary = diary or Diary()

    def build(net):
        toy = PlainToy(net, trained=trained)
        optimizer = PlainAdam(toy, lr) if adam else PlainSgd(toy, lr, nesterov=nesterov)
        plug = PlainDebias(net, **debias) if debias else None

        def step(images):
            features, logits = toy(images)
            h, p = entropy(logits), torch.softmax(logits, 1).detach()
            one = [i for i in range(len(images)) if h[i] < tau * math.log(CLASSES)]
            two, total = [], 0
            if one:
                _, other = toy(destroy(images[one]))
                q = torch.softmax(other, 1).detach()
                for place, i in enumerate(one):
                    label = int(p[i].argmax())
                    drop = p[i, label] - q[place, label]
                    if drop > threshold:
                        two.append(i)
                        weight = by_entropy * torch.exp(margin * math.log(CLASSES) - h[i].detach())
                        weight = weight + by_drop * torch.exp(drop)
                        weight = weight if by_entropy or by_drop else 1
                        total = total + weight * h[i]
            diary.kept.append((len(one), len(two)))
            loss = total / len(two) if two else 0
            if plug:
                loss = loss + plug(features, logits)
            if isinstance(loss, torch.Tensor):
                optimizer.step(loss)
            return logits

        return step, toy

    return build


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("augment", "destroy"), [("flip", flipped), ("none", same), ("occlude", occluded)]
)
def test_deyo(augment, destroy, dtype):
    diary = Diary()
    build = restate(lr=0.001, destroy=destroy, diary=diary)
    adapter, counts, _ = follow(f"deyo(lr=0.001,augment={augment})", build, dtype)
    assert_none_some_all(counts)
    assert [one for one, _ in diary.kept] == [reliable for reliable, _ in counts]
    assert any(0 < two < one for one, two in diary.kept)
    if augment != "flip":
        # Reliable images, but none of them changes enough.
        assert any(one and not two for one, two in diary.kept)
    assert adapter.last.images == {"entropy": diary.kept[-1][1]}


def test_defaults_are_the_collections():
    follow("deyo(augment=flip)", restate(lr=2.5e-4), torch.float64)


@pytest.mark.parametrize(
    ("settings", "plain"),
    [
        ("nesterov=false", {"nesterov": False}),
        ("optimizer=adam", {"adam": True}),
        ("entropy_factor=0.3", {"tau": 0.3}),
        ("entropy_factor=2", {"tau": 2}),
        ("margin_factor=0.1", {"margin": 0.1}),
        ("threshold=0.6", {"threshold": 0.6}),
        ("threshold=-1", {"threshold": -2}),
        ("weight_entropy=false", {"by_entropy": False}),
        ("weight_plpd=false", {"by_drop": False}),
        ("weight_entropy=false,weight_plpd=false", {"by_entropy": False, "by_drop": False}),
        (
            "augment=occlude,size=5,row=0,column=3",
            {"destroy": lambda images: occluded(images, 5, 0, 3)},
        ),
    ],
)
def test_every_setting(settings, plain):
    flip = "" if "augment" in settings else ",augment=flip"
    follow(f"deyo(lr=0.002,{settings}{flip})", restate(**plain), torch.float64)


@pytest.mark.parametrize("augment", ["patch", "pixel"])
def test_random_destruction_is_of_the_reliable_images(augment):
    """By the views that the adapter is going to draw."""
    net = toy_net(dtype=torch.float64)
    adapter = holdfast.adapt(net, f"deyo(lr=0.002,augment={augment})")
    (term,) = adapter._slots.terms
    views = {}
    step, toy = restate(destroy=lambda images: views["next"](images))(net)
    for index, images in enumerate(stream(dtype=torch.float64, last=5)):
        views["next"] = term.augment.copy()
        close(adapter(images), step(images), torch.float64, f"logits of batch {index}")
        for name in NORM_AFFINE:
            close(adapter.model.get_parameter(name), toy.w[name], torch.float64, name)


def test_no_set_no_step_and_no_momentum():
    net = toy_net()
    adapter = holdfast.adapt(net, "deyo(lr=0.01,augment=none)")
    some, empty_second, empty_first = stream(("some", "all", "none"))
    adapter(some)
    assert adapter.last.stepped and adapter.last.forwards == 2
    before = {n: p.detach().clone() for n, p in adapter.model.named_parameters()}
    adapter(empty_second)
    assert adapter.last.reliable == 16 and adapter.last.forwards == 2
    assert not adapter.last.stepped and not adapter.last.losses
    adapter(empty_first)
    assert adapter.last.reliable == 0 and adapter.last.forwards == 1
    assert not adapter.last.stepped
    for name, weight in adapter.model.named_parameters():
        assert torch.equal(weight, before[name])


@pytest.mark.parametrize(("bright", "kept"), [(1, 0), (2, 1)])
def test_one_reliable_image_is_destroyed_by_its_own_statistics(bright, kept):
    """By the source's, both of these would lose nearly all of their probability."""
    images = stream(("some",), torch.float64)[0]
    dark = [i for i in range(len(images)) if i % 3 and i != bright]
    images[dark] *= 0.02
    diary, net = Diary(), toy_net(dtype=torch.float64)
    adapter = holdfast.adapt(net, "deyo(augment=flip,threshold=0.5)")
    step, _ = restate(threshold=0.5, diary=diary)(net)
    close(adapter(images), step(images), torch.float64, "logits")
    assert diary.kept == [(1, kept)]
    assert adapter.last.reliable == 1 and adapter.last.forwards == 2
    assert adapter.last.images == ({"entropy": 1} if kept else {})


def test_the_destroyed_copy_has_no_graph():
    """Nor does one in a network that normalises each image by itself."""
    for net in (toy_net(), toy_net(group_norm)):
        adapter = holdfast.adapt(net, "deyo(augment=flip)")
        graphs = []
        adapter.model.fc.register_forward_hook(
            lambda _, __, out, seen=graphs: seen.append(out.requires_grad)
        )
        adapter(stream(("some",))[0])
        assert graphs == [True, False]


def test_deep_layers_stay_as_they_are():
    trained = ("norm1.weight", "norm1.bias")
    spec = "deyo(lr=0.002,augment=flip,exclude=norm2)"
    adapter, *_ = follow(spec, restate(trained=trained), torch.float64, trained=trained)
    net = toy_net(dtype=torch.float64)
    for name, weight in adapter.model.named_parameters():
        assert name in trained or torch.equal(weight, net.get_parameter(name))


@pytest.mark.parametrize("augment", ["flip", "none"])
def test_with_debias(augment):
    """debias's own reliable images, whatever PLPD: its terms drive where DeYO kept none."""
    diary = Diary()
    build = restate(
        lr=0.0005,
        destroy=flipped if augment == "flip" else same,
        debias={"ema": 2, "src": 50, "divisor": 12},
        diary=diary,
    )
    spec = f"deyo(lr=0.0005,augment={augment})+debias(src_reduction=mean)"
    _, _, spoke = follow(spec, build, torch.float64)
    assert spoke == {"entropy", "ema", "src"}
    if augment == "none":
        assert any(one and not two for one, two in diary.kept)


def test_debias_takes_a_step_where_no_prediction_hangs_on_shape():
    net = toy_net()
    adapter = holdfast.adapt(net, "deyo(augment=none)+debias", source=toy_source(net))
    adapter(stream(("all",))[0])
    assert adapter.last.stepped and adapter.last.losses.keys() == {"ema", "src"}


def test_any_channels_in_any_range():
    net = torch.nn.Sequential(
        torch.nn.Conv2d(5, 8, 3),
        torch.nn.BatchNorm2d(8),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(8, 4),
    )
    images = 30 * torch.randn(12, 5, 11, 9, generator=torch.Generator().manual_seed(0))
    for augment in ("patch", "pixel", "occlude"):
        adapter = holdfast.adapt(
            net, f"deyo(augment={augment},entropy_factor=2,threshold=-1)", input_range=None
        )
        adapter(images)
        assert adapter.last.images == {"entropy": 12}


def test_a_square_outside_the_images_changes_nothing():
    net = toy_net()
    adapter = holdfast.adapt(net, "deyo(augment=occlude,size=9)")
    with pytest.raises(ValueError, match="does not lie within images of 8×8 pixels"):
        adapter(stream(("some",))[0])
    assert torch.equal(adapter.model.norm1.weight, net.norm1.weight)


def test_presets():
    for preset in (None, "imagenet-c", "cifar100-c"):
        host = holdfast.compose("deyo", preset=preset).host
        adam = preset == "cifar100-c"
        assert (host.optimizer, host.lr) == (("adam", 1e-3) if adam else ("sgd", 2.5e-4))
        assert (host.momentum, host.nesterov, host.select) == (0.9, not adam, "norm")
        assert (host.entropy_factor, host.margin_factor, host.threshold) == (0.5, 0.4, 0.2)
        assert host.weight_entropy and host.weight_plpd
        assert (host.exclude, host.augment) == ("layer4", "patch")
        assert (host.size, host.row, host.column) == (0, -1, -1)


def test_a_square_that_nothing_fills_is_an_error():
    with pytest.raises(ValueError, match=r"write deyo\(augment=occlude,size=3\)"):
        holdfast.compose("deyo(size=3)")
    holdfast.compose("deyo(size=3,augment=occlude)")


def test_sgd_keeps_its_nesterov_under_a_preset_with_adam():
    for host in ("roid", "cmf", "deyo", "rpl", "santa"):
        chosen = holdfast.compose(f"{host}(optimizer=sgd)", preset="cifar100-c").host
        assert chosen.nesterov and not holdfast.compose(host, preset="cifar100-c").host.nesterov
