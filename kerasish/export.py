"""Archives for inference: endpoints with their weights in one file."""

from kerasish.saving.formats.export_archive import ExportArchive as ExportArchive
from kerasish.saving.formats.export_archive import LoadedArchive as LoadedArchive
from kerasish.saving.formats.export_archive import load_archive as load_archive
