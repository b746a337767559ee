"""Keras's `utils`: arrays, data sets, files, progress, names in files, seeds."""

from kerasish.callbacks.progress import Progbar as Progbar
from kerasish.config import disable_interactive_logging as disable_interactive_logging
from kerasish.config import enable_interactive_logging as enable_interactive_logging
from kerasish.config import is_interactive_logging_enabled as is_interactive_logging_enabled
from kerasish.engine import is_keras_tensor as is_keras_tensor
from kerasish.engine.data import PyDataset as PyDataset
from kerasish.engine.data import pack_x_y_sample_weight as pack_x_y_sample_weight
from kerasish.engine.data import unpack_x_y_sample_weight as unpack_x_y_sample_weight
from kerasish.first_use import imports_on_first_use
from kerasish.registry import CustomObjectScope as CustomObjectScope
from kerasish.registry import custom_object_scope as custom_object_scope
from kerasish.registry import deserialize_keras_object as deserialize_keras_object
from kerasish.registry import get_custom_objects as get_custom_objects
from kerasish.registry import get_registered_name as get_registered_name
from kerasish.registry import get_registered_object as get_registered_object
from kerasish.registry import register_keras_serializable as register_keras_serializable
from kerasish.registry import serialize_keras_object as serialize_keras_object
from kerasish.utils import bounding_boxes as bounding_boxes
from kerasish.utils import legacy as legacy
from kerasish.utils.arrays import normalize as normalize
from kerasish.utils.arrays import pad_sequences as pad_sequences
from kerasish.utils.arrays import to_categorical as to_categorical
from kerasish.utils.names import get_source_inputs as get_source_inputs
from kerasish.utils.names import standardize_dtype as standardize_dtype
from kerasish.utils.session import clear_session as clear_session
from kerasish.utils.session import set_random_seed as set_random_seed
from kerasish.utils.settings import Config as Config

with imports_on_first_use(__name__):
    from kerasish.datasets.download import get_file as get_file
    from kerasish.utils.drawing import model_to_dot as model_to_dot
    from kerasish.utils.drawing import plot_model as plot_model
    from kerasish.utils.feature_space import FeatureSpace as FeatureSpace
    from kerasish.utils.folders import image_dataset_from_directory as image_dataset_from_directory
    from kerasish.utils.folders import text_dataset_from_directory as text_dataset_from_directory
    from kerasish.utils.images import array_to_img as array_to_img
    from kerasish.utils.images import img_to_array as img_to_array
    from kerasish.utils.images import load_img as load_img
    from kerasish.utils.images import save_img as save_img
    from kerasish.utils.sounds import audio_dataset_from_directory as audio_dataset_from_directory
    from kerasish.utils.splitting import split_dataset as split_dataset
    from kerasish.utils.windows import (
        timeseries_dataset_from_array as timeseries_dataset_from_array,
    )

Sequence = PyDataset  # its name in Keras 2
