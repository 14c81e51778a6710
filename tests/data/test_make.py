"""Corrupted copies: the published layouts, the same in whatever way they are made, resumable."""

import json
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from holdfast.cli.main import main
from holdfast.data import make as maker
from holdfast.data.corrupt.corruptions import CORRUPTIONS, HOLDOUT, corrupt
from holdfast.data.make import make
from holdfast.data.readers.arrays import read_npz
from holdfast.data.readers.folders import read_folder
from holdfast.data.readers.sets import open_data

COUNT = 11
SOME = ("gaussian_noise", "contrast", "snow")


@pytest.fixture
def npz(tmp_path):
    """Images with some structure, since corruptions of noise are hard to tell from it."""
    coarse = torch.rand(COUNT, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    images = torch.nn.functional.interpolate(coarse, size=(32, 32), mode="bilinear")
    bytes_ = images.mul(255).byte().permute(0, 2, 3, 1).numpy()
    np.savez(tmp_path / "set.npz", images=bytes_, labels=np.arange(COUNT) % 4)
    return tmp_path / "set.npz"


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(maker, "BLOCK_BYTES", 4 * 32 * 32 * 3)


def contents(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_arrays_are_in_cifar_cs_layout(npz, tmp_path):
    clean, before = read_npz(npz), torch.get_rng_state()
    out = make(clean, tmp_path / "out", corruptions=SOME, workers=0, seed=np.int64(0))
    assert torch.equal(torch.get_rng_state(), before)
    names = {f"{name}.npy" for name in (*SOME, "labels", "original")} | {"holdfast.json"}
    assert contents(out).keys() == names
    assert np.load(out / "labels.npy").tolist() == 5 * clean.labels.tolist()
    bytes_ = clean.images(range(COUNT)).mul(255).round().byte()
    for name in SOME:
        array = np.load(out / f"{name}.npy")
        assert array.dtype == np.uint8 and array.shape == (5 * COUNT, 32, 32, 3)
        for severity in range(1, 6):
            expected = corrupt(bytes_, name, severity, table="cifar").permute(0, 2, 3, 1)
            part = array[(severity - 1) * COUNT : severity * COUNT]
            assert np.array_equal(part, expected.numpy())


def test_what_is_made_is_what_is_read_on_the_fly(npz, tmp_path):
    out = make(read_npz(npz), tmp_path / "out", corruptions=SOME, seed=3, workers=0)
    made = open_data(out, corruptions=SOME, severity=4)
    read = open_data(npz, corruptions=SOME, severity=4, seed=3)
    assert [domain.name for domain in made.domains] == [*SOME, "original"]
    for domain in made.domains:
        other = read[domain.name]
        assert torch.equal(domain.dataset.images(range(COUNT)), other.images(range(COUNT)))
        assert torch.equal(domain.dataset.image(7), other.image(7))
        assert domain.dataset.labels.tolist() == other.labels.tolist()
        loader = DataLoader(other, 3, num_workers=2, timeout=200)
        batches = [images for images, _ in loader]
        assert torch.equal(torch.cat(batches), other.images(range(COUNT)))
    another = open_data(npz, corruptions=SOME, severity=4, seed=4)
    assert not torch.equal(another["snow"].image(0), read["snow"].image(0))


@pytest.mark.parametrize("layout", ["arrays", "folders"])
def test_workers_and_blocks_change_nothing(npz, tmp_path, monkeypatch, layout):
    options = {"layout": layout, "corruptions": SOME[:2]}
    make(read_npz(npz), tmp_path / "one", workers=0, **options)
    monkeypatch.setattr(maker, "BLOCK_BYTES", 3 * 32 * 32 * 3)
    make(read_npz(npz), tmp_path / "two", workers=2, **options)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


@pytest.mark.parametrize("layout", ["arrays", "folders"])
def test_an_interrupted_copy_goes_on_and_ends_the_same(npz, tmp_path, monkeypatch, layout):
    clean = read_npz(npz)
    options = {"layout": layout, "corruptions": SOME[:2], "workers": 0}
    make(clean, tmp_path / "whole", **options)
    kind = maker.ArrayWriter if layout == "arrays" else maker.FolderWriter
    write, written = kind.write, []

    def stop_after_four(self, block):
        if len(written) == 4:
            raise KeyboardInterrupt
        written.append(block)
        write(self, block)

    monkeypatch.setattr(kind, "write", stop_after_four)
    for _ in range(20):
        written.clear()
        try:
            make(clean, tmp_path / "parts", **options)
        except KeyboardInterrupt:
            continue
        break
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")
    make(clean, tmp_path / "parts", **options)
    written.clear()
    make(clean, tmp_path / "parts", **options)
    assert written == []  # nothing is made twice


def test_a_killed_copy_goes_on_and_ends_the_same(npz, tmp_path):
    code = (
        "from holdfast.cli.main import main; from holdfast.data import make as maker; "
        f"maker.BLOCK_BYTES = {maker.BLOCK_BYTES}; raise SystemExit(main())"
    )
    command = [sys.executable, "-c", code, "data", "make", str(npz), str(tmp_path / "parts")]
    command += ["--workers", "1", "--corruptions", *SOME]
    killed = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    notes = tmp_path / "parts/.contrast.npy.notes"
    deadline = time.monotonic() + 200
    try:
        while not notes.exists():
            assert killed.poll() is None, f"it ended by itself, with {killed.returncode}"
            assert time.monotonic() < deadline, f"there are no {notes.name} after 200 seconds"
            time.sleep(0.001)
    finally:
        killed.kill()
        killed.wait(60)
    left = contents(tmp_path / "parts")
    assert "gaussian_noise.npy" in left and "snow.npy" not in left
    assert subprocess.run(command, stdout=subprocess.DEVNULL, timeout=200).returncode == 0
    make(read_npz(npz), tmp_path / "whole", corruptions=SOME, workers=0)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_a_note_that_was_cut_short_counts_for_nothing(npz, tmp_path):
    clean = read_npz(npz)
    make(clean, tmp_path / "whole", corruptions=["contrast"], workers=0)
    out = tmp_path / "parts"
    make(clean, out, corruptions=["contrast"], workers=0)
    done = out / "contrast.npy"
    spoilt = bytearray(done.read_bytes())
    spoilt[-(5 * COUNT * 3072) :] = bytes(5 * COUNT * 3072)
    (out / ".contrast.npy.part").write_bytes(spoilt)
    (out / ".contrast.npy.notes").write_text("1 0 4")
    done.unlink()
    make(clean, out, corruptions=["contrast"], workers=0)
    assert contents(out) == contents(tmp_path / "whole")


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("cats/1.JPEG", "cats/2.png", "dogs/1.bmp"):
        path = tmp_path / "clean" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse = Image.fromarray(rng.integers(0, 256, (5, 6, 3), dtype=np.uint8))
        coarse.resize((90, 75)).save(path)
    (tmp_path / "clean/empty").mkdir()
    return tmp_path / "clean"


def test_folders_are_in_imagenet_cs_layout(folder, tmp_path, capsys):
    out = tmp_path / "out"
    arguments = ["--severities", "2", "5", "--size", "64", "--table", "imagenet", "--workers", "1"]
    names = ["--corruptions", "fog", "pixelate"]
    assert main(["data", "make", str(folder), str(out), *names, *arguments]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    files = contents(out).keys() - {"holdfast.json"}
    assert files == {
        f"{name}/{severity}/{file}"
        for name in ("fog", "pixelate")
        for severity in (2, 5)
        for file in ("cats/1.JPEG", "cats/2.png.JPEG", "dogs/1.bmp.JPEG")
    }
    clean = read_folder(folder, size=64)
    made = open_data(out, corruptions=["fog", "pixelate"], severity=5, size=64, clean=folder)
    assert torch.equal(made["original"].images(range(3)), clean.images(range(3)))
    assert made.classes == 3  # the empty one too
    expected = open_data(
        folder, corruptions=["fog", "pixelate"], severity=5, size=64, table="imagenet"
    )
    for name in ("fog", "pixelate"):
        assert made[name].labels.tolist() == clean.labels.tolist()
        apart = made[name].images(range(3)) - expected[name].images(range(3))
        assert 0 < apart.abs().mean() < 0.02  # JPEG of quality 85, and nothing else
    with Image.open(out / "fog/5/cats/1.JPEG") as picture:
        assert picture.size == (64, 64) and picture.quantization[0][0] == 5  # quality 85


def test_some_classes_of_a_folder(folder, tmp_path, capsys):
    names = tmp_path / "names.txt"
    command = ["data", "make", str(folder), str(tmp_path / "out"), "--classes", str(names)]
    command += ["--corruptions", "contrast", "--severities", "5", "--size", "32", "--workers", "0"]
    names.write_text("cats\nbirds\n")
    assert main(command) == 2
    assert f"There is no folder {folder / 'birds'}" in capsys.readouterr().err
    names.write_text("cats\n")
    assert main(command) == 0
    made = contents(tmp_path / "out").keys() - {"holdfast.json"}
    assert made == {"contrast/5/cats/1.JPEG", "contrast/5/cats/2.png.JPEG"}


def test_other_settings_do_not_go_on_with_a_copy(npz, tmp_path, capsys):
    out = tmp_path / "out"
    make(read_npz(npz), out, corruptions=["contrast"], workers=0)
    with pytest.raises(ValueError, match="begun with other settings: seed 0, now 1"):
        make(read_npz(npz), out, corruptions=["contrast"], seed=1, workers=0)
    make(read_npz(npz), out, corruptions=["contrast", "fog"], workers=0)  # more of the same
    assert (out / "fog.npy").is_file()
    assert json.loads((out / "holdfast.json").read_text())["table"] == "cifar"
    with pytest.raises(ValueError, match="holds other files: choose a new folder"):
        make(read_npz(npz), tmp_path, workers=0)
    with pytest.raises(ValueError, match="Arrays hold all five severities"):
        make(read_npz(npz), tmp_path / "new", severities=[5])
    assert main(["data", "make", str(npz), str(tmp_path / "new"), "--corruptions", "fogg"]) == 2
    assert "Did you mean 'fog'?" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_no_room_and_a_bad_image_are_told(npz, folder, tmp_path, monkeypatch):
    from types import SimpleNamespace

    from holdfast.data.fetch import transfer

    (folder / "cats/1.JPEG").write_bytes(b"not an image")
    (folder / "cats/0.png").write_bytes((folder / "cats/2.png").read_bytes())
    with pytest.raises(ValueError, match=r"^\S*cats/1\.JPEG is not an image"):
        make(read_folder(folder, size=32), tmp_path / "a", corruptions=["fog"], workers=1)
    monkeypatch.setattr(transfer.shutil, "disk_usage", lambda folder: SimpleNamespace(free=10))
    with pytest.raises(OSError, match="GB free"):
        make(read_npz(npz), tmp_path / "b", workers=0)


def test_ctrl_c_ends_the_command_without_a_traceback(npz, tmp_path, monkeypatch, capsys):
    def interrupted(self, block):
        raise KeyboardInterrupt

    monkeypatch.setattr(maker.ArrayWriter, "write", interrupted)
    assert main(["data", "make", str(npz), str(tmp_path / "out"), "--workers", "0"]) == 130
    out, err = capsys.readouterr()
    assert out == "" and err == "holdfast: stopped.\n"


def test_all_corruptions_of_a_clean_set_in_order(npz):
    found = open_data(npz)
    assert [domain.name for domain in found.domains] == [*CORRUPTIONS, "original"]
    assert found.classes == 4
    frozen = found["original"].images(range(COUNT))
    for domain in found.domains[:15]:
        images = domain.dataset.images(range(COUNT))
        assert images.min() >= 0 and images.max() <= 1
        assert not torch.equal(images, frozen)
    with pytest.raises(KeyError, match="has no domain 'nix'"):
        found["nix"]
    with pytest.raises(KeyError, match=r"Open it with corruptions=\['spatter'\]"):
        found["spatter"]


def test_the_hold_out_corruptions_are_made_by_themselves_or_besides(npz, tmp_path, capsys):
    out, command = tmp_path / "out", ["data", "make", str(npz), str(tmp_path / "out")]
    assert main([*command, "--corruptions", "fog", "--holdout"]) == 2
    assert "leave out one of them" in capsys.readouterr().err and not out.exists()
    assert main([*command, "--holdout"]) == 0
    assert {path.stem for path in out.glob("*.npy")} == {*HOLDOUT, "labels", "original"}
    alone = open_data(out, corruptions=HOLDOUT)
    assert [domain.name for domain in alone.domains] == [*HOLDOUT, "original"]
    with pytest.raises(FileNotFoundError, match=r"lacks gaussian_noise\.npy"):
        open_data(out)
    assert main([*command, "--corruptions", "fog"]) == 0
    both = open_data(out, corruptions=["fog", "spatter"])
    on_the_fly = open_data(npz, corruptions=["fog", "spatter"])
    for name in ("fog", "spatter"):
        assert torch.equal(both[name].raw(range(COUNT)), on_the_fly[name].raw(range(COUNT)))
