"""The arguments of an op's call: tensors of fitting dtypes, canonical attributes, records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasish import config, ops
from kerasish.ops import dtypes
from kerasish.ops.op import Op
from kerasish.tensor.tensor import (
    _FLOATS,
    _REALS,
    _SCALARS,
    Holder,
    TapeRecord,
    Tensor,
    convert,
    recording,
    scalar,
    wrap,
)


def prepare(op: Op, args: Sequence[Any], attrs: dict[str, Any]) -> tuple[Sequence[Tensor], Any]:
    """Return an op's inputs as tensors of fitting dtypes, and its attributes in canonical form.

    Args:
        op: the op that is applied.
        args: its inputs: tensors, variables, arrays, numbers, nested lists.
        attrs: its attributes by name, all of them.

    Returns:
        (tensors, attributes): the arguments of the op's kernel and shape rule. Dtypes are promoted
        by `op.promote`; a Python number takes the dtype of the other tensors.

    Raises:
        DTypeError: an input holds no numbers, or the dtypes have no common dtype.
        SymbolicArgument: an input is a value of a functional model; do not catch it.
    """
    tensors: Sequence[Tensor]
    if op.promote is None:
        tensors = args
        for a in args:
            if type(a) is not Tensor:
                tensors = [a if type(a) is Tensor else convert(a) for a in args]
                break
    elif not op.promoted and _is_ready(args):
        tensors = args
    else:
        tensors = _promote(op, args)
    if op.variadic and tensors is args:
        tensors = [*args]  # a copy: the caller may change its list
    if op.canonical is not None:
        attrs = _canonical(op, tensors, attrs)
    return tensors, attrs


_canonicals: dict[Any, dict[str, Any]] = {}
_FLOAT_TYPES = frozenset((float, np.float16, np.float32, np.float64))


def _canonical(op: Op, tensors: Sequence[Tensor], attrs: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes in canonical form; results for known shapes are cached."""
    if len(tensors) == 1:
        shapes: Any = tensors[0].value.shape
    else:
        shapes = tuple([t.value.shape for t in tensors])
    # 1, 1.0 and True are equal, but not the same attribute: their types are part of the key.
    values = attrs.values()
    types = tuple(map(type, values))
    if not _FLOAT_TYPES.isdisjoint(types):
        # 0.0 and -0.0 are also equal: float attributes are not looked up.
        return op.canonical([t.value.shape for t in tensors], attrs)  # type: ignore[misc]
    key: Any = (op, shapes, *values, *types)
    if "dtype" in attrs:
        # None and "float" mean the default float, which may change.
        key = (config.floatx(), key)
    try:
        result = _canonicals.get(key)
    except TypeError:
        # An attribute without a hash, such as a list.
        return op.canonical([t.value.shape for t in tensors], attrs)  # type: ignore[misc]
    if result is None:
        result = op.canonical([t.value.shape for t in tensors], attrs)  # type: ignore[misc]
        if len(_canonicals) >= 4096:
            _canonicals.clear()
        _canonicals[key] = result
    return result.copy()


_constant_tensors: dict[Any, Tensor] = {}


def _constant(value: float, like: Tensor) -> Tensor:
    """Return a number as a tensor of the dtype of `like`; it is cached, never returned to users."""
    key = (value, like.value.dtype)
    result = _constant_tensors.get(key)
    if result is None or value == 0:  # 0.0 and -0.0 are equal
        result = scalar(value, like.dtype)
        if len(_constant_tensors) >= 2000:
            _constant_tensors.clear()
        _constant_tensors[key] = result
    return result


def _is_ready(args: Sequence[Any]) -> bool:
    """Return whether all are tensors of one floating dtype, which need no promotion."""
    dtype = None
    for a in args:
        if type(a) is not Tensor:
            return False
        own = a.value.dtype
        if dtype is None:
            dtype = own
        elif own is not dtype and own != dtype:
            return False
    return dtype in _FLOATS


def _promote(op: Op, args: Sequence[Any]) -> Sequence[Tensor]:
    first = op.promoted
    for a in args:
        if isinstance(a, Holder):  # variables, usually with tensors of the same dtype
            args = [a.value if isinstance(a, Holder) else a for a in args]
            if not first and _is_ready(args):
                return args
            break
    if len(args) == 2 and not first:
        a, b = args
        if type(a) is Tensor and type(b) in _REALS and a.value.dtype in _FLOATS:
            return a, _constant(b, a)
        if type(b) is Tensor and type(a) in _REALS and b.value.dtype in _FLOATS:
            return _constant(a, b), b
        keeps = op.promote in ("same", "number")
        if keeps and type(a) is Tensor and type(b) is int and dtypes.is_integer(a.dtype):
            return a, _constant(b, a)  # a Python integer takes the dtype of other integers
    kinds: list[str] = []
    waiting: list[Any] = []
    for i, a in enumerate(args):
        if type(a) in _SCALARS and i >= first:
            kinds.append("bool" if type(a) is bool else type(a).__name__)
        else:
            a = a if type(a) is Tensor else convert(a)
            if i >= first:
                kinds.append(a.dtype)
        waiting.append(a)
    dtype = dtypes.join_kinds(kinds)
    if op.promote == "float":
        dtype = dtypes.to_inexact(dtype)
    elif (
        op.promote == "number"
        and dtype == "bool"
        or op.promote == "product"
        and {*kinds} == {"int8"}
    ):
        dtype = "int32"
    result: list[Tensor] = []
    for i, a in enumerate(waiting):
        if not isinstance(a, Tensor):
            result.append(scalar(a, dtype))
        elif i >= first and a.dtype != dtype:
            result.append(ops.cast(a, dtype))
        else:
            result.append(a)
    return result


def record(
    op: Op, inputs: Sequence[Tensor], attrs: dict[str, Any], results: Sequence[Tensor]
) -> None:
    """Set the maker of the tensors `results`, so that gradients can flow to `inputs`."""
    for t in inputs:
        if t.borrowed:
            # The reverse pass needs the current numbers.
            inputs = [wrap(t.value.copy()) if t.borrowed else t for t in inputs]
            break
    values = (results[0].value,) if len(results) == 1 else tuple([r.value for r in results])
    maker = TapeRecord(op, inputs, attrs, values)
    for index, r in enumerate(results):
        r.maker, r.index, r.tracked = maker, index, True


def finish(op: Op, inputs: Sequence[Tensor], attrs: dict[str, Any], out: Any) -> Any:
    """Return a kernel's results as tensors, with a record of the op if gradients may be needed.

    Args:
        op: the op that was applied.
        inputs: its inputs, from `prepare`.
        attrs: its attributes, from `prepare`.
        out: an array, or a sequence of `op.outputs` arrays if that is more than 1.

    Returns:
        A tensor, or a tuple of `op.outputs` tensors.

    Example:
        >>> from kerasish.ops import exp
        >>> inputs, attrs = prepare(exp, [np.zeros(2, "float32")], {})
        >>> finish(exp, inputs, attrs, exp.kernel(np, inputs[0].value, **attrs)).tolist()
        [1.0, 1.0]
    """
    out = unshared(out, inputs)
    results = tuple(wrap(o) for o in ((out,) if op.outputs == 1 else out))
    if op.grad is not None and recording.on and any(t.tracked for t in inputs):
        record(op, inputs, attrs, results)
    return results[0] if op.outputs == 1 else results


def unshared(out: Any, tensors: Sequence[Tensor]) -> Any:
    """Return results that share no memory with the user's arrays, which the user may change."""
    if isinstance(out, (tuple, list)):
        return [unshared(o, tensors) for o in out]
    if not isinstance(out, np.ndarray):
        return out
    shared = any(
        t.borrowed and (out is t.value or np.may_share_memory(out, t.value)) for t in tensors
    )
    return out.copy() if shared else out
