"""The parts of a FeatureSpace: features, crosses, columns of tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kerasish import layers, registry
from kerasish.engine import is_keras_tensor
from kerasish.engine.layer.layer import Layer
from kerasish.errors import UnknownNameError
from kerasish.signatures import Configured
from kerasish.tensor import Tensor, to_numpy
from kerasish.typing import AnyTensor, Array, Structure

_ENCODINGS = ("int", "one_hot", "float")


class Feature(Configured):
    """The conversion of a column to numbers.

    Args:
        dtype: the dtype of the raw values: "float32", "int32", "string" ...
        preprocessor: the layer that is applied to them.
        output_mode: "float" or "int" for the layer's results, or "one_hot" for these integers.
    """

    def __init__(self, dtype: str, preprocessor: Layer | dict[str, Any], output_mode: str) -> None:
        if output_mode not in _ENCODINGS:
            raise UnknownNameError.of("Feature: output_mode", output_mode, _ENCODINGS)
        self.dtype, self.output_mode = dtype, output_mode
        if isinstance(preprocessor, dict):
            preprocessor = registry.deserialize_keras_object(preprocessor)
        self.preprocessor: Any = preprocessor


class Cross(Configured):
    """Columns whose combinations are hashed.

    Args:
        feature_names: the names of the columns, two or more.
        crossing_dim: the number of bins, >= 1.
        output_mode: "int" or "one_hot".
    """

    def __init__(self, feature_names: Any, crossing_dim: int, output_mode: str = "one_hot") -> None:
        if output_mode not in ("int", "one_hot"):
            raise UnknownNameError.of("Cross: output_mode", output_mode, ("int", "one_hot"))
        self.feature_names = tuple(feature_names)
        self.crossing_dim, self.output_mode = crossing_dim, output_mode

    @property
    def name(self) -> str:
        """The columns' names, joined by _X_."""
        return "_X_".join(self.feature_names)


def categories_of(layer: Layer, name: str) -> int:
    """Return the number of categories of a preprocessing layer."""
    if hasattr(layer, "vocabulary_size"):
        return int(layer.vocabulary_size())
    if isinstance(layer, layers.Discretization):
        return len(layer.bin_boundaries or []) + 1
    for attribute in ("num_bins", "num_tokens"):
        if getattr(layer, attribute, None) is not None:
            return int(getattr(layer, attribute))
    raise ValueError(
        f"The feature {name!r} has output_mode='one_hot', but {type(layer).__name__} does not say "
        "how many categories there are; let the layer encode them itself, with output_mode='float'."
    )


def tables_of(dataset: Any, who: str) -> Iterator[Any]:
    """Yield the dicts of columns of a data set."""
    if isinstance(dataset, Mapping):
        yield dataset
        return
    if hasattr(dataset, "columns") and hasattr(dataset, "to_numpy"):  # a data frame
        yield {name: dataset[name].to_numpy() for name in dataset.columns}
        return
    if isinstance(dataset, (str, bytes)) or not hasattr(dataset, "__iter__"):
        raise ValueError(
            f"{who}: adapt() takes a dict of columns or an iterable of such dicts, got "
            f"{type(dataset).__name__}."
        )
    for batch in dataset:
        yield batch[0] if isinstance(batch, tuple) and batch else batch


def is_tensor(x: str | AnyTensor | float | Sequence[Any]) -> bool:
    """Return whether x is a tensor, symbolic or not."""
    return isinstance(x, Tensor) or is_keras_tensor(x)


def as_array(x: str | AnyTensor | float | Sequence[Any]) -> AnyTensor:
    """Return a column as an array or tensor."""
    if is_tensor(x):
        return x
    return x.numpy() if hasattr(x, "numpy") else np.asarray(x)


def as_column(x: Structure) -> Array:
    """Return a column, or a single value, as an array of shape (rows, 1)."""
    array = to_numpy(x) if isinstance(x, Tensor) else np.asarray(as_array(x))
    if array.dtype == np.float64:
        array = array.astype("float32")
    return array.reshape(-1, 1) if array.ndim < 2 else array


registry.add_builtins(
    "keras.src.layers.preprocessing.feature_space",
    {"Feature": Feature, "Cross": Cross, "TFDIdentity": layers.Identity},
)
