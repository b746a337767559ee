"""`padded_batch` and `bucket_by_sequence_length`: elements of unequal shapes in one batch."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kerasish import tree
from kerasish.data.counts import batch_count
from kerasish.data.elements import TensorSpec, leaf_shape, map_specs, stack
from kerasish.data.node import END, Cursor, DataNode, Numbered, Regrouped, Through, named
from kerasish.data.selecting import call
from kerasish.errors import ShapeError
from kerasish.typing import Array, Structure

_EVERY = 64  # elements between two remembered places


class Padding:
    """Pads the parts of elements to one shape and stacks them.

    Args:
        shapes: a structure like an element's, of shapes; None or -1 in a shape: the longest of the
            batch. One shape is used for all parts; None: the longest everywhere.
        values: a structure of values, or one for all parts; None: 0, and "" for strings.
        what: the verb, for errors.
    """

    def __init__(self, shapes: Structure, values: Structure, what: str) -> None:
        self._shapes, self._values, self._what = shapes, values, what

    def __call__(self, elements: Sequence[Any], first: int, length: int | None = None) -> Any:
        """Return a batch.

        Args:
            elements: at least one.
            first: the number of the first one in its pass, for errors.
            length: the length in place of the longest of the batch, or None.
        """
        one = elements[0]
        paths = [path for path, _ in tree.flatten_with_path(one)]
        shapes = self._of_parts(self._shapes, one, len(paths), "padded_shapes")
        values = self._of_parts(self._values, one, len(paths), "padding_values")
        for element in elements:
            tree.assert_same_structure(one, element)
        columns = zip(*(tree.flatten(element) for element in elements))
        padded = [
            self._pad(column, shape, value, path, first, length)
            for column, shape, value, path in zip(columns, shapes, values, paths)
        ]
        return tree.pack_sequence_as(one, padded)

    def _of_parts(self, given: Structure, one: Any, count: int, name: str) -> list[Any]:
        shape_like = name == "padded_shapes"
        if given is None or not tree.is_nested(given) or shape_like and tree.is_shape(given):
            return [given] * count
        try:
            parts = _flat_up_to(one, given)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise ValueError(
                f"{self._what}: {name} is not built like the elements ({error})."
            ) from error
        return parts

    def _pad(
        self, column: Sequence[Any], shape: Any, value: Any, path: tuple[Any, ...], first: int,
        length: int | None,
    ) -> Array:  # fmt: skip
        rank = len(leaf_shape(column[0]))
        at = "".join(f"[{key!r}]" for key in path)
        if rank == 0 or isinstance(column[0], (str, bytes)):
            return stack(column, self._what, first)
        sizes = [list(leaf_shape(leaf)) for leaf in column]
        for number, size in enumerate(sizes):
            if len(size) != rank:
                raise ShapeError(
                    f"{self._what}: element {first + number} of the pass has {len(size)} axes"
                    f"{at and f' at {at}'}, element {first} has {rank}."
                )
        longest = [max(axis) for axis in zip(*sizes)]
        declared = [None] * rank if shape is None else list(shape)
        if len(declared) != rank:
            raise ShapeError(
                f"{self._what}: padded_shapes{at} has {len(declared)} axes, elements have {rank}."
            )
        if shape is None and length is not None and len(set(map(tuple, sizes))) > 1:
            declared[0] = length
        target = [m if w is None or w == -1 else int(w) for w, m in zip(declared, longest)]
        for number, size in enumerate(sizes):
            if any(s > t for s, t in zip(size, target)):
                raise ShapeError(
                    f"{self._what}: element {first + number} of the pass has shape {tuple(size)}"
                    f"{at and f' at {at}'}, which does not fit into {tuple(target)}. Cut it in "
                    "map(), or give larger padded_shapes."
                )
        dtype = column[0].dtype
        if value is None:
            value = "" if dtype.kind in "OUS" else 0
        block = np.full((len(column), *target), value, dtype)
        for row, leaf in enumerate(column):
            block[(row, *map(slice, leaf.shape))] = leaf
        return block


def _flat_up_to(like: Any, given: Any) -> list[Any]:
    """Return the parts of `given` at the leaves of `like`, in their order."""
    if isinstance(like, Mapping):
        keys = [path[0] for path, _ in tree.flatten_with_path(dict.fromkeys(like, 0))]
        return [part for key in keys for part in _flat_up_to(like[key], given[key])]
    if isinstance(like, tuple):
        if len(like) != len(given):
            raise ValueError(f"expected {len(like)} parts, got {len(given)}")
        return [part for a, b in zip(like, given) for part in _flat_up_to(a, b)]
    return [given]


class PaddedBatchNode(DataNode):
    """Batches of `size` elements, padded to one shape."""

    def __init__(
        self, source: DataNode, size: int, padding: Padding, drops: bool, text: str
    ) -> None:
        self.inputs, self._size, self._padding = (source,), size, padding
        self._drops, self._text = drops, text

    def cardinality(self) -> int:
        return batch_count(self.inputs[0].cardinality(), self._size, self._drops)

    def open(self, number: int, order: Array | None = None) -> Cursor:
        source = self.inputs[0].open(number)
        return _PaddedBatchCursor(source, self._size, self._padding, self._drops)

    def spec(self) -> Any:
        return _of_batches(super().spec(), self._size if self._drops else None)

    def describe(self) -> str:
        return self._text


def _of_batches(spec: Structure, rows: int | None) -> Any:
    return map_specs(
        lambda s: TensorSpec(s.shape and (rows, *[None] * (len(s.shape) - 1)), s.dtype), spec
    )


class _PaddedBatchCursor(Through):
    place_attribute = "_at"

    def __init__(self, source: Cursor, size: int, padding: Padding, drops: bool) -> None:
        super().__init__(source)
        self._size, self._padding, self._drops = size, padding, drops
        self._at = 0

    def read(self) -> Any:
        elements = self.source.read_many(self._size)
        if not elements or self._drops and len(elements) < self._size:
            return END
        self._at += len(elements)
        return self._padding(elements, self._at - len(elements))

    def skip(self, count: int) -> int:
        number = self.source.skip(count * self._size)
        self._at += number
        return batch_count(number, self._size, self._drops)


class BucketNode(Regrouped):
    """Batches of elements of similar length.

    Args:
        source: the node.
        length: the function from an element to its length.
        bounds: increasing; bucket i holds lengths below bounds[i], the last one all others.
        sizes: elements per batch for each of the len(bounds) + 1 buckets.
        padding: makes the batches.
        to_bound: whether a batch is padded to the bucket's bound - 1, not to its longest element.
        drops: whether smaller batches at the end are dropped.
    """

    def __init__(
        self, source: DataNode, length: Callable[..., Any], bounds: Sequence[int],
        sizes: Sequence[int], padding: Padding | None, to_bound: bool, drops: bool,
    ) -> None:  # fmt: skip
        self.inputs, self.length, self.bounds, self.sizes = (source,), length, bounds, sizes
        self.padding, self.to_bound, self.drops = padding, to_bound, drops

    def open(self, number: int, order: Array | None = None) -> Cursor:
        return _BucketCursor(self, self.inputs[0].open(number))

    def spec(self) -> Any:
        return _of_batches(super().spec(), None)

    def describe(self) -> str:
        return (
            f"bucket_by_sequence_length({named(self.length)}, {list(self.bounds)}, "
            f"{list(self.sizes)})"
        )


class _BucketCursor(Cursor):
    def __init__(self, node: BucketNode, source: Cursor) -> None:
        self._node, self._numbered = node, Numbered(source, _EVERY)
        self._buckets: list[list[tuple[int, Any]]] = [[] for _ in node.sizes]
        self._flushed = 0  # buckets that were emptied at the end

    def _oldest(self) -> int:
        return min((b[0][0] for b in self._buckets if b), default=self._numbered.count)

    def read(self) -> Any:
        node, numbered = self._node, self._numbered
        while not numbered.ended:
            element = numbered.read(self._oldest)
            if element is END:
                break
            length = int(call(node.length, element))
            which = bisect.bisect_right(node.bounds, length)
            bucket = self._buckets[which]
            bucket.append((numbered.count - 1, element))
            if len(bucket) == node.sizes[which]:
                return self._batch(which)
        while self._flushed < len(self._buckets):
            which, self._flushed = self._flushed, self._flushed + 1
            if self._buckets[which] and not node.drops:
                return self._batch(which)
        return END

    def _batch(self, which: int) -> Any:
        node, bucket = self._node, self._buckets[which]
        self._buckets[which] = []
        elements, first = [element for _, element in bucket], bucket[0][0]
        if node.padding is None:
            return stack(elements, "bucket_by_sequence_length(no_padding=True)", first)
        length = None
        if node.to_bound:
            if which == len(node.bounds):
                raise ValueError(
                    "bucket_by_sequence_length: pad_to_bucket_boundary=True, but element "
                    f"{first} is longer than the last boundary {node.bounds[-1]}. Add a boundary."
                )
            length = node.bounds[which] - 1
        return node.padding(elements, first, length)

    def state(self) -> dict[str, Any]:
        return {
            "source": self._numbered.state(),
            "buckets": [[number for number, _ in bucket] for bucket in self._buckets],
            "flushed": self._flushed,
        }

    def restore(self, state: dict[str, Any]) -> None:
        held = {number for bucket in state["buckets"] for number in bucket}
        elements = self._numbered.restore(state["source"], held)
        self._buckets = [[(n, elements[n]) for n in bucket] for bucket in state["buckets"]]
        self._flushed = state["flushed"]

    def close(self) -> None:
        self._numbered.source.close()
