"""Configs of GPTQ and AWQ, which look at data, and their roundings of a matrix of weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kerasish.quantizers.configs import QuantizationConfig
from kerasish.typing import Array, Config

if TYPE_CHECKING:
    from typing_extensions import Self


class Rounded(NamedTuple):
    """A quantized matrix (inputs, units).

    Attributes:
        q: integers (inputs, units).
        scale, zero: (groups, units): a weight is (q - zero) * scale.
        group: the group of each row.
        factors: what each row was multiplied by before (AWQ); None: nothing.
    """

    q: Array
    scale: Array
    zero: Array
    group: Array
    factors: Array | None = None

    def floats(self) -> Array:
        """Return the weights as floats."""
        w = (self.q - self.zero[self.group]) * self.scale[self.group]
        return w if self.factors is None else w / self.factors[:, None]


class _CalibratedConfig(QuantizationConfig):
    _bits: tuple[int, ...] = ()

    def __init__(
        self, dataset: Any, tokenizer: Any, weight_bits: int, num_samples: int,
        sequence_length: int, group_size: int, structure: dict[str, Any] | None,
    ) -> None:  # fmt: skip
        super().__init__(None, None)
        who = type(self).__name__
        if weight_bits not in self._bits:
            raise ValueError(f"{who}: weight_bits is one of {self._bits}, got {weight_bits!r}.")
        for name, value in (("num_samples", num_samples), ("sequence_length", sequence_length)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{who}: {name} is an integer >= 1, got {value!r}.")
        if not isinstance(group_size, int) or group_size < -1 or group_size == 0:
            raise ValueError(f"{who}: group_size is -1 (one group) or >= 1, got {group_size!r}.")
        self.dataset, self.tokenizer, self.weight_bits = dataset, tokenizer, weight_bits
        self.num_samples, self.sequence_length = num_samples, sequence_length
        self.group_size, self.quantization_layer_structure = group_size, structure

    def dtype_policy_string(self) -> str:
        """Return the part of a dtype policy's name for this config."""
        return f"{self.mode}/{self.weight_bits}/{self.group_size}"

    def get_config(self) -> Config:
        """Return the constructor's arguments without data, tokenizer and blocks."""
        names = ("weight_bits", "num_samples", "sequence_length", "group_size")
        return {"dataset": None, "tokenizer": None, **{n: getattr(self, n) for n in names}}

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Return the config that `get_config` describes."""
        return cls(**{"dataset": None, "tokenizer": None, **config})

    def rounded(self, matrix: Array, hessian: Array) -> Rounded:
        """Return a matrix of weights, quantized.

        Args:
            matrix: floats (inputs, units).
            hessian: the mean of x^T x over the rows x of the layer's inputs: (inputs, inputs).
        """
        raise NotImplementedError(f"{type(self).__name__} does not say how it rounds.")

    def groups(self, rows: int) -> Array:
        """Return the group of each row."""
        size = rows if self.group_size == -1 else self.group_size
        return np.arange(rows) // max(size, 1)


class GPTQConfig(_CalibratedConfig):
    """GPTQ: weights are rounded one row after the other, and the rows left make up for the error.

    Args:
        dataset: arrays of the model's inputs, or texts: what the layers' inputs are collected from.
        tokenizer: text -> numbers; None: `dataset` holds numbers.
        weight_bits: bits of a weight: 2, 3, 4 or 8.
        num_samples: examples that are used.
        per_channel: whether each column has its own scales.
        sequence_length: tokens of an example.
        hessian_damping: share of the mean square of the inputs that is added to that of each.
        group_size: weights of a column that share a scale; -1: all.
        symmetric: whether 0 is in the middle of the range.
        activation_order: whether the rows with the largest inputs are rounded first.
        quantization_layer_structure: {"pre_block_layers": [...], "sequential_blocks": [...]}; None:
            what the model's `get_quantization_layer_structure` says.

    Source: Frantar et al., ICLR 2023.

    Example:
        >>> GPTQConfig(None, None, weight_bits=4, group_size=64).dtype_policy_string()
        'gptq/4/64'
    """

    _bits = (2, 3, 4, 8)

    def __init__(
        self,
        dataset: Any,
        tokenizer: Any,
        *,
        weight_bits: int = 4,
        num_samples: int = 128,
        per_channel: bool = True,
        sequence_length: int = 512,
        hessian_damping: float = 0.01,
        group_size: int = 128,
        symmetric: bool = False,
        activation_order: bool = False,
        quantization_layer_structure: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(
            dataset, tokenizer, weight_bits, num_samples, sequence_length, group_size,
            quantization_layer_structure,
        )  # fmt: skip
        if not 0 <= hessian_damping <= 1:
            raise ValueError(
                f"GPTQConfig: hessian_damping is between 0 and 1, got {hessian_damping!r}."
            )
        self.per_channel, self.symmetric = per_channel, symmetric
        self.hessian_damping, self.activation_order = hessian_damping, activation_order

    @property
    def mode(self) -> str:
        """The name of the mode."""
        return "gptq"

    def get_config(self) -> Config:
        """Return the constructor's arguments without data, tokenizer and blocks."""
        names = ("per_channel", "hessian_damping", "symmetric", "activation_order")
        return {**super().get_config(), **{n: getattr(self, n) for n in names}}

    def rounded(self, matrix: Array, hessian: Array) -> Rounded:
        """Return a matrix of weights, quantized; see `QuantizationConfig`."""
        w, h = matrix.astype("float64"), hessian.astype("float64")
        rows = len(w)
        group = self.groups(rows)
        unused = np.diag(h) == 0
        h = h + np.diag(np.where(unused, 1.0, 0.0))
        h += np.diag(np.full(rows, max(self.hessian_damping * np.mean(np.diag(h)), 1e-12)))
        order = np.argsort(-np.diag(h), kind="stable") if self.activation_order else np.arange(rows)
        # The upper Cholesky factor holds the inverses that remain after each row.
        factor = np.linalg.cholesky(np.linalg.inv(h[np.ix_(order, order)])).T
        q = np.zeros(w.shape)
        scales, zeros = (np.zeros((group[-1] + 1, w.shape[1])) for _ in range(2))
        ready: set[int] = set()
        turned = w[order]
        for i, row in enumerate(order):
            own = group[row]
            if own not in ready:
                ready.add(own)
                members = np.isin(order, np.flatnonzero(group == own))
                scales[own], zeros[own] = self._range(turned[members])
            number = np.rint(turned[i] / scales[own]) + zeros[own]
            q[row] = np.clip(number, 0, 2**self.weight_bits - 1)
            error = (turned[i] - (q[row] - zeros[own]) * scales[own]) / factor[i, i]
            turned[i + 1 :] -= np.outer(factor[i, i + 1 :], error)
        return Rounded(q, scales, zeros, group)

    def _range(self, w: Array) -> tuple[Array, Array]:
        if not self.per_channel:
            w = np.broadcast_to(w.reshape(-1, 1), (w.size, w.shape[1]))
        return limits(w, self.weight_bits, self.symmetric)


def limits(w: Array, bits: int, symmetric: bool = False) -> tuple[Array, Array]:
    """Return (scale, zero) of each column, so that its numbers and 0 are in [0, 2**bits - 1].

    Args:
        w: floats (rows, columns).
        bits: of a quantized number.
        symmetric: whether 0 is in the middle.

    Example:
        >>> scale, zero = limits(np.array([[-1.0], [2.0]]), 2)
        >>> scale.tolist(), zero.tolist()
        ([1.0], [1.0])
    """
    most = 2**bits - 1
    low, high = np.minimum(w.min(0), 0.0), np.maximum(w.max(0), 0.0)
    if symmetric:
        high = np.maximum(-low, high)
        low = -high
    flat = high == low
    scale = np.where(flat, 1.0, high - low) / most
    zero = np.full_like(scale, 2 ** (bits - 1)) if symmetric else np.rint(-low / scale)
    return scale, zero


class AWQConfig(_CalibratedConfig):
    """AWQ: rows of weights with large inputs are enlarged before all are rounded to 4 bits.

    Args:
        dataset: arrays of the model's inputs, or texts: what the layers' inputs are collected from.
        tokenizer: text -> numbers; None: `dataset` holds numbers.
        weight_bits: bits of a weight: 4.
        num_samples: examples that are used.
        sequence_length: tokens of an example.
        group_size: weights of a column that share a scale; -1: all.
        num_grid_points: how many ways to enlarge are tried, >= 1.
        quantization_layer_structure: {"pre_block_layers": [...], "sequential_blocks": [...]}; None:
            what the model's `get_quantization_layer_structure` says.

    Source: Lin et al., MLSys 2024.

    Example:
        >>> AWQConfig(None, None, group_size=64).dtype_policy_string()
        'awq/4/64'
    """

    _bits = (4,)

    def __init__(
        self,
        dataset: Any,
        tokenizer: Any,
        *,
        weight_bits: int = 4,
        num_samples: int = 128,
        sequence_length: int = 512,
        group_size: int = 128,
        num_grid_points: int = 20,
        quantization_layer_structure: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(
            dataset, tokenizer, weight_bits, num_samples, sequence_length, group_size,
            quantization_layer_structure,
        )  # fmt: skip
        if not isinstance(num_grid_points, int) or num_grid_points < 1:
            raise ValueError(
                f"AWQConfig: num_grid_points is an integer >= 1, got {num_grid_points!r}."
            )
        self.num_grid_points = num_grid_points

    @property
    def mode(self) -> str:
        """The name of the mode."""
        return "awq"

    def get_config(self) -> Config:
        """Return the constructor's arguments without data, tokenizer and blocks."""
        return {**super().get_config(), "num_grid_points": self.num_grid_points}

    def rounded(self, matrix: Array, hessian: Array) -> Rounded:
        """Return a matrix of weights, quantized; see `QuantizationConfig`."""
        w, h = matrix.astype("float64"), hessian.astype("float64")
        size = np.sqrt(np.maximum(np.diag(h), 1e-12))  # of each input
        best, least = None, np.inf
        for share in np.arange(self.num_grid_points) / self.num_grid_points:
            factors = np.maximum(size**share, 1e-4)
            factors /= np.sqrt(factors.max() * factors.min())
            result = self._plain(w * factors[:, None])._replace(factors=factors)
            error = result.floats() - w
            loss = float(np.sum((h @ error) * error))  # of the results, squared
            if loss < least:
                best, least = result, loss
        return self._plain(w)._replace(factors=np.ones(len(w))) if best is None else best

    def _plain(self, w: Array) -> Rounded:
        group = self.groups(len(w))
        parts = [limits(w[group == g], self.weight_bits) for g in range(group[-1] + 1)]
        scale, zero = (np.stack(part) for part in zip(*parts))
        q = np.clip(np.rint(w / scale[group]) + zero[group], 0, 2**self.weight_bits - 1)
        return Rounded(q, scale, zero, group)
