"""Runs one step op by op and finds the origin of its first NaN or Inf."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from traceback import walk_stack
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kerasish import tree
from kerasish.autodiff import walk_back
from kerasish.errors import is_users
from kerasish.losses.loss import Loss
from kerasish.metrics.metric import Metric
from kerasish.ops.op import Engine, Op, current_engine, using_engine
from kerasish.optimizers.optimizer import Optimizer
from kerasish.tensor import Tensor, Variable, VariableScope, convert, to_numpy, using_scope
from kerasish.typing import AnyTensor, Array, TensorLike

if TYPE_CHECKING:
    from kerasish.engine.model.model import Model


class Origin(NamedTuple):
    """The origin of a value that is not finite.

    Attributes:
        op: the op's name; in the backward direction, that of the op whose gradient is computed.
        kind: "NaN" or "Inf".
        direction: "data", "weights" (not finite before the step), "forward", "backward", "update".
        layer: the names of the enclosing layers, or of the loss, the metric or the optimizer.
        source: the user's line, "file.py:12"; "" if only library code is involved.
        rows: the rows of the batch with such a value; () if it does not belong to single rows.
        bad: the number of elements that are not finite.
        shape: the shape of the value.
    """

    op: str
    kind: str
    direction: str
    layer: str
    source: str
    rows: tuple[int, ...]
    bad: int
    shape: tuple[int, ...]


class _Origin(NamedTuple):
    layer: str
    source: str
    maker: Any  # the record whose gradient is computed; None outside the reverse pass
    in_optimizer: bool


class OpWatch(Engine):
    """An engine that passes ops to another engine and checks each result.

    Constants that are not finite (the -Inf of a mask) are not reported; a NaN computed from them
    is.
    """

    def __init__(self, model: Model, batch: dict[str, Any]) -> None:
        self._engine = current_engine()
        self._model = model
        self._origins: dict[int, _Origin] = {}  # serial of a record -> where it was made
        self._known: dict[int, tuple[Any, frozenset[int], bool]] = {}  # id -> array, births, NaN
        self._by_row: dict[int, Any] = {}  # id -> array whose first axis is the batch's
        self._births: list[Origin] = []
        # The arrays are kept alive, since ids are reused.
        held = [(v, v.latest.value) for v in model.variables]
        self._weights = {id(array): (v, array) for v, array in held}
        self._weight_shapes = {tuple(v.shape) for v in model.variables}
        self._rows = 0
        for name, value in batch.items():
            self._take_data(name, value)

    def _take_data(self, name: str, value: Array) -> None:
        if not value.shape:
            return
        self._rows = self._rows or value.shape[0]
        self._by_row[id(value)] = value
        if _is_bad(value):
            self._know(value, {self._note("", "data", name, "", value, True)}, value)

    # --- engine -----------------------------------------------------------------------------------

    def apply(self, op: Op, args: Sequence[Any], attrs: dict[str, Any]) -> Tensor:
        """Compute `op` by the underlying engine, and check the result."""
        result = self._engine.apply(op, args, attrs)
        results = result if isinstance(result, tuple) else (result,)
        inputs = [self._value(a) for a in args]
        aligned = any(id(v) in self._by_row for v in inputs)
        place: _Origin | None = None
        for t in results:
            if t.maker is not None and t.maker.serial not in self._origins:
                place = place or self._place()
                self._origins[t.maker.serial] = place
            value = t.value
            by_row = aligned and bool(value.shape) and self._is_by_row(value)
            if by_row:
                self._by_row[id(value)] = value
            if _is_bad(value):
                place = place or self._place()
                self._judge(op, inputs, value, by_row, place)
        return result

    def _value(self, x: TensorLike) -> Array:
        if isinstance(x, Variable):
            x = x.value
        return x.value if isinstance(x, Tensor) else x

    def _is_by_row(self, value: Array) -> bool:
        return value.shape[0] == self._rows and tuple(value.shape) not in self._weight_shapes

    def _judge(self, op: Op, inputs: list[Any], value: Array, by_row: bool, place: _Origin) -> None:
        """Record a new origin, or the origins that a non-finite value is computed from."""
        births: set[int] = set()
        any_bad = any_nan = False
        for i in inputs:
            bad, own, nan = self._look_up(i)
            any_bad, any_nan = any_bad or bad, any_nan or nan
            births |= own
        nan_now = bool(np.isnan(to_numpy(value)).any())
        if not any_bad or (nan_now and not any_nan):
            name, direction, layer, source = self._describe(op, place)
            births.add(self._note(name, direction, layer, source, value, by_row))
        self._know(value, births, value)

    def _look_up(self, value: object) -> tuple[bool, frozenset[int], bool]:
        """Return (whether it is not finite, its origins, whether it has a NaN) of an input."""
        result = self._known.get(id(value))
        if result is not None:
            return True, result[1], result[2]
        if isinstance(value, float):
            return not math.isfinite(value), frozenset(), math.isnan(value)
        if not hasattr(value, "shape") or not _is_bad(value):
            return False, frozenset(), False
        births: set[int] = set()
        if id(value) in self._weights:
            variable, _ = self._weights[id(value)]
            births.add(self._note("", "weights", variable.path, "", value, False))
        self._know(value, births, value)
        return True, frozenset(births), self._known[id(value)][2]

    def _know(self, value: Array, births: Iterable[int], keep: Array) -> None:
        nan = bool(np.isnan(to_numpy(value)).any())
        self._known[id(value)] = (keep, frozenset(births), nan)

    def _note(
        self, op: str, direction: str, layer: str, source: str, value: Array, by_row: bool
    ) -> int:
        array = to_numpy(value)
        bad = ~np.isfinite(array)
        rows = np.flatnonzero(bad.reshape(len(bad), -1).any(1)) if by_row else ()
        self._births.append(
            Origin(
                op, "NaN" if np.isnan(array).any() else "Inf", direction, layer, source,
                tuple(int(r) for r in rows), int(bad.sum()), tuple(array.shape),
            )
        )  # fmt: skip
        return len(self._births) - 1

    # --- where we are -----------------------------------------------------------------------------

    def _describe(self, op: Op, place: _Origin) -> tuple[str, str, str, str]:
        if place.maker is not None:
            at = self._origins.get(place.maker.serial, place)
            return place.maker.op.name, "backward", at.layer, at.source or place.source
        return op.name, "update" if place.in_optimizer else "forward", place.layer, place.source

    def _place(self) -> _Origin:
        """Return the layer and the user's line from the call stack."""
        names: list[str] = []
        seen: set[int] = set()
        source, maker, in_optimizer = "", None, False
        for frame, line in walk_stack(sys._getframe(2)):
            code = frame.f_code
            if code is _run_step.__code__:
                break
            owner = frame.f_locals.get("self")
            if not source and is_users(frame):
                source = f"{Path(code.co_filename).name}:{line}"
            if code is walk_back.__code__ and maker is None:
                maker = frame.f_locals.get("maker")
            if id(owner) not in seen and _is_part(owner) and _name(owner) != self._model.name:
                seen.add(id(owner))
                names.append(_name(owner))
                in_optimizer = in_optimizer or isinstance(owner, Optimizer)
        return _Origin("/".join(reversed(names)), source, maker, in_optimizer)

    def first_for(self, values: Iterable[Any]) -> Origin | None:
        """Return the earliest origin that made any of `values` not finite."""
        results: set[int] = set()
        for value in values:
            results |= self._look_up(value)[1]
        return self._births[min(results)] if results else None


def _is_part(owner: object) -> bool:
    return isinstance(owner, (Loss, Metric, Optimizer)) or hasattr(type(owner), "flatten_layers")


def _name(owner: Any) -> str:
    return str(owner.name)


def _is_bad(value: Array) -> bool:
    """Whether an array holds a NaN or an Inf."""
    array = to_numpy(value)
    return array.dtype.kind not in "biuSUO" and not np.isfinite(array).all()


def _run_step(step: Callable[..., Any], args: Sequence[Any]) -> dict[str, Any]:
    return step(*args)


def find_origin(
    model: Model, step: Callable[..., Any], batch: tuple[Any, Any, Any]
) -> Origin | None:
    """Return the origin of the first NaN or Inf of a training step; None if it has none.

    Nothing is assigned: the model is unchanged.

    Args:
        step: the pure step, `step(x, y, sample_weight)`.
        batch: (x, y, sample_weight), structures of arrays.
    """
    tensors = [tree.map_structure(_as_tensor, part) for part in batch]
    data: dict[str, Any] = {}
    for name, part in zip(("x", "y", "sample_weight"), tensors):
        for path, leaf in _leaves(part):
            data["/".join([name, *map(str, path)])] = leaf.value
    watch, writes = OpWatch(model, data), VariableScope()
    with using_engine(watch), using_scope(writes):
        own = _run_step(step, tensors)
    ends = [leaf.value for leaf in writes.written.values()]
    ends += [t.value for t in tree.flatten(own) if isinstance(t, Tensor)]
    return watch.first_for(ends)


def _leaves(part: dict[str, Any] | Tensor | None) -> list[tuple[tuple[Any, ...], Any]]:
    if isinstance(part, (dict, list, tuple)):
        results = tree.flatten_with_path(part)
    else:
        results = [((), part)]
    return [(tuple(path), leaf) for path, leaf in results if isinstance(leaf, Tensor)]


def _as_tensor(x: Array) -> AnyTensor:
    return x if x is None else convert(x)
