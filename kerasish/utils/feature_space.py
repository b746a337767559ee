"""FeatureSpace: a table's columns, each with its own preprocessing, as one vector or a dict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from kerasish import layers, ops, registry, tree
from kerasish.engine import Input, is_keras_tensor
from kerasish.engine.functional.host_stage import HostLayer
from kerasish.engine.layer.layer import Layer
from kerasish.engine.saving_hooks import saving
from kerasish.errors import UnknownNameError
from kerasish.naming import unique_name
from kerasish.signatures import Configured
from kerasish.tensor import Tensor
from kerasish.typing import Config, PathLike, Scalar
from kerasish.utils.features import (
    Cross,
    Feature,
    as_array,
    as_column,
    categories_of,
    is_tensor,
    tables_of,
)


class FeatureSpace(Configured, HostLayer):
    """The columns of a table, each preprocessed in its own way, concatenated or as a dict.

    Args:
        features: name -> a feature such as `FeatureSpace.float_normalized()`, or the name of one
            a method, for its defaults.
        output_mode: "concat", one vector per row, or "dict".
        crosses: tuples of names, or `FeatureSpace.cross(...)`, whose combinations are hashed;
            None: none.
        crossing_dim: the number of bins of crosses given as tuples.
        hashing_dim: the number of bins of "integer_hashed" and "string_hashed".
        num_discretization_bins: the number of bins of "float_discretized".
        name: the layer's name; None: made from the class's name.

    Shape: a dict of (batch,) or (batch, 1) -> (batch, sum of the features' sizes), or a dict; a
        dict of single values -> the same without the batch.

    Example:
        >>> table = {"age": [20.0, 40.0], "town": ["Rome", "Oslo"]}
        >>> space = FeatureSpace({"age": "float_normalized", "town": "string_categorical"})
        >>> space.adapt(table)
        >>> space(table).numpy().tolist()
        [[-1.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 1.0]]
    """

    def __init__(
        self,
        features: dict[str, Any],
        output_mode: str = "concat",
        crosses: Sequence[Any] | None = None,
        crossing_dim: int = 32,
        hashing_dim: int = 32,
        num_discretization_bins: int = 32,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        if not features:
            raise ValueError(
                f"{self.display_name()}: features is a dict of at least one, got {features!r}."
            )
        if output_mode not in ("concat", "dict"):
            raise UnknownNameError.of(
                f"{self.display_name()}: output_mode", output_mode, ("concat", "dict")
            )
        self.crossing_dim, self.hashing_dim = crossing_dim, hashing_dim
        self.num_discretization_bins, self.output_mode = num_discretization_bins, output_mode
        self.features = {n: self._feature(n, spec) for n, spec in features.items()}
        self.crosses = [self._cross(c) for c in crosses or []]
        self.preprocessors = {n: f.preprocessor for n, f in self.features.items()}
        self.crossers = {
            c.name: layers.HashedCrossing(c.crossing_dim, name=c.name) for c in self.crosses
        }
        self.one_hot_encoders: dict[str, Any] = {}
        self.concat = layers.Concatenate(axis=-1) if output_mode == "concat" else None
        self.inputs: Any = self.get_fresh_inputs()
        self.encoded_features: Any = None
        self._adapted = not self._adaptable()

    # --- kinds of features ----------------------------------------------------------------------

    @classmethod
    def cross(
        cls, feature_names: Sequence[str], crossing_dim: int, output_mode: str = "one_hot"
    ) -> Cross:
        """Return a crossing of columns; see `Cross`."""
        return Cross(feature_names, crossing_dim, output_mode)

    @classmethod
    def feature(cls, dtype: str, preprocessor: Layer | Config, output_mode: str) -> Feature:
        """Return a feature with your own preprocessing layer; see `Feature`."""
        return Feature(dtype, preprocessor, output_mode)

    @classmethod
    def float(cls, name: str | None = None) -> Feature:
        """Return a feature of unchanged numbers."""
        return _feature_of("float32", layers.Identity, "float", name or unique_name("float"))

    @classmethod
    def float_rescaled(
        cls, scale: Scalar = 1.0, offset: Scalar = 0.0, name: str | None = None
    ) -> Feature:
        """Return a feature of numbers, each x * scale + offset."""
        name = name or unique_name("float_rescaled")
        return _feature_of("float32", layers.Rescaling, "float", name, scale=scale, offset=offset)

    @classmethod
    def float_normalized(cls, name: str | None = None) -> Feature:
        """Return a feature of numbers normalized to mean 0 and variance 1; `adapt` learns them."""
        name = name or unique_name("float_normalized")
        return _feature_of("float32", layers.Normalization, "float", name, axis=-1)

    @classmethod
    def float_discretized(
        cls,
        num_bins: int,
        bin_boundaries: Sequence[Scalar] | None = None,
        output_mode: str = "one_hot",
        name: str | None = None,
    ) -> Feature:
        """Return a feature of numbers in bins; see `layers.Discretization`."""
        name = name or unique_name("float_discretized")
        return _feature_of(
            "float32", layers.Discretization, output_mode, name, num_bins=num_bins,
            bin_boundaries=bin_boundaries,
        )  # fmt: skip

    @classmethod
    def integer_categorical(
        cls, max_tokens: int | None = None, num_oov_indices: int = 1,
        output_mode: str = "one_hot", name: str | None = None,
    ) -> Feature:  # fmt: skip
        """Return a feature of integers that are categories; see `layers.IntegerLookup`."""
        name = name or unique_name("integer_categorical")
        return _feature_of(
            "int32", layers.IntegerLookup, output_mode, name, max_tokens=max_tokens,
            num_oov_indices=num_oov_indices,
        )  # fmt: skip

    @classmethod
    def string_categorical(
        cls, max_tokens: int | None = None, num_oov_indices: int = 1,
        output_mode: str = "one_hot", name: str | None = None,
    ) -> Feature:  # fmt: skip
        """Return a feature of strings that are categories; see `layers.StringLookup`."""
        name = name or unique_name("string_categorical")
        return _feature_of(
            "string", layers.StringLookup, output_mode, name, max_tokens=max_tokens,
            num_oov_indices=num_oov_indices,
        )  # fmt: skip

    @classmethod
    def integer_hashed(
        cls, num_bins: int, output_mode: str = "one_hot", name: str | None = None
    ) -> Feature:
        """Return a feature of integers hashed into bins; see `layers.Hashing`."""
        name = name or unique_name("integer_hashed")
        return _feature_of("int32", layers.Hashing, output_mode, name, num_bins=num_bins)

    @classmethod
    def string_hashed(
        cls, num_bins: int, output_mode: str = "one_hot", name: str | None = None
    ) -> Feature:
        """Return a feature of strings hashed into bins; see `layers.Hashing`."""
        name = name or unique_name("string_hashed")
        return _feature_of("string", layers.Hashing, output_mode, name, num_bins=num_bins)

    def _feature(self, name: str, spec: Feature | dict[str, Any] | str) -> Feature:
        if isinstance(spec, Feature):
            return spec
        if isinstance(spec, dict):
            return registry.deserialize_keras_object(spec)
        defaults: dict[str, dict[str, Any]] = {
            "float": {}, "float_normalized": {}, "float_rescaled": {},
            "float_discretized": {"num_bins": self.num_discretization_bins},
            "integer_categorical": {}, "string_categorical": {},
            "integer_hashed": {"num_bins": self.hashing_dim},
            "string_hashed": {"num_bins": self.hashing_dim},
        }  # fmt: skip
        if not isinstance(spec, str) or spec not in defaults:
            raise UnknownNameError.of(
                f"{self.display_name()}: kind of feature {name!r}", spec, defaults
            )
        return getattr(self, spec)(name=name, **defaults[spec])

    def _cross(self, spec: Cross | dict[str, Any] | Sequence[str]) -> Cross:
        if isinstance(spec, dict):
            spec = registry.deserialize_keras_object(spec)
        if not isinstance(spec, Cross):
            spec = Cross(spec, self.crossing_dim)
        unknown = [n for n in spec.feature_names if n not in self.features]
        if unknown:
            raise UnknownNameError.of(
                f"{self.display_name()}: feature of a cross", unknown[0], list(self.features)
            )
        return spec

    # --- adapting -------------------------------------------------------------------------------

    def _adaptable(self) -> list[str]:
        """Return the names of the features that `adapt` trains."""
        given = ("input_vocabulary", "input_mean")
        results = []
        for name, layer in self.preprocessors.items():
            known = any(getattr(layer, a, None) is not None for a in given)
            known = known or getattr(layer, "num_bins", 0) is None
            if hasattr(layer, "adapt") and not known:
                results.append(name)
        return results

    def list_adaptable_preprocessors(self) -> list[str]:
        """Return the names of the features whose preprocessing `adapt` learns."""
        return self._adaptable()

    def adapt(self, dataset: object) -> None:
        """Learn vocabularies, means and boundaries from the columns.

        Args:
            dataset: a dict of columns, or an iterable of dicts (batches, or single rows).

        Raises:
            ValueError: the data set is empty, or a column is missing.
        """
        columns: dict[str, list[Any]] = {n: [] for n in self._adaptable()}
        count = 0
        for batch in tables_of(dataset, self.display_name()):
            count += 1
            self._check_columns(batch, columns)
            for name, result in columns.items():
                result.append(as_column(batch[name]))
        if not count:
            raise ValueError(f"{self.display_name()}: adapt() got no data.")
        for name, result in columns.items():
            self.preprocessors[name].adapt(np.concatenate(result))
        self._adapted = True
        self.encoded_features = None
        self.one_hot_encoders.clear()

    def _need_adapted(self) -> None:
        if not self._adapted:
            raise ValueError(
                f"{self.display_name()}: call adapt(data) first; these features learn from data: "
                f"{self._adaptable()}."
            )

    def _check_columns(self, data: dict[str, Any] | Sequence[Any], names: Iterable[str]) -> None:
        if not isinstance(data, Mapping):
            raise ValueError(
                f"{self.display_name()}: expected a dict of columns, got {type(data).__name__}."
            )
        missing = [n for n in names if n not in data]
        if missing:
            raise ValueError(
                f"{self.display_name()}: the columns {missing} are missing; got {sorted(data)}."
            )

    # --- encoding -------------------------------------------------------------------------------

    def get_fresh_inputs(self) -> dict[str, Any]:
        """Return a new symbolic tensor for each column, shape (batch, 1)."""
        return {n: Input((1,), dtype=f.dtype, name=n) for n, f in self.features.items()}

    def get_inputs(self) -> dict[str, Any]:
        """Return the symbolic tensors of the columns, for the inputs of a model."""
        if self.inputs is None:
            self.inputs = self.get_fresh_inputs()
        return self.inputs

    def get_encoded_features(self) -> Tensor:
        """Return the symbolic result for `get_inputs()`."""
        self._need_adapted()
        if self.encoded_features is None:
            self.encoded_features = self._encode(self.get_inputs())
        return self.encoded_features

    def __call__(self, data: Any) -> Tensor:
        """Preprocess a dict of columns, or of single values."""
        self._need_adapted()
        self._check_columns(data, self.features)
        return super().__call__({n: as_array(data[n]) for n in self.features})

    def call(self, data: dict[str, Any]) -> dict[Any, Any] | Tensor:
        """Preprocess columns."""
        single = all(not is_keras_tensor(v) and not np.ndim(v) for v in data.values())
        columns = (
            data if any(map(is_tensor, data.values())) else tree.map_structure(as_column, data)
        )
        result = self._encode(columns)
        return tree.map_structure(lambda t: ops.squeeze(t, 0), result) if single else result

    def compute_output_spec(self, data: dict[str, Any]) -> Tensor:
        """Return symbolic tensors of the results' shapes and dtypes."""
        return layers.Layer.compute_output_spec(self, data)

    def _encode(self, columns: dict[Any, Any]) -> dict[str, Any] | Tensor:
        values = {n: self.preprocessors[n](columns[n]) for n in sorted(self.features)}
        results = {n: self._one_hot(n, v, self.features[n].output_mode) for n, v in values.items()}
        for cross in sorted(self.crosses, key=lambda c: c.name):
            value = self.crossers[cross.name](tuple(values[n] for n in cross.feature_names))
            results[cross.name] = self._one_hot(cross.name, value, cross.output_mode)
        if self.concat is None:
            return results
        for name, value in results.items():
            if not value.dtype.startswith(("float", "bfloat")):
                raise ValueError(
                    f"{self.display_name()}: the feature {name!r} gives {value.dtype}, which is "
                    "not joined to numbers; encode it (output_mode='one_hot'), or use "
                    "FeatureSpace(output_mode='dict')."
                )
        parts = list(results.values())
        return self.concat(parts) if len(parts) > 1 else parts[0]

    def _one_hot(self, name: str, value: Tensor, mode: str) -> Tensor:
        if mode != "one_hot":
            return value
        if not value.dtype.startswith(("int", "uint")):
            raise ValueError(
                f"{self.display_name()}: the feature {name!r} has output_mode='one_hot', but its "
                f"preprocessor gives {value.dtype}, no integers."
            )
        if name not in self.one_hot_encoders:
            layer = self.crossers.get(name) or self.preprocessors[name]
            self.one_hot_encoders[name] = layers.CategoryEncoding(
                categories_of(layer, name), output_mode="multi_hot"
            )
        return self.one_hot_encoders[name](value)

    # --- files ----------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickles and copies, without symbolic tensors."""
        return {**super().__getstate__(), "inputs": None, "encoded_features": None}

    def save(self, filepath: PathLike) -> None:
        """Write everything that was learned to a `.keras` file; `load_model` reads it."""
        saving("save_model")(self, filepath)

    def get_build_config(self) -> dict[str, Any]:
        """Return the shapes from which the preprocessing layers were built."""
        return {n: p.get_build_config() or {} for n, p in self.preprocessors.items()}

    def build_from_config(self, config: dict[str, Any]) -> None:
        """Build the preprocessing layers that the config describes as adapted."""
        for name, built in config.items():
            if name in self.preprocessors:
                self.preprocessors[name].build_from_config(built)
        self._adapted = True


def _feature_of(dtype: str, layer: type, output_mode: str, name: str, **args: Any) -> Feature:
    return Feature(dtype, layer(name=f"{name}_preprocessor", **args), output_mode)


registry.add_builtins("keras.utils", {"FeatureSpace": FeatureSpace})
