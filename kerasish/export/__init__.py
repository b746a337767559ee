"""Files for inference: archives, ONNX, native libraries.

What writes ONNX and native libraries is imported when it is first needed: it brings the whole code
generator along.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kerasish.first_use import import_on_first_use
from kerasish.saving.formats.export_archive import ExportArchive as ExportArchive
from kerasish.saving.formats.export_archive import LoadedArchive as LoadedArchive
from kerasish.saving.formats.export_archive import load_archive as load_archive
from kerasish.saving.formats.other_formats import load_onnx as load_onnx
from kerasish.saving.formats.other_formats import register_format

_ON_FIRST_USE = {"native.save": ("export_native",), "onnx.save": ("export_onnx",)}

if TYPE_CHECKING:
    from kerasish.export.native.save import export_native as export_native
    from kerasish.export.onnx.save import export_onnx as export_onnx
else:
    __getattr__, __dir__ = import_on_first_use(__name__, _ON_FIRST_USE)

register_format(
    "onnx", "kerasish.export.onnx.save:export_onnx", ".onnx",
    "kerasish.export.onnx.reading.load:load_onnx",
)  # fmt: skip
register_format("native", "kerasish.export.native.save:export_native")
