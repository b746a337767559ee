"""The verbs of `Dataset` that take and give single elements."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kerasish.data.caching import CacheNode
from kerasish.data.combining import ConcatenateNode, EnumerateNode
from kerasish.data.counts import CountNode, checked_count
from kerasish.data.interleaving import InterleaveNode
from kerasish.data.mapping import MapNode
from kerasish.data.node import AUTOTUNE, INFINITE_CARDINALITY, seed_of
from kerasish.data.pipeline import Pipeline
from kerasish.data.reading_ahead import PrefetchNode
from kerasish.data.selecting import FilterNode, RepeatNode, ShardNode, SkipNode, TakeNode
from kerasish.data.shuffling import ShuffleNode
from kerasish.data.threads import worker_count
from kerasish.typing import PathLike, Structure

if TYPE_CHECKING:
    from typing_extensions import Self


class ElementVerbs(Pipeline):
    """Verbs of single elements; `Dataset` describes them as a whole."""

    def map(
        self,
        map_func: Callable[..., Any],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        processes: bool = False,
    ) -> Self:
        """Return what a function returns for each element, in the same order.

        Args:
            map_func: gets NumPy arrays and scalars: the parts of a tuple as its arguments, else
                the element. It returns arrays, tensors, numbers, strings, or tuples and dicts of
                these. A list becomes one array.
            num_parallel_calls: threads or processes that call it, AUTOTUNE for one per processor;
                None: it is called where the elements are read, or in one process. Threads help
                where the function releases the GIL: reading files, decoding, NumPy on large arrays.
            deterministic: accepted; the order is always kept.
            processes: whether processes call it instead of threads, for functions of much Python
                that hold the GIL. Elements and results are copied between processes. The function
                is sent to them by value: what it changes outside itself is lost.

        A function that draws random numbers belongs into `random_map`, which keeps the order of
        the draws under threads and after a resume.

        Before `batch`, a function of arrays in memory is called for all elements of a batch at once
        if this is certain to give the same bits: Python's code without side effects, and NumPy's
        arithmetic, comparisons, casts, shapes, `where`, one-hot rows (`np.eye(n)[label]`), and
        reductions of whole elements. Nothing else changes; any other function is called for each
        element. Map whole batches after `batch()` where it can: it is called less often.

        Raises:
            ValueError: while it is read: the function returned None, or no array.

        Example:
            >>> from kerasish.data import Dataset
            >>> [int(x) for x in Dataset.range(3).map(lambda i: i + 10)]
            [10, 11, 12]
        """
        if not callable(map_func):
            raise TypeError(f"map: expected a function, got {map_func!r}.")
        workers, automatic = worker_count(num_parallel_calls), num_parallel_calls == AUTOTUNE
        return self.then(
            MapNode(self._node, map_func, workers, automatic=automatic, processes=bool(processes))
        )

    def random_map(
        self,
        map_func: Callable[..., Any],
        seed: int | None = None,
        num_parallel_calls: int | None = None,
        processes: bool = False,
    ) -> Self:
        """Return what a function of random draws returns for each element: augmentation.

        Args:
            map_func: gets a `numpy.random.Generator`, then what the function of `map` gets. The
                generator is a function of the seed, of the pass and of the number of the element:
                threads, kills and resumes change nothing.
            seed: of the draws; None: drawn from the process's generator.
            num_parallel_calls, processes: as for `map`.

        Example:
            >>> from kerasish.data import Dataset
            >>> noisy = Dataset.range(3).random_map(lambda draw, i: i + draw.normal(), seed=1)
            >>> list(noisy.as_numpy_iterator()) != list(noisy.as_numpy_iterator())  # two passes
            True
        """
        workers = worker_count(num_parallel_calls)
        drawn = seed_of(seed)
        return self.then(MapNode(self._node, map_func, workers, drawn, processes=bool(processes)))

    def filter(self, predicate: Callable[..., Any]) -> Self:
        """Return the elements for which a function is true.

        Args:
            predicate: gets what the function of `map` gets; returns a truth value.

        Example:
            >>> from kerasish.data import Dataset
            >>> [int(x) for x in Dataset.range(6).filter(lambda i: i % 2 == 0)]
            [0, 2, 4]
        """
        return self.then(FilterNode(self._node, predicate))

    def take_while(self, predicate: Callable[..., Any]) -> Self:
        """Return the elements before the first one for which a function is false."""
        return self.then(FilterNode(self._node, predicate, ends=True))

    def shuffle(
        self,
        buffer_size: int,
        seed: int | None = None,
        reshuffle_each_iteration: bool | None = True,
    ) -> Self:
        """Return the elements in a random order, a function of the seed and of the pass.

        Args:
            buffer_size: elements among which each next one is drawn; at least their total number
                shuffles uniformly. Where elements can be read by number (arrays, files, `map` of
                such) no element is held: the order of their numbers is computed instead, the same.
            seed: None: drawn from the process's generator when the data set is made; a training's
                saved state keeps it.
            reshuffle_each_iteration: whether each pass has its own order. Give False, and a
                seed, before you split by `take` and `skip`.

        Raises:
            ValueError: buffer_size is below 1.

        Example:
            >>> from kerasish.data import Dataset
            >>> numbers = Dataset.range(5).shuffle(5, seed=1)
            >>> first, second = ([int(x) for x in numbers] for _ in range(2))
            >>> sorted(first) == sorted(second), first != second
            (True, True)
        """
        if buffer_size == INFINITE_CARDINALITY or hasattr(buffer_size, "shape"):
            buffer_size = max(int(buffer_size), self._node.cardinality(), 1)
        checked_count("shuffle", "buffer_size", buffer_size)
        reshuffles = reshuffle_each_iteration is not False
        return self.then(ShuffleNode(self._node, int(buffer_size), seed_of(seed), reshuffles))

    def repeat(self, count: int | None = None) -> Self:
        """Return several passes one after the other.

        Args:
            count: of passes; None or -1: without end. `fit` begins a new pass for each epoch by
                itself, and needs `steps_per_epoch` for endless data.
        """
        number = -1 if count is None else checked_count("repeat", "count", count, least=-1)
        return self.then(RepeatNode(self._node, number))

    def take(self, count: int) -> Self:
        """Return the first `count` elements; -1: all."""
        return self.then(TakeNode(self._node, checked_count("take", "count", count, least=-1)))

    def skip(self, count: int) -> Self:
        """Return all but the first `count` elements; -1: none."""
        return self.then(SkipNode(self._node, checked_count("skip", "count", count, least=-1)))

    def shard(self, num_shards: int, index: int) -> Self:
        """Return every `num_shards`-th element from element `index` on, for one of many workers."""
        checked_count("shard", "num_shards", num_shards)
        if not 0 <= index < num_shards:
            raise ValueError(f"shard: expected 0 <= index < {num_shards}, got {index}.")
        return self.then(ShardNode(self._node, int(num_shards), int(index)))

    def cache(self, filename: PathLike = "") -> Self:
        """Return the elements of the first pass, made once and kept.

        Args:
            filename: "" keeps them in memory; else a file, which the first complete pass writes,
                and which later processes read too. A file of another pipeline is refused.

        Put `shuffle` and `random_map` after it: before it their first pass is what is kept.

        Raises:
            ValueError: when it is read: the file is damaged, or is of another pipeline.
        """
        return self.then(CacheNode(self._node, os.fspath(filename)))

    def prefetch(self, buffer_size: int = AUTOTUNE) -> Self:
        """Return the same elements, read ahead by a thread while others are used.

        Args:
            buffer_size: the most elements read ahead; AUTOTUNE: 2. Put it last, after `batch`.
        """
        least = AUTOTUNE
        return self.then(
            PrefetchNode(self._node, checked_count("prefetch", "buffer_size", buffer_size, least))
        )

    def enumerate(self, start: int = 0) -> Self:
        """Return pairs of (number, element), with numbers from `start` on, int64."""
        return self.then(EnumerateNode(self._node, int(start)))

    def concatenate(self, dataset: Pipeline) -> Self:
        """Return the elements of this data set, then those of another one.

        Raises:
            TypeError: `dataset` is no Dataset.
        """
        if not isinstance(dataset, Pipeline):
            raise TypeError(f"concatenate: expected a Dataset, got {type(dataset).__name__}.")
        return self.then(ConcatenateNode((self._node, dataset.node)))

    def interleave(
        self,
        map_func: Callable[..., Any],
        cycle_length: int | None = None,
        block_length: int = 1,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
    ) -> Self:
        """Return elements of several data sets in turn, each made of an element: many files.

        Args:
            map_func: element -> Dataset.
            cycle_length: data sets open at a time; None: the number of processors.
            block_length: elements taken from one before it is the next one's turn.
            num_parallel_calls: not None: each open data set is read ahead by a thread.
            deterministic: accepted; the order is always kept.

        Example:
            >>> from kerasish.data import Dataset
            >>> pairs = Dataset.range(2).interleave(lambda i: Dataset.range(i * 10, i * 10 + 2), 2)
            >>> [int(x) for x in pairs]
            [0, 10, 1, 11]
        """
        cycle = worker_count(AUTOTUNE) if cycle_length in (None, AUTOTUNE) else cycle_length
        checked_count("interleave", "cycle_length", cycle)
        checked_count("interleave", "block_length", block_length)
        threads = num_parallel_calls is not None
        return self.then(
            InterleaveNode(self._node, map_func, int(cycle or 1), int(block_length), threads)
        )

    def flat_map(self, map_func: Callable[..., Any]) -> Self:
        """Return the elements of the data sets that a function makes, one after the other."""
        return self.then(InterleaveNode(self._node, map_func, 1, 1, False, "flat_map"))

    def assert_cardinality(self, expected_cardinality: int) -> Self:
        """Return the same elements, with a known number of them.

        Raises:
            ValueError: while it is read: there are more or fewer.
        """
        return self.then(CountNode(self._node, int(expected_cardinality)))

    # --- results ----------------------------------------------------------------------------------

    def apply(self, transformation_func: Callable[[Self], Any]) -> Structure:
        """Return what a function makes of this data set."""
        return transformation_func(self)

    def reduce(self, initial_state: Structure, reduce_func: Callable[..., Any]) -> Structure:
        """Return the state after `state = reduce_func(state, element)` for all elements.

        Example:
            >>> from kerasish.data import Dataset
            >>> int(Dataset.range(5).reduce(0, lambda total, i: total + i))
            10
        """
        state = initial_state
        with self.as_numpy_iterator() as elements:
            for element in elements:
                state = reduce_func(state, element)
        return state

    def get_single_element(self) -> Structure:
        """Return the only element.

        Raises:
            ValueError: there is none, or more than one.
        """
        with iter(self) as elements:
            result = list(zip(range(2), elements))
        if len(result) != 1:
            raise ValueError(
                f"get_single_element: expected one element, got {len(result)} or more."
            )
        return result[0][1]
