"""Texts as lists of word numbers: what IMDB and Reuters share."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from kerasish.datasets.sources import fetch


def load_word_index(name: str, path: str) -> dict[str, int]:
    """Return the dict from words to their rank by frequency, from 1."""
    with open(fetch(name, path), encoding="utf-8") as file:
        return json.load(file)


def shuffled(x: np.ndarray, y: np.ndarray, rng: np.random.RandomState) -> tuple[Any, Any]:
    """Return x and y in one new order, Keras's for the same seed."""
    order = np.arange(len(x))
    rng.shuffle(order)
    return x[order], y[order]


def shift(texts: Iterable[Any], start_char: int | None, index_from: int | None) -> list[np.ndarray]:
    """Return the texts with every word number raised by `index_from`, behind `start_char`."""
    start = [] if start_char is None else [start_char]
    return [
        np.concatenate([start, np.asarray(text, np.int64) + (index_from or 0)]).astype(np.int64)
        for text in texts
    ]


def drop_long(
    texts: list[np.ndarray], labels: np.ndarray, maxlen: int | None
) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the texts shorter than `maxlen` words and their labels.

    Raises:
        ValueError: none is.
    """
    if not maxlen:
        return texts, labels
    short = [i for i, text in enumerate(texts) if len(text) < maxlen]
    if not short:
        raise ValueError(f"maxlen={maxlen}: no text is shorter than that. Raise maxlen.")
    return [texts[i] for i in short], labels[short]


def limit_words(
    texts: list[np.ndarray], num_words: int | None, skip_top: int, oov_char: int | None
) -> np.ndarray:
    """Return an object array of lists that keep the words skip_top <= w < num_words.

    Others become `oov_char`, or are left out if it is None. As in Keras, num_words=None means the
    largest number that occurs, so that the rarest word falls away.
    """
    if not num_words:
        num_words = max(int(text.max()) for text in texts if text.size)
    limited = np.empty(len(texts), object)
    for i, text in enumerate(texts):
        known = (skip_top <= text) & (text < num_words)
        kept = text[known] if oov_char is None else np.where(known, text, oov_char)
        limited[i] = kept.tolist()
    return limited
