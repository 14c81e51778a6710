"""State files by stream: safe names, other fleets' files, damaged ones."""

import string

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from toys import stream, toy_net

import holdfast
from holdfast.fleet.folder import KIND, Folder, file_stem
from holdfast.util import files

NAMES = st.text(st.characters(codec=None), min_size=1, max_size=300)
SAFE = set(string.ascii_letters + string.digits + "_-%=")


@given(NAMES)
@example("../../etc/passwd")
@example(".")
@example("é" * 300)
def test_any_name_makes_a_safe_file_name(name):
    stem = file_stem(name)
    assert set(stem) <= SAFE and 0 < len(stem) <= 200


@given(st.lists(NAMES, unique=True, min_size=2, max_size=2))
@example(["Camera", "camera"])
@example(["a=b", "a%3Db"])
@example(["x" * 300, "x" * 299])
def test_different_streams_have_different_files_whatever_the_case(names):
    one, two = (file_stem(name).casefold() for name in names)
    assert one != two


def test_names_are_read_back(tmp_path):
    folder = Folder(tmp_path, {"model": "m", "method": "tent", "fresh": "f"})
    names = ["camera 7", "Camera 7", "ü/\\:*", ".hidden", "\ud800", "long" * 100, "%41", "A", "a=b"]
    for number, name in enumerate(names):
        assert folder.begin(name)
        folder.write(name, {"x": torch.tensor(number)}, {"n": number})
    assert sorted(folder.streams()) == sorted(names)
    for number, name in enumerate(names):
        tensors, notes = folder.read(name)
        assert int(tensors["x"]) == number and notes == {"n": number} and name in folder


@pytest.fixture
def kept(tmp_path):
    """A fleet with a saved stream, and its file."""
    fleet = holdfast.Fleet(toy_net(), "tent", folder=tmp_path)
    fleet("a", stream(("some",))[0])
    fleet.save()
    (file,) = tmp_path.glob("*.safetensors")
    return fleet, file


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: holdfast.Fleet(toy_net(seed=1), "tent", folder=path), "another model"),
        (lambda path: holdfast.Fleet(toy_net(), "rpl", folder=path), "another method, tent"),
        (
            lambda path: holdfast.Fleet(toy_net(), "tent", folder=path, guard="rollback"),
            "another beginning",
        ),
    ],
)
def test_the_state_of_another_fleet_is_refused_and_kept(kept, tmp_path, make, message):
    content = kept[1].read_bytes()
    other = make(tmp_path)
    for call in (lambda: other("a", stream(("some",))[0]), lambda: other.health("a")):
        with pytest.raises(ValueError, match=f"{message}.*give this fleet a folder of its own"):
            call()
    other("b", stream(("some",))[0])
    other.save()
    assert kept[1].read_bytes() == content


def damage_cut(file):
    file.write_bytes(file.read_bytes()[:-20])


def damage_flip(file):
    content = bytearray(file.read_bytes())
    content[-20] ^= 1
    file.write_bytes(content)


def damage_shape(file):
    header, tensors = files.read(file, KIND)
    files.write(file, KIND, header, {**tensors, "flat/float32": tensors["flat/float32"][1:]})


def damage_nan(file):
    header, tensors = files.read(file, KIND)
    values = torch.full_like(tensors["flat/float32"], torch.nan)
    files.write(file, KIND, header, {**tensors, "flat/float32": values})


def damage_name(file):
    header, tensors = files.read(file, KIND)
    files.write(file, KIND, {**header, "stream": "b"}, tensors)


@pytest.mark.parametrize("damage", [damage_cut, damage_flip, damage_shape, damage_nan, damage_name])
def test_a_damaged_file_is_set_aside_and_never_silently_begun_anew(kept, tmp_path, damage):
    whole = kept[1].read_bytes()
    damage(kept[1])
    damaged = kept[1].read_bytes()
    fleet = holdfast.Fleet(toy_net(), "tent", folder=tmp_path)
    first, second = stream(("some", "all"))
    refused = {}
    found = fleet.step({"a": second, "b": second}, refused)
    assert list(found) == ["b"]
    assert "cannot be read" in str(refused["a"]) and "add('a') begins it anew" in str(refused["a"])
    aside = kept[1].with_name(f"{kept[1].name}.damaged0")
    assert aside.read_bytes() == damaged and not kept[1].exists()
    for again in (fleet, holdfast.Fleet(toy_net(), "tent", folder=tmp_path)):
        for call in (lambda f: f("a", second), lambda f: f.health("a")):
            with pytest.raises(ValueError, match="was damaged and is set aside"):
                call(again)
        assert "a" not in again
    kept[1].write_bytes(whole)
    adapter = holdfast.adapt(toy_net(), "tent")
    adapter(first)
    assert torch.equal(fleet("a", second), adapter(second))


def test_a_damaged_stream_is_begun_anew_when_somebody_says_so(kept, tmp_path):
    for number in range(2):
        damage_flip(kept[1])
        fleet = holdfast.Fleet(toy_net(), "tent", folder=tmp_path)
        (images,) = stream(("some",))
        with pytest.raises(ValueError, match="set aside"):
            fleet("a", images)
        fleet.add("a")
        assert torch.equal(fleet("a", images), holdfast.adapt(toy_net(), "tent")(images))
        fleet.save()
        assert kept[1].with_name(f"{kept[1].name}.damaged{number}").exists()
    fleet.remove("a")
    assert not list(tmp_path.glob("[!.]*"))
