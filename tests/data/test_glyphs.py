import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast
from holdfast.data import glyphs
from holdfast.data.corrupt.corruptions import CORRUPTIONS
from holdfast.data.glyphs import SIZES, Glyphs, compose
from holdfast.data.readers.sets import open_clean, open_data
from holdfast.models import glyphs as embedded
from holdfast.models.find import find_model

FOLDER = Path(glyphs.__file__).parent


def test_images_are_the_same_on_every_machine():
    indices = torch.tensor([0, 1, 2, 49, 50, 9_999, 49_999, 2**40])
    digest = hashlib.sha256()
    for split in SIZES:
        for seed in (0, 7):
            digest.update(compose(indices, indices % 50, split, seed).numpy().tobytes())
    assert digest.hexdigest() == "ffb7b390adb1f791d98a43cd3af725e2e5b1b7e8f388e557230b5357287466a5"


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=20), st.sampled_from([*SIZES]))
@settings(max_examples=30, deadline=None)
def test_an_image_depends_on_its_index_alone(indices, split):
    together = glyphs.images(split, torch.tensor(indices))
    for image, index in zip(together, indices, strict=True):
        assert torch.equal(image[None], glyphs.images(split, torch.tensor([index])))


def test_images_are_in_range_and_all_different():
    found = torch.cat(
        [glyphs.images(split, torch.arange(500), seed=seed) for split in SIZES for seed in (0, 1)]
    )
    assert found.shape == (2000, 3, 32, 32) and found.dtype == torch.float32
    assert 0 <= found.min() < 0.05 and 0.95 < found.max() <= 1
    assert len(found.flatten(1).unique(dim=0)) == 2000
    assert torch.equal((found * 255).round() / 255, found)


def test_classes_are_balanced_and_many():
    labels = Glyphs("test").labels
    assert len(glyphs.CLASSES) == len(set(glyphs.CLASSES)) >= 50
    assert np.bincount(labels).tolist() == [200] * 50


def test_what_ships_is_small_and_its_licences_are_named():
    assert (FOLDER / "atlas.npz").stat().st_size < 400_000
    assert embedded.WEIGHTS.stat().st_size < 2_000_000
    text = (FOLDER / "LICENSES.txt").read_text()
    fonts = [line for line in text.splitlines() if "Debian:" in line]
    with np.load(FOLDER / "atlas.npz") as file:
        masks = file["masks"]
    assert len(fonts) == len(masks) == 24
    assert all("Licen" in line or "licence" in line for line in fonts)
    # Composition takes what is beyond the mask for its border.
    inside = masks[:, :, 2:-2, 2:-2]
    assert inside.sum() == masks.sum() and inside.max() == 15
    assert (inside.sum((2, 3)) > 0).all()


@pytest.fixture(scope="module")
def accuracies():
    """Frozen and with batch statistics, by domain, over 256 images each."""
    network = glyphs.model()
    found = {}
    data = glyphs.benchmark()
    indices = list(range(0, 10_000, 39))[:256]
    labels = torch.from_numpy(Glyphs("test").labels[indices])
    for name in (*CORRUPTIONS, "original"):
        images = data[name].images(indices)
        adapter = holdfast.adapt(network, "bn")
        with torch.no_grad():
            frozen = network(images).argmax(1)
        batches = [adapter(images[k : k + 64]).argmax(1) for k in range(0, 256, 64)]
        found[name] = [
            float((guess == labels).float().mean()) for guess in (frozen, torch.cat(batches))
        ]
    return found


def test_it_is_as_hard_as_it_should_be(accuracies):
    """Clean 85 to 95 %, the frozen network below 50 %, and much left to gain after bn."""
    clean = accuracies["original"]
    frozen, bn = np.mean([accuracies[name] for name in CORRUPTIONS], axis=0)
    assert 0.83 < clean[0] < 0.96
    assert frozen < 0.5
    assert frozen + 0.1 < bn < clean[0] - 0.15


def test_the_network_is_ready_to_adapt():
    network = glyphs.model()
    assert not any(part.training for part in network.modules())
    assert network(glyphs.images("test", torch.arange(3))).dtype == torch.float32
    source = holdfast.Source.from_loader(network, glyphs.source_loader(200))
    adapter = holdfast.adapt(network, "debias", source=source)
    assert adapter(glyphs.images("test", torch.arange(8))).shape == (8, 50)


def test_the_source_loader_gives_the_train_split():
    images, labels = next(iter(glyphs.source_loader(100, batch=32)))
    assert torch.equal(images, glyphs.images("train", torch.arange(32)))
    assert torch.equal(labels, glyphs.labels("train", torch.arange(32)))


def test_the_validation_loader_shows_what_neither_training_nor_the_benchmark_does():
    images, labels = next(iter(glyphs.validation_loader(200, batch=200)))
    assert torch.equal(labels, torch.arange(200) % 50)
    for split in SIZES:
        known = glyphs.images(split, torch.arange(200))
        assert not (images[:, None] == known).flatten(2).all(2).any()
    assert (embedded.model()(images).argmax(1) == labels).double().mean() > 0.8


@pytest.mark.parametrize(
    ("split", "indices", "says"),
    [
        ("validation", torch.arange(2), "no split 'validation'"),
        ("test", torch.tensor([-1]), "from 0 on"),
        ("test", torch.tensor([0.5]), "whole numbers"),
        ("test", torch.tensor(3), "vector"),
    ],
)
def test_what_cannot_be_asked_for(split, indices, says):
    if "split" in says:
        with pytest.raises(ValueError, match=says):
            Glyphs(split)
    with pytest.raises(ValueError, match=says):
        glyphs.images(split, indices)


def test_glyphs_are_opened_by_name_like_any_other_set():
    data = open_data("glyphs-c")
    assert [domain.name for domain in data.domains] == [*CORRUPTIONS, "original"]
    made = glyphs.benchmark()
    for name in ("fog", "original"):
        assert torch.equal(data[name].images([3, 7]), made[name].images([3, 7]))
    train = open_clean("glyphs", split="train")
    assert torch.equal(train.images([5]), glyphs.Glyphs("train").images([5]))
    named, ours = find_model("glyphs").state_dict(), glyphs.model().state_dict()
    assert all(torch.equal(value, ours[name]) for name, value in named.items())
