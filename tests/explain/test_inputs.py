"""Are images normalised as in training? Checked with nets whose statistics are known."""

import itertools
import re

import numpy as np
import pytest
import torch
from doctor_nets import normalize, textures, trained_net, values_of
from torch import nn

import holdfast
from holdfast.engine.network import Network
from holdfast.explain.inputs import check_inputs
from holdfast.explain.normalisations import (
    Candidate,
    Labelled,
    _difference,
    _judge,
    _Rival,
    candidates,
    check_accuracy,
)
from holdfast.models.normalization import NORMALIZATIONS

# Far from all that is usual.
UNUSUAL = ((0.1, 0.8, 0.4), (1.0, 0.05, 0.6))


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
@pytest.mark.parametrize("seed", range(3))
def test_of_two_normalisations_that_predict_differently_at_most_one_is_all_right(name, seed):
    """The usual ones are near each other, and images alone do not tell which is right."""
    net, images = trained_net(*values_of(name), seed), textures(64, seed)
    said = {
        other: judge(holdfast.normalized(net, *values_of(other)), images)[-1]
        for other in NORMALIZATIONS
    }
    with torch.no_grad():
        labels = {
            other: net(normalize(images, *values_of(other))).argmax(1) for other in NORMALIZATIONS
        }
    assert said[name].level == "good" or "Cannot tell" in said[name].text
    right = [other for other, finding in said.items() if finding.level == "good"]
    for one, other in itertools.combinations(right, 2):
        assert (labels[one] != labels[other]).double().mean() <= 0.02
    for one, finding in said.items():
        if "Cannot tell" in finding.text:
            assert finding.level == "note" and "labels=…" in finding.text
            named = re.findall(r"([^,(]+) \((\d+)% of predictions change", finding.text)
            assert named and all(int(share) >= 2 for _, share in named)
            assert one not in [other.strip() for other, _ in named]


def test_right_images_are_all_right_where_no_other_way_fits():
    values = values_of("0.5")
    found = judge(holdfast.normalized(trained_net(*values), *values), textures(64))
    assert levels(found) == ["good", "good"]
    assert "normalised as in training" in found[-1].text
    own = holdfast.normalized(trained_net(*UNUSUAL), *UNUSUAL)
    assert levels(judge(own, textures(64))) == ["good", "good"]


def test_a_few_images_do_not_show_that_nothing_differs():
    values = values_of("CIFAR-10")
    model = holdfast.normalized(trained_net(*values), *values)
    found = judge(model, textures(8))[-1]
    assert found.level == "note"
    assert found.text.endswith("or pass more images and labels=…, so that accuracy decides.")


# With labels.


def labelled(net, values, count, seed=0):
    """What the net says of images that are normalised as in its training."""
    images = textures(count, seed)
    with torch.no_grad():
        return Labelled(images, net(normalize(images, *values)).argmax(1))


def judge_labelled(model, known):
    return check_inputs(Network(model), known.images[:64], known)


@pytest.mark.parametrize("name", ["ImageNet", "CIFAR-100"])
def test_labels_decide(name):
    net = trained_net(*values_of(name))
    known = labelled(net, values_of(name), 600)
    said = {
        other: judge_labelled(holdfast.normalized(net, *values_of(other)), known)[-1]
        for other in NORMALIZATIONS
    }
    assert said[name].level == "good"
    assert "100.0% of 600 images" in said[name].text
    for other in ("0.5", "CIFAR-10 with std 0.2"):
        assert said[other].level == "problem"
        assert "then 100.0%" in said[other].text
        mean, _ = values_of(name)
        assert str(round(mean[0], 4)) in said[other].text


def test_a_few_labels_do_not_decide_between_near_values():
    net = trained_net(*values_of("CIFAR-100"))
    known = labelled(net, values_of("CIFAR-100"), 60)
    found = judge_labelled(holdfast.normalized(net, *values_of("CIFAR-100")), known)[-1]
    assert found.level == "note"
    assert re.search(
        r"not ruled out that .* a point better: .*CIFAR-10 \([\d.]+% here\)", found.text
    )
    assert "more labelled images" in found.text and "--limit" in found.text


def test_no_more_images_are_asked_for_than_are_taken(monkeypatch):
    monkeypatch.setattr("holdfast.explain.normalisations.MOST", 60)
    net = trained_net(*values_of("CIFAR-100"))
    known = labelled(net, values_of("CIFAR-100"), 60)
    found = judge_labelled(holdfast.normalized(net, *values_of("CIFAR-100")), known)[-1]
    assert found.level == "note"
    assert "more labelled images" not in found.text
    assert found.text.endswith(". Take the values of the training.")


def test_the_most_accurate_is_advised_though_another_is_more_surely_better():
    """One mends 20 images of 400 and spoils none, one mends 100 and spoils 75."""
    ours = torch.arange(400) < 200
    sure, best = ours.clone(), ours.clone()
    sure[200:220] = True
    best[200:300], best[:75] = True, False
    rivals = [
        _Rival(Candidate(name, torch.clone, f"Take {name}."), *_difference(ours, theirs))
        for name, theirs in {"sure": sure, "best": best}.items()
    ]
    assert _judge(ours, rivals[1:]).level == "note"
    found = _judge(ours, rivals)
    assert found.level == "problem"
    assert found.text.startswith("Take best.") and "then 56.2%" in found.text


def test_where_labels_leave_it_open_statistics_may_rule_the_others_out():
    net = trained_net(*UNUSUAL)
    known = labelled(net, UNUSUAL, 40)
    known.labels[10:] = torch.arange(30) % 5  # as of a net that is often wrong
    model = holdfast.normalized(net, *UNUSUAL)
    others = list(candidates(model, known.images))
    assert "Cannot tell" in check_accuracy(Network(model), known, others)[0].text
    assert levels(judge_labelled(model, known)) == ["good", "good"]


@pytest.mark.parametrize("change", [lambda x: 255 * x, lambda x: 2 * x - 1], ids=["255", "outside"])
def test_labels_of_images_out_of_range_decide_nothing(change):
    net = trained_net(*values_of("ImageNet"))
    known = labelled(net, values_of("ImageNet"), 600)
    model = holdfast.normalized(net, *values_of("ImageNet"))
    found = judge_labelled(model, Labelled(change(known.images), known.labels))
    assert found[0].level == "problem" and "as labelled" not in found[-1].text


def test_labels_of_something_else_are_told_of_and_decide_nothing():
    values = values_of("0.5")
    net = trained_net(*values)
    model = holdfast.normalized(net, *values)
    known = labelled(net, values_of("0.5"), 200)
    generator = torch.Generator().manual_seed(0)
    mixed = Labelled(known.images, known.labels[torch.randperm(200, generator=generator)])
    found = judge_labelled(model, mixed)
    assert levels(found) == ["good", "problem", "good"]
    assert "numbered as in its training" in found[1].text
    beyond = judge_labelled(model, Labelled(known.images, known.labels + 5))
    assert "the model's classes from 0 to 4" in beyond[1].text


def test_images_normalised_outside_fit_the_model_but_not_adapt():
    """By which values is not known, so that they are never all right."""
    values = values_of("ImageNet")
    found = judge(trained_net(*values), normalize(textures(64), *values))
    assert levels(found) == ["problem", "note"]
    assert "holdfast.normalized(model, mean, std)" in found[0].text
    assert "fit the running statistics" in found[1].text and "not checked" in found[1].text


def test_images_in_0_to_255_are_judged_by_what_they_will_be():
    values = values_of("0.5")
    net = trained_net(*values)
    right = judge(holdfast.normalized(net, *values), 255 * textures(64))
    assert levels(right) == ["problem", "good"]
    assert "divide by 255" in right[0].text
    bare = judge(net, 255 * textures(64))
    assert levels(bare) == ["problem", "problem"]
    assert "Once divided by 255: images are not normalised at all" in bare[-1].text


def test_a_trace_of_rounding_below_zero_does_not_mean_normalised():
    found = judge(trained_net(*values_of("CIFAR-100")), textures(64) - 1e-5)
    assert levels(found) == ["good", "problem"]
    assert "not normalised at all" in found[-1].text


def test_a_model_that_takes_0_to_255_is_believed():
    net = trained_net((0.0,) * 3, (1 / 255,) * 3)
    assert levels(judge(net, 255 * textures(64))) == ["problem", "good"]


def test_a_wrapper_too_many_is_found_with_images_and_without():
    values = values_of("ImageNet")
    once = holdfast.normalized(trained_net(*values), *values)
    with pytest.warns(UserWarning, match=r"normalised already.*give normalized\(\) model\.model"):
        twice = holdfast.normalized(once, *values)
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


def test_the_advice_on_wrong_values_replaces_them():
    """A second wrapper around the first would normalise twice."""
    right = values_of("0.5")
    wrong = holdfast.normalized(trained_net(*right), (0.1,) * 3, (1.0,) * 3)
    said = judge(wrong, textures(64))[-1].text
    call = re.search(r"holdfast\.normalized\(.*?\)\)", said)[0]
    better = eval(call, {"holdfast": holdfast, "model": wrong})
    assert levels(judge(better, textures(64))) == ["good", "good"]
    assert "--mean 0.5,0.5,0.5 --std 0.5,0.5,0.5" in said
    deeper = judge(nn.Sequential(wrong), textures(64))[-1].text
    assert "normalized(model" not in deeper
    assert "build(…, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))" in deeper


def test_images_of_another_kind_raise_a_question_not_an_alarm():
    values = values_of("CIFAR-100")
    found = judge(holdfast.normalized(trained_net(*values), *values), 0.2 * textures(64))
    assert levels(found) == ["good", "note"]
    assert "only roughly" in found[-1].text


def test_real_images_and_a_real_net(real_data):
    from safetensors.torch import load_file

    from holdfast.models import resnet20

    net = resnet20()
    net.load_state_dict(load_file(real_data / "cifar100_resnet20.safetensors"))
    with np.load(real_data / "cifar100_test.npz") as arrays:
        images = torch.from_numpy(arrays["images"][:64]).permute(0, 3, 1, 2) / 255
    values = values_of("CIFAR-100")
    model = holdfast.normalized(net, *values)
    # 69.5 and 68.5 % of 2,000 images: what 64 images do not tell apart.
    for near, other in (("CIFAR-100", "CIFAR-10"), ("CIFAR-10", "CIFAR-100")):
        found = judge(holdfast.normalized(net, *values_of(near)), images)
        assert levels(found) == ["good", "note"]
        assert f"{other} (8% of predictions change)" in found[-1].text
    wrong = judge(holdfast.normalized(net, *values_of("0.5")), images)[-1]  # 61 %
    assert wrong.level == "problem" and "CIFAR-100" in wrong.text and "CIFAR-10" in wrong.text
    assert "not normalised at all" in judge(net, images)[-1].text
    assert "normalised twice" in judge(model, normalize(images, *values))[-1].text
