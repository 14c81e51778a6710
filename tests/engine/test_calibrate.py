"""What estimates of accuracy are calibrated on."""

import pytest
import torch
from toys import source_batches, stream, toy_net

import holdfast
from holdfast.engine.calibrate import rearranged


def batch(count, start=0):
    """Images that hold their own number, with labels that come round."""
    numbers = torch.arange(start, start + count)
    return numbers[:, None].float(), numbers % 3


def test_batches_come_as_they_are_by_label_and_mixed():
    given = [(*batch(4), "clean"), (*batch(4, 4), "clean"), (*batch(6, 10), "fog-1")]
    shown = list(rearranged(given))
    found = [(x.flatten().int().tolist(), y.tolist(), kind) for x, y, kind, few in shown if not few]
    by_label = sorted(range(8), key=lambda number: (number % 3, number))
    images = [
        ([0, 1, 2, 3], "clean"),
        ([4, 5, 6, 7], "clean"),
        (by_label[:4], "clean"),
        (by_label[4:], "clean"),
        ([10, 11, 12, 13, 14, 15], "fog-1"),
        ([0, 1, 12, 13, 14, 15], "fog-1"),
    ]
    assert found == [(numbers, [n % 3 for n in numbers], kind) for numbers, kind in images]
    of_few = [(x.flatten().int().tolist(), kind) for x, _, kind, few in shown if few]
    later = sorted(range(10, 16), key=lambda number: (number % 3, number))
    assert of_few == [(by_label, "clean"), (later, "fog-1")]


def test_batches_of_a_few_classes_have_sixteen_images():
    shown = rearranged([(*batch(40), "clean"), (*batch(10, 40), "clean")])
    of_few = [(x.flatten().int().tolist(), y) for x, y, _, few in shown if few]
    assert [len(x) for x, _ in of_few] == [16, 16, 16, 2]
    assert sorted(number for x, _ in of_few for number in x) == list(range(50))
    assert [len(y.unique()) for _, y in of_few] == [1, 2, 2, 1]


def adapter_on(drifted):
    net = toy_net()
    source = holdfast.Source.from_loader(net, source_batches(), drifted=drifted)
    return holdfast.adapt(net, "tent", source=source)


def labelled(kind, count=2, seed=3):
    return [(x, torch.arange(len(x)) % 7, kind) for x in stream(("all",) * count, seed=seed)]


@pytest.mark.parametrize(
    ("drifted", "says"),
    [
        ([], "no clean batch, or nothing but clean ones.*holdout.drifted"),
        (labelled("clean"), "nothing but clean ones.*some are of the kind 'clean'"),
        (labelled("fog-1") + labelled("snow-1"), "gave no clean batch"),
        ([one[:2] for one in labelled("clean")], r"batch 0 of drifted=….*\(images, labels, kind"),
        ([(x, y + 1, kind) for x, y, kind in labelled("clean")], "a label 7.* 7 classes"),
        ([(x * 255, y, kind) for x, y, kind in labelled("clean")], "batch 0 .*divide by 255"),
        (iter(labelled("clean")), "one-shot iterator"),
    ],
)
def test_what_cannot_calibrate_is_an_error_that_says_so(drifted, says):
    with pytest.raises(ValueError, match=says):
        adapter_on(drifted)


def test_severities_of_one_drift_are_one_kind():
    batches = labelled("clean") + labelled("fog-1", seed=4) + labelled("fog-5", seed=5)
    source = adapter_on(batches).source
    assert sorted(set(source.tensors["health/2/ByBatch-Student/groups"].tolist())) == [0, 1]
    other = adapter_on([*batches, *labelled("speckle_noise-3", seed=6)]).source
    assert sorted(set(other.tensors["health/2/ByBatch-Student/groups"].tolist())) == [0, 1, 2]
