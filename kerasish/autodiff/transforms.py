"""Functions of functions: value_and_grad, grad, vjp, jvp, custom_gradient."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kerasish import ops, tree
from kerasish.autodiff.reverse import backward, differentiate, name_of
from kerasish.errors import ShapeError
from kerasish.ops import dtypes
from kerasish.ops.arrays import core
from kerasish.overriding import override
from kerasish.tensor import (
    Tensor,
    Variable,
    _serials,
    convert,
    no_gradient,
    record,
    recording,
    wrap,
)
from kerasish.tracebacks import short_tracebacks
from kerasish.typing import Structure


def _as_leaf(x: Any) -> Any:
    t = convert(x)
    leaf = wrap(t.value.copy() if t.borrowed else t.value)
    leaf.require_grad()
    if t.tracked:
        # Keep the connection to the ops that computed x, for derivatives of derivatives.
        leaf = ops.multiply(t, 1)
    return leaf


def _run_watched(function: Callable[..., Any], args: Any, chosen: tuple[int, ...]) -> Any:
    leaves = list(args)
    for i in chosen:
        leaves[i] = tree.map_structure(_as_leaf, args[i])
    return function(*leaves), [leaves[i] for i in chosen], leaves


@contextmanager
def _inside_derivative() -> Iterator[bool]:
    """Record inside the block, as part of a derivative; yields whether recording was on before."""
    before = recording.on
    recording.depth += 1
    try:
        with override(recording, "on", True):
            yield before
    finally:
        recording.depth -= 1


def value_and_grad(
    function: Callable[..., Any],
    argnums: int | Sequence[int] | None = 0,
    has_aux: bool = False,
    variables: Sequence[Variable] | None = None,
) -> Callable[..., Any]:
    """Return a function that returns (f(...), derivatives of its one-number result).

    Args:
        function: returns a tensor of one element, or (it, anything) with `has_aux`.
        argnums: the position(s) of the arguments to differentiate by (each may be a structure);
            None: by variables instead.
        has_aux: whether `function` returns (loss, aux).
        variables: with `argnums=None`: the variables to differentiate by; None: all trainable
            ones that were used, and the derivatives are a dict {variable: derivative}.

    Example:
        >>> f = value_and_grad(lambda x: x**2)
        >>> value, slope = f(3.0)
        >>> float(value), float(slope)
        (9.0, 6.0)
    """
    chosen = (argnums,) if isinstance(argnums, int) else tuple(argnums or ())

    @functools.wraps(function)
    def with_derivatives(*args: Any, **kwargs: Any) -> Any:
        with short_tracebacks:
            for i in chosen:
                if not -len(args) <= i < len(args):
                    raise ValueError(
                        f"argnums={argnums}: the function was called with {len(args)}."
                    )
            since = next(_serials)
            with _inside_derivative():
                call = functools.partial(function, **kwargs)
                result, leaves, _ = _run_watched(call, args, tuple(i % len(args) for i in chosen))
            value, aux = result if has_aux else (result, None)
            value = convert(value)
            if value.size != 1:
                raise ShapeError(
                    f"value_and_grad: the function must return one number, got shape {value.shape}."
                )
            flat = tree.flatten(leaves)
            names = [name_of(t) for t in flat]
            # An argument that was itself computed may be differentiated by later.
            outer = any(t.maker is not None for t in flat)
            results = differentiate([value], None, names, outer, since)
            output = (value, aux) if has_aux else value
            if argnums is None:
                return output, _of_variables(results, variables)
            grads = [
                g if g is not None else ops.zeros(t.shape, t.dtype)
                for t, g in ((t, results.get(n)) for t, n in zip(flat, names))
            ]
            packed = tree.pack_sequence_as(leaves, grads)
            return output, packed[0] if isinstance(argnums, int) else tuple(packed)

    return with_derivatives


def _of_variables(gradients: dict[Any, Tensor], variables: Any) -> Any:
    if variables is not None:
        return tree.map_structure(lambda v: gradients.get(v.key), variables)
    owners = ((key.owner(), g) for key, g in gradients.items())
    return {owner: g for owner, g in owners if isinstance(owner, Variable)}


def grad(
    function: Callable[..., Any],
    argnums: int | Sequence[int] | None = 0,
    has_aux: bool = False,
    variables: Sequence[Variable] | None = None,
) -> Callable[..., Any]:
    """Return a function that returns the derivatives of `function`; see `value_and_grad`.

    Args:
        function: function of tensors with one number as its result.
        argnums: the argument, or arguments, to differentiate by.
        has_aux: whether `function` returns (result, more) and `more` is passed on.
        variables: also differentiate by these variables; None: none.

    Example:
        >>> float(grad(grad(lambda x: x**3))(2.0))
        12.0
    """
    both = value_and_grad(function, argnums, has_aux, variables)

    @functools.wraps(function)
    def derivatives(*args: Any, **kwargs: Any) -> Any:
        with short_tracebacks:
            value, grads = both(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return derivatives


class _Custom:
    """Replaces the op in a record: the user's gradient function."""

    name = "custom_gradient"
    sparse_gradients = False

    def __init__(self, rule: Callable[..., Any], outputs: int, structure: Any) -> None:
        self.rule, self.outputs, self.structure = rule, outputs, structure

    def grad(self, g: Any, y: Any, *inputs: Tensor) -> Sequence[Any]:
        arriving = g if self.outputs > 1 else (g,)
        grads = self.rule(*arriving)
        flat = tree.flatten(grads) if isinstance(grads, (list, tuple)) else [grads]
        if len(flat) != len(inputs):
            raise ValueError(
                f"custom_gradient: the gradient function returned {len(flat)} gradients for "
                f"{len(inputs)} arguments."
            )
        return [None if x is None else convert(x) for x in flat]


def custom_gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    """Convert `f`, which returns (result, gradient function), to an op with that gradient.

    The gradient function gets the incoming gradient of the result(s), as `upstream` by keyword or
    by position, and returns one gradient for each argument of `f`.

    Args:
        f: function of tensors that returns (result, gradient function).

    Example:
        >>> @custom_gradient
        ... def clipped(x):
        ...     return x * 1.0, lambda upstream: ops.clip(upstream, -1.0, 1.0)
        >>> float(grad(lambda x: clipped(x) * 5.0)(2.0))
        1.0
    """

    @functools.wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        tensors = [convert(a) for a in args]
        with no_gradient():
            result, rule = f(*tensors, **kwargs)
        flat = [convert(r) for r in tree.flatten(result)]
        outputs = [wrap(t.value) for t in flat]
        if recording.on and any(t.tracked for t in tensors):
            record(_Custom(rule, len(outputs), result), tensors, {}, outputs)  # type: ignore[arg-type]
        return tree.pack_sequence_as(result, outputs)

    return wrapped


def vjp(function: Callable[..., Any], inputs: Sequence[Any], g: Structure) -> list[Any]:
    """Return, for each input, the derivative of sum(function(*inputs) * g).

    Can be used as the gradient of an op that is defined by a composition:
    `grad=lambda g, y, *xs: vjp(f, xs, [g])`.

    Args:
        function: function of tensors.
        inputs: sequence of its arguments.
        g: weights of the result, in its shape.

    Example:
        >>> from kerasish import ops
        >>> vjp(lambda x: x * x, [ops.convert_to_tensor([1.0, 2.0])], ops.ones((2,)))[0].tolist()
        [2.0, 4.0]
    """
    with _inside_derivative() as before:
        leaves = [_as_leaf(x) if dtypes.is_inexact(convert(x).dtype) else x for x in inputs]
        since = next(_serials)  # this pass does not go beyond the inputs
        results = tree.flatten(function(*leaves))
    names = [name_of(t) for t in leaves]
    result = differentiate(results, list(g), names, before, since)
    return [result.get(n) for n in names]


def jvp(
    fun: Callable[..., Any], primals: Structure, tangents: Structure, has_aux: bool = False
) -> Structure:
    """Return (fun(*primals), the directional derivative along `tangents`), by reverse on reverse.

    Args:
        fun: function of tensors.
        primals: sequence of its arguments.
        tangents: the direction, in the shapes of `primals`.
        has_aux: whether `fun` returns (result, more) and `more` is passed on.

    Source: the double-backward trick, J. Townsend 2017.

    Example:
        >>> value, slope = jvp(lambda x: x * x, (3.0,), (1.0,))
        >>> float(value), float(slope)
        (9.0, 6.0)
    """
    if len(primals) != len(tangents):
        raise ValueError(f"jvp: {len(primals)} primals and {len(tangents)} tangents.")
    with _inside_derivative():
        leaves = tree.map_structure(_as_leaf, tuple(primals))
        since = next(_serials)
        result = fun(*leaves)
        result, aux = result if has_aux else (result, None)
        outputs = [convert(r) for r in tree.flatten(result)]
        dummies = [_as_leaf(ops.zeros(t.shape, t.dtype)) for t in outputs]
        flat = tree.flatten(leaves)
        results = differentiate(outputs, dummies, [name_of(t) for t in flat], True, since)
        pairs = [(results.get(name_of(t)), v) for t, v in zip(flat, tree.flatten(tuple(tangents)))]
        total = [(t, convert(v, t.dtype)) for t, v in pairs if t is not None]
        names = [name_of(t) for t in dummies]
        slopes = differentiate([t for t, _ in total], [v for _, v in total], names, False, since)
    out = [
        slopes[n] if n in slopes else ops.zeros(t.shape, t.dtype) for n, t in zip(names, outputs)
    ]
    packed = tree.pack_sequence_as(result, out)
    return (result, packed, aux) if has_aux else (result, packed)


core.derivatives.update(backward=backward, custom_gradient=custom_gradient, jvp=jvp, vjp=vjp)
