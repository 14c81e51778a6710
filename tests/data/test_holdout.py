"""Batches of a person's own images under the hold-out corruptions."""

from itertools import groupby

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from holdfast.data.corrupt.corruptions import HOLDOUT, corrupt
from holdfast.data.holdout import drifted

DOMAINS = ["clean", *(f"{name}-{severity}" for name in HOLDOUT for severity in (1, 3, 5))]


def numbered(count, side=32, channels=3):
    """Each image's label is its number, and so are its first pixels."""
    images = torch.rand(count, channels, side, side, generator=torch.manual_seed(1))
    return images, torch.arange(count)


def loader_of(count, side=32, batch=50, **options):
    return DataLoader(TensorDataset(*numbered(count, side)), batch_size=batch, **options)


def by_domain(batches):
    found = {}
    for domain, some in groupby(batches, key=lambda batch: batch[2]):
        images, labels, _ = zip(*some, strict=True)
        assert domain not in found  # each comes at one time
        found[domain] = torch.cat(images), torch.cat(labels)
    return found


def test_each_domain_shows_other_images_where_there_are_enough():
    found = by_domain(drifted(loader_of(13 * 40), images=40))
    assert list(found) == DOMAINS == drifted(loader_of(1)).domains
    assert torch.cat([labels for _, labels in found.values()]).tolist() == list(range(13 * 40))
    images, _ = numbered(13 * 40)
    for number, (domain, (made, labels)) in enumerate(found.items()):
        if domain == "clean":
            assert torch.equal(made, images[labels])
            continue
        name, severity = domain.split("-")
        places = range(40 * number, 40 * number + 40)
        expected = corrupt(images[labels], name, int(severity), table="cifar", indices=places)
        assert torch.equal(made, expected)


@pytest.mark.parametrize("count", [300, 100, 65, 1])
def test_a_short_loader_begins_again_and_no_domain_shows_an_image_twice(count):
    found = by_domain(drifted(loader_of(count, side=16), images=100))
    assert list(found) == DOMAINS
    for number, (_, labels) in enumerate(found.values()):
        size = min(100, count)
        assert labels.tolist() == [i % count for i in range(number * size, (number + 1) * size)]


def test_batches_are_of_up_to_64_and_none_is_of_one_image():
    for images, sizes in ((256, [64] * 4), (65, [33, 32]), (129, [43] * 3), (3, [3])):
        batches = [len(one) for one, _, domain in drifted(loader_of(300), images=images)]
        assert batches == sizes * 13


def test_the_seed_decides_and_nothing_outside_is_touched():
    source = loader_of(200, shuffle=True)
    batches, before = drifted(source, images=20, seed=1), torch.get_rng_state()
    once = list(batches)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    again = list(batches)
    other = list(drifted(source, images=20, seed=2))
    assert len(once) == len(again) == len(other) == 13
    for one, two, three in zip(once, again, other, strict=True):
        assert torch.equal(one[0], two[0]) and torch.equal(one[1], two[1]) and one[2] == two[2]
        drawn = one[2].startswith(("speckle", "spatter"))
        assert torch.equal(one[0], three[0]) != drawn


def test_how_a_loader_cuts_its_batches_does_not_matter():
    for one, two in zip(
        drifted(loader_of(90, batch=7), images=33),
        drifted(loader_of(90, batch=90), images=33),
        strict=True,
    ):
        assert torch.equal(one[0], two[0]) and torch.equal(one[1], two[1])


def test_large_images_take_the_other_table():
    for side, table in ((64, "cifar"), (65, "imagenet")):
        images, _ = numbered(2, side)
        found = by_domain(drifted(loader_of(2, side), images=2, severities=[5]))
        expected = corrupt(images, "gaussian_blur", 5, table=table)
        assert torch.equal(found["gaussian_blur-5"][0], expected)


@pytest.mark.parametrize(
    ("loader", "options", "says"),
    [
        (iter([]), {}, "one-shot iterator: give a DataLoader or a list"),
        ([], {}, "the loader is empty"),
        ([numbered(3)[0]], {}, r"expected \(images, labels\).*NoneType"),
        ([(numbered(3)[0], torch.zeros(2))], {}, r"each of 3 images; the labels are \(2,\)"),
        ([(255 * numbered(3)[0], torch.zeros(3))], {}, "batch 0 of the loader: .*divide by 255"),
        ([numbered(3), numbered(3, 40)], {}, r"batch 1 .*\(3, 40, 40\), others of \(3, 32, 32\)"),
        (
            [numbered(3, channels=2)],
            {},
            r"images have to be \(batch, 1 or 3.*batches .* of your own",
        ),
        ([numbered(3, side=8)], {}, r"too small to corrupt.*batches .* of your own"),
        ([numbered(3)], {"severities": [6]}, "severity is a whole number from 1 to 5"),
        ([numbered(3)], {"images": 0}, "images"),
    ],
)
def test_errors_say_what_to_do(loader, options, says):
    with pytest.raises(ValueError, match=says):
        list(drifted(loader, **options))


def test_images_in_another_range_are_told_of_a_way_that_there_is():
    images, labels = numbered(3)
    with pytest.raises(ValueError, match=r"holdfast\.normalized.* of your own") as refused:
        list(drifted([(2 * images - 1, labels)]))
    assert "input_range" not in str(refused.value)
