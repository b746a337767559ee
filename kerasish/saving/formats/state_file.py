"""Training states as files: a tree of plain values with arrays as leaves, whole or not there.

The layout is that of `tensor_file`. Its metadata hold the tree as JSON, in which {"array": n}
is the n-th array; the arrays' names are their places in the tree.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from kerasish.saving.files.atomic import clear
from kerasish.saving.files.folder_lock import FolderLock
from kerasish.saving.formats.json_text import read_json
from kerasish.saving.formats.tensor_file import code_of, opened, write_arrays
from kerasish.typing import Structure

_NAME = re.compile(r"state-(\d{8})\.safetensors")
_FORMAT = "kerasish training state 2"


def write_state(path: str, state: dict[str, Any]) -> None:
    """Write a tree of dicts, lists, arrays, numbers, strings and None to a file.

    Raises:
        TypeError: something else is in the tree.
        OSError: the file could not be written; what was there before is unchanged.
    """
    arrays: dict[str, np.ndarray] = {}
    record = json.dumps(_take_out(state, arrays, ""))
    write_arrays(path, arrays, {"format": _FORMAT, "state": record})


def read_state(path: str) -> dict[str, Any]:
    """Return the tree that a file holds.

    Raises:
        ValueError: the file is damaged; the message names the array, if it is one.
        OSError: it cannot be read.
    """
    with opened(path) as file:
        if not file.sealed or file.metadata.get("format") != _FORMAT:
            raise ValueError(f"{path}: no training state of this version of kerasish.")
        record = read_json(file.metadata.get("state", ""), path)
        arrays = [file.read(name) for name in file.places]
    try:
        state = _put_back(record, arrays)
    except (KeyError, IndexError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: its record is damaged ({error!r}).") from error
    if not isinstance(state, dict):
        raise ValueError(f"{path}: its record is damaged (no dict).")
    return state


def _take_out(value: object, arrays: dict[str, np.ndarray], where: str) -> Structure:
    """Return `value` for JSON; its arrays go into `arrays`, by their place."""
    if isinstance(value, dict):
        inner = f"{where}/" if where else ""
        return {"dict": [[k, _take_out(v, arrays, f"{inner}{k}")] for k, v in value.items()]}
    if isinstance(value, (list, tuple)):
        return [_take_out(v, arrays, f"{where}/{i}") for i, v in enumerate(value)]
    if isinstance(value, np.generic):
        value = value.item() if value.dtype.kind in "biuf" else np.asarray(value)
    if isinstance(value, np.ndarray):
        if code_of(value.dtype) is None:
            raise TypeError(f"A training state holds no arrays of {value.dtype} ({where}).")
        while where in arrays:  # names that hold slashes may say the same of two places
            where += "'"
        arrays[where] = np.ascontiguousarray(value).reshape(value.shape)
        return {"array": len(arrays) - 1}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(
        f"A training state holds numbers, strings, arrays, lists and dicts; {where} is a "
        f"{type(value).__name__}."
    )


def _put_back(value: object, arrays: list[np.ndarray]) -> Structure:
    if isinstance(value, list):
        return [_put_back(v, arrays) for v in value]
    if isinstance(value, dict):
        if "array" in value:
            number = value["array"]
            if type(number) is not int or not 0 <= number < len(arrays):
                raise ValueError(f"no array has the number {number!r}")
            return arrays[number]
        return {_key(k): _put_back(v, arrays) for k, v in value["dict"]}
    return value


def _key(key: str) -> str:
    if isinstance(key, (list, dict)):
        raise ValueError(f"{key!r} is no key")
    return key


class StateFolder:
    """A folder of training states, numbered upwards; the latest two are kept.

    Args:
        path: the folder; made when the first state is written.

    Attributes:
        lock: to be held by the writer.
    """

    keep = 2

    def __init__(self, path: str) -> None:
        self.path = path
        self.lock = FolderLock(path)
        self._damaged: set[int] = set()
        self._next = max(self._numbers(), default=-1) + 1

    def _numbers(self) -> list[int]:
        """Return the numbers of the files there, the latest first."""
        if not os.path.isdir(self.path):
            return []
        result = (_NAME.fullmatch(name) for name in os.listdir(self.path))
        return sorted((int(match[1]) for match in result if match), reverse=True)

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

    def read(
        self, check: Callable[[dict[str, Any]], None] | None = None
    ) -> tuple[dict[str, Any] | None, list[str]]:
        """Return (the latest whole state or None, what is wrong with each newer one).

        Args:
            check: raises ValueError for a state that holds what no training has written.
        """
        damages: list[str] = []
        for number in self._numbers():
            try:
                state = read_state(self.file(number))
                if check is not None:
                    _checked(state, check, self.file(number))
                return state, damages
            except (ValueError, OSError) as error:
                damages.append(str(error))
                self._damaged.add(number)
        return None, damages

    def remove(self) -> None:
        """Remove all states, give the lock back, remove the folder if nothing else is in it."""
        for number in self._numbers():
            os.remove(self.file(number))
        self.lock.drop()
        if os.path.isdir(self.path) and not os.listdir(self.path):
            with contextlib.suppress(OSError):  # another training has begun in it
                os.rmdir(self.path)


def _checked(state: dict[str, Any], check: Callable[[dict[str, Any]], None], path: str) -> None:
    try:
        check(state)
    except ValueError as error:
        raise ValueError(f"{path}: its record is damaged ({error}).") from error
