"""IMDB: 50,000 film reviews as lists of word numbers, praise or not (Maas et al. 2011)."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from kerasish.datasets.sources import Pair, fetch
from kerasish.datasets.unpickle import load_npz
from kerasish.datasets.word_sequences import (
    drop_long,
    limit_words,
    load_word_index,
    shift,
    shuffled,
)


def load_data(
    path: str = "imdb.npz",
    num_words: int | None = None,
    skip_top: int = 0,
    maxlen: int | None = None,
    seed: int = 113,
    start_char: int | None = 1,
    oov_char: int | None = 2,
    index_from: int = 3,
    **kwargs: Any,
) -> tuple[Pair, Pair]:
    """Return ((x_train, y_train), (x_test, y_test)): lists of word numbers, and 1 for praise.

    Words are numbered by frequency, the commonest is `index_from + 1`; 0 is free for padding.

    Args:
        path: name of the file in the cache's folder `datasets`.
        num_words: words with numbers from here on count as unknown; None keeps all.
        skip_top: words with numbers below count as unknown.
        maxlen: reviews of this many words or more are left out; None keeps all.
        seed: of the order of the reviews.
        start_char: put before every review; None for nothing.
        oov_char: replaces unknown words; None leaves them out.
        index_from: added to every word's rank.
        kwargs: `nb_words`, the former name of `num_words`.

    Shape:
        x: (25000,) object arrays of lists; y: (25000,) int64 arrays.

    Example:
        >>> (x_train, y_train), (x_test, y_test) = load_data()  # doctest: +SKIP
    """
    if "nb_words" in kwargs:
        warnings.warn("imdb.load_data: nb_words is now called num_words.", stacklevel=2)
        num_words = kwargs.pop("nb_words")
    if kwargs:
        raise TypeError(f"imdb.load_data: unknown arguments {sorted(kwargs)}.")
    arrays = load_npz(fetch("imdb", path))
    rng = np.random.RandomState(seed)
    parts = []
    for part in ("train", "test"):
        x, y = shuffled(arrays[f"x_{part}"], arrays[f"y_{part}"], rng)
        parts.append(drop_long(shift(x, start_char, index_from), y, maxlen))
    (x_train, y_train), (x_test, y_test) = parts
    texts = limit_words(x_train + x_test, num_words, skip_top, oov_char)
    cut = len(x_train)
    return (texts[:cut], y_train), (texts[cut:], y_test)


def get_word_index(path: str = "imdb_word_index.json") -> dict[str, int]:
    """Return the dict from words to ranks (the number in the data less `index_from`).

    Args:
        path: name of the file in the cache.

    Example:
        >>> get_word_index()["the"]  # doctest: +SKIP
        1
    """
    return load_word_index("imdb_words", path)
