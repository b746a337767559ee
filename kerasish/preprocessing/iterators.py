"""Endless iterators over batches of pictures, which are data sets with batch numbers, too."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterator as Iterates
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish import config
from kerasish.engine.data.py_dataset import PyDataset
from kerasish.ops import dtypes
from kerasish.tensor import to_numpy
from kerasish.typing import Array, PathLike
from kerasish.utils.images import array_to_img

if TYPE_CHECKING:
    from kerasish.preprocessing.generator import ImageDataGenerator


def warn_of_channels(array: Array, axis: int, who: str) -> None:
    """Warn if an array has not as many channels as pictures have.

    Args:
        array: pictures, with 4 axes.
        axis: axis of the channels.
        who: what the message calls the caller.

    Example:
        >>> warn_of_channels(np.zeros((1, 4, 4, 3)), 3, "flow")
    """
    if array.shape[axis] not in (1, 3, 4):
        warnings.warn(
            f"{who}: expected 1, 3 or 4 channels on axis {axis}, got shape {array.shape}. "
            "data_format says where the channels are.",
            stacklevel=4,
        )


class Iterator(PyDataset):
    """Batches of pictures: `iterator[i]` is one, `next(iterator)` the next one, without end.

    Subclasses define `_get_batches_of_transformed_samples(index_array)`.

    Args:
        n: number of pictures.
        batch_size: pictures in a batch, 1 or more; the last one of an epoch may have fewer.
        shuffle: whether each epoch has a new order.
        seed: given to `np.random.seed`, plus the number of batches read, before each batch; None:
            NumPy's random numbers continue.
        kwargs: arguments of `utils.PyDataset`.

    Raises:
        ValueError: `batch_size` is less than 1.

    Example:
        >>> class Numbers(Iterator):
        ...     def _get_batches_of_transformed_samples(self, index_array):
        ...         return index_array
        >>> numbers = Numbers(5, batch_size=2, shuffle=False, seed=None)
        >>> [next(numbers).tolist() for _ in range(4)]
        [[0, 1], [2, 3], [4], [0, 1]]
    """

    def __init__(
        self, n: int, batch_size: int, shuffle: bool, seed: int | None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if batch_size < 1:
            raise ValueError(f"{type(self).__name__}: batch_size is 1 or more, got {batch_size!r}.")
        self.n, self.batch_size, self.shuffle, self.seed = n, batch_size, shuffle, seed
        self.batch_index = self.total_batches_seen = 0
        self.index_array: Array | None = None
        self.lock = threading.Lock()

    def __len__(self) -> int:
        return -(-self.n // self.batch_size)

    def __getitem__(self, index: int) -> Any:
        if not -len(self) <= index < len(self):
            raise ValueError(
                f"{type(self).__name__}: there is no batch {index}; it has {len(self)} batches."
            )
        with self.lock:
            self._seed_batch()
            order = self._order()
        first = self.batch_size * (index % len(self))
        return self._get_batches_of_transformed_samples(order[first : first + self.batch_size])

    def __iter__(self) -> Iterator:
        return self

    def __next__(self) -> Any:
        """Return the next batch; after the last one, the first one of a new epoch."""
        with self.lock:
            self._seed_batch()
            if self.batch_index == 0:
                self._new_order()
            first = self.batch_index * self.batch_size
            more = first + self.batch_size < self.n
            self.batch_index = self.batch_index + 1 if more else 0
            numbers = self._order()[first : first + self.batch_size]
        return self._get_batches_of_transformed_samples(numbers)

    next = __next__

    def reset(self) -> None:
        """Let `next` begin with the first batch of a new epoch."""
        self.batch_index = 0

    def on_epoch_end(self) -> None:
        """Draw the order of the next epoch."""
        self._new_order()

    def _seed_batch(self) -> None:
        if self.seed is not None:
            np.random.seed(self.seed + self.total_batches_seen)
        self.total_batches_seen += 1

    def _new_order(self) -> None:
        self.index_array = np.random.permutation(self.n) if self.shuffle else np.arange(self.n)

    def _order(self) -> Array:
        if self.index_array is None:
            self._new_order()
        return self.index_array

    def _get_batches_of_transformed_samples(self, index_array: Array) -> Any:
        raise NotImplementedError(
            f"{type(self).__name__} must define `_get_batches_of_transformed_samples`."
        )


class ImageIterator(Iterator):
    """What all iterators over pictures share: transformation, and writing what was transformed.

    Args:
        n, batch_size, shuffle, seed: as for `Iterator`.
        generator: transforms the pictures; None: they stay as they are.
        data_format: the position of the channel axis; None: the process's.
        save_to_dir, save_prefix, save_format: as for `ImageDataGenerator.flow`.
        dtype: dtype of the batches; None: `floatx()`.
    """

    names_end = 10_000_000  # random numbers in names of written files are below this

    def __init__(
        self,
        n: int,
        batch_size: int,
        shuffle: bool,
        seed: int | None,
        generator: ImageDataGenerator | None,
        data_format: str | None,
        save_to_dir: PathLike | None,
        save_prefix: str,
        save_format: str,
        dtype: str | None,
    ) -> None:
        super().__init__(n, batch_size, shuffle, seed)
        self.image_data_generator = generator
        self.data_format = config.standardize_data_format(data_format)
        self.save_to_dir = None if save_to_dir is None else os.fspath(save_to_dir)
        self.save_prefix, self.save_format = save_prefix, save_format
        self.dtype = dtypes.name_of(dtype or config.floatx())

    def _transformed(self, pictures: Iterates[Array], count: int) -> Array:
        results = []
        for picture in pictures:
            x = np.asarray(picture).astype(self.dtype)
            if self.image_data_generator is not None:
                x = self.image_data_generator.random_transform(x)
                x = self.image_data_generator.standardize(x)
            results.append(x)
        return np.stack(results).astype(self.dtype)

    def _save(self, batch: Array, numbers: Array) -> None:
        if self.save_to_dir is None:
            return
        for number, x in zip(numbers, batch):
            mark = np.random.randint(self.names_end)
            name = f"{self.save_prefix}_{number}_{mark}.{self.save_format}"
            array_to_img(x, self.data_format, scale=True).save(os.path.join(self.save_to_dir, name))


def split_bounds(
    subset: str | None, generator: ImageDataGenerator | None, count: int, who: str
) -> slice:
    """Return which of `count` items belong to a part of the data.

    Args:
        subset: "training", "validation", or None for all.
        generator: has the `validation_split`.
        count: how many items there are; the first ones are for validation.
        who: what messages call the caller.

    Raises:
        ValueError: the name is unknown, or there is no split.

    Example:
        >>> split_bounds(None, None, 10, "flow")
        slice(0, 10, None)
    """
    if subset is None:
        return slice(0, count)
    if subset not in ("training", "validation"):
        raise ValueError(f'{who}: subset is "training", "validation" or None, got {subset!r}.')
    part = 0.0 if generator is None else generator.validation_split
    if not part:
        raise ValueError(
            f"{who}: subset={subset!r} needs ImageDataGenerator(validation_split=...)."
        )
    middle = int(part * count)
    return slice(0, middle) if subset == "validation" else slice(middle, count)


class NumpyArrayIterator(ImageIterator):
    """Batches of pictures that are arrays.

    Args:
        x: pictures with 4 axes; or (pictures, others): other inputs, which stay as they are.
        y: targets; None: a batch is only the pictures.
        image_data_generator: transforms the pictures.
        batch_size: pictures in a batch, 1 or more.
        shuffle: whether each epoch has a new order.
        sample_weight: a weight for each picture, or None.
        seed: as for `Iterator`.
        data_format: the position of the channel axis; None: `config.image_data_format()`.
        save_to_dir: a folder to which each picture of a batch is written; None: none.
        save_prefix: how the names of these files begin.
        save_format: their format.
        subset: "training" or "validation", by the generator's `validation_split`; None: all.
        ignore_class_split: whether a split may leave classes out of a part.
        dtype: dtype of the batches; None: `floatx()`.

    Raises:
        ValueError: lengths or axes do not fit, an argument is unknown, or the two parts of a split
            do not have the same classes.

    Example:
        >>> from kerasish.preprocessing.image import ImageDataGenerator
        >>> x = np.arange(6.0).reshape(3, 1, 2, 1)
        >>> batches = NumpyArrayIterator(x, [0, 1, 2], ImageDataGenerator(), batch_size=2)
        >>> [y.tolist() for _, y in (batches[0], batches[1])]
        [[0, 1], [2]]
    """

    names_end = 10_000

    def __init__(
        self,
        x: Any,
        y: Any,
        image_data_generator: ImageDataGenerator,
        batch_size: int = 32,
        shuffle: bool = False,
        sample_weight: Any = None,
        seed: int | None = None,
        data_format: str | None = None,
        save_to_dir: PathLike | None = None,
        save_prefix: str = "",
        save_format: str = "png",
        subset: str | None = None,
        ignore_class_split: bool = False,
        dtype: str | None = None,
    ) -> None:
        who = type(self).__name__
        others: list[Any] = []
        if isinstance(x, (tuple, list)) and len(x) == 2 and np.ndim(x[0]) == 4:
            more = x[1] if isinstance(x[1], (list, tuple)) else [x[1]]
            x, others = x[0], [to_numpy(other) for other in more]
        pictures = to_numpy(x)
        targets = None if y is None else to_numpy(y)
        weights = None if sample_weight is None else to_numpy(sample_weight)
        for name, array in [("y", targets), ("sample_weight", weights)] + [
            ("another input", other) for other in others
        ]:
            if array is not None and len(array) != len(pictures):
                raise ValueError(
                    f"{who}: x has {len(pictures)} pictures, {name} has length {len(array)}."
                )
        if pictures.ndim != 4:
            raise ValueError(f"{who}: x has 4 axes, got shape {pictures.shape}.")
        part = split_bounds(subset, image_data_generator, len(pictures), who)
        if subset is not None and targets is not None and not ignore_class_split:
            _check_classes(targets, image_data_generator.validation_split, who)
        self.x = pictures[part].astype(dtypes.array_dtype(dtype or config.floatx()))
        self.x_misc = [other[part] for other in others]
        self.y = None if targets is None else targets[part]
        self.sample_weight = None if weights is None else weights[part]
        super().__init__(
            len(self.x), batch_size, shuffle, seed, image_data_generator, data_format, save_to_dir,
            save_prefix, save_format, dtype,
        )  # fmt: skip
        self.channel_axis = 1 if self.data_format == "channels_first" else 3
        warn_of_channels(self.x, self.channel_axis, who)

    def _get_batches_of_transformed_samples(self, index_array: Array) -> Any:
        batch = self._transformed((self.x[i] for i in index_array), len(index_array))
        self._save(batch, index_array)
        inputs = [batch, *(other[index_array] for other in self.x_misc)] if self.x_misc else batch
        if self.y is None:
            return inputs
        if self.sample_weight is None:
            return inputs, self.y[index_array]
        return inputs, self.y[index_array], self.sample_weight[index_array]


def _check_classes(targets: Array, part: float, who: str) -> None:
    middle = int(part * len(targets))
    if not np.array_equal(np.unique(targets[:middle]), np.unique(targets[middle:])):
        raise ValueError(
            f"{who}: the training and the validation part have different classes. Shuffle the data "
            "first, stratify it, or give ignore_class_split=True."
        )
