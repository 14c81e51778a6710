"""Are images normalised as in training? Checked with nets whose statistics are known."""

import numpy as np
import pytest
import torch
from torch import nn

import holdfast
from holdfast.explain.inputs import check_inputs
from holdfast.nets.normalized import NORMALIZATIONS
from holdfast.split import Network
from patients import normalize, textures, trained_net, values_of


def judge(model, images):
    """What the doctor says of the input alone, which is faster than all of it."""
    return check_inputs(Network(model), images)


def levels(findings):
    return [one.level for one in findings]


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


def test_a_trace_of_rounding_below_zero_does_not_mean_normalised():
    found = judge(trained_net(*values_of("CIFAR")), textures(64) - 1e-5)
    assert levels(found) == ["good", "problem"]
    assert "not normalised at all" in found[-1].text


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
    outside = judge(Own(), normalize(textures(64), *values_of("ImageNet")))
    assert "normalised twice, or were not normalised in training" in outside[-1].text
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


def test_real_images_and_a_real_net(real_data):
    from safetensors.torch import load_file

    from holdfast.nets import resnet20

    net = resnet20()
    net.load_state_dict(load_file(real_data / "cifar100_resnet20.safetensors"))
    with np.load(real_data / "cifar100_test.npz") as arrays:
        images = torch.from_numpy(arrays["images"][:64]).permute(0, 3, 1, 2) / 255
    values = values_of("CIFAR")
    model = holdfast.normalized(net, *values)
    assert levels(judge(model, images)) == ["good", "good"]
    assert "not normalised at all" in judge(net, images)[-1].text
    assert "normalised twice" in judge(model, normalize(images, *values))[-1].text
