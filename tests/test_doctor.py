"""The doctor: what it finds in a model, in its input, and in the methods."""

import copy
import functools

import numpy as np
import pytest
import torch
from torch import nn

import holdfast
from holdfast.doctor import Diagnosis
from holdfast.inputs import NORMALIZATIONS, check_inputs
from holdfast.split import Network

CLASSES = 5


class Net(nn.Module):
    """Two convolutions with norm layers, and a head."""

    def __init__(self, norm=nn.BatchNorm2d, channels=3):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 8, 3, padding=1)
        self.norm1 = norm(8)
        self.conv2 = nn.Conv2d(8, 12, 3, stride=2, padding=1)
        self.norm2 = norm(12)
        self.fc = nn.Linear(12, CLASSES)

    def forward(self, images):
        x = self.norm1(self.conv1(images)).relu()
        return self.fc(self.norm2(self.conv2(x)).relu().mean((2, 3)))


class HeadlessNet(nn.Module):
    """Logits come out of a convolution."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        self.classifier = nn.Conv2d(8, CLASSES, 1)

    def forward(self, images):
        return self.classifier(self.body(images).mean((2, 3), keepdim=True)).flatten(1)


class LayerNormNet(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Flatten(), nn.Linear(3 * 16 * 16, 12), nn.LayerNorm(12), nn.Linear(12, CLASSES)
        )


def textures(count, seed=0, channels=3):
    """Smooth random images in [0, 1], each with a brightness and a contrast of its own."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.rand(*shape, generator=generator)

    coarse = nn.functional.interpolate(draw(count, channels, 4, 4) - 0.5, (16, 16), mode="bilinear")
    brightness = 0.25 + 0.5 * draw(count, 1, 1, 1)
    return (brightness + (0.5 + draw(count, 1, 1, 1)) * coarse).clamp(0, 1)


def normalize(images, mean, std):
    return (images - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]


def values_of(name, channels=3):
    mean, std = NORMALIZATIONS[name]
    return (mean, std) if len(mean) == channels else (mean * channels, std * channels)


@functools.cache
def trained_net(mean, std, seed=0, channels=3):
    """Running statistics are those of normalised images, as after training; weights are random."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = Net(channels=channels).train()
    with torch.no_grad():
        for batch in range(40):
            net(normalize(textures(32, 100 + batch, channels), mean, std))
    return net.eval()


def judge(model, images):
    """What the doctor says of the input alone, which is faster than all of it."""
    return check_inputs(Network(model), images)


def levels(findings):
    return [one.level for one in findings]


def only_problem(diagnosis):
    assert len(diagnosis.problems) == 1, diagnosis.problems
    return diagnosis.problems[0]


# Input normalisation.


@pytest.mark.parametrize("name", NORMALIZATIONS)
@pytest.mark.parametrize("seed", range(3))
def test_raw_images_to_a_bare_model_are_not_normalised_at_all(name, seed):
    found = judge(trained_net(*values_of(name), seed), textures(64, seed))
    assert levels(found) == ["good", "problem"]
    assert "not normalised at all" in found[-1].text
    # The values of ImageNet and CIFAR are too near to be told apart by a few images.
    halves = "holdfast.normalized(model, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))"
    assert (halves in found[-1].text) == (name == "0.5")


@pytest.mark.parametrize("outside", NORMALIZATIONS)
@pytest.mark.parametrize("inside", NORMALIZATIONS)
def test_normalised_images_to_a_normalised_model_are_normalised_twice(inside, outside):
    values = values_of(inside)
    model = holdfast.normalized(trained_net(*values), *values)
    found = judge(model, normalize(textures(64), *values_of(outside)))
    assert levels(found) == ["problem", "problem"]
    assert "normalised twice, before the model and inside it" in found[-1].text


@pytest.mark.parametrize("name", NORMALIZATIONS)
@pytest.mark.parametrize("count", [8, 64, 200])
@pytest.mark.parametrize("seed", range(3))
def test_right_images_are_all_right(name, count, seed):
    values = values_of(name)
    model = holdfast.normalized(trained_net(*values, seed), *values)
    found = judge(model, textures(count, seed))
    assert levels(found) == ["good", "good"]
    assert "normalised as in training" in found[-1].text


def test_the_diagnosis_holds_what_is_said_of_the_input():
    values = values_of("ImageNet")
    model = holdfast.normalized(trained_net(*values), *values)
    right = holdfast.doctor(model, textures(64))
    assert right.normalization == "mean (0.485, 0.456, 0.406), std (0.229, 0.224, 0.225)"
    assert levels(right.findings) == ["good", "good"]
    assert "not normalised" in only_problem(holdfast.doctor(trained_net(*values), textures(64)))
    twice = holdfast.doctor(model, normalize(textures(64), *values))
    assert "normalised twice" in twice.problems[-1]


def test_images_normalised_outside_fit_the_model_but_not_adapt():
    values = values_of("ImageNet")
    found = judge(trained_net(*values), normalize(textures(64), *values))
    assert levels(found) == ["problem", "good"]
    assert "holdfast.normalized(model, mean, std)" in found[0].text


def test_images_in_0_to_255_are_judged_by_what_they_will_be():
    values = values_of("CIFAR")
    net = trained_net(*values)
    right = judge(holdfast.normalized(net, *values), 255 * textures(64))
    assert levels(right) == ["problem", "good"]
    assert "divide by 255" in right[0].text
    bare = judge(net, 255 * textures(64))
    assert levels(bare) == ["problem", "problem"]
    assert "Once divided by 255: images are not normalised at all" in bare[-1].text


def test_a_model_that_takes_0_to_255_is_believed():
    net = trained_net((0.0,) * 3, (1 / 255,) * 3)
    assert levels(judge(net, 255 * textures(64))) == ["problem", "good"]


def test_a_wrapper_too_many_is_found_with_images_and_without():
    values = values_of("ImageNet")
    twice = holdfast.normalized(holdfast.normalized(trained_net(*values), *values), *values)
    assert "twice inside the model" in judge(twice, None)[-1].text
    assert "twice inside the model" in judge(twice, textures(64))[-1].text


def test_a_wrapper_around_a_model_that_normalises_by_itself_is_found():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = trained_net(*values_of("ImageNet"))

        def forward(self, images):
            return self.net(normalize(images, *values_of("ImageNet")))

    assert levels(judge(Own(), textures(64))) == ["good", "good"]
    wrapped = holdfast.normalized(Own(), *values_of("ImageNet"))
    assert "twice inside the model" in judge(wrapped, textures(64))[-1].text


def test_wrong_values_inside_the_model_are_found():
    model = holdfast.normalized(trained_net(*values_of("ImageNet")), (0.1,) * 3, (1.0,) * 3)
    found = judge(model, textures(64))[-1]
    assert found.level == "problem"
    assert "does not fit its weights" in found.text and "0.485" in found.text


def test_images_of_another_kind_raise_a_question_not_an_alarm():
    values = values_of("CIFAR")
    found = judge(holdfast.normalized(trained_net(*values), *values), 0.2 * textures(64))
    assert levels(found) == ["good", "note"]
    assert "only roughly" in found[-1].text


def test_grey_images_are_checked_too():
    net = trained_net((0.5,), (0.5,), channels=1)
    diagnosis = holdfast.doctor(net, textures(64, channels=1))
    assert "holdfast.normalized(model, (0.5,), (0.5,))" in only_problem(diagnosis)
    fit = diagnosis.methods["consistency"]
    assert not fit.fits and "RGB" in fit.remarks[0]


def test_what_was_not_checked_is_said():
    fresh = holdfast.doctor(Net(), textures(16))
    assert "fresh layer" in fresh.findings[-1].text
    assert "no images" in holdfast.doctor(Net()).findings[-1].text
    no_batch_norm = holdfast.doctor(LayerNormNet(), textures(16))
    assert "no batch norm layer" in no_batch_norm.findings[-1].text
    assert not any(one.problems for one in (fresh, no_batch_norm))


def test_without_batch_norm_the_range_tells_of_twice():
    values = values_of("ImageNet")
    model = holdfast.normalized(LayerNormNet(), *values)
    diagnosis = holdfast.doctor(model, normalize(textures(16), *values))
    assert "normalised twice" in diagnosis.problems[-1]


def test_real_images_and_a_real_net(real_data):
    from safetensors.torch import load_file

    from holdfast.nets import resnet20

    net = resnet20()
    net.load_state_dict(load_file(real_data / "cifar100_resnet20.safetensors"))
    with np.load(real_data / "cifar100_test.npz") as arrays:
        images = torch.from_numpy(arrays["images"][:64]).permute(0, 3, 1, 2) / 255
    values = values_of("CIFAR")
    model = holdfast.normalized(net, *values)
    assert not holdfast.doctor(model, images).problems
    assert "not normalised at all" in only_problem(holdfast.doctor(net, images))
    assert "twice" in holdfast.doctor(model, normalize(images, *values)).problems[-1]


# The model's parts.


def test_the_parts_of_a_batch_norm_net():
    diagnosis = holdfast.doctor(Net())
    assert (diagnosis.model, diagnosis.head, diagnosis.head_type) == ("Net", "fc", "Linear")
    assert (diagnosis.feature_size, diagnosis.classes) == (12, CLASSES)
    assert diagnosis.norm_layers == {"BatchNorm2d": 2}
    assert (diagnosis.device, diagnosis.dtype) == ("cpu", "float32")
    assert diagnosis.memory_format == "channels_last"
    assert diagnosis.normalization is None
    assert diagnosis.methods.keys() == holdfast.methods().keys()
    assert holdfast.doctor(LayerNormNet()).memory_format == "contiguous"


def test_a_net_without_a_linear_layer_gets_advice():
    diagnosis = holdfast.doctor(HeadlessNet())
    assert diagnosis.head is None and diagnosis.classes is None
    assert "name the layer" in only_problem(diagnosis)
    assert diagnosis.methods["tent"].fits
    assert not diagnosis.methods["eta"].fits
    assert not diagnosis.methods["debias"].fits
    named = holdfast.doctor(HeadlessNet(), textures(4), head="classifier")
    assert (named.head_type, named.feature_size, named.classes) == ("Conv2d", 8, CLASSES)
    assert named.methods["eta"].fits and not named.problems


def test_a_wrong_head_gets_advice():
    diagnosis = holdfast.doctor(Net(), head="fcc")
    assert "Did you mean 'fc'?" in only_problem(diagnosis)
    assert diagnosis.head == "fc" and diagnosis.methods["eta"].fits


def test_a_head_that_does_not_make_the_logits_is_found_with_images():
    assert (
        "does not look like the head"
        in holdfast.doctor(LayerNormNet(), textures(4), head="1").problems[0]
    )


def test_images_that_the_model_cannot_take_are_a_problem_of_their_own():
    diagnosis = holdfast.doctor(Net(), textures(4).permute(0, 2, 3, 1))
    assert "cannot take images of shape (4, 16, 16, 3)" in only_problem(diagnosis)
    assert diagnosis.methods["tent"].fits


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_half_precision_weights_get_a_remark(kind):
    diagnosis = holdfast.doctor(Net().to(kind))
    assert diagnosis.dtype in diagnosis.findings[0].text
    assert 'precision="bfloat16"' in diagnosis.findings[0].text
    assert "precision" not in str(holdfast.doctor(Net()))


# Methods.


def test_every_method_fits_a_batch_norm_net():
    diagnosis = holdfast.doctor(Net(), textures(16))
    assert all(fit.fits for fit in diagnosis.methods.values())
    for name, fit in diagnosis.methods.items():
        needs = holdfast.compose(name).needs
        assert bool(fit.remarks) == bool(needs)
        assert all(f"needs source {need}" in fit.remarks[0] for need in needs[:1])


def test_a_source_takes_the_remark_away_and_is_not_changed():
    net = Net()
    loader = [(textures(10), torch.arange(10) % CLASSES)]
    source = holdfast.Source.from_loader(net, loader)
    before = set(source.tensors)
    diagnosis = holdfast.doctor(net, textures(8), source=source)
    assert diagnosis.methods["debias"].remarks == ()
    assert "adapt() will first make fisher" in diagnosis.methods["eata"].remarks[0]
    assert all(fit.fits for fit in diagnosis.methods.values())
    assert set(source.tensors) == before


def test_a_source_of_another_model_is_found():
    loader = [(textures(10), torch.arange(10) % CLASSES)]
    source = holdfast.Source.from_loader(Net(), loader)
    diagnosis = holdfast.doctor(Net(), source=source)
    assert "belongs to another model" in only_problem(diagnosis)
    assert "needs source prototypes" in diagnosis.methods["debias"].remarks[0]


def test_batch_norm_and_a_batch_of_one_need_a_window():
    fits = holdfast.doctor(Net(), textures(16), batch_size=1).methods
    assert fits["frozen"].fits
    for name in ("bn", "tent", "eata", "debias"):
        assert not fits[name].fits
        assert "needs window=W" in fits[name].remarks[0]


def test_small_batches_are_noisy():
    for size, noisy in ((2, True), (7, True), (8, False)):
        fits = holdfast.doctor(Net(), batch_size=size).methods
        assert fits["tent"].fits and fits["frozen"].remarks == ()
        assert any("noisy" in remark for remark in fits["tent"].remarks) == noisy


@pytest.mark.parametrize(
    "net", [Net(lambda channels: nn.GroupNorm(2, channels)), LayerNormNet()], ids=type
)
def test_without_batch_norm_a_batch_of_one_is_fine_and_bn_does_nothing(net):
    fits = holdfast.doctor(net, textures(4), batch_size=1).methods
    assert fits["tent"].fits and fits["tent"].remarks == ()
    assert not fits["bn"].fits
    assert "does nothing" in fits["bn"].remarks[0]


def test_without_norm_layers_it_says_what_to_do():
    diagnosis = holdfast.doctor(Net(lambda channels: nn.Identity()), textures(4))
    assert diagnosis.norm_layers == {}
    assert not diagnosis.methods["tent"].fits
    assert "select=all" in diagnosis.methods["tent"].remarks[0]
    assert diagnosis.methods["frozen"].fits


def test_a_net_that_gives_nan_fits_nothing():
    net = Net()
    nn.init.constant_(net.fc.bias, float("nan"))
    fits = holdfast.doctor(net, textures(4)).methods
    assert not fits["tent"].fits and "NaN" in fits["tent"].remarks[0]


def test_a_net_that_cannot_learn_fits_what_does_not_learn():
    class InPlace(Net):
        def forward(self, images):
            x = self.norm1(self.conv1(images)).exp()
            x.add_(1)  # autograd needs the old value
            return self.fc(self.norm2(self.conv2(x)).mean((2, 3)))

    fits = holdfast.doctor(InPlace(), textures(4)).methods
    assert fits["bn"].fits
    assert not fits["tent"].fits and "inplace operation" in fits["tent"].remarks[0]


# Manners.


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_the_model_is_untouched(mode):
    net = copy.deepcopy(trained_net(*values_of("ImageNet"))).train()
    net.conv1.requires_grad_(False)
    before = copy.deepcopy(net)
    draws = torch.get_rng_state()
    with mode():
        diagnosis = holdfast.doctor(net, textures(16))
    assert "not normalised at all" in only_problem(diagnosis)
    assert torch.equal(draws, torch.get_rng_state())
    for (name, tensor), other in zip(
        net.state_dict().items(), before.state_dict().values(), strict=True
    ):
        assert torch.equal(tensor, other), name
    for layer, other in zip(net.modules(), before.modules(), strict=True):
        assert layer.training == other.training
        assert not layer._forward_pre_hooks and not layer._forward_hooks
    for parameter, other in zip(net.parameters(), before.parameters(), strict=True):
        assert parameter.requires_grad == other.requires_grad and parameter.grad is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size is a number of images"),
        ({"batch_size": 2.5}, "batch_size is a number of images"),
        ({"source": "prototypes.safetensors"}, "source is a holdfast.Source, not str"),
        ({"images": [1, 2]}, "must be a torch.Tensor"),
        ({"images": torch.zeros(4, 3, 8, 8, dtype=torch.uint8)}, "expected floats"),
        ({"images": torch.zeros(3, 8, 8)}, "images\\[None\\]"),
        ({"images": torch.full((4, 3, 8, 8), float("nan"))}, "NaN"),
    ],
)
def test_bad_arguments_are_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        holdfast.doctor(Net(), **arguments)


def test_something_else_than_a_model_is_an_error():
    with pytest.raises(ValueError, match=r"must be a torch.nn.Module, not str"):
        holdfast.doctor("resnet50")


def test_the_text_says_it_all_in_whole_lines():
    diagnosis = holdfast.doctor(trained_net(*values_of("CIFAR")), textures(16), batch_size=4)
    assert isinstance(diagnosis, Diagnosis)
    lines = str(diagnosis).splitlines()
    assert "head           fc, Linear: 12 features, 5 classes" in lines
    assert f"✗  {diagnosis.problems[0]}" in lines
    assert "Methods, at a batch size of 4" in lines
    assert "✓  frozen       fits" in lines
    assert any(line.startswith("!  tent         batch statistics of 4 images") for line in lines)
