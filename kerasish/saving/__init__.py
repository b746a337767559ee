"""Files: whole models and weights in Keras's formats, read safely and written atomically."""

from kerasish.engine.saving_hooks import register_saving
from kerasish.registry import CustomObjectScope as CustomObjectScope
from kerasish.registry import custom_object_scope as custom_object_scope
from kerasish.registry import deserialize_keras_object as deserialize_keras_object
from kerasish.registry import get_custom_objects as get_custom_objects
from kerasish.registry import get_registered_name as get_registered_name
from kerasish.registry import get_registered_object as get_registered_object
from kerasish.registry import register_keras_serializable as register_keras_serializable
from kerasish.registry import serialize_keras_object as serialize_keras_object
from kerasish.saving.editor import KerasFileEditor as KerasFileEditor
from kerasish.saving.files.temporary import clear_cut_off
from kerasish.saving.formats import state_file
from kerasish.saving.formats.export_archive import ExportArchive as ExportArchive
from kerasish.saving.formats.export_archive import export_model
from kerasish.saving.formats.export_archive import load_archive as load_archive
from kerasish.saving.formats.model_file import load_model as load_model
from kerasish.saving.formats.model_file import load_weights as load_weights
from kerasish.saving.formats.model_file import model_from_json as model_from_json
from kerasish.saving.formats.model_file import model_to_json as model_to_json
from kerasish.saving.formats.model_file import save_model as save_model
from kerasish.saving.formats.model_file import save_weights as save_weights
from kerasish.saving.formats.other_formats import load_onnx as load_onnx
from kerasish.saving.latest import latest as latest

register_saving(
    save_model=save_model,
    save_weights=save_weights,
    load_weights=load_weights,
    model_to_json=model_to_json,
    state_folder=state_file.StateFolder,
    clear_cut_off=clear_cut_off,
    export_model=export_model,
)
