"""Targets of pictures in files: from folders, and from the columns of a table."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasish.ops import dtypes
from kerasish.typing import Array

DIRECTORY_MODES = ("categorical", "binary", "sparse", "input", None)
FRAME_MODES = ("categorical", "binary", "sparse", "input", "multi_output", "raw", None)
CLASS_MODES = ("categorical", "binary", "sparse")


def check_mode(mode: str | None, modes: Sequence[str | None], who: str) -> None:
    """Raise ValueError unless a class mode is among `modes`.

    Args:
        mode: the mode.
        modes: those that there are.
        who: what the message calls the caller.

    Example:
        >>> check_mode("sparse", DIRECTORY_MODES, "DirectoryIterator")
    """
    if mode not in modes:
        raise ValueError(f"{who}: class_mode is one of {list(modes)}, got {mode!r}.")


def number_classes(names: Sequence[str]) -> dict[str, int]:
    """Return class name -> number.

    Args:
        names: the classes in the order of their numbers.

    Example:
        >>> number_classes(["cat", "dog"])
        {'cat': 0, 'dog': 1}
    """
    return {name: number for number, name in enumerate(names)}


def batch_targets(
    mode: str, labels: Any, numbers: Array, batch: Array, classes: int, dtype: str
) -> Any:
    """Return the targets of a batch.

    Args:
        mode: the class mode, not None.
        labels: class numbers, lists of class numbers, or arrays of targets.
        numbers: which pictures are in the batch.
        batch: the pictures.
        classes: how many classes there are.
        dtype: the batch's dtype.

    Example:
        >>> numbers = np.array([0, 2])
        >>> batch_targets("categorical", [1, 0, [0, 1]], numbers, None, 2, "float32").tolist()
        [[0.0, 1.0], [1.0, 1.0]]
    """
    if mode == "input":
        return batch.copy()
    if mode == "multi_output":
        return [values[numbers] for values in labels]
    if mode == "raw":
        return labels[numbers]
    kind = dtypes.array_dtype(dtype)
    if mode != "categorical":
        return np.array([labels[i] for i in numbers], kind)
    result = np.zeros((len(numbers), classes), kind)
    for row, number in enumerate(numbers):
        result[row, labels[number]] = 1
    return result


def classes_of_rows(
    values: Sequence[Any], classes: Sequence[str] | None, mode: str, column: str, who: str
) -> tuple[list[str], list[bool]]:
    """Return the classes in a column, and which rows have one of them.

    Args:
        values: the column: texts, or for "categorical" lists of texts as well.
        classes: the classes in the order of their numbers; None: all, sorted.
        mode: "categorical", "binary" or "sparse".
        column: the column's name.
        who: what messages call the caller.

    Raises:
        TypeError: a value is no text.
        ValueError: "binary", and there are not two classes.

    Example:
        >>> classes_of_rows(["b", "a", "b"], None, "binary", "class", "flow")
        (['a', 'b'], [True, True, True])
    """
    several = mode == "categorical"
    for value in values:
        inner = value if several and isinstance(value, (list, tuple)) else [value]
        wrong = next((one for one in inner if not isinstance(one, str)), None)
        if wrong is not None:
            raise TypeError(
                f"{who}: class_mode={mode!r} needs texts in the column {column!r}, got {wrong!r} "
                f"({type(wrong).__name__}). Use astype(str), or class_mode='raw' for numbers."
            )
    present = {one for value in values for one in ([value] if isinstance(value, str) else value)}
    names = sorted(present) if classes is None else list(dict.fromkeys(classes))
    if mode == "binary" and len(names) != 2:
        raise ValueError(
            f"{who}: class_mode='binary' needs two classes, got {len(names)}: {names[:5]}."
        )
    known = set(names)
    kept = [
        value in known if isinstance(value, str) else any(one in known for one in value)
        for value in values
    ]
    return names, kept


class LabelRows:
    """Some columns of a table, as lists of equal length.

    Args:
        table: a data frame, or a dict of columns.
        who: what messages call the caller.

    Example:
        >>> rows = LabelRows({"filename": ["a.png", "b.png"], "class": ["x", "y"]}, "flow")
        >>> rows.take("filename", None, "class")
        >>> rows.keep([True, False], None)
        >>> rows.columns
        {'filename': ['a.png'], 'class': ['x']}
    """

    def __init__(self, table: Any, who: str) -> None:
        self._table, self._who = table, who
        self.columns: dict[str, list[Any]] = {}

    def take(self, x: str, weight: str | None, y: str | Sequence[str]) -> None:
        """Read columns.

        Args:
            x: the column of the files' names.
            weight: the column of the weights, or None.
            y: the column, or columns, of the targets.

        Raises:
            ValueError: the table does not have one, or they differ in length.
        """
        targets = [y] if isinstance(y, str) else list(y)
        for name in dict.fromkeys([x, *targets, *([] if weight is None else [weight])]):
            try:
                self.columns[name] = list(self._table[name])
            except (KeyError, IndexError, TypeError) as error:
                known = [str(k) for k in getattr(self._table, "columns", self._table)]
                raise ValueError(
                    f"{self._who}: the table has no column {name!r}, but {known}."
                ) from error
        lengths = {name: len(values) for name, values in self.columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"{self._who}: the columns differ in length: {lengths}.")
        if weight is not None and not all(
            isinstance(value, (int, float, np.number)) for value in self.columns[weight]
        ):
            raise TypeError(f"{self._who}: the column {weight!r} of the weights holds no numbers.")

    def check_texts(self, name: str) -> None:
        """Raise TypeError unless all values of a column are texts.

        Args:
            name: the column.
        """
        wrong = next((value for value in self.columns[name] if not isinstance(value, str)), None)
        if wrong is not None:
            raise TypeError(
                f"{self._who}: the column {name!r} names files, got {wrong!r} "
                f"({type(wrong).__name__})."
            )

    def keep(self, kept: Sequence[bool], warn_of: str | None) -> None:
        """Leave rows out.

        Args:
            kept: for each row, whether it stays.
            warn_of: the column to name in a warning if some go; None: no warning.
        """
        gone = len(kept) - sum(kept)
        if gone and warn_of is not None:
            warnings.warn(
                f"{self._who}: {gone} of {len(kept)} file names in the column {warn_of!r} are "
                "missing files or no pictures; these rows are left out.",
                stacklevel=4,
            )
        self.columns = {
            name: [value for value, stays in zip(values, kept) if stays]
            for name, values in self.columns.items()
        }

    def count(self) -> int:
        """Return the number of rows."""
        return len(next(iter(self.columns.values())))
