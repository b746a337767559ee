"""Weights as `.safetensors` files, by the package safetensors (an extra)."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from kerasish.saving.atomic import replacing
from kerasish.saving.source import Entry, Group, Groups
from kerasish.saving.weights import parts_of, put_weights


def _package(path: str) -> Any:
    try:
        import safetensors
        import safetensors.numpy
    except ImportError as error:
        text = f"{path}: the format needs the package safetensors (pip install safetensors)."
        raise ImportError(text) from error
    return safetensors


def save_tensors(model: Any, path: str) -> None:
    """Write a model's weights; keys are the paths of `.weights.h5` files."""
    package = _package(path)
    arrays: dict[str, Any] = {}
    names: dict[str, str | None] = {}
    halves: list[str] = []
    for group, name, stored in parts_of(model):
        names[group] = name
        for key, value in stored.items():
            array, full = np.ascontiguousarray(value), f"{group}/{key}"
            if array.dtype.name == "bfloat16":
                array = array.view("uint16")
                halves.append(full)
            arrays[full] = array.reshape(np.shape(value))
    metadata = {"names": json.dumps(names), "bfloat16": json.dumps(halves), "format": "kerasish"}
    with replacing(path) as temporary:
        package.numpy.save_file(arrays, temporary, metadata=metadata)


def load_tensors(model: Any, path: str, skip_mismatch: bool = False, by: str | None = None) -> None:
    """Put the weights of a `.safetensors` file into a model."""
    package = _package(path)
    try:
        with package.safe_open(path, "numpy") as file:
            put_weights(model, _groups(file, path), path, skip_mismatch, by)
    except package.SafetensorError as error:
        raise ValueError(f"{path}: not a whole safetensors file ({error}).") from error


def _groups(file: Any, path: str) -> Groups:
    metadata = file.metadata() or {}
    try:
        names = dict(json.loads(metadata.get("names", "{}")))
        halves = set(json.loads(metadata.get("bfloat16", "[]")))
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path}: its metadata are damaged ({error}).") from error
    found: Groups = {group: Group(name, {}) for group, name in names.items()}
    for full in file.keys():  # noqa: SIM118 (no mapping)
        group, _, key = full.rpartition("/")
        part = file.get_slice(full)
        dtype = "bfloat16" if full in halves else str(part.get_dtype())
        entry = Entry(full, tuple(part.get_shape()), dtype, _reader(file, full, full in halves))
        found.setdefault(group, Group(None, {})).entries[key] = entry
    return found


def _reader(file: Any, full: str, half: bool) -> Any:
    def read() -> Any:
        array = file.get_tensor(full)
        if half:
            import ml_dtypes

            return array.view(ml_dtypes.bfloat16)
        return array

    return read
