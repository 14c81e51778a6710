"""Images that are made as they are read: made once, the same from the cache."""

import pickle

import numpy as np
import torch

from holdfast.data.cache import CachedImages, cached, cached_set
from holdfast.data.glyphs import Glyphs
from holdfast.data.images import Images
from holdfast.data.readers.sets import open_data


class Counted(Images):
    """Counts how often an image is made."""

    def __init__(self, side=16):
        self.labels, self.classes = np.arange(6), 6
        self.side, self.made = side, []

    def raw(self, indices):
        self.made += indices
        shape = (3, self.side, self.side)
        return torch.stack([torch.full(shape, 40 * i, dtype=torch.uint8) for i in indices])


def test_an_image_is_made_once_and_is_the_same_afterwards(tmp_path):
    images = Counted()
    cache = CachedImages(images, tmp_path / "some.images")
    images.made.clear()
    first = cache.images([4, 1, 4])
    assert torch.equal(first, images.images([4, 1, 4]))
    images.made.clear()
    assert torch.equal(cache.images([1, 4]), first[[1, 0]])
    assert images.made == []
    assert torch.equal(cache.image(2), images.image(2))


def test_another_process_goes_on_with_the_same_files(tmp_path):
    CachedImages(Counted(), tmp_path / "some.images").images([3])
    again = CachedImages(Counted(), tmp_path / "some.images")
    again.made.made.clear()
    sent = pickle.loads(pickle.dumps(again))
    assert torch.equal(sent.raw([3]), Counted().raw([3]))
    assert sent.made.made == []
    # What earlier versions wrote is read: bytes of all images, and a mark for each that is there.
    assert (tmp_path / "some.images").stat().st_size == 6 * 3 * 16 * 16
    assert (tmp_path / "some.there").read_bytes() == bytes([0, 0, 0, 1, 0, 0])


def test_what_is_large_or_lies_in_files_is_left_as_it_is(tmp_path):
    assert cached(images := Counted(), tmp_path / "x") is images  # not made as it is read
    assert isinstance(cached(Glyphs("test", 50), tmp_path / "x"), CachedImages)
    assert not (tmp_path / "x").exists()


def test_a_set_with_a_cache_is_the_same_set(tmp_path):
    plain = open_data("glyphs-c", corruptions=("fog",))
    cache = cached_set(plain, tmp_path)
    for name in ("fog", "original"):
        for _ in range(2):
            assert torch.equal(cache[name].images([7, 3]), plain[name].images([7, 3]))
    assert torch.equal(cache.at(("fog", 2.5)).images([7]), plain.at(("fog", 2.5)).images([7]))
    assert sorted(path.name for path in tmp_path.glob("*.images")) == [
        "fog.images",
        "original.images",
    ]
