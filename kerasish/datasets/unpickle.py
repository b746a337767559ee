"""Pickled arrays of old data sets, read by an unpickler that can build nothing but arrays."""

from __future__ import annotations

import codecs
import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np


def _dtype(code: Any, align: bool = False, copy: bool = False) -> np.dtype:
    """Return np.dtype as Python 2's pickles ask for it: a name in bytes, flags as numbers."""
    name = code.decode("ascii") if isinstance(code, bytes) else code
    return np.dtype(name, align=bool(align), copy=bool(copy))


# What pickled arrays call, under the last part of its name: NumPy moved its modules over the years.
_RECONSTRUCT = np.empty(0).__reduce__()[0]
_SCALAR = np.float64(0).__reduce__()[0]
_ALLOWED = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _dtype,
    ("_codecs", "encode"): codecs.encode,  # how newer pickles of old protocols write bytes
} | {
    (f"numpy.{core}.multiarray", name): thing
    for core in ("core", "_core")
    for name, thing in (("_reconstruct", _RECONSTRUCT), ("scalar", _SCALAR))
}


class ArrayUnpickler(pickle.Unpickler):
    """Unpickler of arrays, lists, dicts, numbers and strings; anything else raises."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        """Return one of the few functions that arrays need.

        Raises:
            pickle.UnpicklingError: the file asks for another one.
        """
        try:
            return _ALLOWED[module_name, global_name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"the file asks for {module_name}.{global_name}; only arrays, lists, dicts, "
                "numbers and strings are read."
            ) from None


def load_pickle(path: str | Path) -> Any:
    """Return the arrays, lists and dicts pickled in a file; strings of Python 2 stay bytes."""
    with open(path, "rb") as file:
        return ArrayUnpickler(file, encoding="bytes").load()


def load_npz(path: str | Path) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz file, arrays of objects (lists of numbers) included.

    Raises:
        pickle.UnpicklingError: an object is no array, list, dict, number or string.
    """
    arrays = {}
    with zipfile.ZipFile(path) as zipped:
        for name in zipped.namelist():
            arrays[name.removesuffix(".npy")] = _read_npy(io.BytesIO(zipped.read(name)))
    return arrays


def _read_npy(file: io.BytesIO) -> np.ndarray:
    version = np.lib.format.read_magic(file)
    read_header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read_header is not None:
        shape, _, dtype = read_header(file)
        if dtype.hasobject:
            return np.asarray(ArrayUnpickler(file, encoding="latin1").load()).reshape(shape)
    file.seek(0)
    return np.lib.format.read_array(file, allow_pickle=False)
