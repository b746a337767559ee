"""Reuters: 11,228 newswires of 1987 as lists of word numbers, 46 topics (Lewis; Chollet)."""

from __future__ import annotations

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

_TOPICS = (
    "cocoa grain veg-oil earn acq wheat copper housing money-supply coffee sugar trade reserves "
    "ship cotton carcass crude nat-gas cpi money-fx interest gnp meal-feed alum oilseed gold tin "
    "strategic-metal livestock retail ipi iron-steel rubber heat jobs lei bop zinc orange pet-chem "
    "dlr gas silver wpi hog lead"
).split()


def load_data(
    path: str = "reuters.npz",
    num_words: int | None = None,
    skip_top: int = 0,
    maxlen: int | None = None,
    test_split: float = 0.2,
    seed: int = 113,
    start_char: int | None = 1,
    oov_char: int | None = 2,
    index_from: int = 3,
) -> tuple[Pair, Pair]:
    """Return ((x_train, y_train), (x_test, y_test)): lists of word numbers, and topics 0..45.

    Args:
        path: name of the file in the cache's folder `datasets`.
        num_words: words with numbers from here on count as unknown; None keeps all.
        skip_top: words with numbers below count as unknown.
        maxlen: texts of this many words or more are left out; None keeps all.
        test_split: part of the texts for the test, in [0, 1).
        seed: of the order of the texts.
        start_char: put before every text; None for nothing.
        oov_char: replaces unknown words; None leaves them out.
        index_from: added to every word's rank.

    Shape:
        x: (n,) object arrays of lists; y: (n,) int64 arrays.

    Example:
        >>> (x_train, y_train), (x_test, y_test) = load_data()  # doctest: +SKIP
    """
    if not 0 <= test_split < 1:
        raise ValueError(f"test_split: expected a number in [0, 1), got {test_split!r}.")
    arrays = load_npz(fetch("reuters", path))
    x, y = shuffled(arrays["x"], arrays["y"], np.random.RandomState(seed))
    texts, labels = drop_long(shift(x, start_char, index_from), y, maxlen)
    words = limit_words(texts, num_words, skip_top, oov_char)
    cut = int(len(words) * (1 - test_split))
    return (words[:cut], labels[:cut]), (words[cut:], labels[cut:])


def get_word_index(path: str = "reuters_word_index.json") -> dict[str, int]:
    """Return the dict from words to ranks (the number in the data less `index_from`).

    Args:
        path: name of the file in the cache.

    Example:
        >>> get_word_index()["the"]  # doctest: +SKIP
        1
    """
    return load_word_index("reuters_words", path)


def get_label_names() -> tuple[str, ...]:
    """Return the names of the 46 topics in the order of their numbers.

    Example:
        >>> get_label_names()[3], len(get_label_names())
        ('earn', 46)
    """
    return tuple(_TOPICS)
