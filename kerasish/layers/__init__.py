"""Layers, one family a file."""

from typing import Any

from kerasish import registry
from kerasish.engine import Input as Input
from kerasish.engine import InputLayer as InputLayer
from kerasish.engine import InputSpec as InputSpec
from kerasish.engine import Layer as Layer
from kerasish.layers.activation import Activation as Activation
from kerasish.layers.activation import LeakyReLU as LeakyReLU
from kerasish.layers.activation import ReLU as ReLU
from kerasish.layers.activation import Softmax as Softmax
from kerasish.layers.core import Dense as Dense
from kerasish.layers.core import Embedding as Embedding
from kerasish.layers.core import Identity as Identity
from kerasish.layers.core import Lambda as Lambda
from kerasish.layers.core import Masking as Masking
from kerasish.layers.reshaping import Flatten as Flatten
from kerasish.layers.reshaping import Permute as Permute
from kerasish.layers.reshaping import RepeatVector as RepeatVector
from kerasish.layers.reshaping import Reshape as Reshape

registry.add_builtins(
    "keras.layers",
    {n: v for n, v in globals().items() if isinstance(v, type) and issubclass(v, Layer)},
)


def serialize(layer: Layer) -> Any:
    """Return a layer as what JSON can hold."""
    return registry.serialize_keras_object(layer)


def deserialize(config: Any, custom_objects: Any = None) -> Any:
    """Return the layer that `serialize` was given."""
    return registry.deserialize_keras_object(config, custom_objects)
