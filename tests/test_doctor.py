"""The doctor: what it finds in a model, and which methods fit it."""

import copy

import pytest
import torch
from torch import nn

import holdfast
from holdfast.explain.doctor import Diagnosis
from patients import (
    CLASSES,
    HeadlessNet,
    LayerNormNet,
    Net,
    normalize,
    textures,
    trained_net,
    values_of,
)


def only_problem(diagnosis):
    assert len(diagnosis.problems) == 1, diagnosis.problems
    return diagnosis.problems[0]


# Its input.


def test_the_diagnosis_holds_what_is_said_of_the_input():
    values = values_of("ImageNet")
    model = holdfast.normalized(trained_net(*values), *values)
    right = holdfast.doctor(model, textures(64))
    assert right.normalization == "mean (0.485, 0.456, 0.406), std (0.229, 0.224, 0.225)"
    assert [one.level for one in right.findings] == ["good", "good"]
    assert "not normalised" in only_problem(holdfast.doctor(trained_net(*values), textures(64)))
    twice = holdfast.doctor(model, normalize(textures(64), *values))
    assert "normalised twice" in twice.problems[-1]


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
    problem = only_problem(holdfast.doctor(LayerNormNet(), textures(4), head="1"))
    assert "does not look like the head" in problem


def test_images_that_the_model_cannot_take_are_a_problem_of_their_own():
    diagnosis = holdfast.doctor(Net(), textures(4).permute(0, 2, 3, 1))
    assert "cannot take images of shape (4, 16, 16, 3)" in only_problem(diagnosis)
    assert diagnosis.methods["tent"].remarks == ("not tried: the model fails on these images",)


def test_an_error_of_the_models_own_is_a_problem_not_a_crash():
    class TwoInputs(Net):
        def forward(self, images, mask):
            return super().forward(images)

    assert "TypeError" in only_problem(holdfast.doctor(TwoInputs(), textures(4)))


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
        assert any("needs source" in text for text in fit.remarks) == bool(needs)
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


def test_no_default_filter_drops_most_images_however_many_classes_there_are():
    """A cosine of 1/√C to the mean prediction is usual; the published limit is for 1,000."""
    for classes in (2, 10, 100, 1000, 20_000):
        net = Net()
        net.fc = nn.Linear(net.fc.in_features, classes)
        for name, fit in holdfast.doctor(net, textures(8)).methods.items():
            assert not any("redundancy" in text for text in fit.remarks), (name, classes)


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
    assert "nothing would change" in fits["bn"].remarks[0]


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
