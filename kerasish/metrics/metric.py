"""Metric: a number that is gathered batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kerasish import ops, registry
from kerasish.naming import name_for
from kerasish.ops import dtypes
from kerasish.signatures import Configured, own_arguments
from kerasish.tensor import Tensor, Variable, name_scope
from kerasish.tracebacks import short_tracebacks
from kerasish.typing import Array, DTypeLike, InitializerLike, ShapeLike, Structure
from kerasish.watched import Watched


class Metric(Configured, Watched):
    """A number gathered over batches: `update_state`, `result`, `reset_state`.

    Subclasses make variables in `__init__` by `add_variable`, change them in `update_state`, and
    compute the number from them in `result`. A metric that is exact over any batching keeps sums
    and counts, never means of batches.

    Args:
        dtype: the dtype of its variables; None: `floatx()`.
        name: the name under which it is reported; None: made from the class.

    Example:
        >>> from kerasish import metrics
        >>> metric = metrics.MeanSquaredError()
        >>> metric.update_state([[1.0]], [[3.0]])
        >>> float(metric.result())
        4.0
    """

    _arguments: dict[str, Any]
    # What diagnostics know of the very class: whether it gives the share of predictions that equal
    # their targets, and above what a prediction then counts as 1 (None: it is compared as it is).
    counts_hits = False
    hit_threshold: float | None = None
    on_host = False  # whether it gathers rows outside of the steps, and is computed at the end

    def __init__(self, dtype: DTypeLike | None = None, name: str | None = None) -> None:
        self.name = name or name_for(self, None)
        self._dtype = dtypes.name_of(getattr(dtype, "compute_dtype", dtype))
        self._variables: list[Variable] = []
        self._first_values: list[Any] = []  # of each variable: an array, or None for zeros

    @property
    def dtype(self) -> str:
        """The dtype of its variables."""
        return self._dtype

    def add_variable(
        self,
        shape: ShapeLike,
        initializer: InitializerLike = "zeros",
        dtype: DTypeLike | None = None,
        aggregation: str = "sum",
        name: str | None = None,
    ) -> Variable:
        """Return a new variable that `reset_state` puts back to zero (or its first value).

        Args:
            initializer: "zeros", "ones", or a function (shape, dtype).
            aggregation: how it gathers what the shards of a batch give in data-parallel training:
                "sum", or "stack", with `merge_shards`. In a shard it starts from 0.
        """
        dtype = dtypes.name_of(dtype or self._dtype)
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        with name_scope(str(self.name).replace("/", ">")):
            result = Variable(
                _first(initializer, sizes, dtype),
                dtype=dtype,
                trainable=False,
                aggregation=aggregation,
                name=name,
            )
        self._variables.append(result)
        self._first_values.append(None if _is_zeros(initializer) else np.array(result.numpy()))
        return result

    def add_weight(
        self,
        shape: ShapeLike = (),
        initializer: InitializerLike | None = None,
        dtype: DTypeLike | None = None,
        name: str | None = None,
    ) -> Variable:
        """Return a new variable; see `add_variable`."""
        return self.add_variable(shape, initializer or "zeros", dtype, name=name)

    @property
    def variables(self) -> list[Variable]:
        """The variables of this metric, and of the metrics that it holds."""
        results = {id(v): v for v in self._variables}
        for part in self._parts():
            for v in [part] if isinstance(part, Variable) else part.variables:
                results.setdefault(id(v), v)
        return list(results.values())

    def _parts(self) -> list[Any]:
        """Return the variables and metrics in its attributes, also in lists and dicts."""
        held = (v for k, v in vars(self).items() if k != "_first_values")
        return [x for v in held for x in _leaves(v) if isinstance(x, (Variable, Metric))]

    def update_state(self, *args: Any, **kwargs: Any) -> None:
        """Take in a batch."""
        raise NotImplementedError(f"{type(self).__name__} defines no update_state().")

    def merge_shards(self, states: Mapping[Variable, Tensor]) -> None:
        """Take in a batch whose shards were gathered apart: needed for variables of "stack".

        Args:
            states: variable of aggregation "stack" -> its values in the shards, along a new first
                axis.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no merge_shards().")

    def result(self) -> Structure:
        """Return the number (a tensor, or a dict of tensors) over all batches since the reset."""
        raise NotImplementedError(f"{type(self).__name__} defines no result().")

    def reset_state(self) -> None:
        """Drop all batches."""
        own = {id(v) for v in self._variables}
        for v, first in zip(self._variables, self._first_values):
            v.assign(ops.zeros(v.shape, v.dtype) if first is None else first)
        for part in self._parts():
            if isinstance(part, Metric):
                part.reset_state()
            elif id(part) not in own:
                part.assign(ops.zeros(part.shape, part.dtype))

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
        with short_tracebacks:
            self.update_state(*args, **kwargs)
            return self.result()

    def stateless_update_state(
        self, metric_variables: Sequence[Tensor], *args: Any, **kwargs: Any
    ) -> list[Tensor]:
        """Return the new values of the variables after a batch; the metric does not change."""
        return self._statelessly(metric_variables, self.update_state, args, kwargs)[1]

    def stateless_result(self, metric_variables: Sequence[Tensor]) -> Tensor:
        """Return the number for given values of the variables."""
        return self._statelessly(metric_variables, self.result, (), {})[0]

    def stateless_reset_state(self) -> list[Tensor]:
        """Return the values of the variables after a reset; the metric does not change."""
        values = [v.value for v in self.variables]
        return self._statelessly(values, self.reset_state, (), {})[1]

    def _statelessly(
        self,
        values: Sequence[Tensor],
        method: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> tuple[Any, ...]:
        own = self.variables
        if len(values) != len(own):
            raise ValueError(f"{self.name}: has {len(own)} variables, got {len(values)} values.")
        before = [v.latest for v in own]
        try:
            for v, value in zip(own, values):
                v.assign(value)
            result = method(*args, **kwargs)
            return result, [v.value for v in own]
        finally:
            for v, leaf in zip(own, before):
                v.latest = leaf

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        result = {"name": self.name, "dtype": self._dtype}
        return {**result, **own_arguments(self, known=result)}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} name={self.name}>"


def _leaves(value: object) -> Iterator[Any]:
    """Return the items of nested lists, tuples and dicts."""
    if isinstance(value, (list, tuple, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _leaves(part)
    else:
        yield value


def _is_zeros(initializer: InitializerLike) -> bool:
    return isinstance(initializer, str) and initializer in ("zeros", "zero")


def _first(initializer: Any, shape: tuple[int, ...], dtype: str) -> Array:
    if _is_zeros(initializer):
        return np.zeros(shape, dtypes.array_dtype(dtype))
    if initializer in ("ones", "one") if isinstance(initializer, str) else False:
        return np.ones(shape, dtypes.array_dtype(dtype))
    if callable(initializer):
        return initializer(shape, dtype=dtype)
    return np.full(shape, initializer, dtypes.array_dtype(dtype))


registry.add_builtins("keras", {"Metric": Metric})
