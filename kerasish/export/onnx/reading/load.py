"""From an ONNX file to a model."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerasish.engine import Input, Model
from kerasish.export.onnx.reading.layer import OnnxGraph, plain_name
from kerasish.export.onnx.reading.record import Parsed, encode, read_file
from kerasish.layers.core import Identity
from kerasish.ops import dtypes
from kerasish.saving.formats.weights import file_path
from kerasish.typing import Array, PathLike


def load_onnx(
    filepath: PathLike, trainable: bool = True, constants: dict[str, Array] | None = None
) -> Model:
    """Return a model that computes what an ONNX file says.

    Args:
        filepath: the file.
        trainable: whether float initializers are trainable.
        constants: fixed values of inputs: name -> array; None: none.

    Raises:
        ValueError: the file is damaged or says what is not known.
        ImportError: the package onnx is not installed.
        OSError: it cannot be read.

    Example:
        >>> model = load_onnx("scores.onnx")  # doctest: +SKIP
    """
    path = file_path(filepath)
    try:
        return model_of(read_file(path), trainable, constants)
    except RecursionError as error:
        raise ValueError(f"{path}: its graphs nest too deeply.") from error
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
        raise ValueError(f"{path}: {error}") from error


def model_of(
    parsed: Parsed, trainable: bool = True, constants: dict[str, Array] | None = None
) -> Model:
    """Return the model of a file's content.

    Raises:
        ValueError: it cannot be run.
    """
    record = parsed.record
    fix_inputs(record, constants or {})
    if not record["outputs"]:
        raise ValueError("it is no ONNX model: its graph has no outputs")
    if not record["inputs"]:
        raise ValueError("its graph has no inputs that are not stored: there is nothing to predict")
    taken: set[str] = set()
    inputs = []
    for name, dtype, shape in record["inputs"]:
        if shape is None:
            raise ValueError(f"the input {name!r} has no number of axes")
        inputs.append(Input(batch_shape=tuple(shape), dtype=dtype, name=plain_name(name, taken)))
    layer = OnnxGraph(record, trainable, name=plain_name(record["name"], taken))
    results = layer(inputs[0] if len(inputs) == 1 else inputs)
    many = list(results) if isinstance(results, (list, tuple)) else [results]
    named = [
        Identity(name=plain_name(name, taken), dtype=y.dtype)(y)
        for name, y in zip(record["outputs"], many)
    ]
    for name, variable in layer.stored.items():
        variable.assign(parsed.arrays[name])
    return Model(inputs, named[0] if len(named) == 1 else named, name=plain_name("onnx", taken))


def fix_inputs(record: dict[str, Any], constants: dict[str, Array]) -> None:
    """Turn inputs into constants."""
    known = {entry[0]: entry for entry in record["inputs"]}
    for name, value in constants.items():
        if name not in known:
            raise ValueError(f"constants: there is no input {name!r}, but {sorted(known)}")
        entry = known[name]
        record["constants"][name] = encode(np.asarray(value, dtypes.array_dtype(entry[1])))
        record["inputs"].remove(entry)
