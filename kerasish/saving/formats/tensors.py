"""Weights as `.safetensors` files; the keys are the paths of `.weights.h5` files."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import numpy as np

from kerasish.engine.model.model import Model
from kerasish.saving.files.source import Entry, Groups, PartArrays
from kerasish.saving.formats.tensor_file import TensorFile, code_of, opened, write_arrays
from kerasish.saving.formats.weights import parts_of, put_weights
from kerasish.typing import Array


def save_tensors(model: Model, path: str) -> None:
    """Write a model's weights."""
    arrays: dict[str, Any] = {}
    names: dict[str, str | None] = {}
    for group, name, stored in parts_of(model):
        names[group] = name
        for key, value in stored.items():
            arrays[f"{group}/{key}"] = _storable(value, f"{group}/{key}")
    write_arrays(path, arrays, {"names": json.dumps(names), "format": "kerasish"})


def _storable(value: Array, where: str) -> Array:
    array = np.asarray(value)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if code_of(array.dtype) is None:
        raise ValueError(f"save_weights: a .safetensors file holds no {array.dtype} ({where}).")
    return np.ascontiguousarray(array).reshape(array.shape)


def load_tensors(
    model: Model, path: str, skip_mismatch: bool = False, by: str | None = None
) -> None:
    """Put the weights of a `.safetensors` file into a model."""
    with opened(path) as file:
        put_weights(model, _groups(file), path, skip_mismatch, by)


def _groups(file: TensorFile) -> Groups:
    try:
        names = dict(json.loads(file.metadata.get("names", "{}")))
        results: Groups = {str(group): PartArrays(name, {}) for group, name in names.items()}
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{file.path}: its metadata are damaged ({error}).") from error
    for full, place in file.places.items():
        group, _, key = full.rpartition("/")
        entry = Entry(full, place.shape, place.dtype, partial(file.read, full))
        results.setdefault(group, PartArrays(None, {})).entries[key] = entry
    return results
