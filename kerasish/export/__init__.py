"""Files for inference: archives, ONNX, native libraries.

What writes ONNX and native libraries is imported when it is first needed: it brings the whole code
generator along.
"""

from __future__ import annotations

from kerasish.first_use import imports_on_first_use
from kerasish.saving.formats.export_archive import ExportArchive as ExportArchive
from kerasish.saving.formats.export_archive import LoadedArchive as LoadedArchive
from kerasish.saving.formats.export_archive import load_archive as load_archive
from kerasish.saving.formats.other_formats import load_onnx as load_onnx
from kerasish.saving.formats.other_formats import register_format

with imports_on_first_use(__name__):
    from kerasish.export.native.save import export_native as export_native
    from kerasish.export.onnx.save import export_onnx as export_onnx

register_format(
    "onnx", "kerasish.export.onnx.save:export_onnx", ".onnx",
    "kerasish.export.onnx.reading.load:load_onnx",
)  # fmt: skip
register_format("native", "kerasish.export.native.save:export_native")
