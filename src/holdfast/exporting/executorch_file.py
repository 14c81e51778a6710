"""ExecuTorch's files, for phones and small devices; run by its own runtime."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.exporting.format import Format, Opened, floats

if TYPE_CHECKING:
    from torch import Tensor
    from torch.export import ExportedProgram

# Torch traces convolutions of 16 images and more apart from those of fewer. Of a batch of at most
# 16 that is traced with as many it concludes that it always has 16.
LEAST = 17


class ExecuTorch(Format):
    """By XNNPACK as far as that goes, else by the portable kernels, which are slow. Memory is laid
    out for the largest batch."""

    name = "executorch"
    ending = ".pte"
    packages = ("executorch",)

    def write(self, program: ExportedProgram, path: Path) -> None:
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
        from executorch.exir import to_edge_transform_and_lower

        lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
        path.write_bytes(lowered.to_executorch().buffer)

    def open(self, path: Path) -> Opened:
        from executorch.exir.scalar_type import ScalarType
        from executorch.runtime import Runtime

        method = Runtime.get().load_program(path).load_method("forward")

        def run(images: Tensor) -> Tensor:
            # Its tensors live in the method's memory, which the next call writes into.
            logits: Tensor = method.execute([images])[0].clone()
            return logits

        told = method.metadata
        # What XNNPACK holds within is told by nothing but the logits.
        types = (told.input_tensor_meta(0).dtype(), told.output_tensor_meta(0).dtype())
        return Opened(run, floats(ScalarType(one).name for one in types))

    def most(self, batch: int) -> int:
        return max(batch, LEAST)

    def loading(self, path: Path) -> str:
        return f'executorch.runtime.Runtime.get().load_program("{path}").load_method("forward")'
