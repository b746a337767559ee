"""IndexLookup: what StringLookup and IntegerLookup share."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kerasish import config, ops
from kerasish.engine.functional.host_stage import HostLayer
from kerasish.engine.layer.operation import KerasTensor
from kerasish.errors import UnknownNameError
from kerasish.layers.options import LayerOptions
from kerasish.layers.preprocessing.encoding import (
    check_mode,
    count_in_rows,
    encode_array,
    encoded_shape,
    refuse_sparse,
)
from kerasish.layers.preprocessing.hashing import hashed, read_salt
from kerasish.layers.preprocessing.reading import learn_from, read_integers, strings_like
from kerasish.layers.preprocessing.vocabulary import (
    MASKED,
    UNKNOWN,
    TokenCounts,
    TokenTable,
    check_tokens,
    load_tokens,
    read_lines,
    save_tokens,
)
from kerasish.signatures import Unpack
from kerasish.tensor import Tensor
from kerasish.typing import Array, TensorLike

MODES = ("int", "one_hot", "multi_hot", "count", "tf_idf")
OLD_MODES = {"binary": "multi_hot", "tf-idf": "tf_idf"}


class IndexLookup(HostLayer):
    """The number of each token in a vocabulary, or the token of each number.

    Numbers: the mask token, if there is one (only with output_mode "int"): 0; then those for
    tokens outside the vocabulary; then the vocabulary. Subclasses read tokens: `_read`, `_token`.
    """

    def __init__(
        self, max_tokens: int | None, num_oov_indices: int, mask_token: Any, oov_token: str | int,
        vocabulary: Sequence[Any] | None, idf_weights: Sequence[float] | None, invert: bool,
        output_mode: str,
        sparse: bool,
        pad_to_max_tokens: bool, oov_method: str, salt: str | int | Sequence[int] | None,
        vocabulary_size: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        who = self.display_name()
        if max_tokens is not None and max_tokens <= 1:
            raise ValueError(f"{who}: max_tokens is a number > 1, got {max_tokens!r}.")
        if num_oov_indices < 0:
            raise ValueError(f"{who}: num_oov_indices is a number >= 0, got {num_oov_indices!r}.")
        if pad_to_max_tokens and max_tokens is None:
            raise ValueError(f"{who}: pad_to_max_tokens=True needs max_tokens.")
        output_mode = OLD_MODES.get(output_mode, output_mode)
        check_mode(who, output_mode, MODES)
        if invert and output_mode != "int":
            raise ValueError(
                f"{who}: invert=True goes with output_mode='int', not {output_mode!r}."
            )
        if idf_weights is not None and output_mode != "tf_idf":
            raise ValueError(
                f"{who}: idf_weights go with output_mode='tf_idf', not with {output_mode!r}."
            )
        refuse_sparse(who, sparse)
        if oov_method not in ("floormod", "farmhash"):
            raise UnknownNameError.of(f"{who}: oov_method", oov_method, ("floormod", "farmhash"))
        self.max_tokens, self.num_oov_indices = max_tokens, num_oov_indices
        self.mask_token, self.oov_token = mask_token, oov_token
        self.output_mode, self.sparse, self.invert = output_mode, sparse, bool(invert)
        self.pad_to_max_tokens = pad_to_max_tokens
        if max_tokens is not None and max_tokens <= self._first:
            raise ValueError(
                f"{who}: max_tokens={max_tokens} leaves no index beyond the special tokens "
                f"{self._specials}."
            )
        self.oov_method, self.salt = oov_method, read_salt(who, salt)
        self._counts = TokenCounts()
        self._table: TokenTable | None = None
        self._idf: Any = None
        self._stored_idf: Any = None
        self._expected_size = vocabulary_size
        self.input_vocabulary: list[Any] | None = None
        self.input_idf_weights: list[float] | None = None
        if vocabulary is not None:
            self._take_vocabulary(vocabulary, idf_weights)

    def _take_vocabulary(
        self, vocabulary: Sequence[Any], idf_weights: Sequence[float] | None
    ) -> None:
        if self.output_mode == "tf_idf" and idf_weights is None:
            raise ValueError(
                f"{self.display_name()}: with output_mode='tf_idf', vocabulary= needs idf_weights= "
                "too."
            )
        self.set_vocabulary(vocabulary, idf_weights)
        self.input_vocabulary = list(self._tokens())
        if self._idf is not None:
            self.input_idf_weights = self._idf.tolist()

    # --- what subclasses say ------------------------------------------------------------------

    vocabulary_dtype = "int64"

    def _read(self, x: TensorLike) -> Array:
        """Return tokens as a NumPy array."""
        return read_integers(x, self.display_name())

    def _token(self, value: Any) -> Any:
        """Return a token, however it is written, as a Python object."""
        return int(value)

    # --- the vocabulary -----------------------------------------------------------------------

    @property
    def _specials(self) -> list[Any]:
        masks = self.mask_token is not None and self.output_mode == "int"
        return [*([self.mask_token] if masks else []), *[self.oov_token] * self.num_oov_indices]

    @property
    def _first(self) -> int:
        """The number of the vocabulary's first token."""
        return len(self._specials)

    @property
    def _first_oov(self) -> int:
        return self._first - self.num_oov_indices

    def _tokens(self) -> list[Any]:
        return [] if self._table is None else self._table.tokens

    def get_vocabulary(self, include_special_tokens: bool = True) -> list[Any]:
        """Return the vocabulary, in the order of its numbers.

        Args:
            include_special_tokens: whether the mask token and those for unknown tokens lead.
        """
        return [*(self._specials if include_special_tokens else []), *self._tokens()]

    def vocabulary_size(self) -> int:
        """Return the number of numbers: of the vocabulary with its special tokens."""
        if self._table is None and self._expected_size is not None:
            return self._expected_size
        return self._first + len(self._tokens())

    def depth(self) -> int:
        """Return the number of entries of a vector over the vocabulary."""
        if self.pad_to_max_tokens and self.max_tokens is not None:
            return self.max_tokens
        return self.vocabulary_size()

    def set_vocabulary(
        self, vocabulary: Sequence[Any], idf_weights: TensorLike | None = None
    ) -> None:
        """Set the vocabulary, instead of learning it.

        Args:
            vocabulary: the tokens, or the path of a text file with one per line; the special
                tokens may lead.
            idf_weights: of each token, with output_mode "tf_idf".

        Raises:
            ValueError: it is empty, too long, or holds a token twice or in the wrong place.
        """
        who = self.display_name()
        if isinstance(vocabulary, (str, os.PathLike)):
            if not os.path.exists(vocabulary):
                raise ValueError(f"{who}: vocabulary: there is no file {os.fspath(vocabulary)!r}.")
            vocabulary = read_lines(os.fspath(vocabulary), "utf-8")
        tokens = [self._token(t) for t in np.asarray(vocabulary).ravel().tolist()]
        if not tokens:
            raise ValueError(f"{who}: a vocabulary holds at least one token, got none.")
        specials = self._specials
        led = bool(specials) and tokens[: len(specials)] == specials
        tokens = tokens[len(specials) :] if led else tokens
        self._check_tokens(tokens)
        weights = self._checked_weights(tokens, idf_weights, led)
        self._table, self._idf = TokenTable(tokens, self._first, self.mask_token), weights
        self.input_vocabulary = self.input_idf_weights = None

    def _check_tokens(self, tokens: list[Any]) -> None:
        reserved = {"mask_token": self.mask_token}
        if self.invert:
            reserved["oov_token"] = self.oov_token
        check_tokens(self.display_name(), tokens, reserved, self._specials)
        if self.max_tokens is not None and self._first + len(tokens) > self.max_tokens:
            raise ValueError(
                f"{self.display_name()}: max_tokens={self.max_tokens}, but the vocabulary with its "
                f"special tokens has {self._first + len(tokens)}."
            )

    def _checked_weights(
        self, tokens: Sequence[Any], idf_weights: TensorLike | None, led: bool
    ) -> Array:
        who = self.display_name()
        if self.output_mode != "tf_idf":
            if idf_weights is not None:
                raise ValueError(f"{who}: idf_weights go with output_mode='tf_idf'.")
            return None
        if idf_weights is None:
            raise ValueError(f"{who}: with output_mode='tf_idf' a vocabulary needs idf_weights.")
        weights = np.asarray(idf_weights, "float32")
        if weights.ndim != 1 or weights.size not in (len(tokens), len(tokens) + self._first * led):
            raise ValueError(
                f"{who}: expected {len(tokens)} idf_weights, one per token, got shape "
                f"{weights.shape}."
            )
        return weights[weights.size - len(tokens) :]

    @property
    def idf_weights(self) -> Array:
        """The factor of each number's count, with output_mode "tf_idf"; None before they are set.

        Unknown tokens count with the mean of the others.
        """
        if self._idf is None:
            return None
        result = np.zeros(self.depth(), "float32")
        result[: self._first] = self._idf.mean() if self._idf.size else 0.0
        result[self._first : self._first + self._idf.size] = self._idf
        return result

    # --- learning it --------------------------------------------------------------------------

    def adapt(self, data: Array, steps: int | None = None) -> None:
        """Learn the vocabulary: the most frequent tokens of an array or iterable of batches."""
        learn_from(self, data, steps)

    def reset_state(self) -> None:
        """Drop the token counts, and a vocabulary learned from them."""
        if self.input_vocabulary is not None:
            raise ValueError(
                f"{self.display_name()}: the vocabulary was given; there is nothing to adapt. Make "
                "a layer without vocabulary=."
            )
        self._counts, self._table, self._idf = TokenCounts(), None, None
        self._expected_size = None

    def update_state(self, data: Array) -> None:
        """Count the tokens of a batch; a row of the last axis is a document."""
        array = self._read(data)
        rows = array.reshape(-1, array.shape[-1] if array.ndim > 1 else 1)
        self.count_tokens(rows.tolist())

    def count_tokens(self, documents: Sequence[Any]) -> None:
        """Count the tokens of documents, lists of tokens."""
        self._counts.add(documents, self.output_mode == "tf_idf")

    def finalize_state(self) -> None:
        """Make the vocabulary of the tokens counted."""
        if self.input_vocabulary is not None or not self._counts.size:
            return
        limit = None if self.max_tokens is None else self.max_tokens - self._first
        tokens = self._counts.most_common([self.mask_token, self.oov_token], limit)
        self._table = TokenTable(tokens, self._first, self.mask_token)
        self._idf = self._counts.idf(tokens) if self.output_mode == "tf_idf" else None
        self._counts = TokenCounts()

    # --- looking up ---------------------------------------------------------------------------

    def call(self, inputs: Tensor | Sequence[Any]) -> Tensor:
        """Look up."""
        if self.invert:
            return self._invert(read_integers(inputs, self.display_name()))
        tokens = self._read(inputs)
        numbers = self.find_numbers(tokens.ravel().tolist())
        return self.encode_numbers(numbers.reshape(tokens.shape))

    def _need_table(self) -> TokenTable:
        if self._table is None:
            raise RuntimeError(
                f"{self.display_name()}: it has no vocabulary yet; call adapt(data), or give "
                "vocabulary=."
            )
        return self._table

    def find_numbers(self, flat: Sequence[Any]) -> Array:
        """Return the numbers of a list of tokens, int64; masked ones negative, or 0 as numbers."""
        numbers = self._need_table().find(flat)
        unknown = np.flatnonzero(numbers == UNKNOWN)
        if unknown.size:
            numbers[unknown] = self._first_oov + self._oov([flat[i] for i in unknown.tolist()])
        if self.mask_token is not None and self.output_mode == "int":
            numbers[numbers == MASKED] = 0
        return numbers

    def _oov(self, tokens: list[Any]) -> int:
        if self.num_oov_indices == 0:
            raise ValueError(
                f"{self.display_name()}: tokens that are not in the vocabulary: "
                f"{sorted(set(tokens))[:10]}. With num_oov_indices=0 each must be; "
                "num_oov_indices=1 gives the others a number."
            )
        if self.num_oov_indices == 1:
            return 0
        if self.vocabulary_dtype == "string":
            return hashed(strings_like(tokens, (len(tokens),)), self.num_oov_indices, self.salt)
        array = np.array(tokens, np.int64)
        if self.oov_method == "floormod":
            return np.mod(array, self.num_oov_indices)
        return hashed(array, self.num_oov_indices, self.salt)

    def encode_numbers(self, numbers: Array) -> Tensor:
        """Return an array of numbers as output_mode says; negative ones count nowhere."""
        if self.output_mode == "tf_idf":
            return self._weighed(encode_array(numbers, self.depth(), "count", config.floatx()))
        return ops.convert_to_tensor(encode_array(numbers, self.depth(), self.output_mode, "int64"))

    def encode_rows(self, numbers: Array, rows: Array, count: int) -> Tensor:
        """Return the counts of `numbers`, each in its one of `count` rows, as output_mode says."""
        weighed = self.output_mode == "tf_idf"
        mode, dtype = ("count", config.floatx()) if weighed else (self.output_mode, "int64")
        counts = count_in_rows(numbers, rows, count, self.depth(), mode, dtype)
        return self._weighed(counts) if weighed else ops.convert_to_tensor(counts)

    def _weighed(self, counts: Array) -> Tensor:
        return ops.convert_to_tensor(counts * self.idf_weights.astype(counts.dtype))

    def _invert(self, numbers: Array) -> Any:
        tokens = self._need_table().tokens
        every = [*self._specials, *tokens, self.oov_token]
        places = np.where((numbers >= 0) & (numbers < len(every) - 1), numbers, len(every) - 1)
        result = np.array(every, dtype=str if self.vocabulary_dtype == "string" else np.int64)
        taken = result[places]
        return taken if taken.dtype.kind == "U" else ops.convert_to_tensor(taken)

    def compute_output_spec(self, inputs: Tensor) -> KerasTensor:
        """Return a symbolic tensor of the result's shape and dtype."""
        if self.invert:
            return KerasTensor(inputs.shape, self.vocabulary_dtype)
        dtype = config.floatx() if self.output_mode == "tf_idf" else "int64"
        return KerasTensor(encoded_shape(inputs.shape, self.depth(), self._shape_mode()), dtype)

    def _shape_mode(self) -> str:
        return "count" if self.output_mode == "tf_idf" else self.output_mode

    # --- files --------------------------------------------------------------------------------

    def save_own_variables(self, store: dict[str, Any]) -> None:
        """Put the idf weights into the dict-like `store`."""
        if self.output_mode == "tf_idf" and self._idf is not None:
            store["idf_weights"] = self.idf_weights

    def load_own_variables(self, store: Mapping[str, Any]) -> None:
        """Set the idf weights, or keep them until the vocabulary is there."""
        if "idf_weights" in store:
            self._stored_idf = np.asarray(store["idf_weights"], "float32")
            if self._table is not None:
                count = len(self._tokens())
                self._idf = self._stored_idf[self._first : self._first + count]

    def save_assets(self, dir_path: str) -> None:
        """Write a learnt vocabulary into a folder; one that was given is in the config."""
        if self.input_vocabulary is None and self._table is not None:
            save_tokens(dir_path, self.get_vocabulary())

    def load_assets(self, dir_path: str) -> None:
        """Set the vocabulary that `save_assets`, or Keras, wrote into a folder."""
        if self.input_vocabulary is not None:
            return
        tokens = load_tokens(dir_path, self._token)
        count = len(tokens) - self._first
        if tokens[: self._first] != self._specials or count < 0:
            count = len(tokens)
        if count == 0:
            return
        weights = self._stored_idf
        if weights is not None:
            weights = weights[self._first : self._first + count]
        self.set_vocabulary(tokens, weights)

    @staticmethod
    def refuse_path(config: dict[str, Any]) -> None:
        """Raise where a config names a file: a model's file must not make us read another."""
        if isinstance(config.get("vocabulary"), str):
            raise ValueError(
                f"The config of {config.get('name')!r} names the file {config['vocabulary']!r} as "
                "its vocabulary. Files of models do not read other files: make the layer without "
                "it and call set_vocabulary(path)."
            )

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> IndexLookup:
        """Return the layer that `get_config` describes."""
        cls.refuse_path(config)
        return super().from_config(config)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments; a learnt vocabulary is no part of them."""
        result = super().get_config()
        result.update(
            vocabulary=self.input_vocabulary, idf_weights=self.input_idf_weights,
            vocabulary_size=self.vocabulary_size(), oov_method=self.oov_method,
        )  # fmt: skip
        return result
