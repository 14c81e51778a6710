"""Labels that are not numbered as in the model's training."""

import warnings

import pytest
import torch
from doctor_nets import Stripes, striped

import holdfast
from holdfast.source.agreement import find_mistake


def guesses(classes, each, accuracy, seed=0):
    """Labels of a sorted set, and what a model of this accuracy says of them."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes).repeat_interleave(each)
    wrong = torch.randint(0, classes, labels.shape, generator=generator)
    right = torch.rand(len(labels), generator=generator) < accuracy
    return labels, torch.where(right, labels, wrong)


@pytest.mark.parametrize(
    ("classes", "each", "accuracy"), [(2, 40, 0.8), (5, 10, 0.6), (100, 10, 0.4), (1000, 1, 0.6)]
)
@pytest.mark.parametrize("seed", range(5))
def test_labels_that_fit_are_left_alone(classes, each, accuracy, seed):
    assert find_mistake(*guesses(classes, each, accuracy, seed), classes) is None


def test_a_few_images_at_the_end_are_no_shift():
    labels = torch.arange(1000)
    predicted = labels.clone()
    predicted[-4:] = torch.tensor([997, 998, 999, 0])
    assert find_mistake(labels, predicted, 1000) is None


@pytest.mark.parametrize(("classes", "each"), [(10, 20), (100, 10), (1000, 2)])
@pytest.mark.parametrize("missing", [0.0, 0.3, 0.6])
def test_a_missing_folder_shifts_all_behind_it(classes, each, missing):
    labels, predicted = guesses(classes, each, 0.7)
    gone = round(missing * classes)
    there = labels != gone
    shifted = torch.where(labels > gone, labels - 1, labels)
    mistake = find_mistake(shifted[there], predicted[there], classes)
    first = int(mistake.partition("from class ")[2].partition(" ")[0])
    assert abs(first - gone) <= classes // 50  # of the next ones by chance none is seen
    assert "taken for k + 1" in mistake and "folder is missing" in mistake


@pytest.mark.parametrize("classes", [10, 100])
def test_a_folder_too_many_shifts_the_other_way(classes):
    labels, predicted = guesses(classes, 20, 0.7)
    within = labels < classes - 1
    mistake = find_mistake(labels[within] + 1, predicted[within], classes)
    assert "taken for k − 1" in mistake and "too many" in mistake


@pytest.mark.parametrize(("classes", "each"), [(2, 40), (10, 20), (100, 10)])
def test_permuted_labels_are_told_with_examples(classes, each):
    labels, predicted = guesses(classes, each, 0.7)
    order = torch.arange(classes).roll(1).reshape(2, -1).T.flatten()
    mistake = find_mistake(order[labels], predicted, classes)
    assert "look permuted" in mistake
    said = mistake.partition("Images with the labels ")[2].partition(":")[0]
    given, meant = (part.split(", ") for part in said.split(" are mostly taken for "))
    assert all(int(order[int(true)]) == int(one) for one, true in zip(given, meant, strict=True))


def test_labels_of_something_else_are_no_better_than_chance():
    labels, predicted = guesses(100, 10, 0.7)
    mixed = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))]
    mistake = find_mistake(mixed, predicted, 100)
    assert "chance gives 1.0%" in mistake and "holdfast.doctor" in mistake
    always = torch.full_like(labels, 3)  # a collapsed model is no permutation
    assert "chance gives 1.0%" in find_mistake(labels, always, 100)


def test_a_few_images_say_nothing():
    labels, predicted = guesses(10, 4, 0.7)
    assert find_mistake(labels, predicted.flip(0), 10) is None


# In a source.


def test_a_source_with_shifted_labels_is_warned_of_at_no_cost():
    """In the pass that makes the prototypes: each image is seen once."""
    classes, net, seen = 8, Stripes(8), []
    net.register_forward_pre_hook(lambda module, inputs: seen.append(len(inputs[0])))
    labels = torch.arange(160) % classes
    images = striped(labels, classes)
    loader = [(images[i : i + 32], labels[i : i + 32]) for i in range(0, 160, 32)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        source = holdfast.Source.from_loader(net, loader)
    assert sum(seen) == 160
    assert 0.5 < source.accuracy < 1 and source.find_label_mistake() is None
    there = labels > 0  # the first folder is not there
    with pytest.warns(UserWarning, match="1 of 8|shifted") as caught:
        holdfast.Source.from_loader(net, [(images[there], labels[there] - 1)])
    texts = [str(one.message) for one in caught]
    assert "1 of 8 classes have no source image (7)" in texts[0]
    assert "labels" in texts[1] and "shifted by one from class 0 on" in texts[1]
    assert caught[1].filename == __file__


def test_the_warning_comes_again_with_the_file(tmp_path):
    classes, net = 8, Stripes(8)
    labels = torch.arange(80) % classes
    path = tmp_path / "source.safetensors"
    permuted = torch.tensor([3, 0, 6, 1, 7, 2, 5, 4])[labels]
    with pytest.warns(UserWarning, match="look permuted"):
        wrong = holdfast.Source.from_loader(net, [(striped(labels, classes), permuted)])
    wrong.save(path)
    with pytest.warns(UserWarning, match="look permuted"):
        assert holdfast.Source.load(path).accuracy == wrong.accuracy
    old = holdfast.Source("", {n: t for n, t in wrong.tensors.items() if n != "predicted/source"})
    assert old.accuracy is None and old.find_label_mistake() is None
