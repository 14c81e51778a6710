"""The command line: what is printed where, and with which exit code."""

import io
import json
import os
import re
import subprocess
import sys
from typing import get_args

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from torch import nn

import holdfast
from holdfast.cli.main import Command, main
from holdfast.data.streams import kinds
from holdfast.explain.card import methods_table
from holdfast.explain.images import read_images
from holdfast.models.find import find_model
from holdfast.util.terminal import show

MODELS = """
from torch import nn

def small_net():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 5),
    )

class Nets:
    small = small_net

ready = small_net()
number = 3

def needs_more(size):
    return ready
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A current folder with models and images in it."""
    (tmp_path / "some_models.py").write_text(MODELS)
    images = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
    np.savez(tmp_path / "images.npz", images=images)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("some_models", None)


def fails(capsys, *arguments):
    """The one line on the standard error that a mistake leads to."""
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("holdfast: ") and err.count("\n") == 1
    return err


def test_methods_lists_every_method(capsys):
    assert main(["methods"]) == 0
    out = capsys.readouterr().out
    assert {line.split()[0] for line in out.splitlines()[1:]} == holdfast.methods().keys()


def test_streams_and_their_cards(capsys):
    assert main(["streams"]) == 0
    out = capsys.readouterr().out
    assert {line.split()[0] for line in out.splitlines()[1:]} == kinds().keys()
    assert main(["card", "correlated"]) == 0
    out = capsys.readouterr().out
    assert "correlated, a stream\n" in out and "gamma       0.1    default  concentration" in out
    assert "Did you mean 'correlated'?" in fails(capsys, "card", "corelated")


def test_card_takes_a_composition_and_a_preset(capsys):
    assert main(["card", "eata+debias", "--preset", "cifar100-c"]) == 0
    out = capsys.readouterr().out
    assert "preset             cifar100-c" in out
    assert "L_host" in out


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"holdfast {holdfast.__version__}\n"


@pytest.mark.parametrize(
    "place",
    [
        "some_models:small_net",
        "some_models:ready",
        "some_models:Nets.small",
        "some_models.py:small_net",
    ],
)
def test_doctor_finds_a_model(folder, capsys, place):
    assert main(["doctor", "--model", place, "--batch-size", "1"]) == 0
    out = capsys.readouterr().out
    assert "head           4, Linear: 4 features, 5 classes" in out
    assert "Methods, at a batch size of 1\n" in out
    assert "needs window=W" in out
    assert "no images were given" in out


def test_doctor_reads_images_and_the_head(folder, capsys):
    common = ["doctor", "--model", "some_models:ready", "--images", "images.npz"]
    assert main(common) == 0
    assert "Images lie within [0, 1]" in capsys.readouterr().out
    assert main([*common, "--head", "nix"]) == 0
    assert "No layer is called 'nix'" in capsys.readouterr().out


def test_doctor_takes_a_normalisation(folder, capsys):
    model = ["doctor", "--model", "some_models:ready"]
    assert main([*model, "--mean", "0.4,0.5,0.6", "--std", "0.2"]) == 2
    assert "as many values" in capsys.readouterr().err
    assert main([*model, "--mean", "0.4,0.5,0.6", "--std", "0.2,0.2,0.3"]) == 0
    assert "mean (0.4, 0.5, 0.6), std (0.2, 0.2, 0.3)" in capsys.readouterr().out
    assert "without --std" in fails(capsys, *model, "--mean", "0.5")


def draw(folder, count, size=(9, 8), level=None):
    folder.mkdir(parents=True)
    for index in range(count):
        colour = (level if level is not None else 20 * index, 90, 200 - 10 * index)
        Image.new("RGB", size, colour).save(folder / f"{index}.png")


def test_doctor_reads_a_folder(folder, capsys):
    common = ["doctor", "--model", "some_models:ready", "--images"]
    draw(folder / "flat", 6)
    assert main([*common, "flat"]) == 0
    out = capsys.readouterr().out
    assert "Images lie within [0, 1]" in out and "class folders" not in out
    for name in "abcde":
        draw(folder / "five" / name, 2)
    assert main([*common, "five"]) == 0
    assert "of 10 images are classified as labelled" in capsys.readouterr().out
    draw(folder / "three" / "a", 2)
    assert main([*common, "three"]) == 0
    out = capsys.readouterr().out
    assert "1 class folders are not the model's classes" in out and "as labelled" not in out
    (folder / "empty").mkdir()
    assert "empty holds no images" in fails(capsys, *common, "empty")
    assert "limit is a number" in fails(capsys, *common, "flat", "--limit", "0")
    assert "size is for the images of a folder" in fails(
        capsys, *common, "images.npz", "--size", "8"
    )


def test_images_of_a_folder_keep_their_size_or_come_to_one(tmp_path):
    draw(tmp_path / "flat", 4)
    flat = read_images(tmp_path / "flat", 256)
    assert flat.images.shape == (4, 3, 8, 9) and flat.labels is None
    assert flat.images[2, :, 0, 0].mul(255).round().tolist() == [40, 90, 180]
    assert read_images(tmp_path / "flat", 256, size=6).images.shape == (4, 3, 6, 6)
    draw(tmp_path / "mixed" / "a", 2)
    draw(tmp_path / "mixed" / "b", 3, size=(12, 10))
    mixed = read_images(tmp_path / "mixed", 256)
    assert mixed.images.shape == (5, 3, 224, 224)
    assert mixed.labels.tolist() == [0, 0, 1, 1, 1] and mixed.classes == 2


def test_a_folder_is_sampled_from_end_to_end(tmp_path):
    for place, name in enumerate("abcd"):
        draw(tmp_path / "sorted" / name, 5, level=50 * place)
    some = read_images(tmp_path / "sorted", 8)
    assert len(some.images) == 8 and set(some.labels.tolist()) == {0, 1, 2, 3}
    levels = some.images[:, 0, 0, 0].mul(255).round().long()
    assert torch.equal(levels, 50 * some.labels)  # each with its own label


def test_a_file_elsewhere_imports_its_neighbours(folder, tmp_path, monkeypatch):
    (tmp_path / "neighbour.py").write_text("from some_models import small_net\n")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert isinstance(find_model(f"{tmp_path / 'neighbour.py'}:small_net"), nn.Sequential)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("some_models", "--model is package.module:factory"),
        ("some_models:", "--model is package.module:factory"),
        ("no_models:net", "Cannot import no_models: ModuleNotFoundError"),
        ("no_models.py:net", "There is no file no_models.py."),
        ("some_models:smal_net", "has no 'smal_net'. Did you mean 'small_net'?"),
        ("some_models:number", "gives int, not a torch.nn.Module"),
        ("some_models:needs_more", "failed: TypeError: needs_more() missing 1 required"),
    ],
)
def test_a_model_that_is_not_there_is_one_clear_line(folder, capsys, place, message):
    assert message in fails(capsys, "doctor", "--model", place)


def test_other_mistakes_are_one_clear_line(folder, capsys):
    model = ["doctor", "--model", "some_models:ready"]
    assert "Did you mean 'debias'?" in fails(capsys, "card", "eata+debais")
    assert "There is no preset" in fails(capsys, "card", "eata", "--preset", "cifar")
    assert "batch_size" in fails(capsys, *model, "--batch-size", "0")
    assert "There is no file or folder nix.npy" in fails(capsys, *model, "--images", "nix.npy")
    (folder / "text.npy").write_text("no array")
    assert "not a .npy file" in fails(capsys, *model, "--images", "text.npy")
    np.savez(folder / "other.npz", x=np.zeros(3), y=np.zeros(3))
    assert "no array 'images'; it has x, y" in fails(capsys, *model, "--images", "other.npz")
    np.save(folder / "ints.npy", np.zeros((2, 3, 8, 8), dtype=np.int64))
    assert "holds int64 of shape (2, 3, 8, 8)" in fails(capsys, *model, "--images", "ints.npy")
    np.save(folder / "objects.npy", np.array([{}]), allow_pickle=True)
    assert "could run code" in fails(capsys, *model, "--images", "objects.npy")


@pytest.mark.parametrize(
    "arguments", [[], ["crad"], ["doctor"], ["card", "eata", "--modle", "x"]], ids=str
)
def test_an_unreadable_command_ends_with_code_2(capsys, arguments):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert capsys.readouterr().out == ""


def test_images_come_out_in_one_form(tmp_path):
    whole = np.random.default_rng(0).integers(0, 256, (4, 6, 5, 3), dtype=np.uint8)
    expected = torch.from_numpy(whole).permute(0, 3, 1, 2).float() / 255
    forms = {
        "nhwc": whole,
        "nchw": whole.transpose(0, 3, 1, 2),
        "float32": (whole / 255).astype(np.float32),
        "float64": whole.transpose(0, 3, 1, 2) / 255,
    }
    for name, array in forms.items():
        np.save(tmp_path / f"{name}.npy", array)
        np.savez(tmp_path / f"{name}.npz", images=array, labels=np.array([3, 1, 2, 0]))
        for ending in ("npy", "npz"):
            read = read_images(tmp_path / f"{name}.{ending}", 256).images
            assert read.dtype == torch.float32
            torch.testing.assert_close(read, expected)
    assert read_images(tmp_path / "nhwc.npz", 2).labels.tolist() == [3, 2]
    assert read_images(tmp_path / "nhwc.npy", 2).labels is None
    np.save(tmp_path / "grey.npy", whole[..., :1])
    assert read_images(tmp_path / "grey.npy", 256).images.shape == (4, 1, 6, 5)
    np.save(tmp_path / "floats.npy", whole.astype(np.float32))
    assert (
        read_images(tmp_path / "floats.npy", 256).images.max() > 2
    )  # floats are taken as they are


def test_a_long_file_is_sampled_from_end_to_end(tmp_path):
    levels = np.arange(2000, dtype=np.float32)[:, None, None, None] * np.ones((1, 1, 2, 2))
    np.save(tmp_path / "long.npy", levels)
    read = read_images(tmp_path / "long.npy", 256).images
    assert len(read) == 256 and read.min() == 0 and read.max() > 1700


def test_text_off_a_terminal_is_neither_cut_nor_wrapped(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    show(holdfast.doctor(nn.Sequential(nn.Flatten(), nn.Linear(12, 3))))
    out = capsys.readouterr().out
    assert "head           1, Linear: 12 features, 3 classes\n" in out
    assert "…" not in out and "\x1b" not in out


def test_a_table_on_a_narrow_terminal_is_folded_not_cut():
    file = io.StringIO()
    Console(width=60, file=file).print(methods_table())
    assert "…" not in file.getvalue()


COMMANDS = [command.__name__.lower() for command in get_args(Command)]
QUICK = {
    "help": ["--help"],
    "version": ["--version"],
    **{name: [name, "--help"] for name in COMMANDS},
    "data-make": ["data", "make", "--help"],
    "data-list": ["data", "list"],
    "mistake": ["run", "--limit", "few"],
}


def test_help_and_mistakes_do_not_wait_for_what_is_slow_to_import():
    """One after the other in one process: the first that is named imports it."""
    script = (
        "import json, sys; from holdfast.cli.main import main\n"
        "slow = {'torch', 'numpy', 'polars', 'altair', 'kornia', 'scipy', 'PIL', 'vl_convert'}\n"
        "for name, arguments in json.loads(sys.argv[1]).items():\n"
        "    try: main(arguments)\n"
        "    except SystemExit: pass\n"
        "    for stream in (sys.stdout, sys.stderr):\n"
        "        print('slow in', name, sorted(slow & sys.modules.keys()), file=stream)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(QUICK)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    out, err = (re.split(r"slow in (.*)\n", text) for text in (done.stdout, done.stderr))
    assert out[1::2] == [f"{name} []" for name in QUICK]
    printed = {
        name: one + other for name, one, other in zip(QUICK, out[::2], err[::2], strict=False)
    }
    assert all(printed.values()) and len(printed) == len(QUICK)


def test_the_command_itself(folder):
    run = [sys.executable, "-c", "from holdfast.cli.main import main; raise SystemExit(main())"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    good = subprocess.run(
        [*run, "card", "tent+debias"], capture_output=True, text=True, env=environment
    )
    assert good.returncode == 0 and good.stderr == ""
    assert "lr         0.0001  default  learning rate" in good.stdout
    bad = subprocess.run(
        [*run, "doctor", "--model", "some_models:nix"], capture_output=True, text=True
    )
    assert bad.returncode == 2 and bad.stdout == ""
    assert bad.stderr.startswith("holdfast: some_models has no 'nix'.")
    assert "Traceback" not in bad.stderr


def test_the_package_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "card", "no-such"], capture_output=True, text=True
    )
    assert done.returncode == 2 and "no-such" in done.stderr
