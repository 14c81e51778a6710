"""What was learnt, in a file for another runtime, which is run before it is handed over.

from holdfast.exporting import export

done = export(adapter.frozen(), "model.onnx", images=images)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.exporting.exported import Exported as Exported
    from holdfast.exporting.exported import NotExportedError as NotExportedError
    from holdfast.exporting.make import export as export
else:
    # Loaded when first asked for, so that the command line's help does not wait for torch.
    _PLACES = {"Exported": "exported", "NotExportedError": "exported", "export": "make"}

    def __getattr__(name: str) -> object:
        if name in _PLACES:
            return getattr(import_module(f"holdfast.exporting.{_PLACES[name]}"), name)
        raise AttributeError(f"module 'holdfast.exporting' has no attribute {name!r}")


__all__ = ["Exported", "NotExportedError", "export"]
