"""Weights as `.safetensors` files; reading needs the package safetensors (an extra)."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from kerasish.saving.atomic import replacing
from kerasish.saving.checksum import Digest, bytes_of, checksum
from kerasish.saving.source import Entry, Group, Groups
from kerasish.saving.weights import parts_of, put_weights

CHECKSUMS = "crc32"  # in the metadata: CRC-32 of each array's dtype, shape and bytes


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
    arrays: dict[str, Any] = {}
    names: dict[str, str | None] = {}
    halves: list[str] = []
    for group, name, stored in parts_of(model):
        names[group] = name
        for key, value in stored.items():
            array, full = np.asarray(value), f"{group}/{key}"
            if array.dtype.name == "bfloat16":
                array = array.view("uint16")
                halves.append(full)
            little = array.astype(array.dtype.newbyteorder("<"), copy=False)
            arrays[full] = np.ascontiguousarray(little).reshape(np.shape(value))
    metadata = {"names": json.dumps(names), "bfloat16": json.dumps(halves), "format": "kerasish"}
    with replacing(path) as temporary, open(temporary, "wb") as file:
        # The sums are known when all is written; the header keeps its length.
        header = _header(arrays, metadata, dict.fromkeys(arrays, 0))
        file.write(header)
        sums = {full: _write(file, array) for full, array in arrays.items()}
        file.seek(0)
        file.write(_header(arrays, metadata, sums))


def _header(arrays: dict[str, Any], metadata: dict[str, str], sums: dict[str, int]) -> bytes:
    texts = {full: f"{value:08x}" for full, value in sums.items()}
    made: dict[str, Any] = {"__metadata__": {**metadata, CHECKSUMS: json.dumps(texts)}}
    at = 0
    for full, array in arrays.items():
        made[full] = {
            "dtype": _code(array.dtype),
            "shape": list(array.shape),
            "data_offsets": [at, at + array.nbytes],
        }
        at += array.nbytes
    text = json.dumps(made).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _code(dtype: Any) -> str:
    """Return the format's name of a dtype."""
    if dtype.kind == "b":
        return "BOOL"
    return f"{dtype.kind.upper()}{8 * dtype.itemsize}"


def _write(file: Any, array: Any) -> int:
    """Write an array's bytes and return the checksum of the array."""
    if not array.nbytes:
        return checksum(array)
    data = bytes_of(array)
    digest = Digest(data)
    file.write(data)
    return checksum(array, digest.result())


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
        sums = dict(json.loads(metadata.get(CHECKSUMS, "{}")))
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path}: its metadata are damaged ({error}).") from error
    found: Groups = {group: Group(name, {}) for group, name in names.items()}
    for full in file.keys():  # noqa: SIM118 (no mapping)
        group, _, key = full.rpartition("/")
        part = file.get_slice(full)
        dtype = "bfloat16" if full in halves else str(part.get_dtype())
        entry = Entry(
            full, tuple(part.get_shape()), dtype, _reader(file, full, path, dtype, sums.get(full))
        )
        found.setdefault(group, Group(None, {})).entries[key] = entry
    return found


def _reader(file: Any, full: str, path: str, dtype: str, wanted: Any) -> Any:
    def read() -> Any:
        array = file.get_tensor(full)
        if wanted is not None and wanted != f"{checksum(array):08x}":
            raise ValueError(f"{path}: the array {full!r} is damaged (its checksum does not fit).")
        if dtype == "bfloat16":
            import ml_dtypes

            return array.view(ml_dtypes.bfloat16)
        return array

    return read
