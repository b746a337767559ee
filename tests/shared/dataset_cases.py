"""Pipelines of each verb of Dataset, small, for tests that resume them anywhere."""

from __future__ import annotations

import numpy as np

from kerasish.data import Dataset

COUNT = 23


def numbers() -> Dataset:
    """Rows that are read by number."""
    x = np.arange(COUNT * 2, dtype="float32").reshape(COUNT, 2)
    return Dataset.from_tensor_slices((x, np.arange(COUNT)))


def stream() -> Dataset:
    """The same rows in turn, of no known number: a filter that keeps all."""
    return numbers().filter(lambda x, y: True)


def ragged() -> Dataset:
    """Rows of unequal length."""
    return Dataset.range(COUNT).map(lambda n: np.full(n * 7 % 11 + 1, n))


def doubled(x, y):
    return x * 2, y + 100


def noisy(draw, x, y):
    return x + draw.normal(size=x.shape).astype("float32"), y


def made():
    for n in range(COUNT):
        yield np.full(2, n, "float32"), n


CASES = {
    "from_tensor_slices": numbers,
    "from_tensors": lambda: Dataset.from_tensors((np.ones(3), 1)).repeat(5),
    "from_generator": lambda: Dataset.from_generator(made),
    "range": lambda: Dataset.range(3, 40, 4),
    "map": lambda: numbers().map(doubled),
    "map in threads": lambda: numbers().map(doubled, num_parallel_calls=3),
    "map in threads, batch": lambda: stream().map(doubled, num_parallel_calls=2).batch(9),
    "random_map": lambda: numbers().shuffle(5, seed=1).random_map(noisy, seed=2),
    "random_map in threads": lambda: stream().random_map(noisy, seed=2, num_parallel_calls=2),
    "random_map, shuffle": lambda: stream().random_map(noisy, seed=2).shuffle(6, 1),
    "filter": lambda: numbers().filter(lambda x, y: y % 3 != 1),
    "take_while": lambda: numbers().take_while(lambda x, y: y < 17),
    "shuffle by number": lambda: numbers().shuffle(100, seed=3),
    "shuffle by number, small": lambda: numbers().shuffle(4, seed=3),
    "shuffle in a buffer": lambda: stream().shuffle(5, seed=3),
    "shuffle in a buffer of all": lambda: stream().shuffle(100, seed=3),
    "shuffle of a shuffle": lambda: stream().shuffle(3, seed=3).shuffle(6, seed=4),
    "shuffle of batches": lambda: numbers().batch(4).shuffle(3, seed=1),
    "shuffle without a seed": lambda: stream().shuffle(7),
    "shuffle once": lambda: stream().shuffle(7, 1, reshuffle_each_iteration=False),
    "repeat": lambda: numbers().shuffle(30, seed=1).repeat(3),
    "repeat of a stream": lambda: stream().shuffle(5, seed=1).repeat(2),
    "repeat without end": lambda: stream().shuffle(5, seed=1).repeat().take(60),
    "take": lambda: numbers().take(11),
    "skip": lambda: numbers().skip(11),
    "skip in a stream": lambda: stream().skip(11),
    "shard": lambda: numbers().shard(3, 1),
    "shard of a stream": lambda: stream().shard(3, 1),
    "cache": lambda: numbers().map(doubled).cache(),
    "cache, shuffle": lambda: stream().cache().shuffle(9, seed=5).batch(4).repeat(2),
    "prefetch": lambda: numbers().prefetch(3),
    "prefetch of everything": lambda: (
        stream().shuffle(6, seed=1).map(doubled, num_parallel_calls=2).batch(4).prefetch(2)
    ),
    "zip": lambda: Dataset.zip((numbers(), Dataset.range(100).shuffle(9, seed=1))),
    "zip of streams": lambda: Dataset.zip({"a": stream(), "b": (Dataset.range(7), stream())}),
    "enumerate": lambda: numbers().enumerate(5),
    "concatenate": lambda: numbers().take(5).concatenate(stream().shuffle(4, seed=1)),
    "interleave": lambda: Dataset.range(7).interleave(
        lambda n: Dataset.range(n * 10, n * 10 + n + 1).shuffle(3), 3, 2
    ),
    "interleave in threads": lambda: Dataset.range(7).interleave(
        lambda n: Dataset.range(n * 10, n * 10 + n + 1), 3, 2, num_parallel_calls=2
    ),
    "flat_map": lambda: Dataset.range(6).flat_map(lambda n: Dataset.range(n)),
    "batch": lambda: numbers().batch(5),
    "batch, the rest dropped": lambda: stream().batch(5, drop_remainder=True),
    "unbatch": lambda: numbers().batch(5).unbatch(),
    "unbatch of a stream": lambda: stream().batch(5).shuffle(2, seed=1).unbatch(),
    "rebatch": lambda: stream().batch(5).rebatch(3),
    "padded_batch": lambda: ragged().padded_batch(4),
    "bucket_by_sequence_length": lambda: ragged().bucket_by_sequence_length(
        len, [3, 6, 9], [4, 3, 2, 2]
    ),
    "window": lambda: (
        stream().window(4, shift=2).flat_map(lambda x, y: Dataset.zip((x.batch(4), y.batch(4))))
    ),
    "sample_from_datasets": lambda: Dataset.sample_from_datasets(
        [numbers(), stream().map(doubled)], [0.3, 0.7], seed=1
    ),
    "assert_cardinality": lambda: stream().assert_cardinality(COUNT).batch(4),
    "shuffle, map, batch, prefetch": lambda: (
        numbers().shuffle(8, seed=1).map(doubled).batch(4).prefetch(2)
    ),
}


def flat(element) -> list:
    """Return an element as nested lists that can be compared, with dtypes."""
    if isinstance(element, tuple):
        return [flat(part) for part in element]
    if isinstance(element, dict):
        return [[key, flat(element[key])] for key in sorted(element)]
    array = np.asarray(element)
    return [str(array.dtype), array.shape, array.tobytes() if array.dtype != object else
            array.tolist()]  # fmt: skip
