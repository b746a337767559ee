"""Sliding windows over a time series."""

from __future__ import annotations

import numpy as np

from kerasish.data import Dataset
from kerasish.engine.data.arrays import contents_of
from kerasish.typing import Array, Structure
from kerasish.utils.batches import dataset_of_rows


def timeseries_dataset_from_array(
    data: Array,
    targets: Array,
    sequence_length: int,
    sequence_stride: int = 1,
    sampling_rate: int = 1,
    batch_size: int | None = 128,
    shuffle: bool = False,
    seed: int | None = None,
    start_index: int | None = None,
    end_index: int | None = None,
    format: str = "tf",
) -> Dataset:
    """Return a Dataset of windows x[i] = data[s : s + length * rate : rate], s = i * stride.

    Args:
        data: the series, time along the first axis.
        targets: one target for each window, by its start; None: only windows.
        sequence_length: steps in a window.
        sequence_stride: steps between the starts of adjacent windows.
        sampling_rate: steps of the series between adjacent steps of a window.
        batch_size: windows per batch; None: single windows.
        shuffle: whether the windows have a new order in each epoch.
        seed: the seed of the orders; None: drawn.
        start_index, end_index: the part of the series to use; None: all.
        format: accepted without effect.

    Shape:
        data (time, ...) -> x (batch, sequence_length, ...).

    Raises:
        ValueError: a size is below 1, or no window fits.

    Example:
        >>> windows = timeseries_dataset_from_array(np.arange(6), None, sequence_length=3)
        >>> windows[0].tolist()
        [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]]
    """
    sizes = {
        "sequence_length": sequence_length, "sequence_stride": sequence_stride,
        "sampling_rate": sampling_rate,
    }  # fmt: skip
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"timeseries_dataset_from_array: {name} is 1 or more, got {size}.")
    first, stop = _part(start_index, end_index, len(data))
    count = stop - first - (sequence_length - 1) * sampling_rate
    if targets is not None:
        count = min(count, len(targets) - first)
    if count < 1:
        raise ValueError(
            f"timeseries_dataset_from_array: no window of {sequence_length} steps, each "
            f"{sampling_rate} apart, fits into {stop - first} steps of data"
            + ("." if targets is None else f" with {len(targets)} targets.")
        )
    series = np.asarray(data)
    aims = None if targets is None else np.asarray(targets)
    starts = first + np.arange(0, count, sequence_stride)
    steps = np.arange(sequence_length) * sampling_rate

    def read(rows: Array) -> Structure:
        windows = series[starts[rows][:, None] + steps]
        return windows if aims is None else (windows, aims[starts[rows]])

    text = (
        f"timeseries({len(starts)} x {sequence_length} steps, {sequence_stride}, {sampling_rate})"
    )
    return dataset_of_rows(
        read, len(starts), batch_size, shuffle, seed, text, contents_of([series])
    )


def _part(start: int | None, end: int | None, length: int) -> tuple[int, int]:
    first = 0 if start is None else start
    stop = length if end is None else end
    if not 0 <= first < length or not first < stop <= length:
        raise ValueError(
            f"timeseries_dataset_from_array: expected 0 <= start_index < end_index <= {length} "
            f"(the length of the data), got {start} and {end}."
        )
    return first, stop
