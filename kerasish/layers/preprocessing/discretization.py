"""Discretization: bins of numbers, their boundaries given or learnt from quantiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish import ops
from kerasish.engine.layer.layer import Layer
from kerasish.engine.layer.operation import KerasTensor
from kerasish.layers.options import InputOptions
from kerasish.layers.preprocessing.encoding import check_mode, encode, encoded_shape, refuse_sparse
from kerasish.layers.preprocessing.reading import learn_from
from kerasish.signatures import Unpack
from kerasish.tensor import Tensor, to_numpy
from kerasish.typing import Array, PolicyLike, Shape

if TYPE_CHECKING:
    from typing_extensions import Self


class QuantileSketch:
    """About 1 / epsilon numbers, each standing for as many of the data as its weight says.

    Attributes:
        values: ascending, float32.
        weights: likewise.
    """

    def __init__(self, values: Array, weights: Array) -> None:
        self.values, self.weights = values, weights

    @classmethod
    def of(cls, data: Array, epsilon: float) -> Self:
        """Return every (epsilon * n)-th of the sorted data."""
        ordered = np.sort(np.asarray(data, "float32"), axis=None)
        gap = ordered.size * epsilon
        step = max(gap, 1.0)
        kept = ordered[int(max(gap - 1.0, 0.0)) :: int(step)]
        return cls(kept, np.full_like(kept, step))

    def join(self, other: QuantileSketch, epsilon: float) -> QuantileSketch:
        """Return the sketch of the data of both."""
        values = np.concatenate([self.values, other.values])
        weights = np.concatenate([self.weights, other.weights])
        order = np.argsort(values)
        return QuantileSketch(values[order], weights[order]).thin(epsilon)

    def thin(self, epsilon: float) -> QuantileSketch:
        """Return a sketch of at most 1 / epsilon numbers, interpolated between those here."""
        if self.values.size * epsilon < 1:
            return self
        shares = epsilon + np.arange(0.0, 1.0, epsilon)
        below = self.weights.cumsum()
        own_shares = below / below[-1]
        values = np.interp(shares, own_shares, self.values)
        weights = np.diff(np.interp(shares, own_shares, below), prepend=0.0)
        return QuantileSketch(values.astype("float32"), weights.astype("float32"))

    def boundaries(self, bins: int) -> list[float]:
        """Return the boundaries of `bins` bins that hold about equally many of the data."""
        return [float(v) for v in self.thin(1.0 / bins).values[:-1]]


class Discretization(Layer):
    """The number of the bin of each value: how many boundaries are <= x.

    Args:
        bin_boundaries: ascending numbers; n of them make n + 1 bins; None: `adapt` finds them.
        num_bins: number of bins whose boundaries `adapt` finds, instead of boundaries;
            None: `bin_boundaries` are given.
        epsilon: how coarse the quantiles may be, 0 < epsilon < 1.
        output_mode: "int", "one_hot", "multi_hot" or "count" (see `CategoryEncoding`).
        sparse: must be false; accepted for compatibility with Keras.
        dtype: dtype or dtype policy; None: `config.dtype_policy()`.
        name: name of the layer; None: made from the class.

    Shape: int: same; else as for `CategoryEncoding`.

    Example:
        >>> Discretization([0.0, 1.0])(np.array([-1.0, 0.5, 1.0])).numpy().tolist()
        [0, 1, 2]
    """

    example = {
        "args": {"bin_boundaries": [1.0, 3.0]}, "shape": (2, 3), "dtype": "int32", "high": 4
    }  # fmt: skip

    def __init__(
        self, bin_boundaries: Sequence[float] | None = None, num_bins: int | None = None,
        epsilon: float = 0.01,
        output_mode: str = "int", sparse: bool = False, dtype: PolicyLike | None = None,
        name: str | None = None,
        **kwargs: Unpack[InputOptions],
    ) -> None:  # fmt: skip
        # An integer dtype is that of the results: the values are not cut to integers.
        kwargs.setdefault("autocast", False)
        super().__init__(dtype=dtype, name=name, **kwargs)
        who = self.display_name()
        check_mode(who, output_mode, ("int", "one_hot", "multi_hot", "count"))
        refuse_sparse(who, sparse)
        if (bin_boundaries is None) == (num_bins is None):
            raise ValueError(f"{who}: give either bin_boundaries, or num_bins and call adapt().")
        if num_bins is not None and num_bins < 0:
            raise ValueError(f"{who}: num_bins is a number >= 0, got {num_bins!r}.")
        self.num_bins, self.epsilon = num_bins, epsilon
        self.output_mode, self.sparse = output_mode, sparse
        self._sketch: QuantileSketch | None = None
        self._given = bin_boundaries is not None
        self.bin_boundaries = None if bin_boundaries is None else self._checked(bin_boundaries)

    def _checked(self, boundaries: Sequence[float]) -> list[float]:
        results = [float(b) for b in np.asarray(boundaries).ravel()]
        if any(a > b for a, b in zip(results, results[1:])):
            raise ValueError(f"{self.display_name()}: bin_boundaries must ascend, got {results}.")
        return results

    @property
    def output_dtype(self) -> str:
        """The dtype of the results: int32 for bins, else the compute dtype."""
        return "int32" if self.output_mode == "int" else str(self.compute_dtype)

    def adapt(self, data: Array, steps: int | None = None) -> None:
        """Learn the boundaries from an array, or from an iterable of batches."""
        learn_from(self, data, steps)

    def reset_state(self) -> None:
        """Drop the data seen by `update_state`."""
        self._sketch = None

    def update_state(self, data: Array) -> None:
        """Take a batch into the quantiles."""
        if self._given:
            raise ValueError(
                f"{self.display_name()}: bin_boundaries were given; adapt() goes with num_bins."
            )
        new = QuantileSketch.of(to_numpy(data), self.epsilon)
        # As in Keras, whose numbers these are, the first batch is thinned, too.
        seen = (
            QuantileSketch(new.values[:0], new.weights[:0])
            if self._sketch is None
            else self._sketch
        )
        self._sketch = new.join(seen, self.epsilon)

    def finalize_state(self) -> None:
        """Turn what `update_state` saw into boundaries."""
        if self._sketch is not None and self.num_bins is not None:
            self.bin_boundaries = self._sketch.boundaries(self.num_bins)

    def call(self, inputs: Tensor) -> Tensor:
        """Find the bins."""
        if self.bin_boundaries is None:
            raise ValueError(
                f"{self.display_name()}: it has no bin_boundaries yet; call adapt(data), or give "
                "them."
            )
        edges = np.asarray(self.bin_boundaries, "float32")
        x = ops.cast(inputs, "float32")
        indices = ops.cast(ops.searchsorted(edges, x, side="right"), "int32")
        if self.output_mode == "int":
            return indices
        return encode(indices, self._depth(), self.output_mode, self.compute_dtype)

    def _depth(self) -> int:
        """Return the number of bins: of `num_bins` some stay empty where values repeat."""
        return len(self.bin_boundaries or ()) + 1 if self._given else int(self.num_bins or 0)

    def compute_output_shape(self, input_shape: Shape) -> tuple[Any, ...]:
        """Return the result's shape, known before `adapt`."""
        return encoded_shape(tuple(input_shape), self._depth(), self.output_mode)

    def compute_output_spec(self, inputs: KerasTensor) -> KerasTensor:
        """Return the symbolic result: bins are integers, for any compute dtype."""
        return KerasTensor(self.compute_output_shape(inputs.shape), self.output_dtype)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {
            "bin_boundaries": self.bin_boundaries, "num_bins": self.num_bins,
            "epsilon": self.epsilon, "output_mode": self.output_mode, "sparse": self.sparse,
            "name": self.name, "dtype": self.dtype,
        }  # fmt: skip

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Discretization:
        """Return the layer that `get_config` describes: adapted, if it was."""
        config = dict(config)
        learnt = config.pop("bin_boundaries", None) if config.get("num_bins") is not None else None
        layer = cls(**config)
        if learnt is not None:
            layer.bin_boundaries = layer._checked(learnt)
        return layer
