"""Arrays: what comes out is what was put in, and bad files are named with what was expected."""

import pickle
import re
import zipfile

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from holdfast.data.images import Joined, as_bytes
from holdfast.data.readers.arrays import read_array, read_npz
from holdfast.engine.checks import ROUNDING


def some_images(count=7, side=16, seed=0):
    shape = (count, side, side + 4, 3)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def as_floats(images):
    return torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255


@pytest.fixture
def npz(tmp_path):
    path = tmp_path / "set.npz"
    np.savez(path, images=some_images(), labels=np.arange(7) % 3)
    return path


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed], ids=["stored", "compressed"])
@pytest.mark.parametrize(
    "form",
    [
        lambda x: x,
        lambda x: x.transpose(0, 3, 1, 2),
        lambda x: (x / 255).astype(np.float32),
        lambda x: (x / 255).transpose(0, 3, 1, 2).astype(">f8"),
        np.asfortranarray,
    ],
    ids=["bytes", "first", "float", "big-endian", "fortran"],
)
def test_an_npz_gives_the_same_images_in_whatever_form(tmp_path, save, form):
    save(tmp_path / "set.npz", labels=np.arange(7, dtype=np.uint8), images=form(some_images()))
    found = read_npz(tmp_path / "set.npz")
    assert len(found) == 7 and found.classes == 7
    image, label = found[3]
    assert type(label) is int and label == 3
    assert image.dtype == torch.float32 and image.is_contiguous()
    expected = as_floats(some_images())
    torch.testing.assert_close(image, expected[3])
    torch.testing.assert_close(found.images([5, 0, 5]), expected[[5, 0, 5]])
    assert torch.equal(as_bytes(found.images(range(7))), (expected * 255).round().byte())


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda x: x.astype(np.float32), "from 0 to 255"),
        (lambda x: x / 127.5 - 1, "from -1 to 1"),
        (lambda x: np.where(x == 7, np.nan, x / 255), "from nan"),
    ],
    ids=["bytes", "normalised", "nan"],
)
def test_floats_outside_the_range_are_named(tmp_path, change, found):
    path = tmp_path / "set.npz"
    np.savez(path, images=change(some_images()), labels=np.arange(7))
    message = rf"{re.escape(str(path))}: found floats {found}.*expected \[0, 1\]\. Divide"
    with pytest.raises(ValueError, match=message):
        read_npz(path).images(range(7))
    with pytest.raises(ValueError, match="expected"):
        as_bytes(torch.from_numpy(change(some_images())))


def test_rounding_is_not_outside_the_range():
    """What an adapter takes for rounding, a data set does too."""
    rounded = torch.tensor([-ROUNDING, 1 + ROUNDING]) * (1 - 1e-6)
    assert as_bytes(rounded).tolist() == [0, 255]
    with pytest.raises(ValueError, match="expected"):
        as_bytes(torch.tensor([1 + 2 * ROUNDING]))
    assert as_bytes(torch.zeros(0, 3)).shape == (0, 3)


def test_a_stored_npz_is_mapped_and_a_compressed_one_is_not(npz, tmp_path):
    assert isinstance(read_array(npz, "images"), np.memmap)
    np.savez_compressed(tmp_path / "packed.npz", images=some_images())
    assert not isinstance(read_array(tmp_path / "packed.npz", "images"), np.memmap)


@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_workers_read_the_same(npz, context):
    found = read_npz(npz)
    found.image(0)  # opened here first: workers still open it for themselves
    loader = DataLoader(
        found, batch_size=3, num_workers=2, multiprocessing_context=context, timeout=200
    )
    batches = list(loader)
    assert torch.equal(torch.cat([images for images, _ in batches]), found.images(range(7)))
    assert torch.cat([labels for _, labels in batches]).tolist() == found.labels.tolist()


def test_what_goes_to_a_worker_is_small(tmp_path):
    np.savez_compressed(
        tmp_path / "big.npz", images=some_images(200), labels=np.zeros(200, dtype=int)
    )
    found = read_npz(tmp_path / "big.npz")
    found.image(0)
    assert len(pickle.dumps(found)) < 10_000


def test_places_are_checked(npz):
    found = read_npz(npz)
    assert torch.equal(found[-1][0], found[6][0])
    with pytest.raises(IndexError, match="There is no image 7: there are 7"):
        found[7]
    assert len(list(found)) == 7  # iteration ends by the index error


def test_sets_are_joined_whether_they_hold_bytes_or_floats(npz, tmp_path):
    of_bytes = read_npz(npz)
    np.savez(tmp_path / "floats.npz", images=some_images(2, seed=1) / 255, labels=np.array([4, 2]))
    of_floats = read_npz(tmp_path / "floats.npz")
    both = Joined([of_floats, of_bytes])
    assert both.labels.tolist() == [4, 2, *of_bytes.labels]
    assert torch.equal(both.images([2, 8]), of_bytes.images([0, 6]))
    assert torch.equal(both.images([1, 2]), torch.stack([of_floats.image(1), of_bytes.image(0)]))
    assert both[0][1] == 4


def cut(path, to):
    path.write_bytes(path.read_bytes()[:to])


def save(path, **arrays):
    np.savez(path, **arrays)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.unlink(), "There is no file {path}."),
        (lambda path: path.write_text("<html>no</html>"), "{path} is not an .npz file"),
        (lambda path: cut(path, 1000), "{path} is not an .npz file"),
        (lambda path: save(path, images=some_images()), "{path} has no array 'labels'"),
        (
            lambda path: save(path, images=some_images(), labels=np.zeros(6, int)),
            "{path} has 7 images, but 6 labels",
        ),
        (
            lambda path: save(path, images=some_images().astype(np.int32), labels=np.zeros(7, int)),
            "{path}: images are int32 of shape (7, 16, 20, 3); expected uint8, or float",
        ),
        (
            lambda path: save(
                path, images=np.zeros((7, 5, 5, 5), np.uint8), labels=np.zeros(7, int)
            ),
            "{path}: images are uint8 of shape (7, 5, 5, 5); expected",
        ),
        (
            lambda path: save(path, images=some_images(), labels=np.zeros(7)),
            "{path}: labels are float64 of shape (7,); expected whole numbers",
        ),
        (
            lambda path: save(path, images=some_images(), labels=np.arange(7) - 1),
            "{path}: labels go from -1 to 5; expected 0",
        ),
        (
            lambda path: save(path, images=some_images(0), labels=np.zeros(0, int)),
            "{path} holds no images",
        ),
    ],
    ids=lambda value: None if callable(value) else str(value),
)
def test_bad_files_are_named(npz, spoil, message):
    spoil(npz)
    with pytest.raises((ValueError, OSError), match=re.escape(message.format(path=npz))):
        read_npz(npz)


def test_a_damaged_compressed_file_is_named(tmp_path):
    path = tmp_path / "packed.npz"
    np.savez_compressed(path, images=some_images(), labels=np.arange(7))
    with zipfile.ZipFile(path) as archive:
        begin = archive.getinfo("images.npy").header_offset
    raw = bytearray(path.read_bytes())
    raw[begin + 1000 : begin + 1100] = bytes(100)
    path.write_bytes(raw)
    found = read_npz(path)
    with pytest.raises(ValueError, match=rf"{re.escape(str(path))} is damaged"):
        found[0]


class Bomb:
    def __reduce__(self):
        return (exec, ("raise SystemExit('executed')",))


def test_arrays_of_objects_are_never_unpickled(tmp_path):
    path = tmp_path / "set.npz"
    np.savez(path, images=np.array([Bomb()], dtype=object), labels=np.zeros(1, int))
    with pytest.raises(ValueError, match="Python objects, which could run code"):
        read_npz(path)
    np.savez(path, images=some_images(1), labels=np.array([Bomb()], dtype=object))
    with pytest.raises(ValueError, match="Python objects, which could run code"):
        read_npz(path)
