"""What all data sets can do: iterate, describe themselves, save and restore their place."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish.callbacks.state_checks import WRONG_KINDS
from kerasish.data.elements import wrap
from kerasish.data.node import (
    END,
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Cursor,
    DataNode,
    Seed,
    chain,
)
from kerasish.engine.data import DataSource
from kerasish.engine.data.rows import RowsAhead
from kerasish.overriding import Closing
from kerasish.reprs import arguments_repr
from kerasish.typing import Structure

if TYPE_CHECKING:
    from typing_extensions import Self


class DatasetIterator(Closing, Iterator[Any]):
    """The elements of one pass over a `Dataset`, at a place that can be saved and restored.

    Threads that read for it end when it is dropped, closed, exhausted, or raises an error.

    Args:
        node: what is read.
        number: of the pass, from 0.
        wrapped: whether arrays have a method `numpy`.

    Example:
        >>> from kerasish.data import Dataset
        >>> numbers = Dataset.range(5).map(lambda i: i * i)
        >>> iterator = iter(numbers)
        >>> int(next(iterator)), int(next(iterator))
        (0, 1)
        >>> place, again = iterator.state(), iter(numbers)
        >>> again.restore(place)
        >>> [int(i) for i in again]
        [4, 9, 16]
    """

    def __init__(self, node: DataNode, number: int = 0, wrapped: bool = True) -> None:
        self._node, self._number, self._wrapped = node, number, wrapped
        self._cursor: Cursor | None = node.open(number)
        self._over = False

    def __iter__(self) -> DatasetIterator:
        return self

    def __next__(self) -> Any:
        if self._over or self._cursor is None:
            raise StopIteration
        try:
            element = self._cursor.read()
        except BaseException:
            self.close()
            raise
        if element is END:
            self._over = True
            self._cursor.close()
            raise StopIteration
        return wrap(element) if self._wrapped else element

    def rows_ahead(self) -> RowsAhead | None:
        """Return the next elements where they are batches of rows of arrays in memory, else None.

        They may be used in place of reading them; `skip` then leaves them out.
        """
        return None if self._over or self._cursor is None else self._cursor.rows_ahead()

    def skip(self, count: int) -> int:
        """Leave out `count` elements; return how many there were."""
        return 0 if self._over or self._cursor is None else self._cursor.skip(count)

    def state(self) -> dict[str, Any]:
        """Return the place after the elements that were given.

        It is a small tree of numbers, lists and dicts, which JSON can hold; it has no elements.
        """
        if self._cursor is None:
            raise ValueError("state: this iterator was closed.")
        return {
            "pass": self._number,
            "over": self._over,
            "seeds": [seed.value for seed in drawn_seeds(self._node)],
            "place": self._cursor.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go to a place that an iterator of an equal Dataset returned, in any process.

        What a verb holds back (the buffer of a shuffle) is read again. A source that cannot be
        positioned, a generator, is read from its beginning, with a warning.

        Args:
            state: the result of `state`.

        Raises:
            ValueError: the state is of another kind of Dataset, or the data has become shorter.
        """
        self.close()
        try:
            restore_seeds(self._node, state["seeds"])
            self._number, self._over = int(state["pass"]), bool(state["over"])
            cursor = self._node.open(self._number)
            try:
                cursor.restore(state["place"])
            except BaseException:
                cursor.close()
                raise
        except WRONG_KINDS as error:
            raise ValueError(
                f"restore: the state does not fit {chain(self._node)} "
                f"({type(error).__name__}: {error})."
            ) from error
        self._cursor = cursor
        reread = [node.describe() for node in self._node.walk() if node.rereads]
        if reread:
            warnings.warn(
                f"The place in {', '.join(reread)} was restored by reading the elements before it "
                "again. The rest is the same only if they are the same as before.",
                stacklevel=2,
            )

    def close(self) -> None:
        """End its threads; it gives no more elements. Closing twice does no harm."""
        cursor, self._cursor = self._cursor, None
        if cursor is not None:
            cursor.close()

    def __reduce__(self) -> Any:
        raise TypeError(
            "An iterator of a Dataset cannot be pickled or copied: it may have threads. Keep "
            "iterator.state(), and restore() it into an iterator of the same Dataset."
        )

    __repr__ = arguments_repr


def drawn_seeds(node: DataNode) -> list[Seed]:
    """Return the seeds in a pipeline that the user did not give, in a fixed order."""
    seeds = [getattr(n, "seed", None) for n in node.walk()]
    return [seed for seed in seeds if isinstance(seed, Seed) and seed.drawn]


def restore_seeds(node: DataNode, values: list[int]) -> None:
    """Set the drawn seeds of a pipeline.

    Raises:
        ValueError: it has another number of them.
    """
    seeds = drawn_seeds(node)
    if len(seeds) != len(values):
        raise ValueError(f"expected {len(seeds)} seeds, got {len(values)}")
    for seed, value in zip(seeds, values):
        seed.value = int(value)


class Pipeline(DataSource):
    """A chain of nodes; `Dataset` adds the verbs that make longer chains.

    Args:
        node: the last one.
    """

    def __init__(self, node: DataNode) -> None:
        self._node = node
        self._passes = 0
        self.class_names: list[str] | None = None
        self.file_paths: list[str] | None = None

    @property
    def node(self) -> DataNode:
        """The last node of the chain."""
        return self._node

    def then(self, node: DataNode) -> Self:
        """Return a data set that ends with a node, with this one's class names."""
        result = type(self)(node)
        result.class_names = self.class_names
        return result

    # --- elements ---------------------------------------------------------------------------------

    def __iter__(self) -> DatasetIterator:
        """Return an iterator over the next pass: the first call gives pass 0, then pass 1 ..."""
        self._passes += 1
        return DatasetIterator(self._node, self._passes - 1)

    def as_numpy_iterator(self) -> DatasetIterator:
        """Return an iterator over the next pass that gives plain NumPy arrays and scalars.

        Example:
            >>> from kerasish.data import Dataset
            >>> list(Dataset.range(3).as_numpy_iterator())
            [np.int64(0), np.int64(1), np.int64(2)]
        """
        self._passes += 1
        return DatasetIterator(self._node, self._passes - 1, wrapped=False)

    def __getitem__(self, index: int) -> Any:
        """Return element `index` of pass 0, where elements can be read by number.

        Raises:
            TypeError: they cannot: after filter(), from a generator ...
            IndexError: there is no such element.
        """
        if not self._node.indexed:
            raise TypeError(
                f"{chain(self._node)} gives its elements in turn; they have no numbers. Use "
                "skip(n).take(1), or iterate."
            )
        count, position = self._node.cardinality(), int(index)
        position += count if position < 0 else 0
        if not 0 <= position < count:
            raise IndexError(f"element {index} of {count}")
        cursor = self._node.open(0, np.array([position], np.int64))
        try:
            return wrap(cursor.read())
        finally:
            cursor.close()

    # --- what it is -------------------------------------------------------------------------------

    def cardinality(self) -> int:
        """Return the number of elements, INFINITE_CARDINALITY (-1) or UNKNOWN_CARDINALITY (-2)."""
        return self._node.cardinality()

    def __len__(self) -> int:
        """Return the number of elements.

        Raises:
            TypeError: it is infinite or unknown.
        """
        count = self._node.cardinality()
        if count == INFINITE_CARDINALITY:
            raise TypeError(f"{chain(self._node)} has no end, and so no length.")
        if count == UNKNOWN_CARDINALITY:
            raise TypeError(
                f"The length of {chain(self._node)} is not known before it has been read. If you "
                "know it, say so with assert_cardinality(n)."
            )
        return count

    def __bool__(self) -> bool:
        return True  # a length of 0 does not make it false, as in tf.data

    @property
    def element_spec(self) -> Structure:
        """The structure of the elements, a `TensorSpec` in place of each array.

        After `map` and from a generator without a signature the first element is read for it.

        Example:
            >>> from kerasish.data import Dataset
            >>> Dataset.from_tensor_slices((np.zeros((9, 2)), [0] * 9)).batch(3).element_spec
            (TensorSpec(shape=(None, 2), dtype='float64', name=None),
             TensorSpec(shape=(None,), dtype='int32', name=None))
        """
        return self._node.spec()

    def __repr__(self) -> str:
        count = self._node.cardinality()
        names = {INFINITE_CARDINALITY: "endless", UNKNOWN_CARDINALITY: "of unknown length"}
        return f"<Dataset {chain(self._node)}: {names.get(count, f'{count} elements')}>"

    # --- the contract with fit --------------------------------------------------------------------

    def open_pass(self, number: int) -> DatasetIterator:
        """Return an iterator over a pass that gives plain NumPy arrays."""
        return DatasetIterator(self._node, number, wrapped=False)

    def batches_per_pass(self) -> int | None:
        """Return the number of elements, None where it is infinite or unknown."""
        count = self._node.cardinality()
        return count if count >= 0 else None

    @property
    def endless(self) -> bool:
        """Whether a pass has no end."""
        return self._node.cardinality() == INFINITE_CARDINALITY

    def facts(self) -> dict[str, str]:
        """Return the chain of verbs, and a checksum of arrays in memory."""
        contents = "".join(node.contents() for node in self._node.walk())
        return {"data": chain(self._node), "contents": contents}

    def source_state(self) -> list[int]:
        """Return the seeds that were drawn."""
        return [seed.value for seed in drawn_seeds(self._node)]

    def restore_source(self, state: list[int]) -> None:
        """Take the seeds that were drawn by an equal Dataset."""
        restore_seeds(self._node, state)
