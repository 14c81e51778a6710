"""Heads of other kinds than a linear layer behind the pooling, and layers that are no head."""

import pytest
import torch
from compositions import SMALL
from torch import nn
from toys import CLASSES, FEATURES, source_batches, stream, toy_net

import holdfast
from holdfast.engine.network import Network
from holdfast.engine.step import Step

KINDS = ("behind", "before", "whole", "tokens")
SPECS = [SMALL.get(n, n) for n, method in holdfast.methods().items() if not method.needs_host]
SPECS += [f"{SMALL[host]}+debias(filter=false)" for host in ("eata", "cotta", "rmt")]


class Pooled(nn.Module):
    """The toy net with a linear head behind its pooling."""

    def __init__(self):
        super().__init__()
        toy = toy_net()
        self.body = nn.Sequential(toy.conv1, toy.norm1, nn.ReLU(), toy.conv2, toy.norm2, nn.ReLU())
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.classifier = nn.Linear(FEATURES, CLASSES)
            nn.init.orthogonal_(self.classifier.weight, 6)

    def forward(self, images):
        return self.classifier(self.body(images).mean((2, 3)))


class OtherHead(Pooled):
    """The same function: with a 1×1 convolution behind the pooling or before it, with one as large
    as the map, or with a linear layer on each place."""

    def __init__(self, kind):
        super().__init__()
        self.kind, linear = kind, self.classifier
        if kind == "tokens":
            return
        side = 4 if kind == "whole" else 1
        self.classifier = nn.Conv2d(FEATURES, CLASSES, side)
        rows = linear.weight.detach()[:, :, None, None].expand(-1, -1, side, side)
        self.classifier.weight.data = rows.clone() / side**2
        self.classifier.bias.data = linear.bias.detach().clone()

    def forward(self, images):
        x = self.body(images)
        if self.kind == "tokens":
            return self.classifier(x.flatten(2).mT).mean(1)
        if self.kind == "behind":
            x = x.mean((2, 3), keepdim=True)
        return self.classifier(x).mean((2, 3))


def source_of(net):
    dtype = net.classifier.weight.dtype
    return holdfast.Source.from_loader(net, source_batches(dtype), head="classifier")


def adapted(net, spec):
    return holdfast.adapt(net, spec, source=source_of(net), head="classifier", seed=1)


@pytest.mark.parametrize("kind", KINDS)
def test_features_and_logits_agree(kind):
    network = Network(OtherHead(kind), head="classifier")
    step = Step(network, network.prepare(stream(("some",))[0]))
    bias = network.head.bias
    torch.testing.assert_close(step.features @ network.rows.T + bias, step.logits)
    assert step.features.shape == (16, FEATURES * (16 if kind == "whole" else 1))


@pytest.mark.parametrize(
    ("kind", "spec"),
    [("before", spec) for spec in SPECS]
    + [(kind, spec) for kind in ("behind", "tokens") for spec in ("debias(filter=false)", "t3a")],
)
def test_a_method_does_the_same_as_with_a_linear_head(kind, spec):
    linear, other = adapted(Pooled().double(), spec), adapted(OtherHead(kind).double(), spec)

    def assert_close(one, another):
        torch.testing.assert_close(one, another, atol=1e-8, rtol=1e-8)

    for images in stream(("some", "all", "some"), torch.float64):
        assert_close(other(images), linear(images))
        assert other.last.stepped == linear.last.stepped
    images = stream(("all",), torch.float64, seed=9)[0]
    assert_close(other.frozen()(images), linear.frozen()(images))
    assert_close(other.frozen(statistics="batch")(images), other.predict(images))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spec", ["eata+debias", "t3a", "tsd"])
def test_it_is_saved_and_loaded(kind, spec, tmp_path):
    net = OtherHead(kind)
    adapter = adapted(net, spec)
    first, then = stream(("some", "all"))
    adapter(first)
    adapter.save(tmp_path / "state")
    again = holdfast.load(tmp_path / "state", net)
    assert again.network.head_name == "classifier"
    assert torch.equal(again(then), adapter(then))


def behind(forward):
    """The toy net's map, and what comes behind it."""

    class Other(OtherHead):
        def __init__(self):
            super().__init__("before")

        def forward(self, images):
            return forward(self, self.body(images))

    return Other()


NO_HEADS = {
    "relu": lambda net, x: net.classifier(x).relu().mean((2, 3)),
    "largest": lambda net, x: net.classifier(x).amax((2, 3)),
    "one place": lambda net, x: net.classifier(x)[:, :, 0, 0],
    "twice": lambda net, x: (net.classifier(x) + net.classifier(x)).mean((2, 3)),
    "negative": lambda net, x: -net.classifier(x).mean((2, 3)),
}


@pytest.mark.parametrize("name", NO_HEADS)
def test_what_is_more_than_an_average_behind_it_is_refused(name):
    net = behind(NO_HEADS[name])
    with pytest.raises(ValueError, match=r"'classifier' does not look like the head.*doctor"):
        source_of(net)
    adapter = holdfast.adapt(net, "t3a", head="classifier")
    with pytest.raises(ValueError, match="averaged over places"):
        adapter(stream(("some",))[0])
    holdfast.adapt(net, "tent", head="classifier")(stream(("some",))[0])  # looks at no feature


@pytest.mark.parametrize(
    "layer", [nn.Conv2d(14, CLASSES, 1, groups=7), nn.ConvTranspose2d(CLASSES, FEATURES, 1)]
)
def test_a_weight_without_a_row_for_each_class_is_refused(layer):
    net = nn.Sequential(nn.Conv2d(3, 14, 3), layer)
    with pytest.raises(ValueError, match="not in groups, not transposed"):
        holdfast.adapt(net, "tent", head="1")


class TwoHeads(nn.Module):
    """The last linear layer is as large as the head, but feeds nothing that leaves."""

    def __init__(self):
        super().__init__()
        self.net = Pooled()
        self.auxiliary = nn.Linear(FEATURES, CLASSES)
        self.kept = None

    def forward(self, images):
        self.kept = self.auxiliary(self.net.body(images).mean((2, 3)))
        return self.net(images)


def test_a_layer_of_the_right_shape_that_gives_other_numbers_is_no_head():
    net = TwoHeads()
    with pytest.raises(ValueError, match=r"'auxiliary' does not look like the head.*head=…"):
        holdfast.Source.from_loader(net, source_batches())
    adapter = holdfast.adapt(net, "debias(lambda_src=0,filter=false)", head="auxiliary")
    with pytest.raises(ValueError, match="'auxiliary' does not look like the head"):
        adapter(stream(("some",))[0])
    holdfast.Source.from_loader(net, source_batches(), head="net.classifier")


def test_the_first_batch_of_several_images_is_the_one_that_tells():
    adapter = holdfast.adapt(TwoHeads(), "t3a", head="auxiliary")
    images = stream(("some",))[0]
    with pytest.raises(ValueError, match="does not look like the head"):
        adapter(images[:1])
    assert adapter.last.refused is not None
    right = holdfast.adapt(TwoHeads(), "t3a", head="net.classifier")
    for some in (images[:1], images):
        assert right(some).shape == (len(some), CLASSES)


# Probabilities.


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("spec", ["frozen", "tent", "eata+debias"])
def test_probabilities_are_refused_before_anything_changes(dtype, spec):
    net = nn.Sequential(toy_net(), nn.Softmax(1)).to(dtype)
    images = stream(("some",))[0]
    if "debias" in spec:
        with pytest.raises(ValueError, match="returns probabilities"):
            holdfast.Source.from_loader(net, source_batches())
        return
    adapter = holdfast.adapt(net, spec)
    with pytest.raises(ValueError, match=r"Sequential returns probabilities.*logarithm"):
        adapter(images)
    assert adapter.last.batch == 0


def test_the_logarithm_of_probabilities_serves():
    class Log(nn.Module):
        def forward(self, x):
            return x.log()

    net = toy_net()
    one = holdfast.adapt(nn.Sequential(net, nn.Softmax(1), Log()), "tent(lr=0.01)")
    other = holdfast.adapt(net, "tent(lr=0.01)")
    for images in stream(("some", "all")):
        found, expected = one(images).softmax(1), other(images).softmax(1)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("logits", [[[0.2, 0.8]], [[0.2, 0.8], [0.6, 0.5]], [[1.2, -0.2]] * 2])
def test_logits_that_look_like_probabilities_by_chance_are_taken(logits):
    class Fixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Parameter(torch.tensor(logits))

        def forward(self, images):
            return self.out

    holdfast.adapt(Fixed(), "frozen")(torch.rand(len(logits), 3, 8, 8))


# Shapes.


def test_channels_that_come_last_are_told_to_permute():
    net, images = toy_net(), stream(("some",))[0].permute(0, 2, 3, 1)
    permute = r"images\.permute\(0, 3, 1, 2\)"
    with pytest.raises(ValueError, match=permute):
        holdfast.adapt(net, "tent")(images)
    with pytest.raises(ValueError, match=permute):
        holdfast.Source.from_loader(net, [(images, torch.arange(16) % CLASSES)])
    with pytest.raises(ValueError, match=r"cannot take images of shape \(4, 1, 8, 8\)") as error:
        holdfast.adapt(net, "tent")(torch.rand(4, 1, 8, 8))
    assert "permute" not in str(error.value)


def test_a_model_that_takes_channels_last_is_left_alone():
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = toy_net()

        def forward(self, images):
            return self.net(images.permute(0, 3, 1, 2))

    images = stream(("some",))[0]
    expected = holdfast.adapt(toy_net(), "tent")(images)
    found = holdfast.adapt(Last(), "tent")(images.permute(0, 2, 3, 1))
    torch.testing.assert_close(found, expected)


class WithProjector(nn.Module):
    """Its last linear layer is another one than the head, and takes no part in the forward."""

    def __init__(self):
        super().__init__()
        self.net = toy_net()
        self.projector = nn.Linear(FEATURES, 512)

    def forward(self, images):
        return self.net(images)


def test_what_counts_on_the_number_of_classes_is_told_of_a_wrong_head_at_the_first_batch():
    images = stream(("some",))[0]
    for spec in ("eta", "rdumb", "rotta", "t3a"):
        adapter = holdfast.adapt(WithProjector(), spec)
        with pytest.raises(ValueError, match=r"'projector' does not look like the head"):
            adapter(images)
        right = holdfast.adapt(WithProjector(), spec, head="net.fc")
        assert torch.equal(right(images), holdfast.adapt(toy_net(), spec)(images))
    # What needs no class does not mind, but a layer that was named has to be the head.
    holdfast.adapt(WithProjector(), "tent")(images)
    for spec in ("tent", "bn"):
        named = holdfast.adapt(WithProjector(), spec, head="projector")
        with pytest.raises(ValueError, match=r"'projector' does not look like the head"):
            named(images)
