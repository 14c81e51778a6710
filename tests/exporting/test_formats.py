"""Of single formats: missing tools, files that go together, what a runtime does unasked."""

import pytest
import torch
from toys import toy_net

from holdfast.exporting import NotExportedError, export
from holdfast.exporting.format import floats
from holdfast.exporting.formats import FORMATS
from holdfast.exporting.place import put, trial
from holdfast.util import imports


@pytest.mark.parametrize("to", ["onnx", "openvino", "executorch"])
def test_tools_that_are_missing_are_named_with_their_extra(
    to, module, images, tmp_path, monkeypatch
):
    monkeypatch.setattr(imports, "find_spec", lambda name: None)
    path = tmp_path / f"model{FORMATS[to].ending}"
    with pytest.raises(imports.MissingExtraError) as missing:
        export(module, path, images=images)
    assert f"Exporting to {to} needs {FORMATS[to].packages[0]}, " in str(missing.value)
    assert f"pip install 'holdfast[{to}]'" in str(missing.value)


def test_floating_types_by_the_names_of_all_tools():
    named = ["FLOAT", "f16", "BFLOAT16", "INT64", "u8", "f8e4m3", "float64", "boolean"]
    assert floats(named) == {"float32", "float16", "bfloat16", "f8e4m3", "float64"}


def test_files_that_belong_together_never_lie_beside_others(tmp_path, monkeypatch):
    """However far it gets, the first of them is either the old one with its own, or not there."""
    path, beside = tmp_path / "model.xml", (tmp_path / "model.bin",)
    path.write_text("old")
    beside[0].write_text("old")

    def make():
        with trial(path) as made:
            made.write_text("new")
            made.with_suffix(".bin").write_text("new")
            return put(made, path, beside)

    def stop(*paths):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", stop)
        with pytest.raises(KeyboardInterrupt):
            make()
    assert not path.exists() and not list(tmp_path.glob(".*"))
    assert make() == (path, *beside)
    assert path.read_text() == beside[0].read_text() == "new"
    assert sorted(tmp_path.iterdir()) == [*beside, path]


def test_one_file_is_replaced_at_once_also_where_there_could_be_others(tmp_path, monkeypatch):
    path, beside = tmp_path / "model.onnx", (tmp_path / "model.onnx.data",)
    path.write_text("old")
    monkeypatch.setattr("pathlib.Path.unlink", lambda *given, **options: pytest.fail("was gone"))
    with trial(path) as made:
        made.write_text("new")
        assert put(made, path, beside) == (path,)
    assert path.read_text() == "new"


@pytest.mark.slow
def test_onnx_names_what_it_takes_and_gives(module, images, tmp_path, tools):
    tools("onnx")
    import onnxruntime

    path = tmp_path / "model.onnx"
    done = export(module.to(memory_format=torch.channels_last), path, images=images)
    assert 0 < done.largest < done.allowed and done.files == (path,)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    ((taken,), (given,)) = session.get_inputs(), session.get_outputs()
    assert (taken.name, taken.shape, taken.type) == ("images", ["batch", 3, 8, 8], "tensor(float)")
    assert (given.name, given.shape) == ("logits", ["batch", 7])
    assert b"toys.py" not in path.read_bytes()


@pytest.mark.slow
def test_onnx_with_weights_in_half_precision_is_refused(
    module, images, tmp_path, tools, monkeypatch
):
    tools("onnx")
    import numpy as np
    import onnx
    from onnx import numpy_helper

    form = FORMATS["onnx"]
    write = type(form).write

    def write_halved(self, program, path):
        write(self, program, path)
        file = onnx.load(path)
        weight = next(one for one in file.graph.initializer if one.name == "fc.weight")
        half = numpy_helper.from_array(numpy_helper.to_array(weight).astype(np.float16), "half")
        cast = onnx.helper.make_node("Cast", ["half"], ["fc.weight"], to=onnx.TensorProto.FLOAT)
        file.graph.initializer.remove(weight)
        file.graph.initializer.append(half)
        file.graph.node.insert(0, cast)
        onnx.save(file, path)

    monkeypatch.setattr(type(form), "write", write_halved)
    with pytest.raises(NotExportedError, match="changed precision: there is float16"):
        export(module, tmp_path / "model.onnx", images=images, tolerance=1e9)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_openvino_says_how_to_be_loaded_and_what_it_does_else(module, images, tmp_path, tools):
    tools("openvino")
    import openvino

    path = tmp_path / "model.xml"
    done = export(module, path, images=images)
    assert done.files == (path, path.with_suffix(".bin")) and done.largest < done.allowed
    assert done.precisions == ("float32",)
    assert "\"CPU\", {'INFERENCE_PRECISION_HINT': 'f32'})" in str(done)
    compiled = eval(done.loading, {"openvino": openvino})
    logits = torch.from_numpy(compiled(images.numpy())["logits"])
    assert torch.allclose(logits, module(images), atol=done.allowed, rtol=0)
    assert str(compiled.input(0).get_partial_shape()) == "[?,3,8,8]"
    lowered = openvino.Core().compile_model(path, "CPU").get_property("INFERENCE_PRECISION_HINT")
    if lowered == openvino.Type.f32:
        pytest.skip("OpenVINO computes in float32 on this processor as a default")
    assert done.usual.largest > 100 * done.allowed > done.allowed
    assert "bfloat16" in done.usual_precisions or "float16" in done.usual_precisions
    assert "Not without these settings: here, openvino then computes in " in str(done)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "found"), [({}, "float16"), ({"INFERENCE_PRECISION_HINT": "bf16"}, "bfloat16")]
)
def test_openvino_in_half_precision_is_refused(
    module, images, tmp_path, tools, monkeypatch, options, found
):
    """Its default file has weights in float16; or it computes in bfloat16 after all."""
    tools("openvino")
    import openvino

    if options:
        able = openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        if "BF16" not in able:
            pytest.skip("this processor has no bfloat16")
        monkeypatch.setattr("holdfast.exporting.openvino_file.FULL", options)
    else:
        save = openvino.save_model
        monkeypatch.setattr(
            openvino, "save_model", lambda model, path, compress_to_fp16: save(model, path)
        )
    with pytest.raises(NotExportedError, match=f"changed precision: there is {found}"):
        export(module, tmp_path / "model.xml", images=images, tolerance=1e9)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_executorch_takes_batches_up_to_the_largest(images, tmp_path, tools):
    """Of a net in another memory format, with a kernel of 1×1."""
    tools("executorch")
    from executorch.runtime import Runtime

    net = toy_net()
    net.conv2 = torch.nn.Conv2d(8, 12, 1, stride=2)
    net = net.to(memory_format=torch.channels_last).eval()
    path = tmp_path / "model.pte"
    for batch, most in ((5, 17), (16, 17), (40, 40)):
        done = export(net, path, images=images, batch=batch, overwrite=True)
        assert done.most == most and done.largest < done.allowed
        assert f"It takes 1 to {most} images of 3×8×8" in str(done)
        method = Runtime.get().load_program(path).load_method("forward")
        for count in (1, 2, most):
            some = torch.rand(count, 3, 8, 8)
            assert torch.allclose(method.execute([some])[0], net(some), atol=done.allowed, rtol=0)
        with pytest.raises(RuntimeError):
            method.execute([torch.rand(most + 1, 3, 8, 8)])


def test_every_tool_is_an_extra():
    tools = {package for form in FORMATS.values() for package in form.packages}
    assert tools <= imports.EXTRAS.keys()
