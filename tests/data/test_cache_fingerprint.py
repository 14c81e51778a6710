"""Fingerprints: the same for the same data, another when something of it changes."""

import shutil

import numpy as np
import pytest
import torch
from pools_for_tests import Counted

from holdfast.data.cache import fingerprint
from holdfast.data.glyphs import Glyphs, benchmark
from holdfast.data.readers.arrays import read_npz
from holdfast.data.readers.sets import open_data
from holdfast.util.threads import threads

SOME = ("fog", "gaussian_noise")


class Held:
    """Images and labels as they are given."""

    def __init__(self, images, labels):
        self.all = images
        self.labels = labels

    def __len__(self):
        return len(self.labels)

    def images(self, indices):
        return self.all[list(indices)]


def held(count=40):
    images = torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    return Held(images, np.arange(count) % 7)


@pytest.fixture
def npz(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
    np.savez(tmp_path / "set.npz", images=pixels, labels=np.arange(40) % 7)
    return tmp_path / "set.npz"


def test_two_openings_of_the_same_files_are_the_same_wherever_they_lie(npz, tmp_path):
    first = fingerprint(open_data(npz, corruptions=SOME))
    assert len(first) == 64 and int(first, 16)
    (tmp_path / "elsewhere").mkdir()
    other = shutil.copy(npz, tmp_path / "elsewhere/renamed.npz")
    assert fingerprint(open_data(other, corruptions=SOME[::-1])) == first
    assert fingerprint(read_npz(npz)) == fingerprint(read_npz(other))


@pytest.mark.parametrize(
    "change",
    [{"severity": 4}, {"seed": 1}, {"table": "imagenet"}, {"clean": False}],
    ids=str,
)
def test_how_a_set_is_opened_counts(npz, change):
    options = {"corruptions": SOME}
    assert fingerprint(open_data(npz, **options | change)) != fingerprint(open_data(npz, **options))


def test_names_and_number_of_domains_count():
    one, two = held(), Held(held().all.flip(0), held().labels)
    prints = [{"day": one, "night": two}, {"day": one, "dusk": two}, {"day": two, "night": one}]
    prints += [{"day": one}, {"day": one, "night": two, "noon": one}, one, two]
    assert len({fingerprint(each) for each in prints}) == len(prints)
    assert fingerprint({"night": two, "day": one}) == fingerprint(prints[0])


def test_every_label_counts():
    prints = {fingerprint(held())}
    for place in range(40):
        changed = held()
        changed.labels[place] += 1
        prints.add(fingerprint(changed))
    assert len(prints) == 41


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 40, 1000])
def test_sixteen_images_from_first_to_last_count(count):
    class Watched(Counted):
        def images(self, indices):
            read.extend(indices)
            return super().images(indices)

    read = []
    fingerprint(Watched(size=count))
    assert len(read) == len(set(read)) == min(count, 16)
    assert (read[0], read[-1]) == (0, count - 1)
    gaps = np.diff(read)
    assert count == 1 or gaps.max() - gaps.min() <= 1


def test_the_least_change_of_a_sampled_image_counts():
    changed = held()
    changed.all[39, 2, 7, 7] += 1e-6
    assert fingerprint(changed) != fingerprint(held())
    wide = Held(held().all.reshape(40, 3, 4, 16), held().labels)
    assert fingerprint(wide) != fingerprint(held())
    assert fingerprint(Held(held().all[:39], held().labels[:39])) != fingerprint(held())


def test_types_and_layouts_do_not_count(npz):
    images, labels = read_npz(npz).images(range(40)), read_npz(npz).labels
    expected = fingerprint(read_npz(npz))
    exact = images.double().mul(255).round().div(255)  # bytes, divided in another type
    for pixels in (exact, images.contiguous(memory_format=torch.channels_last)):
        for kind in (np.uint8, np.int32, ">i8"):
            assert fingerprint(Held(pixels, labels.astype(kind))) == expected
    assert fingerprint(Held(images, torch.from_numpy(labels))) == expected


def test_the_embedded_benchmark_is_itself_however_it_is_opened():
    expected = fingerprint(open_data("glyphs-c"))
    assert fingerprint(benchmark()) == expected
    assert fingerprint(benchmark(seed=1)) != expected
    assert fingerprint(Glyphs("train", 100)) != fingerprint(Glyphs("test", 100))


def test_data_that_does_not_name_its_domains():
    class Any:
        def __getitem__(self, domain):
            return held()

    with pytest.raises(ValueError, match="Any does not say which domains it has: give a dict"):
        fingerprint(Any())


def test_images_are_read_with_one_thread_since_rounding_goes_by_their_number():
    seen = []

    class Threaded(Held):
        def images(self, indices):
            seen.append(torch.get_num_threads())
            return super().images(indices)

    with threads(2):
        fingerprint(Threaded(torch.rand(2, 3, 8, 8), np.arange(2)))
        assert seen == [1] and torch.get_num_threads() == 2
