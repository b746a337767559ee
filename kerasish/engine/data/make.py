"""`make_data`: from what the user passed as `x` to the matching `Data`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kerasish.engine.data.arrays import ArrayData
from kerasish.engine.data.data import Data
from kerasish.engine.data.py_dataset import PyDataset, PyDatasetData
from kerasish.engine.data.ragged import Ragged
from kerasish.engine.data.rows import is_sparse, is_stored
from kerasish.engine.data.sequences import SequenceData, holds_ragged
from kerasish.engine.data.source import DataSource, SourceData
from kerasish.engine.data.streams import StreamData
from kerasish.engine.data.structures import Structures
from kerasish.engine.data.weights import check_class_weight
from kerasish.typing import Array, Structure

_ARRAY_MARKS = ("to_numpy", "__array__", "__dlpack__", "detach")
_NO_DATA = (str, bytes, set, frozenset, type)


def make_data(
    x: Structure,
    y: Structure = None,
    sample_weight: Structure = None,
    class_weight: Mapping[Any, Any] | None = None,
    batch_size: int | None = None,
    steps_per_epoch: int | None = None,
    shuffle: bool | str = False,
    seed: int = 0,
    training: bool = True,
) -> Data:
    """Return the `Data` that gives the batches of `x`, `y` and `sample_weight`.

    Args:
        x: arrays (or lists, tuples, dicts of them; lists of numbers, data frames, sparse matrices,
            h5py datasets, memory maps, tensors of any library, `Ragged` sequences); or a source of
            ready batches: a generator, an iterator, a `PyDataset`, or anything that can be
            iterated again.
        y: targets, arrays likewise; None with a source of batches, which gives them itself.
        sample_weight: weight of each sample, arrays likewise.
        class_weight: {class: weight}; multiplies the weights of the samples.
        batch_size: samples per batch, for arrays only; default 32.
        steps_per_epoch: batches per epoch; default all that there are.
        shuffle: True, False, or "batch" (the order of whole batches, for data on disk).
        seed: the order in epoch e is a function of (seed, e).
        training: whether errors name `steps_per_epoch` (else `steps`).

    Raises:
        ValueError: the message names the argument, what was expected and what was given.

    Example:
        >>> data = make_data(np.zeros((5, 2)), [0, 1, 0, 1, 0], batch_size=2)
        >>> [(x.shape, y.tolist()) for x, y, _ in data.epoch(0)]
        [((2, 2), [0, 1]), ((2, 2), [0, 1]), ((1, 2), [0])]
    """
    if isinstance(x, Data):
        return x
    _check_count("batch_size", batch_size)
    _check_count("steps_per_epoch" if training else "steps", steps_per_epoch)
    if shuffle not in (True, False, "batch"):
        raise ValueError(f'shuffle: expected True, False or "batch", got {shuffle!r}.')
    if class_weight is not None:
        check_class_weight(class_weight)
    if isinstance(x, DataSource):
        _check_only_x(x, y, sample_weight, batch_size)
        return SourceData(x, class_weight, steps_per_epoch, training)
    if is_py_dataset(x):
        _check_only_x(x, y, sample_weight, None)
        if batch_size is not None:
            warnings.warn(
                f"batch_size={batch_size} is ignored: x is a {type(x).__name__}, which gives whole "
                "batches.",
                stacklevel=2,
            )
        return PyDatasetData(x, class_weight, steps_per_epoch, shuffle, seed, training)
    if is_arrays(x):
        kind = SequenceData if holds_ragged(x) else ArrayData
        if kind is ArrayData:
            _refuse_ragged(y=y, sample_weight=sample_weight)
        return kind(
            x,
            y,
            sample_weight,
            class_weight=class_weight,
            batch_size=batch_size,
            steps_per_epoch=steps_per_epoch,
            shuffle=shuffle,
            seed=seed,
            training=training,
        )
    if hasattr(x, "__iter__") and not isinstance(x, _NO_DATA):
        _check_only_x(x, y, sample_weight, batch_size)
        return StreamData(x, class_weight, steps_per_epoch, training)
    raise ValueError(_unknown(x))


def is_py_dataset(x: Structure) -> bool:
    """Return whether `x` is a `PyDataset`, ours or one that behaves so."""
    return isinstance(x, PyDataset) or (
        hasattr(x, "__getitem__") and hasattr(x, "num_batches") and hasattr(x, "on_epoch_end")
    )


def is_arrays(x: Structure) -> bool:
    """Return whether `x` is an array or a structure of arrays, rather than a source of batches."""
    if isinstance(x, (np.ndarray, list, tuple, Mapping, Ragged, Structures)):
        return True
    if hasattr(x, "__next__") or isinstance(x, _NO_DATA):
        return False
    return is_sparse(x) or is_stored(x) or any(hasattr(x, mark) for mark in _ARRAY_MARKS)


def _refuse_ragged(**given: Structure) -> None:
    for name, value in given.items():
        if holds_ragged(value):
            raise ValueError(
                f"{name}: expected rows of equal length, since those of x are, got sequences of "
                "different lengths. Pad them (utils.pad_sequences), or give x as sequences too."
            )


def _check_count(name: str, value: float | None) -> None:
    if value is None:
        return
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name}: expected a positive integer or None, got {value!r}.")


def _check_only_x(x: object, y: Array, sample_weight: Structure, batch_size: int | None) -> None:
    kind = type(x).__name__
    given = {"y": y, "sample_weight": sample_weight, "batch_size": batch_size}
    for name, value in given.items():
        if value is not None:
            shown = value if name == "batch_size" else type(value).__name__
            raise ValueError(
                f"{name}: expected None with x as a {kind}, which gives whole batches (x, y, "
                f"sample_weight) by itself, got {shown}."
            )


def _unknown(x: Callable[..., Any] | set[Any] | str | float | None) -> str:
    kind = type(x).__name__
    expected = (
        "x: expected arrays, lists or dicts of arrays, a data frame, a generator, a PyDataset or "
        f"an iterable of batches, got {kind}"
    )
    if x is None:
        return f"{expected}: no data was passed."
    if callable(x) and not isinstance(x, type):
        return f"{expected}. If it is a function that makes a generator, call it: x=f()."
    if hasattr(x, "__getitem__") and hasattr(x, "__len__") and not isinstance(x, _NO_DATA):
        return f"{expected}. If it gives single samples, put a torch DataLoader around it."
    return f"{expected}. A single number or string is no data: wrap one sample as [value]."
