import math

import pytest
import torch
import torch.nn.functional as F
from follow import TOLERANCE, follow
from plain import PlainAdam, PlainSgd
from plain_roid import FLIP, KINDS_OF, PlainRoid
from running import assert_equal, run
from toys import CLASSES, KINDS, state_of, stream, toy_net, toy_source

import holdfast
from holdfast.explain.card import card


def pull(momentum):
    @torch.no_grad()
    def after(weights, start):
        for name, source in start.items():
            weights[name].copy_(momentum * weights[name] + (1 - momentum) * source)

    return after


def restate(*, lr=0.001, adam=False, nesterov=True, momentum=0.99, **settings):
    made = []

    def optimizer(toy):
        return PlainAdam(toy, lr) if adam else PlainSgd(toy, lr, nesterov=nesterov)

    def build(net):
        plain = PlainRoid(net, optimizer, after=pull(momentum), **settings)
        made.append(plain)
        return plain, plain.toy

    build.made = made
    return build


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_roid(dtype, optimizer):
    """Twelve batches, the last of five images."""
    adam = optimizer == "adam"
    lr = 0.001
    build = restate(lr=lr, adam=adam)
    spec = f"roid(lr={lr},optimizer={optimizer},{FLIP})"
    adapter, _, spoke = follow(spec, build, dtype, kinds=KINDS_OF[dtype])
    assert spoke == {"likelihood", "agreement"}
    sizes = [len(kept) for kept in build.made[0].kept]
    assert sizes.count(16) < 3 and len(set(sizes)) > 3
    assert adapter.last.images["likelihood"] == sizes[-1]


@pytest.mark.parametrize(
    ("given", "settings"),
    [
        ("weighting=false", {"weighting": False}),
        ("weight_consistency=0", {"weight": 0}),
        ("weighting=false,weight_consistency=0", {"weighting": False, "weight": 0}),
        ("weight_consistency=2.5", {"weight": 2.5}),
        ("source_momentum=1", {"momentum": 1.0}),
        ("source_momentum=0.8", {"momentum": 0.8}),
        ("class_momentum=0.5", {"momentum_q": 0.5}),
        ("temperature=1", {"temperature": 1.0}),
        ("correct=false", {"correct": "none"}),
        ("nesterov=false", {"nesterov": False}),
        ("divisor=configured", {"divisor": 16}),
    ],
)
def test_every_setting(given, settings):
    if "momentum_q" in settings:

        def build(net, momentum=settings["momentum_q"]):
            plain, toy = restate()(net)
            plain.momentum = momentum
            return plain, toy

    else:
        build = restate(**settings)
    follow(f"roid(lr=0.001,{FLIP},{given})", build, torch.float64)


def test_a_tail_takes_a_smaller_step_where_the_divisor_is_the_configured_size():
    """Five images of sixteen: gradients are 5/16 of those by the images that there are."""
    norms = {}
    for divisor in ("actual", "configured"):
        net = toy_net(dtype=torch.float64)
        adapter = holdfast.adapt(net, f"roid(lr=0,{FLIP},divisor={divisor})")
        for images in stream(("some", "all"), torch.float64, last=5):
            adapter(images)
        norms[divisor] = adapter.last.gradient_norm
    assert norms["configured"] == pytest.approx(norms["actual"] * 5 / 16)


def test_correcting_probabilities_gives_log_probabilities():
    build = restate(correct="probabilities")
    net = toy_net(dtype=torch.float64)
    adapter = holdfast.adapt(net, f"roid(lr=0.001,{FLIP},correct=probabilities)")
    step, _ = build(net)
    for images in stream(KINDS, torch.float64, last=5):
        got, expected = adapter(images).log_softmax(1), step(images)
        assert torch.allclose(got, expected, rtol=0, atol=1e-8)
        assert adapter.last.uncorrected is None


def test_weighting_off_leaves_the_class_average_alone():
    net = toy_net()
    q = "terms/likelihood/weights.q"
    for weighting, moves in (("true", True), ("false", False)):
        adapter = holdfast.adapt(net, f"roid({FLIP},weighting={weighting})")
        run(adapter, stream(("some", "all")))
        assert torch.allclose(state_of(adapter)[q], torch.full((CLASSES,), 1 / CLASSES)) != moves
        assert (adapter.last.images["likelihood"] == 16) != moves


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_equal_images_weigh_one_each_and_none_is_left_out(dtype):
    """0/0 in the released code, after which all is NaN."""
    net = toy_net(dtype=dtype)
    adapter = holdfast.adapt(net, f"roid(lr=0.001,{FLIP})")
    batches = stream(KINDS, dtype, last=5)
    batches[3] = batches[3][:1].repeat(16, 1, 1, 1)
    step, toy = restate()(net)
    for index, images in enumerate(batches):
        got, expected = adapter(images), step(images)
        assert (got - expected).abs().max() < TOLERANCE[dtype]
        assert adapter.last.refused is None and adapter.last.stepped
        if index == 3:
            assert adapter.last.images == {"likelihood": 16, "agreement": 16}
            assert step.kept[-1] == list(range(16))
    for name, weight in adapter.model.named_parameters():
        assert (weight - toy.w[name]).abs().max() < TOLERANCE[dtype]


def test_one_image_that_counts_is_not_seen_by_its_own_statistics():
    """Of two images one is left out; where norm layers do not go by the batch, it is seen."""
    two = stream(("some",))[0][:2]
    adapter = holdfast.adapt(toy_net(), f"roid({FLIP})")
    adapter(two)
    assert adapter.last.losses.keys() == {"likelihood"} and adapter.last.forwards == 1
    assert adapter.last.stepped and adapter.last.images == {"likelihood": 1}
    grouped = toy_net(lambda channels: torch.nn.GroupNorm(2, channels))
    adapter = holdfast.adapt(grouped, f"roid({FLIP})")
    adapter(two)
    assert adapter.last.losses.keys() == {"likelihood", "agreement"}
    assert adapter.last.forwards == 2


def test_the_second_forward_sees_the_kept_images_only():
    net, seen = toy_net(), []
    net.conv1.register_forward_pre_hook(lambda layer, inputs: seen.append(len(inputs[0])))
    adapter = holdfast.adapt(net, f"roid({FLIP})")
    for images in stream(("some", "all", "none")):
        seen.clear()
        adapter(images)
        assert seen == [16, adapter.last.images["agreement"]]
        assert 1 < seen[1] < 16


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("plugins", ["ensemble+prior", "prior+ensemble"])
@pytest.mark.parametrize("augment", ["roid", "alternate"])
def test_roid_is_its_losses_and_two_plugins_bit_for_bit(optimizer, plugins, augment):
    given = f"lr=0.001,optimizer={optimizer},augment={augment}"
    net = toy_net()
    whole = holdfast.adapt(net, f"roid({given})")
    parts = holdfast.adapt(net, f"roid({given},source_momentum=1,correct=false)+{plugins}")
    batches = stream(KINDS, last=5)
    assert_equal(run(whole, batches), run(parts, batches))
    assert torch.equal(whole.last.uncorrected, parts.last.uncorrected)
    one, other = state_of(whole), state_of(parts)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_views_are_drawn_once_a_batch():
    """Two adapters of one seed agree; another seed gives other weights."""
    weights = []
    for seed in (0, 0, 1):
        adapter = holdfast.adapt(toy_net(), "roid(lr=0.01)", seed=seed)
        run(adapter, stream(("some", "all", "some")))
        weights.append(adapter.frozen().state_dict()["norm2.weight"])
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize("host", ["roid", "cmf"])
def test_debias_adds_its_terms_over_its_own_reliable_images(host):
    net = toy_net()
    adapter = holdfast.adapt(net, f"{host}({FLIP})+debias", source=toy_source(net))
    for images in stream(("some", "all")):
        adapter(images)
        assert adapter.last.losses.keys() == {"likelihood", "agreement", "ema", "src"}
        assert adapter.last.images["ema"] == adapter.last.reliable
    assert adapter.last.images["ema"] != adapter.last.images["likelihood"]
    adapter(stream(("none",))[0])
    assert adapter.last.losses.keys() == {"likelihood", "agreement"}
    for word in ("With debias", "beside the two losses", "back to the source"):
        assert word in card(f"{host}+debias").parts[0].note


def test_the_pull_takes_back_what_debias_moved_too():
    """With nothing of the adapted weights kept, they never leave the source."""
    net = toy_net()
    spec = f"roid(lr=0.1,source_momentum=0,{FLIP})+debias"
    adapter = holdfast.adapt(net, spec, source=toy_source(net))
    run(adapter, stream(("some", "all")))
    for (name, weight), source in zip(
        adapter.model.named_parameters(), net.parameters(), strict=True
    ):
        assert torch.equal(weight, source), name


@pytest.mark.parametrize("name", ["roid", "cmf"])
def test_presets(name):
    usual, cifar = (holdfast.compose(name, preset=p).host for p in (None, "cifar100-c"))
    assert holdfast.compose(name, preset="imagenet-c").host == usual
    assert (usual.optimizer, usual.lr, usual.momentum, usual.nesterov) == ("sgd", 2.5e-4, 0.9, True)
    assert (cifar.optimizer, cifar.lr, cifar.momentum, cifar.nesterov) == (
        "adam",
        1e-3,
        0.9,
        False,
    )
    for one in (usual, cifar):
        assert (one.weighting, one.weight_consistency, one.class_momentum) == (True, 1, 0.9)
        assert (one.temperature, one.correct, one.divisor) == (1 / 3, "logits", "actual")
        assert one.augment == "roid"


def test_the_card_tells_what_leaves():
    assert "no probabilities" in card("roid").predicts
    assert "logits corrected by the prior" in card("roid").predicts
    assert "no probabilities" in card("tent+prior").predicts
    for spec in ("roid(correct=false)", "cmf(correct=probabilities)", "tent"):
        assert "no probabilities" not in card(spec).predicts


def test_the_loss_of_a_sure_image_is_finite_and_flat():
    """A probability of 1 is clamped, and passes no gradient."""
    from holdfast.engine.step import Step

    net = toy_net(dtype=torch.float64)
    adapter = holdfast.adapt(net, f"roid({FLIP},weighting=false,weight_consistency=0)")
    (term,) = adapter._slots.terms
    step = Step(adapter.network, stream(("some",), torch.float64)[0], learning=True)
    sure = torch.full((2, CLASSES), -60.0, dtype=torch.float64)
    sure[:, 0] = 60
    sure.requires_grad_(True)
    vars(step)["log_probabilities"] = sure.log_softmax(1)
    loss = term(step).loss
    assert float(loss.detach()) == pytest.approx(-0.99 * math.log(99 + 1e-5))
    assert F.softmax(sure, 1).max() > 0.99
    (gradient,) = torch.autograd.grad(loss, sure)
    assert gradient.abs().max() < 1e-20
