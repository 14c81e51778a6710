"""CIFAR as published, clean and corrupted; and files that only look like it."""

import codecs
import os
import pickle
import re

import numpy as np
import pytest
import torch

from holdfast.data.corrupt.corruptions import CORRUPTIONS
from holdfast.data.readers.cifar import ADMITTED, read_clean, read_pickle
from holdfast.data.readers.sets import open_data

CLASSES = {"cifar10": 10, "cifar100": 100}
KEYS = {"cifar10": "labels", "cifar100": "fine_labels"}
COUNT = 6


def pixels(seed=0, count=COUNT):
    return np.random.default_rng(seed).integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)


def labels_of(name, seed=0, count=COUNT):
    return np.random.default_rng(seed + 100).integers(0, CLASSES[name], count).tolist()


def files_of(name, split):
    if name == "cifar100":
        return [split]
    return ["test_batch"] if split == "test" else [f"data_batch_{n}" for n in range(1, 6)]


def write_python(root, name, protocol=2):
    folder = root / {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}[name]
    folder.mkdir(parents=True)
    for split in ("train", "test"):
        for seed, file in enumerate(files_of(name, split)):
            entry = {"data": pixels(seed).reshape(COUNT, -1), KEYS[name]: labels_of(name, seed)}
            entry["filenames"] = [f"{number}.png" for number in range(COUNT)]
            (folder / file).write_bytes(pickle.dumps(entry, protocol=protocol))
    return folder


def write_binary(root, name):
    folder = root / {"cifar10": "cifar-10-batches-bin", "cifar100": "cifar-100-binary"}[name]
    folder.mkdir(parents=True)
    for split in ("train", "test"):
        for seed, file in enumerate(files_of(name, split)):
            with open(folder / f"{file}.bin", "wb") as out:
                for image, label in zip(pixels(seed), labels_of(name, seed), strict=True):
                    coarse = b"\x07" if name == "cifar100" else b""
                    out.write(coarse + bytes([label]) + image.tobytes())
    return folder


@pytest.mark.parametrize("write", [write_python, write_binary])
@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_clean_sets_in_both_versions(tmp_path, name, write):
    write(tmp_path, name)
    test, train = (read_clean(name, tmp_path, split) for split in ("test", "train"))
    assert test.classes == CLASSES[name]
    assert test.labels.tolist() == labels_of(name)
    assert torch.equal(test.images(range(COUNT)), torch.from_numpy(pixels()).float() / 255)
    files = len(files_of(name, "train"))
    assert len(train) == COUNT * files
    image, label = train[COUNT * files - 1]
    assert label == labels_of(name, files - 1)[-1]
    assert torch.equal(image, torch.from_numpy(pixels(files - 1)[-1]).float() / 255)


@pytest.mark.parametrize("protocol", range(6))
def test_pickles_of_every_kind(tmp_path, protocol):
    write_python(tmp_path, "cifar100", protocol)
    found = read_clean("cifar100", tmp_path)
    assert torch.equal(found.images(range(COUNT)), torch.from_numpy(pixels()).float() / 255)


# What Python 2 and an old numpy wrote: texts are byte strings, and numpy's parts have other names.
PYTHON_2 = (
    b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\n"
    b"q\x04K\x00\x85U\x01b\x87Rq\x05(K\x01K\x01M\x00\x0c\x86cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01"
    b"\x87Rq\x07(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T\x00\x0c\x00\x00%s"
    b"tbU\x06labelsq\x08]q\tK\x03au."
)


@pytest.mark.filterwarnings("error")
def test_the_pickles_of_python_2(tmp_path):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    image = pixels(count=1)
    (folder / "test_batch").write_bytes(PYTHON_2.replace(b"%s", image.tobytes()))
    found = read_clean("cifar10", tmp_path)
    assert found.labels.tolist() == [3]
    assert torch.equal(found[0][0], torch.from_numpy(image[0]).float() / 255)


class Bomb:
    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", range(6))
def test_a_malicious_pickle_is_refused_and_nothing_is_run(tmp_path, protocol):
    path = write_python(tmp_path, "cifar100") / "test"
    trace = tmp_path / "executed"
    attacks = [
        (os.mkdir, str(trace)),
        (os.system, f"mkdir {trace}"),
        (eval, f"__import__('os').mkdir({str(trace)!r})"),
        (exec, f"__import__('os').mkdir({str(trace)!r})"),
        (getattr, "text", "upper"),
        (np.fromfile, str(path)),
        (np.load, str(path)),
    ]
    for function, *arguments in attacks:
        data = pixels().reshape(COUNT, -1)
        entry = {"data": data, "fine_labels": [0] * COUNT, "x": Bomb(function, *arguments)}
        path.write_bytes(pickle.dumps(entry, protocol=protocol))
        with pytest.raises(ValueError, match=r"it asks for .* Nothing in it was run") as error:
            read_clean("cifar100", tmp_path)
        assert str(path) in str(error.value)
    assert not trace.exists()


def test_text_is_encoded_by_no_other_codec(tmp_path):
    """Codecs unpack archives, among other things; numpy's pickles need latin1 alone."""
    path = write_python(tmp_path, "cifar100") / "test"
    entry = {"data": Bomb(codecs.encode, "text", "rot13"), "fine_labels": [0]}
    path.write_bytes(pickle.dumps(entry))
    with pytest.raises(ValueError, match="it encodes text as 'rot13'"):
        read_clean("cifar100", tmp_path)


@pytest.mark.parametrize("name", [b"_codecs\nencode", b"numpy\ndtype"])
@pytest.mark.parametrize("state", [{"x": 1}, (None, {"__defaults__": ("utf-7",)})])
def test_a_pickle_cannot_change_what_it_may_call(tmp_path, name, state):
    path = write_python(tmp_path, "cifar100") / "test"
    inner = pickle.dumps(state, 2)[2:-1]
    path.write_bytes(b"\x80\x02c" + name + b"\n" + inner + b"b0}.")  # BUILD, POP, a dictionary
    with pytest.raises(ValueError, match="is not a CIFAR file"):
        read_pickle(path)
    assert ADMITTED["_codecs", "encode"]("\xe9") == b"\xe9"


def spoil_pickle(**changes):
    def spoil(path):
        entry = {"data": pixels().reshape(COUNT, -1), "fine_labels": [0] * COUNT, **changes}
        kept = {name: value for name, value in entry.items() if value is not None}
        path.write_bytes(pickle.dumps(kept, protocol=2))

    return spoil


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:5000]), "is not a CIFAR file"),
        (lambda path: path.write_bytes(b""), "is not a CIFAR file"),
        (lambda path: path.write_text("<!DOCTYPE html>"), "is not a CIFAR file"),
        (lambda path: path.write_bytes(pickle.dumps([1])), "holds list"),
        (spoil_pickle(fine_labels=None), "has no fine_labels; it has data"),
        (spoil_pickle(fine_labels=[0] * 5), "expected uint8 of shape (5, 3072), one row for each"),
        (spoil_pickle(fine_labels=[100] * COUNT), "labels go from 100 to 100; expected 0 to 99"),
        (spoil_pickle(data=np.zeros((COUNT, 3072))), "data is float64 of shape (6, 3072)"),
        (spoil_pickle(data="pixels"), "data is <U6 of shape ()"),
    ],
    ids=lambda value: None if callable(value) else str(value),
)
def test_bad_pickles_are_named(tmp_path, spoil, message):
    path = write_python(tmp_path, "cifar100") / "test"
    spoil(path)
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        read_clean("cifar100", tmp_path)
    assert str(path) in str(error.value)


def test_bad_binary_files_are_named(tmp_path):
    path = write_binary(tmp_path, "cifar10") / "data_batch_3.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"data_batch_3\.bin is cut short.*a multiple of 3073"):
        read_clean("cifar10", tmp_path, "train")
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"There is no file .*data_batch_3\.bin"):
        read_clean("cifar10", tmp_path, "train")
    (tmp_path / "cifar-10-batches-bin/test_batch.bin").write_bytes(b"\x0b" + bytes(3072))
    with pytest.raises(
        ValueError, match=r"test_batch\.bin: labels go from 11 to 11; expected 0 to 9"
    ):
        read_clean("cifar10", tmp_path)


def test_nothing_there_says_what_to_do(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"cifar-100-python/test.*holdfast data get cifar100"
    ):
        read_clean("cifar100", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no folder CIFAR-100-C.*data get cifar100-c"):
        open_data("cifar100-c", tmp_path)
    (tmp_path / "CIFAR-100-C").mkdir()
    with pytest.raises(FileNotFoundError, match=r"There is no file .*CIFAR-100-C/labels\.npy"):
        open_data("cifar100-c", tmp_path)


@pytest.fixture
def corrupted(tmp_path):
    """CIFAR-100-C in small: every image is filled with ten times its severity, plus its place."""
    write_python(tmp_path, "cifar100")
    folder = tmp_path / "CIFAR-100-C"
    folder.mkdir()
    np.save(folder / "labels.npy", np.tile(labels_of("cifar100"), 5))
    for place, name in enumerate(CORRUPTIONS):
        images = np.full((5 * COUNT, 32, 32, 3), 15 * place, np.uint8)
        images += np.repeat(np.arange(1, 6, dtype=np.uint8), COUNT)[:, None, None, None]
        np.save(folder / f"{name}.npy", images)
    return tmp_path


def test_cifar_c_has_fifteen_corruptions_and_clean_images_last(corrupted):
    for root in (corrupted, corrupted / "CIFAR-100-C"):
        found = open_data("cifar100-c", root, severity=4)
        assert [domain.name for domain in found.domains] == [*CORRUPTIONS, "original"]
        assert found.classes == 100
        for place, domain in enumerate(found.domains[:15]):
            assert domain.dataset.labels.tolist() == labels_of("cifar100")
            values = (domain.dataset.images(range(COUNT)) * 255).round().unique().tolist()
            assert values == [15 * place + 4]
        assert len(open_data("cifar100-c", root, clean=False).domains) == 15
    original = open_data("cifar100-c", corrupted)["original"]
    assert torch.equal(original.images(range(COUNT)), torch.from_numpy(pixels()).float() / 255)


def test_clean_images_that_are_not_there_can_be_left_out(corrupted):
    (corrupted / "cifar-100-python/test").unlink()
    with pytest.raises(FileNotFoundError, match=r"There is no cifar100 below .*clean=False"):
        open_data("cifar100-c", corrupted)


def test_a_layout_is_recognised_by_its_path(corrupted):
    folder = corrupted / "CIFAR-100-C"
    with pytest.raises(FileNotFoundError, match=r"no original\.npy.*name the clean set, clean=…"):
        open_data(folder)
    found = open_data(folder, clean=False, corruptions=["fog"])
    assert [domain.name for domain in found.domains] == ["fog"]
    np.save(folder / "original.npy", pixels().transpose(0, 2, 3, 1))
    assert open_data(folder).domains[-1].name == "original"


@pytest.mark.parametrize(
    ("file", "array", "message"),
    [
        ("labels", None, "There is no file"),
        ("labels", np.arange(30), "30 labels that do not repeat five times"),
        ("labels", np.zeros(29, int), "29 labels that do not repeat five times"),
        ("labels", np.full(30, 100), "labels go from 100 to 100; expected 0 to 99"),
        ("labels", np.zeros(30), "labels are float64 of shape (30,)"),
        ("labels", np.tile(np.arange(COUNT), 5), "labels of cifar100 are not those of"),
        ("fog", None, "lacks fog.npy"),
        ("fog", np.zeros((30, 32, 32, 3)), "float64 of shape (30, 32, 32, 3); expected uint8"),
        ("fog", np.zeros((25, 32, 32, 3), np.uint8), "expected uint8 of shape (30, 32, 32, 3)"),
        ("fog", np.zeros((30, 3, 32, 32), np.uint8), "expected uint8 of shape (30, 32, 32, 3)"),
    ],
)
def test_bad_corrupted_sets_are_named(corrupted, file, array, message):
    path = corrupted / "CIFAR-100-C" / f"{file}.npy"
    path.unlink()
    if array is not None:
        np.save(path, array)
    with pytest.raises((ValueError, OSError), match=re.escape(message)) as error:
        open_data("cifar100-c", corrupted)
    assert str(path.parent) in str(error.value) and path.name in str(error.value)


def test_a_truncated_array_is_found_before_it_is_read(corrupted):
    path = corrupted / "CIFAR-100-C" / "snow.npy"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"snow\.npy is cut short: \d+ bytes, but uint8 of shape"):
        open_data("cifar100-c", corrupted)
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(ValueError, match=r"snow\.npy is not a \.npy file, or is cut short"):
        open_data("cifar100-c", corrupted)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"severity": 0}, "severity is a whole number from 1 to 5, not 0"),
        ({"corruptions": ["fogg"]}, "There is no corruption 'fogg'. Did you mean 'fog'?"),
        ({"corruptions": "fog"}, "corruptions are different names"),
        ({"images": "list.txt"}, "cifar100-c has no file names"),
    ],
)
def test_bad_options(corrupted, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        open_data("cifar100-c", corrupted, **options)


def test_clean_accuracy_of_a_real_net_is_the_published_one(real_data):
    from torch.utils.data import DataLoader

    from holdfast.models.find import find_model

    found = open_data("cifar100", real_data, corruptions=["fog"])
    model = find_model(f"resnet20:{real_data / 'cifar100_resnet20.safetensors'}")
    right = 0
    with torch.inference_mode():
        for images, labels in DataLoader(found["original"], 500):
            right += int((model(images).argmax(1) == labels).sum())
    assert right / 100 == pytest.approx(68.83, abs=0.05)
