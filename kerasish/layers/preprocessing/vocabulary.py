"""Vocabularies: counted in data, read from files, and looked up."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from kerasish.typing import Array

_TEXT, _EXACT = "vocabulary.txt", "vocabulary.json"


class TokenCounts:
    """How often tokens occur in documents, and in how many of these."""

    def __init__(self) -> None:
        self.tokens: Counter[Any] = Counter()
        self.documents: Counter[Any] = Counter()
        self.size = 0

    def add(self, documents: Sequence[Sequence[Any]], in_documents: bool) -> None:
        """Count the tokens of some documents.

        Args:
            documents: lists of tokens.
            in_documents: whether to count the documents of each token, too.
        """
        self.size += len(documents)
        self.tokens.update(chain.from_iterable(documents))
        if in_documents:
            self.documents.update(chain.from_iterable(map(set, documents)))

    def most_common(self, leave_out: Iterable[Any], most: int | None) -> list[Any]:
        """Return the tokens by falling frequency, equally frequent ones from last to first."""
        results = [t for t in self.tokens if t not in set(leave_out)]
        results.sort(key=lambda t: (self.tokens[t], t), reverse=True)
        return results if most is None else results[: max(most, 0)]

    def idf(self, tokens: Sequence[Any]) -> Array:
        """Return log(1 + documents / (1 + documents with the token)) of each, float32.

        Source: Sparck Jones, A statistical interpretation of term specificity (1972), smoothed.
        """
        having = np.array([self.documents[t] for t in tokens], "float64")
        return np.log1p(self.size / (1.0 + having)).astype("float32")


UNKNOWN, MASKED = -1, -2


class TokenTable:
    """From tokens to their numbers and back.

    Args:
        tokens: the tokens in the order of their numbers.
        first: the number of the first one.
        mask: the token that means "no token", or None.
    """

    def __init__(self, tokens: Sequence[Any], first: int, mask: str | int | None = None) -> None:
        self.tokens, self.first = list(tokens), first
        self._numbers = {t: i for i, t in enumerate(self.tokens, first)}
        if mask is not None:
            self._numbers[mask] = MASKED

    def find(self, flat: Sequence[Any]) -> Array:
        """Return the numbers of tokens, int64; UNKNOWN or MASKED where there is none."""
        get = self._numbers.get
        return np.fromiter((get(t, UNKNOWN) for t in flat), np.int64, len(flat))


def check_tokens(
    who: str, tokens: list[Any], reserved: dict[str, Any], specials: Sequence[Any]
) -> None:
    """Raise ValueError where a token occurs twice, or a special one among the others.

    Args:
        who: the layer, for messages.
        tokens: the vocabulary without its special tokens.
        reserved: argument -> the token that must not occur in it, or None.
        specials: the special tokens in their order.
    """
    twice = [t for t, count in Counter(tokens).items() if count > 1]
    if twice:
        raise ValueError(f"{who}: the vocabulary holds these tokens twice: {twice[:10]}.")
    for name, token in reserved.items():
        if token is not None and token in tokens:
            raise ValueError(
                f"{who}: the {name} {token!r} is in the vocabulary at place "
                f"{tokens.index(token)}. Leave the special tokens out, or put them first, in this "
                f"order: {specials}."
            )


def read_lines(path: str, encoding: str) -> list[str]:
    """Return the lines of a text file, one token each."""
    with open(path, encoding=encoding, newline="") as file:
        text = file.read()
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines and not lines[-1] and len(lines) > 1 else lines


def save_tokens(folder: str, tokens: Sequence[Any]) -> None:
    """Write tokens into a folder, one per line, as Keras reads them.

    Tokens that hold a line's end go into a second file, too, which only kerasish reads.
    """
    words = [str(t) for t in tokens]
    with open(os.path.join(folder, _TEXT), "w", encoding="utf-8", newline="") as file:
        file.write("\n".join(words))
    if any("\n" in w for w in words):
        with open(os.path.join(folder, _EXACT), "w", encoding="utf-8") as file:
            json.dump(words, file)


def load_tokens(folder: str, kind: Callable[[str], Any]) -> list[Any]:
    """Return the tokens that `save_tokens`, or Keras, wrote into a folder."""
    exact = os.path.join(folder, _EXACT)
    if os.path.exists(exact):
        with open(exact, encoding="utf-8") as file:
            result = json.load(file)
        if not isinstance(result, list) or not all(isinstance(w, str) for w in result):
            raise ValueError(f"{exact}: expected a list of strings.")
    else:
        with open(os.path.join(folder, _TEXT), encoding="utf-8", newline="") as file:
            result = file.read().split("\n")
    return [kind(w) for w in result]
