"""Training states as files: a tree of plain values with arrays as leaves, whole or not there.

The layout is that of `.safetensors`: the header's length (8 bytes, little-endian), a JSON header,
the arrays' bytes. The header's metadata hold the tree as JSON, in which {"array": n} stands for
the n-th array, the arrays' names (their places in the tree) with a CRC-32 of each, and a CRC-32 of
these texts.
"""

from __future__ import annotations

import functools
import json
import math
import os
import re
import zlib
from typing import Any

import numpy as np

from kerasish.saving.atomic import clear, replacing
from kerasish.saving.json_text import read_json

_NAME = re.compile(r"state-(\d{8})\.safetensors")
_FORMAT = "kerasish training state 1"
_CODES = {
    "bool": "BOOL", "uint8": "U8", "uint16": "U16", "uint32": "U32", "uint64": "U64",
    "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64",
    "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64", "complex64": "C64",
}  # fmt: skip
_DTYPES = {code: dtype for dtype, code in _CODES.items()}
_LONGEST_HEADER = 2**28


@functools.cache
def _code(dtype: np.dtype) -> str | None:
    """Return what the file calls a dtype, None for dtypes that it cannot hold."""
    return _CODES.get(dtype.name) if dtype.isnative else None


def write_state(path: str, state: dict[str, Any]) -> None:
    """Write a tree of dicts, lists, arrays, numbers, strings and None to a file.

    Raises:
        TypeError: something else is in the tree.
        OSError: the file could not be written; what was there before is unchanged.
    """
    arrays: dict[str, np.ndarray] = {}
    record = json.dumps(_take_out(state, arrays, ""))
    header: dict[str, Any] = {}
    at = 0
    for name, array in arrays.items():
        shape, code = list(array.shape), _code(array.dtype)
        header[name] = {"dtype": code, "shape": shape, "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    sums = json.dumps([[name, _checksum(array)] for name, array in arrays.items()])
    own = {"format": _FORMAT, "state": record, "arrays": sums, "crc32": str(_seal(record, sums))}
    text = json.dumps({"__metadata__": own, **header}).encode()
    text += b" " * (-len(text) % 8)
    with replacing(path) as temporary, open(temporary, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.writelines(_bytes_of(array) for array in arrays.values())


def read_state(path: str) -> dict[str, Any]:
    """Return the tree that a file holds.

    Raises:
        ValueError: the file is damaged; the message names the array, if it is one.
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if not 0 < length <= min(_LONGEST_HEADER, size - 8):
            raise ValueError(f"{path}: no whole training state (the header is cut off).")
        header = read_json(file.read(length), path)
        own = header.pop("__metadata__", None) if isinstance(header, dict) else None
        if not isinstance(own, dict) or own.get("format") != _FORMAT:
            raise ValueError(f"{path}: no training state of this version of kerasish.")
        record, sums = str(own.get("state")), str(own.get("arrays"))
        if own.get("crc32") != str(_seal(record, sums)):
            raise ValueError(f"{path}: the header is damaged (its checksum does not fit).")
        arrays = [
            _read_array(file, header.get(name), f"{path}: {name!r}", size - 8 - length, check)
            for name, check in json.loads(sums)
        ]
    return _put_back(json.loads(record), arrays)  # type: ignore[no-any-return]


def _take_out(value: Any, arrays: dict[str, np.ndarray], where: str) -> Any:
    """Return `value` for JSON; its arrays go into `arrays`, by their place."""
    if isinstance(value, dict):
        inner = f"{where}/" if where else ""
        return {"dict": [[k, _take_out(v, arrays, f"{inner}{k}")] for k, v in value.items()]}
    if isinstance(value, (list, tuple)):
        return [_take_out(v, arrays, f"{where}/{i}") for i, v in enumerate(value)]
    if isinstance(value, np.generic):
        value = value.item() if value.dtype.kind in "biuf" else np.asarray(value)
    if isinstance(value, np.ndarray):
        if _code(value.dtype) is None:
            raise TypeError(f"A training state holds no arrays of {value.dtype} ({where}).")
        arrays[where] = np.ascontiguousarray(value).reshape(value.shape)
        return {"array": len(arrays) - 1}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(
        f"A training state holds numbers, strings, arrays, lists and dicts; {where} is a "
        f"{type(value).__name__}."
    )


def _put_back(value: Any, arrays: list[np.ndarray]) -> Any:
    if isinstance(value, list):
        return [_put_back(v, arrays) for v in value]
    if isinstance(value, dict):
        if "array" in value:
            return arrays[value["array"]]
        return {k: _put_back(v, arrays) for k, v in value["dict"]}
    return value


def _bytes_of(array: np.ndarray) -> Any:
    return array.reshape(-1).view(np.uint8).data if array.nbytes else b""


def _checksum(array: np.ndarray) -> int:
    """Return the CRC-32 of an array's dtype, shape and bytes."""
    start = zlib.crc32(f"{_code(array.dtype)}{list(array.shape)}".encode())
    return zlib.crc32(_bytes_of(array), start)


def _seal(record: str, sums: str) -> int:
    return zlib.crc32(sums.encode(), zlib.crc32(record.encode()))


def _read_array(file: Any, place: Any, where: str, room: int, check: int) -> np.ndarray:
    try:
        dtype, shape = _DTYPES[place["dtype"]], [int(n) for n in place["shape"]]
        start, end = (int(n) for n in place["data_offsets"])
        fits = min(shape, default=0) >= 0 and 0 <= start <= end <= room
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{where} is damaged ({error!r} in the header).") from error
    kind = _dtype(dtype)
    if not fits or end - start != math.prod(shape) * kind.itemsize:
        raise ValueError(f"{where} is damaged (it says {dtype} {shape} in {start} to {end}).")
    file.seek(os.fstat(file.fileno()).st_size - room + start)
    made = np.frombuffer(bytearray(file.read(end - start)), kind)
    if made.size != math.prod(shape) or _checksum(made.reshape(shape)) != check:
        raise ValueError(f"{where} is damaged (its checksum does not fit).")
    return made.reshape(shape)


def _dtype(name: str) -> np.dtype:
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


class StateFolder:
    """A folder of training states, numbered upwards; the newest two are kept.

    Args:
        path: the folder; made when the first state is written.
    """

    keep = 2

    def __init__(self, path: str) -> None:
        self.path = path
        self._damaged: set[int] = set()
        self._next = max(self._numbers(), default=-1) + 1

    def _numbers(self) -> list[int]:
        """Return the numbers of the files there, the newest first."""
        if not os.path.isdir(self.path):
            return []
        found = (_NAME.fullmatch(name) for name in os.listdir(self.path))
        return sorted((int(match[1]) for match in found if match), reverse=True)

    def file(self, number: int) -> str:
        """Return the path of the state with a number."""
        return os.path.join(self.path, f"state-{number:08d}.safetensors")

    def write(self, state: dict[str, Any]) -> None:
        """Write the next state, then remove those that are not kept."""
        os.makedirs(self.path, exist_ok=True)
        write_state(self.file(self._next), state)
        self._next += 1
        whole = [number for number in self._numbers() if number not in self._damaged]
        for number in [*self._damaged, *whole[self.keep :]]:
            clear(self.file(number))
        self._damaged.clear()

    def read(self) -> tuple[dict[str, Any] | None, list[str]]:
        """Return (the newest whole state or None, what is wrong with each newer one)."""
        damages: list[str] = []
        for number in self._numbers():
            try:
                return read_state(self.file(number)), damages
            except (ValueError, OSError) as error:
                damages.append(str(error))
                self._damaged.add(number)
        return None, damages

    def remove(self) -> None:
        """Remove all states, and the folder if nothing else is in it."""
        for number in self._numbers():
            os.remove(self.file(number))
        if os.path.isdir(self.path) and not os.listdir(self.path):
            os.rmdir(self.path)
