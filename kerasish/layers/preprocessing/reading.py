"""What the layers of this package read: strings in any dress, numbers, and batches to adapt to."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from kerasish.engine.data.py_dataset import PyDataset
from kerasish.tensor import Tensor, to_numpy
from kerasish.typing import Array, Shape, Structure, TensorLike


def is_text(array: Array) -> bool:
    """Return whether a NumPy array holds strings or bytes."""
    if array.dtype.kind in "UST":
        return True
    return array.dtype.kind == "O" and all(isinstance(x, (str, bytes)) for x in array.flat)


def read_strings(x: Structure, who: str, encoding: str = "utf-8") -> Array:
    """Return strings, bytes (decoded) or nested lists of them as a NumPy array of str or objects.

    Raises:
        ValueError: something else is among them; the message shows it.
    """
    if isinstance(x, Tensor):
        raise ValueError(f"{who}: expected strings, got a tensor of {x.dtype}.")
    array = _rectangular(x, who)
    if array.dtype.kind == "U":
        return array
    if array.dtype.kind == "S":
        return np.char.decode(array, encoding)
    if array.dtype.kind in "OT":
        return strings_like(
            [_string(s, who, encoding) for s in array.ravel().tolist()], array.shape
        )
    if not array.size:
        return array.astype(str)
    raise ValueError(f"{who}: expected strings, got numbers of dtype {array.dtype}.")


def strings_like(flat: list[str], shape: Shape) -> Array:
    """Return strings as an array of objects: each takes its own length, not the longest length."""
    result = np.empty(len(flat), object)
    result[:] = flat
    return result.reshape(shape)


def _string(value: str | float, who: str, encoding: str) -> str:
    if isinstance(value, bytes):
        return value.decode(encoding)
    if isinstance(value, str):
        return str(value)
    raise ValueError(f"{who}: expected strings, got {value!r} of type {type(value).__name__}.")


def _rectangular(x: Structure, who: str) -> Array:
    try:
        return np.asarray(x)
    except ValueError as error:
        raise ValueError(
            f"{who}: expected nested lists that form a rectangle, got rows of unequal length; "
            "pad them to one length."
        ) from error


def read_integers(x: TensorLike, who: str) -> Array:
    """Return numbers, truth values or nested lists of them as a NumPy array of int64.

    Raises:
        ValueError: there are strings among them.
    """
    array = to_numpy(x) if isinstance(x, Tensor) else _rectangular(x, who)
    if array.dtype.kind in "USTOM":
        raise ValueError(f"{who}: expected integers, got {array.dtype.type.__name__}.")
    return array.astype(np.int64)


def batches_of(data: Array, steps: int | None, who: str) -> Iterator[Any]:
    """Yield the batches to adapt to: an array or list is one; of (x, y) pairs, x counts.

    Args:
        data: an array, list or tensor, or an iterable of batches (a PyDataset, a generator ...).
        steps: batches to take at most; None: all.

    Raises:
        ValueError: there is none.
    """
    if isinstance(data, (str, bytes)):
        raise ValueError(f"{who}: adapt() takes an array of strings, got the one string {data!r}.")
    whole = hasattr(data, "shape") or isinstance(data, (list, tuple))
    batches: Iterable[Any] = [data] if whole else data
    if hasattr(data, "to_numpy"):  # a data frame's column
        batches = [data.to_numpy()]
    if isinstance(data, PyDataset):  # iterated over as a sequence, it might never end
        total = data.num_batches
        batches = map(data.__getitem__, itertools.count() if total is None else range(total))
    count = 0
    for batch in batches:
        if steps is not None and count >= steps:
            break
        count += 1
        if isinstance(batch, tuple) and not whole:
            batch = batch[0]
        # TensorFlow's tensors, without knowing of TensorFlow.
        yield batch.numpy() if hasattr(batch, "numpy") else batch
    if not count:
        raise ValueError(f"{who}: adapt() got no data.")


def learn_from(layer: Any, data: Array, steps: int | None) -> None:
    """Reset a layer's state and learn it from batches.

    Args:
        layer: has `reset_state`, `update_state` and `finalize_state`.
        data, steps: see `batches_of`.
    """
    layer.reset_state()
    for batch in batches_of(data, steps, layer.display_name()):
        layer.update_state(batch)
    layer.finalize_state()
