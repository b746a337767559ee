"""`PyDataset`, batches by number, and the threads that read them ahead."""

from __future__ import annotations

import queue
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from kerasish.callbacks.resume_point import ResumePoint
from kerasish.engine.data.batch import Batch, BatchConversion
from kerasish.engine.data.data import MOST_AHEAD, Data, random_order
from kerasish.engine.data.streams import add_place
from kerasish.reprs import arguments_repr


class PyDataset:
    """Base class of data sets that give batch number `index`: safe to read from several threads.

    Define `__getitem__(index)`, which returns (x,), (x, y) or (x, y, sample_weight), and `__len__`
    or `num_batches`, the number of batches (None: endless, then `fit` needs `steps_per_epoch`).

    Args:
        workers: threads that read ahead while the engine computes. 0 and 1: the main thread reads
            each batch after the previous one was trained on, so batches may depend on the model.
        use_multiprocessing: accepted for compatibility. Workers are threads here as well: batches
            need not be copied between processes, and NumPy, h5py and file reading release the GIL.
        max_queue_size: batches read ahead at most.

    Example:
        >>> class Squares(PyDataset):
        ...     def __len__(self):
        ...         return 3
        ...     def __getitem__(self, index):
        ...         x = np.arange(index, index + 4.0)
        ...         return x, x ** 2
        >>> import numpy as np
        >>> Squares(workers=2).num_batches
        3
    """

    # Class attributes, so that a subclass that does not call super().__init__() works too.
    workers: int = 1
    use_multiprocessing: bool = False
    max_queue_size: int = 10

    def __init__(
        self, workers: int = 1, use_multiprocessing: bool = False, max_queue_size: int = 10
    ) -> None:
        if workers < 0 or max_queue_size < 1:
            raise ValueError(
                "PyDataset: expected workers >= 0 and max_queue_size >= 1, got "
                f"workers={workers}, max_queue_size={max_queue_size}."
            )
        self.workers = workers
        self.use_multiprocessing = use_multiprocessing
        self.max_queue_size = max_queue_size

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define `__getitem__(self, index)`.")

    @property
    def num_batches(self) -> int | None:
        """Number of batches, None for endless data."""
        if hasattr(self, "__len__"):
            return len(self)
        raise NotImplementedError(
            f"{type(self).__name__} must define `__len__` or the property `num_batches` "
            "(None for endless data)."
        )

    def on_epoch_begin(self) -> None:
        """Called before the first batch of each epoch is read."""

    def on_epoch_end(self) -> None:
        """Called after the last batch of each epoch was used."""

    __repr__ = arguments_repr


class PyDatasetData(Data):
    """The batches of a `PyDataset` in order, or in a new order each epoch, read ahead by threads.

    Args:
        dataset: the `PyDataset`, or an object with its methods.
        class_weight: weight of each class in y, or None.
        steps_per_epoch: batches per epoch; default all.
        shuffle: whether each epoch takes the batches in a new order.
        seed: the orders are a function of it and of the epoch's number.
        training: whether errors name `steps_per_epoch` (else `steps`).
    """

    def __init__(
        self,
        dataset: PyDataset,
        class_weight: Mapping[Any, Any] | None = None,
        steps_per_epoch: int | None = None,
        shuffle: bool | str = False,
        seed: int = 0,
        training: bool = True,
    ) -> None:
        super().__init__(steps_per_epoch, training)
        self._dataset = dataset
        self._to_batch = BatchConversion(class_weight)
        self._shuffle = bool(shuffle)
        self._seed = seed
        self._what = type(dataset).__name__
        if dataset.workers > 1:
            self.reads_ahead = min(MOST_AHEAD, dataset.max_queue_size)
        total = dataset.num_batches
        if total is None and steps_per_epoch is None:
            raise ValueError(
                f"{self._steps_name}: expected a number, got None, while {self._what} is endless "
                "(its num_batches is None)."
            )
        if total == 0:
            raise ValueError(
                f"x: expected at least one batch from {self._what}, got num_batches 0."
            )

    @property
    def num_batches(self) -> int | None:
        return self._at_most_steps(self._dataset.num_batches)

    def _indices(self, epoch: int, total: int | None) -> Iterable[int]:
        if total is None:
            steps = self._steps or 0
            return range(epoch * steps, (epoch + 1) * steps)
        whole, first, stop = self._window(epoch, total)
        if self._shuffle:
            return random_order(total, self._seed, whole)[first:stop].tolist()
        return range(first, stop)

    def go_to(self, point: ResumePoint) -> None:
        """Batches have numbers; a dataset that does something between epochs does it again."""
        if point.is_start or not self._has_hooks():
            return
        dataset, (first, epoch, batch, redraw, _) = self._dataset, point
        for number in range(first, epoch):
            if number > first:  # in the first epoch `peek` has called it
                dataset.on_epoch_begin()
            dataset.on_epoch_end()
        if epoch > first:
            self._drop_held()
            redraw()
            if batch:
                self._held = (epoch, batch, self._watched(self._batches(epoch, batch)))
            self._warn_called(epoch - first)
        else:
            self._drop_held()
            self._held = (epoch, batch, self._watched(self._rest(epoch, batch)))

    def _has_hooks(self) -> bool:
        kind = type(self._dataset)
        hooks = ("on_epoch_begin", "on_epoch_end")
        return any(getattr(kind, h, None) is not getattr(PyDataset, h) for h in hooks)

    def _warn_called(self, epochs: int) -> None:
        warnings.warn(
            f"fit resumes: on_epoch_begin and on_epoch_end of {self._what} were called again for "
            f"the {epochs} epochs done. The training continues exactly if they do the same as "
            "before.",
            stacklevel=2,
        )

    def _batches(self, epoch: int, start: int) -> Iterator[Batch]:
        self._dataset.on_epoch_begin()
        return self._rest(epoch, start)

    def _rest(self, epoch: int, start: int) -> Iterator[Batch]:
        dataset = self._dataset
        indices = list(self._indices(epoch, dataset.num_batches))
        workers = dataset.workers
        if workers > 1 or (workers and dataset.use_multiprocessing):
            yield from read_ahead(
                self._read, indices[start:], workers, max(dataset.max_queue_size, workers)
            )
        else:
            for index in indices[start:]:
                yield self._read(index)
        dataset.on_epoch_end()
        if self._steps is not None and len(indices) < self._steps:
            self._warn_short(self._what, epoch, len(indices))

    def _read(self, index: int) -> Batch:
        place = f"batch {index} of {self._what}"
        try:
            data = self._dataset[index]
        except Exception as error:
            add_place(error, place)
            raise
        return self._to_batch(data, place)


def read_ahead(
    read: Callable[[int], Batch], indices: Iterable[int], workers: int, depth: int
) -> Iterator[Batch]:
    """Yield read(i) for each index in order, with up to `depth` of them read ahead by threads.

    An error in a thread is raised here, when its batch is due, with the thread's traceback.
    The threads are daemons: one that hangs in user code cannot keep the process from ending.
    """
    from concurrent.futures import Future  # it imports `logging`

    tasks: queue.SimpleQueue[tuple[Future[Batch], int] | None] = queue.SimpleQueue()
    pending: deque[Future[Batch]] = deque()
    threads = [
        threading.Thread(
            target=do_tasks, args=(read, tasks), daemon=True, name=f"kerasish-data-{n}"
        )
        for n in range(workers)
    ]
    for thread in threads:
        thread.start()
    rest = iter(indices)
    try:
        while True:
            while len(pending) < depth and (index := next(rest, None)) is not None:
                pending.append(Future())
                tasks.put((pending[-1], index))
            if not pending:
                return
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()
        for _ in threads:
            tasks.put(None)
        for thread in threads:
            thread.join(timeout=1.0)  # a slow read may end by itself later


def do_tasks(work: Callable[[Any], Any], tasks: queue.SimpleQueue[Any]) -> None:
    """Do the tasks of a queue, in a thread: (future of the result, task), until None.

    Args:
        work: gives a task's result.
        tasks: the queue.
    """
    while (given := tasks.get()) is not None:
        future, task = given
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(work(task))
            except BaseException as error:  # noqa: BLE001 - raised again where the result is due
                future.set_exception(error)
        del given, future, task  # keep no result alive while waiting
