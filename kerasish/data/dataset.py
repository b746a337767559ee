"""Dataset: elements from arrays, files and functions, and the verbs of `tf.data` on them."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from kerasish.data.batch_verbs import BatchVerbs
from kerasish.data.combining import SampleNode, ZipNode
from kerasish.data.element_verbs import ElementVerbs
from kerasish.data.elements import to_element
from kerasish.data.node import DataNode, seed_of
from kerasish.data.pipeline import Pipeline
from kerasish.data.sources import RangeNode, SingleNode, generator_node, slices
from kerasish.data.tables import csv_node, frame_node, parquet_node
from kerasish.typing import Array, PathLike, Structure


class Dataset(ElementVerbs, BatchVerbs):
    """Elements one after the other, and verbs that make other data sets of them, as in `tf.data`.

    Make one with `from_tensor_slices`, `from_generator`, `range`, `list_files`, `from_parquet` or
    `from_csv`; chain verbs; iterate, or pass it to `fit`, `evaluate` and `predict`, whose elements
    are batches (x,), (x, y) or (x, y, sample_weight).

    Elements are NumPy arrays, or tuples and dicts of them. In functions given to `map` and others
    they are plain arrays; iteration gives arrays that have a method `numpy`, too.

    A data set can be iterated again and again; each pass has a number, from 0 on. Shuffled orders
    and random draws are functions of their seed and of this number, for any number of threads.
    `fit` gives epoch n pass n. An iterator has a place: `iterator.state()` is a small value,
    with which `iterator.restore(state)` continues in another process. `fit(resume=...)` keeps it,
    and continues in the middle of an epoch with the same bits.

    Threads (`num_parallel_calls`, `prefetch`) read a bounded number of elements ahead, and end when
    the iterator is dropped, at its end, and after an error, which is the one that your function
    raised, with its traceback.

    Args:
        node: the last node of a chain; users call the functions above instead.

    Attributes:
        class_names: of data made from folders, and of all that is made of it; None otherwise.
        file_paths: of data made from folders, in the order without a shuffle; None otherwise.

    Example:
        >>> from kerasish.data import Dataset
        >>> x, y = np.arange(6.0).reshape(6, 1), np.arange(6)
        >>> data = Dataset.from_tensor_slices((x, y)).map(lambda x, y: (x / 10, y)).batch(4)
        >>> [(x.shape, y.numpy().tolist()) for x, y in data]
        [((4, 1), [0, 1, 2, 3]), ((2, 1), [4, 5])]
    """

    def __init__(self, node: DataNode) -> None:
        if not isinstance(node, DataNode):
            raise TypeError(
                f"Dataset: got {type(node).__name__}. Use Dataset.from_tensor_slices(arrays), "
                "from_generator(function) or range(n)."
            )
        super().__init__(node)

    @staticmethod
    def from_tensor_slices(tensors: Structure) -> Dataset:
        """Return the rows of arrays, which are neither copied nor read before they are needed.

        Args:
            tensors: an array, or a tuple or dict of arrays with equally many rows: NumPy, memory
                maps, HDF5 datasets, sparse matrices, tensors of any library, columns of data frames
                (`dict(frame)`). A list is one array.

        Raises:
            ValueError: there is no array, one has no rows, or their numbers of rows differ.

        Example:
            >>> from kerasish.data import Dataset
            >>> data = Dataset.from_tensor_slices({"a": [1, 2], "b": ["x", "y"]})
            >>> next(data.as_numpy_iterator())
            {'a': np.int32(1), 'b': 'x'}
        """
        return Dataset(slices(tensors))

    @staticmethod
    def from_tensors(tensors: Structure) -> Dataset:
        """Return a data set of one element: an array, or a tuple or dict of arrays."""
        return Dataset(SingleNode(to_element(tensors, lambda: "from_tensors")))

    @staticmethod
    def from_generator(
        generator: Callable[..., Iterable[Any]],
        output_types: Structure = None,
        output_shapes: Structure = None,
        args: Sequence[Any] | None = None,
        output_signature: Structure = None,
    ) -> Dataset:
        """Return the elements of the iterators that a function returns, one for each pass.

        Args:
            generator: a generator function, or anything that returns an iterable.
            output_types, output_shapes: dtypes and shapes, in `tf.data`'s older form.
            args: the arguments of the function.
            output_signature: a structure of `TensorSpec`s that elements are cast to and checked
                against; None: elements are taken as they are, and a list of arrays as a tuple.

        A generator cannot be put to a place: a resumed training reads it from its beginning, with a
        warning.

        Raises:
            TypeError: it is no function, but for example a generator that was begun.
            ValueError: while it is read: an element does not fit the signature.

        Example:
            >>> from kerasish.data import Dataset
            >>> def squares():
            ...     for i in range(3):
            ...         yield i * i
            >>> [int(x) for x in Dataset.from_generator(squares)]
            [0, 1, 4]
        """
        return Dataset(
            generator_node(generator, args, output_signature, output_types, output_shapes)
        )

    @staticmethod
    def range(*args: int) -> Dataset:
        """Return the numbers of `range(stop)`, `range(start, stop)` or `range(start, stop, step)`.

        They are int64.
        """
        return Dataset(RangeNode(range(*[int(a) for a in args])))

    @staticmethod
    def list_files(
        file_pattern: PathLike | Sequence[PathLike],
        shuffle: bool | None = None,
        seed: int | None = None,
    ) -> Dataset:
        """Return the names of the files that match a pattern, such as "pictures/*/*.png".

        Args:
            file_pattern: a pattern of `glob`, or a list of patterns.
            shuffle: whether each pass has them in another order; None: True, as in `tf.data`.
            seed: of the orders.

        Raises:
            ValueError: no file matches.
        """
        patterns = file_pattern if isinstance(file_pattern, (list, tuple)) else [file_pattern]
        names = sorted(name for p in patterns for name in glob.glob(str(p)))
        if not names:
            raise ValueError(f"list_files: no file matches {file_pattern!r}.")
        files = Dataset.from_tensor_slices(names)
        return files if shuffle is False else files.shuffle(len(names), seed)

    @staticmethod
    def from_parquet(
        paths: PathLike | Sequence[PathLike],
        columns: Sequence[str] | None = None,
        label: str | Sequence[str] | None = None,
    ) -> Dataset:
        """Return the rows of Parquet files, read a part at a time: they may exceed the memory.

        Args:
            paths: a file, a pattern of `glob`, or a list of these. Needs pyarrow.
            columns: the names of the columns to read; None: all.
            label: the column(s) to be given as y; elements are then (x, y).

        x is a dict of name -> value. `batch` directly after it copies whole columns; a shuffle of
        single rows takes some microseconds per row, so that of large files rather shuffle batches:
        `.batch(256).shuffle(1000)`.

        Raises:
            ValueError: a file is missing, has no such column, or has columns of nested types.
        """
        return Dataset(parquet_node(paths, columns, label))

    @staticmethod
    def from_csv(
        paths: PathLike | Sequence[PathLike],
        columns: Sequence[str] | None = None,
        label: str | Sequence[str] | None = None,
        delimiter: str = ",",
        dtypes: Mapping[str, str] | None = None,
    ) -> Dataset:
        """Return the rows of CSV files with a header line, read a part at a time.

        Args:
            paths, columns, label: as for `from_parquet`. Needs pyarrow.
            delimiter: what separates the columns.
            dtypes: column -> dtype ("float32", "string" ...); those of other columns are guessed
                from the first part of each file.
        """
        return Dataset(csv_node(paths, columns, label, delimiter, dtypes))

    @staticmethod
    def from_table(
        table: Any, label: str | Sequence[str] | None = None, columns: Sequence[str] | None = None
    ) -> Dataset:
        """Return the rows of a table in memory: pandas, polars (also lazy), pyarrow, Hugging Face.

        Args:
            table: the table; columns of numbers without gaps are not copied.
            label: the column(s) to be given as y; elements are then (x, y), x a dict of columns.
            columns: the names of the columns to use; None: all.

        Raises:
            ValueError: a column is missing or has a nested type.
        """
        return Dataset(frame_node(table, columns, label))

    @staticmethod
    def zip(*args: Structure, datasets: Structure = None) -> Dataset:
        """Return tuples of the elements of several data sets; the shortest one ends it.

        Args:
            args: data sets, or one tuple or dict of data sets, whose structure elements have.
            datasets: the same, by name.

        Example:
            >>> from kerasish.data import Dataset
            >>> both = Dataset.zip(Dataset.range(3), Dataset.range(10, 20))
            >>> [(int(a), int(b)) for a, b in both]
            [(0, 10), (1, 11), (2, 12)]
        """
        given: Structure = args if datasets is None else (datasets,)
        if len(given) == 1 and not isinstance(given[0], Pipeline):
            given = given[0]
        return Dataset(ZipNode(_nodes(given)))

    @staticmethod
    def sample_from_datasets(
        datasets: Sequence[Pipeline],
        weights: Sequence[float] | Array | None = None,
        seed: int | None = None,
        stop_on_empty_dataset: bool = False,
    ) -> Dataset:
        """Return elements of several data sets, each from one drawn at random.

        Args:
            datasets: with elements of the same structure.
            weights: one number >= 0 for each data set; None: all equal.
            seed: of the draws; None: drawn from the process's generator.
            stop_on_empty_dataset: whether it ends with the first data set that ends; else the
                others continue.

        Raises:
            ValueError: there is no data set, or the weights do not fit.
        """
        nodes = tuple(_nodes(tuple(datasets)))
        shares = np.ones(len(nodes)) if weights is None else np.asarray(weights, "float64")
        if not nodes or shares.shape != (len(nodes),) or shares.min() < 0 or not shares.sum():
            raise ValueError(
                f"sample_from_datasets: expected one weight >= 0 for each of {len(nodes)} data "
                f"sets, one above 0, got {weights!r}."
            )
        return Dataset(SampleNode(nodes, shares, seed_of(seed), bool(stop_on_empty_dataset)))


def _nodes(structure: Structure) -> Any:
    if isinstance(structure, Pipeline):
        return structure.node
    if isinstance(structure, Mapping):
        return {key: _nodes(structure[key]) for key in sorted(structure)}
    if isinstance(structure, (tuple, list)) and structure:
        return tuple(_nodes(part) for part in structure)
    raise TypeError(f"zip: expected data sets, or a tuple or dict of them, got {structure!r}.")
