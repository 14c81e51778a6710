import itertools
import multiprocessing
import os
import random
import signal
import time

import pytest
import torch
from safetensors.torch import save_file
from toys import CLASSES, assert_same_state, state_of, stream, toy_net, toy_source

import holdfast
from holdfast import Source
from holdfast.util import files


def write_without_pause(path, done):
    for value in itertools.count(1):
        tensors = {f"t{i}": torch.full((200_000,), float(value)) for i in range(8)}
        files.write(path, "test", {"value": value}, tensors)
        done.value = value


def wait_for_the_first(done, writer, seconds=60):
    deadline = time.monotonic() + seconds
    while not done.value:
        assert writer.is_alive(), f"the writer ended by itself, with {writer.exitcode}"
        assert time.monotonic() < deadline, f"the writer wrote nothing in {seconds} seconds"
        time.sleep(0.001)


def test_kill_during_save_leaves_the_old_file_or_the_new_one(tmp_path):
    """A process that writes without pause is killed at 30 moments."""
    path = tmp_path / "state"
    fork = multiprocessing.get_context("fork")
    generator = random.Random(0)
    for _ in range(30):
        # Without a lock: a process that is killed while it holds one would hold it for ever.
        done = fork.Value("q", 0, lock=False)
        writer = fork.Process(target=write_without_pause, args=(path, done), daemon=True)
        writer.start()
        try:
            wait_for_the_first(done, writer)
            time.sleep(generator.uniform(0, 0.05))
        finally:
            writer.kill()
            writer.join(60)
        assert writer.exitcode == -signal.SIGKILL
        header, tensors = files.read(path, "test")
        assert header["value"] >= done.value
        for tensor in tensors.values():
            assert bool((tensor == header["value"]).all())


def test_a_failed_write_leaves_the_old_file_and_no_rest(tmp_path, monkeypatch):
    path = tmp_path / "state"
    files.write(path, "test", {"value": 1}, {"t": torch.ones(3)})

    def full_disk(*_args, **_kwargs):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "replace", full_disk)
    with pytest.raises(OSError, match="No space"):
        files.write(path, "test", {"value": 2}, {"t": torch.zeros(3)})
    assert files.read(path, "test")[0]["value"] == 1
    assert os.listdir(tmp_path) == ["state"]


@pytest.fixture
def saved(tmp_path):
    net = toy_net()
    adapter = holdfast.adapt(net, "eata+debias", source=toy_source(net))
    for images in stream(("some", "all")):
        adapter(images)
    adapter.save(tmp_path / "state")
    return net, tmp_path / "state"


def test_every_truncation_is_an_error(saved):
    net, path = saved
    whole = path.read_bytes()
    for length in (0, 1, 7, 8, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="cut short or damaged"):
            holdfast.load(path, net)


def test_every_changed_byte_is_an_error(saved):
    """One flipped bit in the data, in the header's text, in the tensors' names."""
    net, path = saved
    whole = path.read_bytes()
    start = 8 + int.from_bytes(whole[:8], "little")
    places = [*range(start, len(whole), (len(whole) - start) // 25), len(whole) - 1]
    places += [whole.index(b"lambda_src"), whole.index(b"sha256") + 20, whole.index(b"seed")]
    for place in places:
        changed = bytearray(whole)
        changed[place] ^= 1
        path.write_bytes(changed)
        with pytest.raises(ValueError, match=r"checksum|damaged|did not write"):
            holdfast.load(path, net)


def test_foreign_files(saved, tmp_path):
    net, _ = saved
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ValueError, match="not a holdfast file"):
        holdfast.load(tmp_path / "text", net)
    save_file({"x": torch.ones(2)}, tmp_path / "other")
    with pytest.raises(ValueError, match="holdfast did not write it"):
        holdfast.load(tmp_path / "other", net)
    toy_source(net).save(tmp_path / "source")
    with pytest.raises(ValueError, match="holds a source, not an adapter state"):
        holdfast.load(tmp_path / "source", net)
    with pytest.raises(ValueError, match="holds an adapter state, not a source"):
        Source.load(saved[1])
    with pytest.raises(FileNotFoundError, match="no file"):
        holdfast.load(tmp_path / "absent", net)


def test_a_file_of_another_format(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(files, "FORMAT", 99)
        files.write(tmp_path / "newer", "a source", {}, {})
    with pytest.raises(ValueError, match=r"format 99.*reads format 1"):
        Source.load(tmp_path / "newer")


def test_a_state_of_another_model_is_refused(saved):
    _, path = saved
    with pytest.raises(ValueError, match="saved from another model"):
        holdfast.load(path, toy_net(seed=1))


def test_loading_needs_no_source(saved):
    net, path = saved
    loaded = holdfast.load(path, net)
    again = holdfast.load(path, net)
    assert_same_state(state_of(loaded), state_of(again))
    assert loaded.method == holdfast.compose("eata+debias").for_classes(CLASSES)


def test_saving_does_not_pickle(saved):
    _, path = saved
    assert b"torch" not in path.read_bytes()[:4]
    header, tensors = files.read(path, "an adapter state")
    assert header["method"].startswith("eata(")
    assert all(isinstance(tensor, torch.Tensor) for tensor in tensors.values())


def test_files_can_be_read_by_others_and_links_are_followed(tmp_path):
    toy_source(toy_net()).save(tmp_path / "source")
    mask = os.umask(0o027)
    try:
        toy_source(toy_net()).save(tmp_path / "private")
    finally:
        os.umask(mask)
    assert (tmp_path / "source").stat().st_mode & 0o777 == 0o666 & ~mask
    assert (tmp_path / "private").stat().st_mode & 0o777 == 0o640
    (tmp_path / "link").symlink_to(tmp_path / "source")
    toy_source(toy_net(seed=3)).save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert Source.load(tmp_path / "source").model_hash == Source.load(tmp_path / "link").model_hash
    with pytest.raises(ValueError, match="not a plain file"):
        toy_source(toy_net()).save(tmp_path)
