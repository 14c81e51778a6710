"""The doctor: what it finds in a model, and which methods fit it."""

import copy

import pytest
import torch
from doctor_nets import (
    CLASSES,
    HeadlessNet,
    LayerNormNet,
    Net,
    normalize,
    only_problem,
    textures,
    trained_net,
    values_of,
)
from torch import nn

import holdfast
from holdfast.explain.doctor import Diagnosis
from holdfast.util.terminal import as_text

# Its input.


def test_the_diagnosis_holds_what_is_said_of_the_input():
    values = values_of("0.5")
    model = holdfast.normalized(trained_net(*values), *values)
    right = holdfast.doctor(model, textures(64))
    assert right.normalization == "mean (0.5, 0.5, 0.5), std (0.5, 0.5, 0.5)"
    assert [one.level for one in right.findings] == ["good"] * 3
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


def test_the_layer_that_gives_the_logits_is_named():
    """In place of one that was found or named, and is not it."""

    class SqueezeNet(HeadlessNet):
        """A linear layer inside, and a convolution for the head, before or behind the pooling."""

        def __init__(self, first):
            super().__init__()
            self.gate = nn.Linear(8, 8)
            self.first = first

        def forward(self, images):
            x = self.body(images)
            x = x * self.gate(x.mean((2, 3))).sigmoid()[:, :, None, None]
            if self.first:
                return self.classifier(x).mean((2, 3))
            return self.classifier(x.mean((2, 3), keepdim=True)).flatten(1)

    for net in (SqueezeNet(False), SqueezeNet(True)):
        diagnosis = holdfast.doctor(net, textures(16))
        assert "'gate' does not look like the head" in only_problem(diagnosis)
        assert "'classifier', a Conv2d: pass head='classifier'." in only_problem(diagnosis)
        assert not diagnosis.methods["t3a"].fits
        named = holdfast.doctor(net, textures(16), head="classifier")
        not_fit = [name for name, fit in named.methods.items() if not fit.fits]
        assert not named.problems and not_fit == ["aetta"]  # which finds no stages
    headless = holdfast.doctor(HeadlessNet(), textures(16))
    assert "pass head='classifier'" in only_problem(headless)


def test_a_model_of_which_no_layer_gives_the_logits_is_told_so():
    class Two(Net):
        def __init__(self):
            super().__init__()
            self.other = nn.Linear(12, CLASSES)

        def forward(self, images):
            x = self.norm1(self.conv1(images)).relu()
            x = self.norm2(self.conv2(x)).relu().mean((2, 3))
            return (self.fc(x) + self.other(x.square())) / 2

    diagnosis = holdfast.doctor(Two(), textures(16))
    assert "Here no layer's output is the logits" in only_problem(diagnosis)
    assert diagnosis.methods["tent"].fits and not diagnosis.methods["t3a"].fits


@pytest.mark.parametrize("last", [nn.LogSoftmax(1), nn.Identity()], ids=type)
def test_a_temperature_or_a_log_softmax_behind_the_head_is_no_problem(last):
    class Scaled(Net):
        def forward(self, images):
            return last(super().forward(images) / 4)

    diagnosis = holdfast.doctor(Scaled(), textures(16))
    assert not diagnosis.problems and diagnosis.methods["debias"].fits


def test_probabilities_are_no_logits():
    model = nn.Sequential(Net(), nn.Softmax(1))
    diagnosis = holdfast.doctor(model, textures(16))
    assert "returns probabilities" in only_problem(diagnosis)
    assert "before the softmax" in only_problem(diagnosis)
    sigmoids = holdfast.doctor(nn.Sequential(Net(), nn.Sigmoid()), textures(16))
    notes = [one.text for one in sigmoids.findings if one.level == "note"]
    assert any("All outputs lie in [0, 1]" in text for text in notes)


def test_one_logit_is_no_classifier_of_two_classes():
    model = Net()
    model.fc = nn.Linear(12, 1)
    said = only_problem(holdfast.doctor(model, textures(16)))
    assert "one logit" in said and "torch.cat([torch.zeros_like(logit), logit], 1)" in said


def test_a_diagnosis_reads_the_same_with_and_without_colour():
    diagnosis = holdfast.doctor(Net(), textures(16))
    assert str(diagnosis) == as_text(diagnosis)


def test_images_that_the_model_cannot_take_are_a_problem_of_their_own():
    diagnosis = holdfast.doctor(Net(), textures(4).permute(0, 2, 3, 1))
    assert "cannot take images of shape (4, 16, 16, 3)" in only_problem(diagnosis)
    assert "images.permute(0, 3, 1, 2)" in only_problem(diagnosis)
    assert diagnosis.methods["tent"].remarks == ("not tried: the model fails on these images",)
    values = values_of("ImageNet")
    grey = holdfast.doctor(holdfast.normalized(Net(), *values), textures(4, channels=1))
    assert "images.expand(-1, 3, -1, -1)" in only_problem(grey)


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
        ({"labels": [1, 2]}, "labels=… are those of images"),
        ({"images": textures(4), "labels": [1, 2]}, "labels are 4 whole numbers"),
        ({"images": textures(2), "labels": [0.5, 1]}, "2 whole numbers.*float32"),
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
    diagnosis = holdfast.doctor(trained_net(*values_of("CIFAR-100")), textures(16), batch_size=4)
    assert isinstance(diagnosis, Diagnosis)
    lines = str(diagnosis).splitlines()
    assert "head           fc, Linear: 12 features, 5 classes" in lines
    assert f"✗  {diagnosis.problems[0]}" in lines
    assert "Methods, at a batch size of 4" in lines
    assert "✓  frozen       fits" in lines
    assert any(line.startswith("!  tent         batch statistics of 4 images") for line in lines)
