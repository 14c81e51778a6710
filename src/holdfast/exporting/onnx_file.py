"""ONNX files, run by ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.exporting.format import IMAGES, LOGITS, Format, Opened, floats

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from torch import Tensor
    from torch.export import ExportedProgram

PROVIDERS = ["CPUExecutionProvider"]


class Onnx(Format):
    """A second file has the weights where they are above 2 GB, which is what the format allows."""

    name = "onnx"
    ending = ".onnx"
    packages = ("onnx", "onnxscript", "onnxruntime")

    def write(self, program: ExportedProgram, path: Path) -> None:
        import torch

        batch = ({0: torch.export.Dim("batch")},)
        made = torch.onnx.export(
            program,
            dynamo=True,
            input_names=[IMAGES],
            output_names=[LOGITS],
            dynamic_shapes=batch,  # of a finished program: what the dimension is called
            verbose=False,
        )
        assert made is not None  # that is for models that are no programs
        made.save(path)

    def open(self, path: Path) -> Opened:
        import onnx
        import onnxruntime
        import torch

        file = onnx.load(path, load_external_data=False)
        session = onnxruntime.InferenceSession(path, providers=PROVIDERS)

        def run(images: Tensor) -> Tensor:
            (logits,) = session.run([LOGITS], {IMAGES: images.numpy()})
            return torch.from_numpy(logits)

        return Opened(run, floats(onnx.TensorProto.DataType.Name(one) for one in _types(file)))

    def loading(self, path: Path) -> str:
        return f'onnxruntime.InferenceSession("{path}", providers={PROVIDERS})'

    def beside(self, path: Path) -> tuple[Path, ...]:
        return (path.with_name(f"{path.name}.data"),)


def _types(file: Any) -> Iterator[int]:
    """Of weights, of constants, and of all values whose type the file tells."""
    graph = file.graph
    for tensor in graph.initializer:
        yield tensor.data_type
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t.data_type
    for value in (*graph.input, *graph.output, *graph.value_info):
        yield value.type.tensor_type.elem_type
