"""Tokens to numbers and back: StringLookup, IntegerLookup."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasish.layers.preprocessing.lookup import IndexLookup
from kerasish.layers.preprocessing.reading import read_strings
from kerasish.typing import AnyTensor, Array, Structure


class StringLookup(IndexLookup):
    """The number of each string in a vocabulary, or (invert) the string of each number.

    Args:
        max_tokens: most numbers, the special ones included, > 1; None: any.
        num_oov_indices: numbers for strings outside the vocabulary; with more than one they are
            hashed; with 0 they are an error.
        mask_token: the string that means "no token": number 0; in other modes than "int" it
            is not counted. None: there is none.
        oov_token: what `invert` gives for unknown strings.
        vocabulary: the strings, or the path of a text file with one per line; None: `adapt`.
        idf_weights: of each string, for "tf_idf" with a vocabulary; None: `adapt` finds them.
        invert: whether to go from numbers to strings.
        output_mode: "int"; "one_hot", "multi_hot", "count" (see `CategoryEncoding`); "tf_idf":
            count * log(1 + documents / (1 + documents with it)).
        pad_to_max_tokens: whether vectors have max_tokens entries, for any size of the vocabulary.
        sparse: must be false; accepted for compatibility with Keras.
        encoding: of bytes.
        name: name of the layer; None: made from the class.
        salt: an integer or two: the key under which unknown strings are hashed (SipHash-2-4);
            None: FarmHash64.

    Shape: int: same; else as for `CategoryEncoding`.

    Example:
        >>> layer = StringLookup(vocabulary=["red", "blue"])
        >>> layer(["blue", "green"]).numpy().tolist()
        [2, 0]
    """

    vocabulary_dtype = "string"
    expected_dtype = "string"

    def __init__(
        self, max_tokens: int | None = None, num_oov_indices: int = 1,
        mask_token: str | None = None,
        oov_token: str = "[UNK]", vocabulary: Sequence[str] | None = None,
        idf_weights: Sequence[float] | None = None,
        invert: bool = False, output_mode: str = "int", pad_to_max_tokens: bool = False,
        sparse: bool = False, encoding: str = "utf-8", name: str | None = None,
        salt: str | int | Sequence[int] | None = None,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        self.encoding = encoding
        kwargs.setdefault("oov_method", "floormod")  # numbers only: strings are hashed
        super().__init__(
            max_tokens, num_oov_indices, mask_token, oov_token, vocabulary, idf_weights, invert,
            output_mode, sparse, pad_to_max_tokens, salt=salt, name=name, **kwargs,
        )  # fmt: skip
        if self.invert:
            self.expected_dtype = "int64"

    def _read(self, x: Structure) -> Array:
        return read_strings(x, self.display_name(), self.encoding)

    def _token(self, value: str) -> str:
        return value.decode(self.encoding) if isinstance(value, bytes) else str(value)


class IntegerLookup(IndexLookup):
    """The number of each integer in a vocabulary, or (invert) the integer of each number.

    Args:
        max_tokens, mask_token, vocabulary, idf_weights, invert, output_mode: as for
            `StringLookup`.
        num_oov_indices: numbers for integers outside the vocabulary; with 0 they are an error.
        oov_token: what `invert` gives for unknown integers.
        vocabulary_dtype: "int64".
        sparse: must be false; accepted for compatibility with Keras.
        pad_to_max_tokens: as for `StringLookup`.
        oov_method: which of several numbers an unknown integer gets: "floormod", integer mod
            num_oov_indices, or "farmhash", its hash.
        salt: with "farmhash", an integer or two: the key of SipHash-2-4 instead of FarmHash64;
            None: FarmHash64.
        name: name of the layer; None: made from the class.

    Shape: int: same; else as for `CategoryEncoding`.

    Example:
        >>> layer = IntegerLookup(vocabulary=[10, 20])
        >>> layer([20, 30]).numpy().tolist()
        [2, 0]
    """

    expected_dtype = "int64"

    def __init__(
        self, max_tokens: int | None = None, num_oov_indices: int = 1,
        mask_token: AnyTensor | None = None,
        oov_token: int = -1, vocabulary: Sequence[int] | None = None,
        vocabulary_dtype: str = "int64",
        idf_weights: Array | None = None, invert: bool = False, output_mode: str = "int",
        sparse: bool = False, pad_to_max_tokens: bool = False, oov_method: str = "floormod",
        salt: int | Sequence[int] | None = None, name: str | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        if vocabulary_dtype != "int64":
            raise ValueError(
                f"IntegerLookup: vocabulary_dtype can only be 'int64', got {vocabulary_dtype!r}."
            )
        if salt is not None and oov_method != "farmhash":
            raise ValueError(
                f"IntegerLookup: salt goes with oov_method='farmhash', not with {oov_method!r}."
            )
        super().__init__(
            max_tokens, num_oov_indices, mask_token, oov_token, vocabulary, idf_weights, invert,
            output_mode, sparse, pad_to_max_tokens, oov_method, salt, name=name, **kwargs,
        )  # fmt: skip

    def _token(self, value: str | int) -> int:
        if isinstance(value, (str, bytes)):
            try:
                return int(value)
            except ValueError:
                raise ValueError(f"{self.display_name()}: {value!r} is no integer.") from None
        return int(np.int64(value))
