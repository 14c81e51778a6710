"""`holdfast export`: from a saved state to files that were run."""

import re
import sys

import numpy as np
import pytest
import torch
from net_file import NET
from PIL import Image

import holdfast
from holdfast.cli.main import main
from holdfast.data import glyphs
from holdfast.util import imports


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A current folder with a net, images of two kinds, and what was learnt of them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "net.py").write_text(NET)
    made = {}
    exec(NET, made)
    images = np.random.default_rng(0).integers(0, 256, (90, 8, 8, 3), np.uint8)
    np.savez(tmp_path / "images.npz", images=images)
    np.savez(tmp_path / "dark.npz", images=images // 4)
    (tmp_path / "photos").mkdir()
    for index in range(8):
        Image.fromarray(images[index]).resize((20, 20)).save(tmp_path / "photos" / f"{index}.png")
    adapter = holdfast.adapt(made["make"](), "tent")
    adapter(torch.from_numpy(images).permute(0, 3, 1, 2)[:32] / 255)
    adapter.save("state.safetensors")
    return tmp_path


COMMON = ["export", "state.safetensors", "--model", "net.py:make"]


def fails(capsys, *arguments):
    assert main(list(arguments)) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("holdfast: ") and err.count("\n") == 1
    return err


def loaded(path):
    return torch.export.load(path).module()


def frozen(folder, **options):
    made = {}
    exec(NET, made)
    return holdfast.load(folder / "state.safetensors", made["make"]()).frozen(**options)


def test_a_state_becomes_a_file_that_predicts_as_frozen_does(folder, capsys):
    assert main([*COMMON, "--to", "pt2", "--images", "images.npz"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(
        "<Adapter tent on Sequential, 5 classes: 1 batch>\nstate.pt2: pt2, float32"
    )
    assert "On 68 images, in batches of 1, 3 and 64: largest difference in a logit 0.0e+00" in out
    assert "0.0 % of labels differ" in out and 'torch.export.load("state.pt2").module()' in out
    images = torch.rand(7, 3, 8, 8)
    assert torch.equal(loaded("state.pt2")(images), frozen(folder)(images))


def test_the_ending_names_the_format_and_one_that_is_missing_is_added(folder, capsys):
    common = [*COMMON, "--images", "images.npz"]
    assert main([*common, "-o", "deep/a.pt2"]) == 0
    assert main([*common, "--output", "b.v1", "--to", "pt2"]) == 0
    assert (folder / "deep/a.pt2").exists() and (folder / "b.v1.pt2").exists()
    capsys.readouterr()
    assert "Which format? Pass --to" in fails(capsys, *common)
    said = fails(capsys, *common, "-o", "c.onnx", "--to", "pt2")
    assert "c.onnx ends in that of onnx, and --to says pt2" in said


def test_a_file_that_is_there_is_replaced_by_force_alone(folder, capsys):
    (folder / "state.pt2").write_text("old")
    common = [*COMMON, "--to", "pt2", "--images", "images.npz"]
    assert "There is a file state.pt2 already" in fails(capsys, *common)
    assert (folder / "state.pt2").read_text() == "old"
    assert main([*common, "--force"]) == 0
    assert loaded("state.pt2")(torch.rand(2, 3, 8, 8)).shape == (2, 5)


def test_statistics_of_the_batch_or_of_given_images(folder):
    common = [*COMMON, "--to", "pt2", "--images", "images.npz", "--force"]
    images = torch.rand(7, 3, 8, 8)
    assert main([*common, "--statistics", "batch"]) == 0
    by_batch = frozen(folder, statistics="batch")(images)
    assert torch.equal(loaded("state.pt2")(images), by_batch)
    assert main([*common, "--calibrate", "dark.npz", "--batch", "45"]) == 0
    dark = torch.from_numpy(np.load("dark.npz")["images"]).permute(0, 3, 1, 2) / 255
    calibrated = frozen(folder, calibrate=[dark[:45], dark[45:]])(images)
    assert torch.equal(loaded("state.pt2")(images), calibrated)
    assert not torch.allclose(calibrated, frozen(folder)(images), atol=1e-3)
    assert not torch.allclose(by_batch, frozen(folder)(images), atol=1e-3)


def test_images_of_a_folder_are_resized(folder, capsys):
    common = [*COMMON, "--to", "pt2", "--images", "photos"]
    assert main([*common, "--size", "12"]) == 0
    assert "any number of images of 3×12×12" in capsys.readouterr().out


def test_mistakes(folder, capsys):
    images = ["--images", "images.npz"]
    assert "Pass --images, real images" in fails(capsys, *COMMON, "--to", "pt2")
    other = ["export", "state.safetensors", "--model", "glyphs", "--to", "pt2"]
    assert "saved from another model" in fails(capsys, *other)
    none = ["export", "none.safetensors", "--model", "net.py:make", "--to", "pt2", *images]
    assert "There is no file none.safetensors" in fails(capsys, *none)
    np.savez(folder / "bytes.npz", images=np.full((90, 8, 8, 3), 200.0, np.float32))
    said = fails(capsys, *COMMON, "--to", "pt2", "--images", "bytes.npz")
    assert "200" in said
    device = fails(capsys, *COMMON, "--to", "pt2", *images, "--device", "nix")
    assert "torch has no device 'nix'" in device
    assert not list(folder.glob("*.pt2"))


def test_a_file_that_differs_is_not_left_there(folder, capsys, monkeypatch):
    from holdfast.exporting.pt2 import Pt2

    write = Pt2.write

    def write_wrong(self, program, path):
        program.state_dict["5.bias"].data.add_(0.01)
        write(self, program, path)

    monkeypatch.setattr(Pt2, "write", write_wrong)
    common = [*COMMON, "--to", "pt2", "--images", "images.npz"]
    assert main(common) == 2
    said = capsys.readouterr().err
    assert re.search(r"off by up to 1.0e-02, 1.0e-05 is allowed, and .* labels differ", said)
    assert "Nothing was written" in said and not list(folder.glob("*state.pt2*"))
    assert main([*common, "--tolerance", "0.1"]) == 0


def test_missing_tools_are_told_before_anything_is_loaded(folder, capsys, monkeypatch):
    monkeypatch.setattr(imports, "find_spec", lambda name: None)
    both = ["--to", "pt2", "--to", "onnx", "--images", "images.npz"]
    said = fails(capsys, *COMMON, *both)
    assert "Exporting to onnx needs onnx, which is not installed" in said
    assert "pip install 'holdfast[onnx]'" in said and not list(folder.glob("state.pt2"))


@pytest.mark.slow
def test_the_embedded_model_needs_no_images_and_no_source(tmp_path, monkeypatch, capsys):
    """Also of a method that replays source images."""
    monkeypatch.chdir(tmp_path)
    model = glyphs.model()
    source = holdfast.Source.from_loader(model, glyphs.source_loader(640))
    adapter = holdfast.adapt(model, "rmt(warmup_samples=64)", source=source)
    images = glyphs.images("test", torch.arange(64))
    adapter(images)
    adapter.save("state.safetensors")
    assert main(["export", "state.safetensors", "--model", "glyphs", "--to", "pt2"]) == 0
    assert torch.equal(loaded("state.pt2")(images), adapter.frozen()(images))
