"""TextVectorization: from texts to the numbers of their words, or to vectors of counts."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kerasish import config, ops
from kerasish.engine.functional.host_stage import HostLayer
from kerasish.engine.layer.operation import KerasTensor
from kerasish.errors import UnknownNameError
from kerasish.layers.preprocessing.encoding import check_mode
from kerasish.layers.preprocessing.lookup import OLD_MODES
from kerasish.layers.preprocessing.lookups import StringLookup
from kerasish.layers.preprocessing.reading import learn_from, read_strings, strings_like
from kerasish.registry import deserialize_keras_object
from kerasish.tensor import Tensor
from kerasish.typing import Array, Shape, Structure

# ASCII only, as in Keras: other letters keep their case, other signs stay.
_LOWER = {ord(c): c.lower() for c in string.ascii_uppercase}
_NO_SIGNS = {ord(c): None for c in string.punctuation}
_TABLES: dict[str, dict[int, Any]] = {
    "lower_and_strip_punctuation": {**_LOWER, **_NO_SIGNS},
    "lower": {**_LOWER},
    "strip_punctuation": {**_NO_SIGNS},
}
# Python's split takes more signs for white space than Keras does.
_WORDS = re.compile(r"[^ \t\n\v\f\r]+")
_ODD_SPACES = re.compile("[\x1c-\x1f]")


def _split_words(text: str) -> list[str]:
    if text.isascii() and not _ODD_SPACES.search(text):
        return text.split()
    return _WORDS.findall(text)


_SPLITS: dict[str, Callable[[str], list[str]]] = {"whitespace": _split_words, "character": list}
_MODES = ("int", "multi_hot", "count", "tf_idf")


class TextVectorization(HostLayer):
    """Texts as the numbers of their tokens, or as vectors over the vocabulary.

    Each text is standardized, split into tokens, these joined into n-grams, and looked up. Number
    0 is padding, 1 is for unknown tokens.

    Args:
        max_tokens: most numbers, the special ones included, > 1; None: any.
        standardize: "lower_and_strip_punctuation", "lower", "strip_punctuation" (ASCII letters
            and signs), None, or a function from a NumPy array of strings to another.
        split: "whitespace", "character", None (the texts are tokens, a list of them along the last
            axis), or a function from a NumPy
            array of n texts to n lists of tokens.
        ngrams: n: all up to n tokens; a tuple: those lengths; None: single tokens.
        output_mode: "int", "multi_hot", "count" or "tf_idf" (see `StringLookup`).
        output_sequence_length: tokens of each result of "int", cut or padded; None: the
            number of the longest text of the batch.
        pad_to_max_tokens, vocabulary, idf_weights: as for `StringLookup`.
        sparse, ragged: must be false; accepted for compatibility with Keras.
        encoding: of bytes.
        name: name of the layer; None: made from the class.

    Shape: (batch,) or (batch, 1) -> int: (batch, tokens); else (batch, vocabulary).

    Example:
        >>> layer = TextVectorization(vocabulary=["so", "far"], output_sequence_length=4)
        >>> layer(["So far, so good!"]).numpy().tolist()
        [[2, 3, 2, 1]]
    """

    expected_dtype = "string"

    def __init__(
        self, max_tokens: int | None = None,
        standardize: str = "lower_and_strip_punctuation", split: str = "whitespace",
        ngrams: str | int | Sequence[int] | None = None, output_mode: str = "int",
        output_sequence_length: int | None = None,
        pad_to_max_tokens: bool = False, vocabulary: Sequence[str] | None = None,
        idf_weights: Sequence[float] | None = None,
        sparse: bool = False, ragged: bool = False, encoding: str = "utf-8",
        name: str | None = None,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        size = kwargs.pop("vocabulary_size", None)  # files name it
        super().__init__(name=name, **kwargs)
        who = self.display_name()
        for what, value, known in (
            ("standardize", standardize, _TABLES),
            ("split", split, _SPLITS),
        ):
            if isinstance(value, str) and value not in known:
                raise UnknownNameError.of(f"{who}: {what}", value, list(known))
            if value is not None and not isinstance(value, str) and not callable(value):
                raise ValueError(f"{who}: {what} is a name, None or a function, got {value!r}.")
        self._lengths = _lengths_of(ngrams, who)
        check_mode(who, OLD_MODES.get(output_mode, output_mode), _MODES)
        if output_sequence_length is not None and output_mode != "int":
            raise ValueError(
                f"{who}: output_sequence_length goes with output_mode='int', not {output_mode!r}."
            )
        if output_sequence_length is not None and output_sequence_length < 1:
            raise ValueError(
                f"{who}: output_sequence_length is a number >= 1, got {output_sequence_length!r}."
            )
        if ragged:
            raise ValueError(
                f"{who}: ragged=True is not supported; give output_sequence_length, or let the "
                "results be padded with 0 to the longest of the batch."
            )
        self.standardize, self.split, self.ngrams = standardize, split, ngrams
        self.output_sequence_length, self.ragged = output_sequence_length, ragged
        self.encoding = encoding
        self._lookup_layer = StringLookup(
            max_tokens, mask_token="", vocabulary=vocabulary, idf_weights=idf_weights,
            output_mode=output_mode, pad_to_max_tokens=pad_to_max_tokens, sparse=sparse,
            encoding=encoding, vocabulary_size=size,
        )  # fmt: skip
        self.output_mode = self._lookup_layer.output_mode

    # --- the vocabulary -----------------------------------------------------------------------

    def get_vocabulary(self, include_special_tokens: bool = True) -> list[str]:
        """Return the vocabulary, in the order of its numbers.

        Args:
            include_special_tokens: whether padding ("") and unknown tokens ("[UNK]") lead.
        """
        return self._lookup_layer.get_vocabulary(include_special_tokens)

    def vocabulary_size(self) -> int:
        """Return the number of numbers: of the vocabulary with its special tokens."""
        return self._lookup_layer.vocabulary_size()

    def set_vocabulary(self, vocabulary: Sequence[str], idf_weights: Array | None = None) -> None:
        """Set the vocabulary, instead of learning it; see `StringLookup.set_vocabulary`."""
        self._lookup_layer.set_vocabulary(vocabulary, idf_weights)

    def adapt(self, data: Array, batch_size: int | None = None, steps: int | None = None) -> None:
        """Learn the vocabulary: the most frequent tokens of an array or iterable of batches.

        Args:
            data: texts, or batches of them.
            batch_size: accepted; the result does not depend on it.
            steps: batches to take at most; None: all.
        """
        learn_from(self, data, steps)

    def reset_state(self) -> None:
        """Drop the token counts, and a vocabulary learned from them."""
        self._lookup_layer.reset_state()

    def update_state(self, data: Array) -> None:
        """Count the tokens of a batch of texts."""
        texts = read_strings(data, self.display_name(), self.encoding)
        if texts.ndim < 2:  # each text is a document
            texts = texts.reshape(-1, 1)
        self._lookup_layer.count_tokens(self._tokens(texts))

    def finalize_state(self) -> None:
        """Make the vocabulary of the tokens counted."""
        self._lookup_layer.finalize_state()

    # --- vectorizing --------------------------------------------------------------------------

    def call(self, inputs: Structure) -> Tensor:
        """Vectorize."""
        texts = read_strings(inputs, self.display_name(), self.encoding)
        lookup = self._lookup_layer
        rows = self._tokens(texts)
        leading = self._leading(texts.shape)
        if self.output_mode == "int":
            if not texts.ndim and self.split is None:
                return lookup(rows[0][0])
            numbers = self._padded(rows)
            return lookup.encode_numbers(numbers.reshape(*leading, numbers.shape[-1]))
        numbers = lookup.find_numbers([token for row in rows for token in row])
        places = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
        result = lookup.encode_rows(numbers, places, len(rows))
        return ops.reshape(result, (*leading, result.shape[-1]))

    def _leading(self, shape: Shape) -> tuple[Any, ...]:
        """Return the sizes of a result before its last one: a row per text, or a list of tokens."""
        return tuple(shape[:-1] if self.split is None else shape[:1])

    def _padded(self, rows: Sequence[list[str]]) -> Array:
        """Return the tokens' numbers, one row per text, cut or padded with 0."""
        length = self.output_sequence_length
        if length is None:
            length = max(map(len, rows), default=0)
        rows = [row[:length] for row in rows]
        flat = [token for row in rows for token in row]
        sizes = np.array([len(row) for row in rows], np.int64)
        result = np.zeros((len(rows), length), np.int64)
        result[np.arange(length)[None, :] < sizes[:, None]] = self._lookup_layer.find_numbers(flat)
        return result

    def _tokens(self, texts: Array) -> list[list[str]]:
        """Return the tokens of each text; without a split, a row of the last axis is tokens."""
        texts = self._standardized(texts)
        if self.split is None:
            length = texts.shape[-1] if texts.ndim else 1
            count = int(np.prod(texts.shape[:-1]))
            rows = texts.reshape(count, length).tolist()
        else:
            if texts.ndim > 1 and texts.shape[-1] != 1 or texts.ndim > 2:
                raise ValueError(
                    f"{self.display_name()}: texts to be split have the shape (batch,) or (batch, "
                    f"1), got {texts.shape}."
                )
            rows = self._split_all(texts.reshape(-1))
        if self._lengths:
            return [_join(row, self._lengths) for row in rows]
        return rows

    def _standardized(self, texts: Array) -> Array:
        if self.standardize is None:
            return texts
        if callable(self.standardize):
            result = read_strings(
                self.standardize(texts.astype(str)), self.display_name(), self.encoding
            )
            if result.shape != texts.shape:
                raise ValueError(
                    f"{self.display_name()}: standardize= must keep the shape {texts.shape}, gave "
                    f"{result.shape}."
                )
            return result
        table = _TABLES[self.standardize]
        return strings_like([t.translate(table) for t in texts.ravel().tolist()], texts.shape)

    def _split_all(self, texts: Array) -> list[list[str]]:
        if not callable(self.split):
            return list(map(_SPLITS[self.split], texts.tolist()))
        result = self.split(texts.astype(str))
        rows = result.to_list() if hasattr(result, "to_list") else list(result)
        if len(rows) != len(texts) or any(isinstance(row, (str, bytes)) for row in rows):
            raise ValueError(
                f"{self.display_name()}: split= must give a list of tokens for each of "
                f"{len(texts)} texts, gave {rows[:3]!r} ({len(rows)})."
            )
        return [
            read_strings(list(row), self.display_name(), self.encoding).tolist() for row in rows
        ]

    def compute_output_spec(self, inputs: Tensor) -> KerasTensor:
        """Return a symbolic tensor of the result's shape and dtype."""
        leading = self._leading(inputs.shape)
        if self.output_mode == "int":
            length = self.output_sequence_length
            if length is None and self.split is None and not self._lengths:
                return KerasTensor(inputs.shape, "int64")
            return KerasTensor((*leading, length), "int64")
        dtype = config.floatx() if self.output_mode == "tf_idf" else "int64"
        return KerasTensor((*leading, self._lookup_layer.depth()), dtype)

    # --- files --------------------------------------------------------------------------------

    def save_own_variables(self, store: dict[str, Any]) -> None:
        """Put the idf weights into the dict-like `store`."""
        self._lookup_layer.save_own_variables(store)

    def load_own_variables(self, store: Mapping[str, Any]) -> None:
        """Keep the idf weights until the vocabulary is there."""
        self._lookup_layer.load_own_variables(store)

    def save_assets(self, dir_path: str) -> None:
        """Write a learnt vocabulary into a folder."""
        self._lookup_layer.save_assets(dir_path)

    def load_assets(self, dir_path: str) -> None:
        """Set the vocabulary that `save_assets`, or Keras, wrote into a folder."""
        self._lookup_layer.load_assets(dir_path)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments; a learnt vocabulary is no part of them."""
        result = super().get_config()
        lookup = self._lookup_layer.get_config()
        for name in (
            "max_tokens", "pad_to_max_tokens", "sparse", "vocabulary", "idf_weights",
            "vocabulary_size",
        ):  # fmt: skip
            result[name] = lookup[name]
        return result

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> TextVectorization:
        """Return the layer that `get_config` describes."""
        config = dict(config)
        for name in ("standardize", "split"):
            if isinstance(config.get(name), dict):
                config[name] = deserialize_keras_object(config[name])
        StringLookup.refuse_path(config)
        return super().from_config(config)


def _lengths_of(ngrams: str | int | Sequence[int] | None, who: str) -> tuple[int, ...]:
    """Return the lengths of n-grams to make, () for none."""
    if ngrams is None:
        return ()
    if isinstance(ngrams, int) and not isinstance(ngrams, bool) and ngrams > 0:
        return tuple(range(1, ngrams + 1))
    if isinstance(ngrams, (tuple, list)) and all(isinstance(n, int) and n > 0 for n in ngrams):
        return tuple(ngrams)
    raise ValueError(f"{who}: ngrams is None, a number >= 1 or a tuple of them, got {ngrams!r}.")


def _join(tokens: list[str], lengths: Sequence[int]) -> list[str]:
    """Return the n-grams of all `lengths`, those of one length together."""
    return [" ".join(tokens[i : i + n]) for n in lengths for i in range(len(tokens) - n + 1)]
