"""Categories of any number into a fixed number of bins: Hashing, HashedCrossing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasish import config, ops
from kerasish.engine.functional.host_stage import HostLayer
from kerasish.engine.layer.operation import KerasTensor
from kerasish.layers.options import InputOptions, LayerOptions
from kerasish.layers.preprocessing.encoding import check_mode, encode, encoded_shape, refuse_sparse
from kerasish.layers.preprocessing.fingerprint import (
    farm_fingerprints,
    join_fingerprints,
    keyed_fingerprints,
)
from kerasish.layers.preprocessing.reading import is_text, read_integers, read_strings
from kerasish.signatures import Unpack
from kerasish.tensor import Tensor
from kerasish.typing import AnyTensor, Array, PolicyLike, TensorLike

_CROSS_KEY = 0xDECAFCAFFE  # what crossings start from in TensorFlow


def read_categories(x: TensorLike, who: str) -> Array:
    """Return strings as a NumPy array of str, numbers as one of int64."""
    if not isinstance(x, Tensor) and is_text(np.asarray(x)):
        return read_strings(x, who)
    return read_integers(x, who)


def fingerprints(array: Array, salt: list[int] | None = None) -> Array:
    """Return the fingerprint of each element, flat, uint64; equal ones are hashed once.

    Strings are hashed in UTF-8, integers in decimal.
    """
    flat = array.ravel().tolist()
    distinct = list(dict.fromkeys(flat))
    strings = [str(v).encode() for v in distinct]
    if salt is None:
        prints = farm_fingerprints(strings)
    else:
        prints = keyed_fingerprints(strings, (salt[0], salt[1]))
    if len(distinct) == len(flat):
        return prints
    result = dict(zip(distinct, prints.tolist()))
    return np.fromiter(map(result.__getitem__, flat), np.uint64, len(flat))


def read_salt(who: str, salt: str | int | Sequence[int] | None) -> list[int] | None:
    """Return the key of two numbers for a salt, or None.

    Raises:
        ValueError: it is neither one integer nor two.
    """
    if salt is None:
        return None
    if isinstance(salt, (int, np.integer)) and not isinstance(salt, bool):
        return [int(salt), int(salt)]
    if isinstance(salt, (list, tuple)) and len(salt) == 2:
        return [int(s) for s in salt]
    raise ValueError(f"{who}: salt is an integer or a pair of integers, got {salt!r}.")


def hashed(array: Array, bins: int, salt: list[int] | None) -> Array:
    """Return each element's bin, int64: FarmHash64, or SipHash with a salt, modulo `bins`."""
    prints = fingerprints(array, salt)
    return (prints % np.uint64(bins)).astype(np.int64).reshape(array.shape)


class Hashing(HostLayer):
    """The bin of each integer or string: fingerprint(x) mod num_bins.

    Args:
        num_bins: number of bins, >= 1.
        mask_value: the only value in bin 0; the rest share the bins 1 .. num_bins - 1;
            None: no bin is kept.
        salt: an integer or two: hashes with SipHash-2-4 under this key instead of FarmHash64;
            None: FarmHash64.
        output_mode: "int", "one_hot", "multi_hot" or "count" (see `CategoryEncoding`).
        sparse: must be false; accepted for compatibility with Keras.

    Shape: int: same; else as for `CategoryEncoding`.

    Example:
        >>> Hashing(3)([["A"], ["B"], ["C"]]).numpy().ravel().tolist()
        [1, 0, 1]
    """

    def __init__(
        self, num_bins: int, mask_value: AnyTensor | None = None,
        salt: str | int | Sequence[int] | None = None,
        output_mode: str = "int",
        sparse: bool = False, **kwargs: Unpack[LayerOptions],
    ) -> None:  # fmt: skip
        if kwargs.get("dtype") is None:
            kwargs["dtype"] = "int64" if output_mode == "int" else config.floatx()
        super().__init__(**kwargs)
        who = self.display_name()
        if num_bins is None or num_bins <= 0:
            raise ValueError(f"{who}: num_bins is a number >= 1, got {num_bins!r}.")
        check_mode(who, output_mode, ("int", "one_hot", "multi_hot", "count"))
        if output_mode == "int" and not self.compute_dtype.startswith(("int", "uint")):
            raise ValueError(
                f"{who}: with output_mode='int' the dtype is an integer one, got "
                f"{self.compute_dtype!r}."
            )
        refuse_sparse(who, sparse)
        self.num_bins, self.mask_value, self.salt = num_bins, mask_value, read_salt(who, salt)
        self.output_mode, self.sparse = output_mode, sparse

    def call(self, inputs: TensorLike) -> Tensor:
        """Hash."""
        x = read_categories(inputs, self.display_name())
        if self.mask_value is None:
            bins = hashed(x, self.num_bins, self.salt)
        else:
            bins = hashed(x, max(self.num_bins - 1, 1), self.salt) + (self.num_bins > 1)
            bins = np.where(x == self.mask_value, 0, bins)
        indices = ops.convert_to_tensor(bins)
        return encode(indices, self.num_bins, self.output_mode, self.compute_dtype)

    def compute_output_spec(self, inputs: Tensor) -> KerasTensor:
        """Return a symbolic tensor of the result's shape and dtype."""
        shape = encoded_shape(inputs.shape, self.num_bins, self.output_mode)
        return KerasTensor(shape, self.compute_dtype)


class HashedCrossing(HostLayer):
    """The bin of each combination of several features' values.

    Args:
        num_bins: number of bins, >= 1.
        output_mode: "int" or "one_hot".
        sparse: must be false; accepted for compatibility with Keras.
        name: name of the layer; None: made from the class.
        dtype: dtype or dtype policy; None: `config.dtype_policy()`.

    Shape: a list of two or more of (), (batch,) or (batch, 1) -> int: same; one_hot:
        (batch, num_bins).

    Example:
        >>> colors, sizes = np.array(["red", "blue", "red"]), np.array([1, 1, 1])
        >>> bins = HashedCrossing(5)((colors, sizes)).numpy()
        >>> bool(bins[0] == bins[2])
        True
    """

    def __init__(
        self, num_bins: int, output_mode: str = "int", sparse: bool = False,
        name: str | None = None,
        dtype: PolicyLike | None = None, **kwargs: Unpack[InputOptions],
    ) -> None:  # fmt: skip
        if dtype is None:
            dtype = "int64" if output_mode == "int" else config.floatx()
        super().__init__(name=name, dtype=dtype, **kwargs)
        who = self.display_name()
        if num_bins is None or num_bins <= 0:
            raise ValueError(f"{who}: num_bins is a number >= 1, got {num_bins!r}.")
        check_mode(who, output_mode, ("int", "one_hot"))
        refuse_sparse(who, sparse)
        self.num_bins, self.output_mode, self.sparse = num_bins, output_mode, sparse

    def call(self, inputs: Sequence[Any]) -> Tensor:
        """Cross."""
        who = self.display_name()
        self._check(inputs)
        arrays = [self._feature(x) for x in inputs]
        shapes = {a.shape for a in arrays}
        if len(shapes) > 1:
            raise ValueError(f"{who}: expected inputs of equal shapes, got {sorted(shapes)}.")
        shape = arrays[0].shape
        if len(shape) > 2 or len(shape) == 2 and shape[1] != 1:
            raise ValueError(f"{who}: expected shapes (), (batch,) or (batch, 1), got {shape}.")
        joined = np.full(arrays[0].size, _CROSS_KEY, np.uint64)
        for a in arrays:
            if a.dtype.kind in "UO":
                prints = fingerprints(a)
            else:
                prints = np.ascontiguousarray(a.ravel()).view(np.uint64)
            joined = join_fingerprints(joined, prints)
        bins = (joined % np.uint64(self.num_bins)).astype(np.int64).reshape(shape)
        indices = ops.convert_to_tensor(bins)
        return encode(indices, self.num_bins, self.output_mode, self.compute_dtype)

    def _feature(self, x: AnyTensor) -> Array:
        kind = "f" if isinstance(x, Tensor) and x.dtype.startswith("float") else "i"
        if kind == "f" or not isinstance(x, Tensor) and np.asarray(x).dtype.kind == "f":
            raise ValueError(
                f"{self.display_name()}: expected integers or strings, got floating numbers."
            )
        return read_categories(x, self.display_name())

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments as Keras does: the dtype is a name."""
        config = super().get_config()
        del config["trainable"]
        return {**config, "dtype": self.dtype}

    def _check(self, inputs: Sequence[Any]) -> None:
        if not isinstance(inputs, (list, tuple)) or len(inputs) < 2:
            raise ValueError(
                f"{self.display_name()}: expected a list or tuple of at least two inputs, got "
                f"{type(inputs).__name__}"
                + (f" of {len(inputs)}." if isinstance(inputs, (list, tuple)) else ".")
            )

    def compute_output_spec(self, inputs: Sequence[Tensor]) -> KerasTensor:
        """Return a symbolic tensor of the result's shape and dtype."""
        self._check(inputs)
        shape = encoded_shape(inputs[0].shape, self.num_bins, self.output_mode)
        if self.output_mode == "one_hot" and len(inputs[0].shape) == 2:
            shape = (inputs[0].shape[0], self.num_bins)
        return KerasTensor(shape, self.compute_dtype)
