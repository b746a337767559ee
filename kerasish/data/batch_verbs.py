"""The verbs of `Dataset` that make batches, or take them apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kerasish.data.batching import BatchNode, RebatchNode, UnbatchNode
from kerasish.data.counts import checked_count
from kerasish.data.padding import BucketNode, PaddedBatchNode, Padding
from kerasish.data.pipeline import Pipeline
from kerasish.data.windows import WindowNode
from kerasish.typing import Structure

if TYPE_CHECKING:
    from typing_extensions import Self


class BatchVerbs(Pipeline):
    """Verbs of batches; `Dataset` describes them as a whole."""

    def batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
    ) -> Self:
        """Return batches of elements, stacked along a new first axis.

        Args:
            batch_size: elements per batch.
            drop_remainder: whether to drop a smaller last batch.
            num_parallel_calls: accepted; stacking is not what takes time.
            deterministic: accepted.

        Shape:
            elements (...) -> (batch_size, ...).

        Raises:
            ShapeError: while it is read: elements of a batch differ in shape; it says which one.
            DTypeError: while it is read: elements of a batch differ in the kind of dtype.

        Example:
            >>> from kerasish.data import Dataset
            >>> [batch.tolist() for batch in Dataset.range(5).batch(2)]
            [[0, 1], [2, 3], [4]]
        """
        size = checked_count("batch", "batch_size", batch_size)
        return self.then(BatchNode(self._node, size, bool(drop_remainder)))

    def unbatch(self) -> Self:
        """Return the rows of batches, each an element.

        Shape:
            batches (n, ...) -> n elements (...).
        """
        return self.then(UnbatchNode(self._node))

    def rebatch(self, batch_size: int, drop_remainder: bool = False) -> Self:
        """Return batches of another size of the rows of batches.

        Args:
            batch_size: rows per batch.
            drop_remainder: whether to drop a smaller last batch.

        Example:
            >>> from kerasish.data import Dataset
            >>> [batch.tolist() for batch in Dataset.range(6).batch(4).rebatch(3)]
            [[0, 1, 2], [3, 4, 5]]
        """
        size = checked_count("rebatch", "batch_size", batch_size)
        return self.then(RebatchNode(self._node, size, bool(drop_remainder)))

    def padded_batch(
        self,
        batch_size: int,
        padded_shapes: Structure = None,
        padding_values: Structure = None,
        drop_remainder: bool = False,
    ) -> Self:
        """Return batches of elements of unequal shapes, padded at the ends of their axes.

        Args:
            batch_size: elements per batch.
            padded_shapes: a structure like an element's of shapes, in which None or -1 stands for
                the longest of the batch; or one shape for all parts; None: the longest everywhere.
            padding_values: a structure like an element's, or one value; None: 0, "" for strings.
            drop_remainder: whether to drop a smaller last batch.

        Raises:
            ShapeError: while it is read: an element does not fit into the shape.

        Example:
            >>> import numpy as np
            >>> from kerasish.data import Dataset
            >>> rows = Dataset.range(1, 4).map(lambda n: np.full(n, n))
            >>> [batch.tolist() for batch in rows.padded_batch(2)]
            [[[1, 0], [2, 2]], [[3, 3, 3]]]
        """
        size = checked_count("padded_batch", "batch_size", batch_size)
        text = f"padded_batch({size}, {_shown(padded_shapes)}, {_shown(padding_values)})"
        padding = Padding(padded_shapes, padding_values, "padded_batch")
        return self.then(PaddedBatchNode(self._node, size, padding, bool(drop_remainder), text))

    def bucket_by_sequence_length(
        self,
        element_length_func: Callable[..., Any],
        bucket_boundaries: Sequence[int],
        bucket_batch_sizes: Sequence[int],
        padded_shapes: Structure = None,
        padding_values: Structure = None,
        pad_to_bucket_boundary: bool = False,
        no_padding: bool = False,
        drop_remainder: bool = False,
    ) -> Self:
        """Return batches of elements of similar length: little padding.

        Args:
            element_length_func: gets what the function of `map` gets; returns the length.
            bucket_boundaries: increasing; a bucket holds lengths from one boundary to below the
                next one.
            bucket_batch_sizes: elements per batch, len(bucket_boundaries) + 1 numbers.
            padded_shapes, padding_values: as for `padded_batch`.
            pad_to_bucket_boundary: whether batches are padded to the boundary of their bucket
                minus 1, so that there are few shapes to compile; longer elements are an error.
            no_padding: whether the elements of a bucket have one shape already.
            drop_remainder: whether to drop the smaller batches at the end.

        Raises:
            ValueError: the boundaries do not increase, or the sizes are not one more than these.

        Example:
            >>> import numpy as np
            >>> from kerasish.data import Dataset
            >>> rows = Dataset.range(1, 5).map(lambda n: np.full(n % 3 + 1, n))
            >>> [b.shape for b in rows.bucket_by_sequence_length(len, [2], [2, 2])]
            [(2, 3), (1, 1), (1, 2)]
        """
        bounds, sizes = [int(b) for b in bucket_boundaries], [int(s) for s in bucket_batch_sizes]
        if any(a >= b for a, b in zip(bounds, bounds[1:])):
            raise ValueError(
                f"bucket_by_sequence_length: bucket_boundaries must increase, got {bounds}."
            )
        if len(sizes) != len(bounds) + 1 or min(sizes) < 1:
            raise ValueError(
                "bucket_by_sequence_length: bucket_batch_sizes must be "
                f"{len(bounds) + 1} numbers >= 1, one more than boundaries, got {sizes}."
            )
        padding = Padding(padded_shapes, padding_values, "bucket_by_sequence_length")
        return self.then(
            BucketNode(
                self._node, element_length_func, bounds, sizes, None if no_padding else padding,
                bool(pad_to_bucket_boundary), bool(drop_remainder),
            )
        )  # fmt: skip

    def window(
        self, size: int, shift: int | None = None, stride: int = 1, drop_remainder: bool = False
    ) -> Self:
        """Return windows of adjacent elements, each window a Dataset.

        Args:
            size: elements per window.
            shift: elements between the starts of adjacent windows; None: `size`.
            stride: elements between adjacent elements of a window.
            drop_remainder: whether to drop smaller windows at the end.

        Elements that are tuples or dicts give tuples or dicts of data sets. For windows of an array
        `utils.timeseries_dataset_from_array` is faster.

        Example:
            >>> from kerasish.data import Dataset
            >>> windows = Dataset.range(4).window(3, shift=1, drop_remainder=True)
            >>> [w.tolist() for w in windows.flat_map(lambda window: window.batch(3))]
            [[0, 1, 2], [1, 2, 3]]
        """
        size = checked_count("window", "size", size)
        step = size if shift is None else checked_count("window", "shift", shift)
        stride = checked_count("window", "stride", stride)
        return self.then(
            WindowNode(self._node, size, step, stride, bool(drop_remainder), type(self))
        )


def _shown(argument: Structure) -> str:
    return " ".join(repr(argument).split())
