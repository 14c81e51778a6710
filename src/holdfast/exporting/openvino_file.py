"""OpenVINO's files, run by OpenVINO: an .xml file, and a .bin file with the weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.exporting.format import IMAGES, LOGITS, Format, Opened, floats

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor
    from torch.export import ExportedProgram

# On many processors its default is to compute in half precision, whatever the file holds, and no
# entry in the file changes that.
HINT = "INFERENCE_PRECISION_HINT"
FULL = {HINT: "f32"}


class OpenVino(Format):
    name = "openvino"
    ending = ".xml"
    packages = ("openvino",)

    def write(self, program: ExportedProgram, path: Path) -> None:
        import openvino

        model = openvino.convert_model(program)
        # It forgets names, and which dimensions are fixed.
        for value, name in ((model.inputs[0], IMAGES), (model.outputs[0], LOGITS)):
            value.get_tensor().set_names({name})
        (images,) = program.example_inputs[0]
        model.reshape({IMAGES: openvino.PartialShape([-1, *images.shape[1:]])})
        # Its default stores weights in half precision.
        openvino.save_model(model, path, compress_to_fp16=False)

    def open(self, path: Path) -> Opened:
        import openvino

        core = openvino.Core()
        model = core.read_model(path)
        stored = floats(_stored(model))
        usual = _opened(core.compile_model(model, "CPU"), stored)
        return _opened(core.compile_model(model, "CPU", FULL), stored, usual)

    def loading(self, path: Path) -> str:
        return f'openvino.Core().compile_model("{path}", "CPU", {FULL})'

    def beside(self, path: Path) -> tuple[Path, ...]:
        return (path.with_suffix(".bin"),)


def _opened(compiled: Any, stored: frozenset[str], usual: Opened | None = None) -> Opened:
    import torch

    def run(images: Tensor) -> Tensor:
        return torch.from_numpy(compiled(images.numpy())[LOGITS].copy())

    return Opened(run, stored | floats(_computed(compiled)), usual)


def _stored(model: Any) -> Iterator[str]:
    for operation in model.get_ops():
        for place in range(operation.get_output_size()):
            yield operation.get_output_element_type(place).get_type_name()


def _computed(compiled: Any) -> Iterator[str]:
    for operation in compiled.get_runtime_model().get_ops():
        yield operation.get_rt_info()["runtimePrecision"].astype(str)
