"""What can be had, and how it is told."""

import tarfile

from holdfast.cli.main import main
from holdfast.data.corrupt.corruptions import CORRUPTIONS
from holdfast.data.fetch.catalogue import CATALOGUE, find_entry


def test_list_says_what_is_here(tmp_path, capsys):
    (tmp_path / "CIFAR-100-C").mkdir()
    assert main(["data", "list", "--root", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = {line.split()[0]: line.split()[1:4] for line in lines[1:]}
    assert rows.keys() == CATALOGUE.keys()
    assert rows["cifar100-c"] == ["yes", "2.92", "GB"]
    assert rows["imagenet"] == ["no", "by", "hand"]
    assert rows["glyphs-c"][:2] == ["yes", "embedded"]


def test_what_nobody_may_hand_out_is_told(tmp_path, capsys):
    assert main(["data", "get", "imagenet", "--root", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "image-net.org" in error and str(tmp_path / "imagenet/val") in error
    assert main(["data", "get", "glyphs-c"]) == 2
    assert "glyphs-c is a part of holdfast" in capsys.readouterr().err
    assert main(["data", "get", "cifar100c"]) == 2
    assert "Did you mean 'cifar100-c'?" in capsys.readouterr().err


def test_an_old_python_is_told_before_anything_is_downloaded(tmp_path, capsys, monkeypatch):
    monkeypatch.delattr(tarfile, "data_filter")
    assert main(["data", "get", "cifar10", "--root", str(tmp_path / "data")]) == 2
    assert "cannot keep an archive from writing outside its folder" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_the_catalogue_is_sound():
    files = [file for entry in CATALOGUE.values() for file in entry.files]
    assert len({file.name for file in files}) == len(files)
    for file in files:
        assert len(file.md5) == 32 and file.size > 0
        assert all(address.startswith("https://") for address in file.addresses)
    made = [made for file in CATALOGUE["imagenet-c"].files for made in file.makes]
    assert sorted(made) == sorted(f"ImageNet-C/{name}" for name in CORRUPTIONS)
    assert find_entry("cifar100").files[0].md5 == "eb9058c3a382ffc7106e4002c42a8d85"
