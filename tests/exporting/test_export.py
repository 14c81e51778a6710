"""An export is a file that was run and agrees, or nothing at all."""

import re
import zipfile

import pytest
import torch
from torch import nn
from toys import toy_net

import holdfast
from holdfast.exporting import Exported, NotExportedError, export
from holdfast.exporting.pt2 import Pt2


@pytest.fixture
def changed(monkeypatch):
    """Has a format's file be another program than the one that was traced."""
    write = Pt2.write

    def change(by):
        def write_changed(self, program, path):
            by(program.state_dict)
            write(self, program, path)

        monkeypatch.setattr(Pt2, "write", write_changed)

    return change


def test_it_takes_any_number_of_images_and_says_what_came_of_it(module, images, tmp_path):
    path = tmp_path / "deep" / "model.pt2"
    done = export(module, path, images=images)
    assert isinstance(done, Exported) and done.files == (path,) and done.to == "pt2"
    assert (done.shape, done.classes, done.sizes) == ((3, 8, 8), 7, (1, 3, 16))
    loaded = torch.export.load(path).module()
    for count in (1, 2, 7, 300):
        some = torch.rand(count, 3, 8, 8)
        assert torch.equal(loaded(some), module(some))
    said = str(done)
    assert f"{path}: pt2, float32, " in said and "any number of images of 3×8×8" in said
    assert "batches of 1, 3 and 16: largest difference in a logit 0.0e+00" in said
    assert f'torch.export.load("{path}").module()' in said


def test_the_module_is_untouched(module, images, tmp_path):
    module = module.to(memory_format=torch.channels_last)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    strides = {name: tensor.stride() for name, tensor in module.state_dict().items()}
    export(module, tmp_path / "model.pt2", images=images)
    assert {name: tensor.stride() for name, tensor in module.state_dict().items()} == strides
    assert all(torch.equal(before[name], now) for name, now in module.state_dict().items())


def test_neither_images_nor_source_code_are_in_the_file(module, images, tmp_path):
    path = tmp_path / "model.pt2"
    export(module, path, images=images)
    with zipfile.ZipFile(path) as file:
        content = b"".join(file.read(name) for name in file.namelist())
    assert images[0, 0].numpy().tobytes() not in content
    assert module.conv1.weight.detach().numpy().tobytes() in content  # it would be found
    assert b"toys.py" not in content and b"self.norm1(" not in content


def test_a_wrong_weight_is_refused_and_what_was_there_stays(module, images, tmp_path, changed):
    path = tmp_path / "model.pt2"
    path.write_text("old")
    changed(lambda weights: weights["fc.weight"].data[0].add_(1e-3))
    with pytest.raises(NotExportedError) as refused:
        export(module, path, images=images, overwrite=True)
    said = str(refused.value)
    apart = float(re.search(r"off by up to (\S+),", said)[1])
    assert 1e-5 < apart < 0.1
    assert "Nothing was written." in said and "--tolerance" in said
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    # That is a matter of tolerance alone.
    done = export(module, path, images=images, overwrite=True, tolerance=0.1)
    assert done.largest == pytest.approx(apart, rel=0.05)


def test_labels_that_differ_are_counted(module, images, tmp_path, changed):
    changed(lambda weights: weights["fc.bias"].data[3].add_(1e4))
    labels = module(images).argmax(1)
    done = export(module, tmp_path / "model.pt2", images=images, tolerance=1e9)
    assert done.difference.labels == pytest.approx(float((labels != 3).float().mean()))
    assert done.difference.images == 20


def test_logits_that_are_no_numbers_are_refused(module, images, tmp_path, changed):
    changed(lambda weights: weights["fc.bias"].data.fill_(float("nan")))
    with pytest.raises(NotExportedError, match="off by up to nan"):
        export(module, tmp_path / "model.pt2", images=images)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_change_of_precision_is_refused_however_near_it_is(
    module, images, tmp_path, monkeypatch, dtype
):
    """Weights in half precision, and casts back, as a tool may make them."""

    class Halved(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Buffer(torch.eye(7).to(dtype))
            self.inner = module

        def forward(self, images):
            return self.inner(images) @ self.weight.to(images.dtype)

    write, example = Pt2.write, (torch.zeros(2, 3, 8, 8),)
    size = ({0: torch.export.Dim("batch", min=1)},)
    other = torch.export.export(Halved().eval(), example, dynamic_shapes=size)
    monkeypatch.setattr(Pt2, "write", lambda self, program, path: write(self, other, path))
    with pytest.raises(NotExportedError) as refused:
        export(module, tmp_path / "model.pt2", images=images, tolerance=1e9)
    name = str(dtype).removeprefix("torch.")
    assert f"has changed precision: there is {name} in what it made" in str(refused.value)
    assert f"module.to(torch.{name})" in str(refused.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_module_of_another_precision_keeps_it(images, tmp_path, dtype):
    done = export(toy_net(dtype=dtype), tmp_path / "model.pt2", images=images)
    assert done.precisions == (str(dtype).removeprefix("torch."),) and done.largest == 0


def test_a_file_is_replaced_only_if_that_is_asked_for(module, images, tmp_path):
    path = tmp_path / "model.pt2"
    path.write_text("old")
    with pytest.raises(ValueError, match=r"There is a file .*\(overwrite=True, --force"):
        export(module, path, images=images)
    assert path.read_text() == "old"
    export(module, path, images=images, overwrite=True)
    assert torch.equal(torch.export.load(path).module()(images), module(images))
    (tmp_path / "folder.pt2").mkdir()
    with pytest.raises(ValueError, match="is a folder"):
        export(module, tmp_path / "folder.pt2", images=images, overwrite=True)


class OnlyPairs(nn.Module):
    def forward(self, images):
        return images.flatten(1)[:, :5] if len(images) == 16 else images.flatten(1)[:, :4]


def test_what_cannot_be_followed_is_refused(images, tmp_path):
    with pytest.raises(NotExportedError, match=r"torch.export cannot follow .* to pt2"):
        export(OnlyPairs().eval(), tmp_path / "model.pt2", images=images)
    assert not list(tmp_path.iterdir())


def test_mistakes_are_told_before_anything_is_done(module, images, tmp_path):
    path = tmp_path / "model.pt2"
    adapter = holdfast.adapt(module, "tent")
    for given, options, said in (
        (adapter, {}, "what can be exported is adapter.frozen()"),
        (print, {}, "A module is exported, not builtin"),
        (toy_net().train(), {}, "in training mode"),
        (module, {"images": images[:5]}, "5 images are too few .* give 6 or more, best 68"),
        (module, {"images": (images * 255).byte()}, "images.float"),
        (module, {"images": torch.rand(8, 5, 8, 8)}, "fails on images of 5×8×8"),
        (module, {"tolerance": float("nan")}, "tolerance is a number from 0 on"),
        (module, {"batch": 1}, "batch is a number of images"),
        (module, {"to": "onix"}, "Did you mean 'onnx'"),
        (module, {"to": "onnx"}, "ends in .onnx"),
    ):
        with pytest.raises(ValueError, match=said.replace("(", r"\(").replace(")", r"\)")):
            export(given, path, **{"images": images, **options})
    with pytest.raises(ValueError, match=r"no format \(.pt2, .onnx, .xml, .pte\)"):
        export(module, tmp_path / "model.bin", images=images)
    assert not list(tmp_path.iterdir())
