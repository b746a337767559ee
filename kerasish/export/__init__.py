"""Files for inference: archives, ONNX, native libraries."""

from kerasish.export.native.save import export_native as export_native
from kerasish.export.onnx.reading.load import load_onnx as load_onnx
from kerasish.export.onnx.save import export_onnx as export_onnx
from kerasish.saving.formats.export_archive import ExportArchive as ExportArchive
from kerasish.saving.formats.export_archive import LoadedArchive as LoadedArchive
from kerasish.saving.formats.export_archive import load_archive as load_archive
from kerasish.saving.formats.other_formats import register_format

register_format("onnx", export_onnx, ".onnx", load_onnx)
register_format("native", export_native)
