"""Shape inference: runs Python functions on shapes and dtypes only, by the ops' shape rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from kerasish import ops, tree
from kerasish.errors import NumberAskedError
from kerasish.graph.known_integers import known_integer
from kerasish.ops.basic.printing import silence
from kerasish.ops.op import Engine, Op, using_engine
from kerasish.ops.shapes import Spec, Unknown
from kerasish.tensor import (
    Tensor,
    Variable,
    VariableScope,
    no_gradient,
    prepare,
    record,
    recording,
    using_scope,
    wrap,
)
from kerasish.typing import AnyTensor, Structure, TensorLike


class Abstract:
    """A value without numbers: shape and dtype."""

    __slots__ = ("dtype", "shape")

    def __init__(self, shape: tuple[Any, ...], dtype: str) -> None:
        self.shape, self.dtype = shape, dtype

    def __repr__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


class ShapesOnly(Engine):
    """The engine that computes only shapes and dtypes."""

    def apply(self, op: Op, args: Sequence[Any], attrs: dict[str, Any]) -> Structure:
        """Return tensors without numbers, with the specs from the op's shape rule."""
        tensors, attrs = prepare(op, args, attrs)
        known = known_integer(op, [t.value for t in tensors], attrs)
        if known is not None:
            return wrap(known)
        specs = op.shape(*(Spec(t.shape, t.dtype) for t in tensors), **attrs)
        all_specs = (specs,) if isinstance(specs, Spec) else tuple(specs)
        results = tuple(wrap(Abstract(s.shape, s.dtype)) for s in all_specs)
        if op.grad is not None and recording.on and any(t.tracked for t in tensors):
            record(op, tensors, attrs, results)
        return results[0] if op.outputs == 1 and isinstance(specs, Spec) else results

    def run_effect(self, op: Op, inputs: Sequence[Any], attrs: dict[str, Any]) -> None:
        """Do nothing: there are no numbers to print."""

    def control(self, kind: str, **parts: Any) -> Any:
        """Return the result of control flow: a loop body runs once, every branch runs."""
        if kind == "while_loop":
            parts["cond"](*parts["loop_vars"])
            return parts["body"](parts["loop_vars"])
        if kind == "scan" and parts["length"] > 1:
            return self._scan(**parts)
        return NotImplemented

    def _scan(
        self, f: Callable[..., Any], init: TensorLike, xs: TensorLike, length: int, reverse: bool
    ) -> tuple[Any, ...]:
        x = tree.map_structure(lambda x: x if x is None else ops.take(x, 0, 0), xs)
        carry, rows = f(init, x)

        def repeat(y: Tensor | None) -> AnyTensor:
            return y if y is None else ops.broadcast_to(ops.expand_dims(y, 0), (length, *y.shape))

        return carry, tree.map_structure(repeat, rows)


# A size of the result that differs between the two is unknown. Both have many divisors, because
# sizes are split and regrouped, and both are small, because Python may loop over them.
_FILLS = (Unknown(120), Unknown(168))


def _run(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    number: int,
    engine: ShapesOnly,
) -> dict[str, Any] | Tensor | tuple[Tensor, ...]:
    def fill(x: Spec | slice | AnyTensor | float | None) -> Any:
        if not isinstance(x, Spec):
            return x
        return wrap(Abstract(tuple(number if s is None else s for s in x.shape), x.dtype))

    with using_engine(engine), using_scope(None), using_scope(VariableScope()):
        return function(*_map_specs(fill, args), **_map_specs(fill, kwargs))


def _map_specs(f: Callable[[Any], Any], structure: Structure) -> Structure:
    if isinstance(structure, Spec):
        return f(structure)
    if isinstance(structure, tuple) and hasattr(structure, "_fields"):
        return type(structure)(*(_map_specs(f, part) for part in structure))
    if type(structure) in (list, tuple):
        return type(structure)(_map_specs(f, part) for part in structure)
    if isinstance(structure, dict):
        return {k: _map_specs(f, part) for k, part in structure.items()}
    return f(structure)


def _has_unknown(structure: Structure) -> bool:
    if isinstance(structure, Spec):
        return None in structure.shape
    if isinstance(structure, dict):
        return any(_has_unknown(part) for part in structure.values())
    if isinstance(structure, (list, tuple)):
        return any(_has_unknown(part) for part in structure)
    return False


def infer(
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    engine: ShapesOnly | None = None,
    by_values: bool = False,
) -> Any:
    """Return the structure of specs of the result of `function`; some arguments are Specs.

    Args:
        function: a function of structures of tensors.
        args, kwargs: what it gets.
        engine: the engine that computes shapes.
        by_values: whether to run it on ones if Python in it reads numbers.

    The function runs twice, with two different numbers in place of unknown sizes (None). If the
    results differ, the size of the result is unknown. So any Python arithmetic on sizes works.
    """
    kwargs = kwargs or {}
    engine = engine or ShapesOnly()
    try:
        return _infer(function, args, kwargs, engine)
    except NumberAskedError:
        if not by_values:
            raise
    # Python reads numbers; without data, use ones.
    return tree.map_structure(_merge, *(run_on_ones(function, args, kwargs, n) for n in (2, 3)))


def _infer(
    function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], engine: ShapesOnly
) -> Any:
    first = _run(function, args, kwargs, _FILLS[0], engine)
    if not _has_unknown((args, kwargs)):
        return tree.map_structure(_spec, first)
    second = _run(function, args, kwargs, _FILLS[1], engine)
    return tree.map_structure(_merge, first, second)


def run_on_ones(
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    unknown: int = 2,
) -> Any:
    """Return the result of a function for ones in place of Specs; discard its assignments.

    If Python in a function reads numbers, this replaces `infer`.

    Args:
        function: run by the default engine.
        args, kwargs: structures, in which some leaves are Specs.
        unknown: the number in place of unknown sizes.
    """

    def fill(x: Spec | AnyTensor | float | None) -> Any:
        if not isinstance(x, Spec):
            return x
        with using_engine(None):
            return ops.ones(tuple(unknown if s is None else s for s in x.shape), x.dtype)

    return run_aside(function, _map_specs(fill, args), _map_specs(fill, kwargs or {}))


def run_aside(
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    records: bool = False,
) -> Any:
    """Return the result of a function, run by the default engine; discard its assignments.

    Args:
        function: what is run.
        args, kwargs: what it gets.
        records: whether it may compute derivatives.
    """
    quiet = nullcontext() if records else no_gradient()
    scopes = using_engine(None), using_scope(None), using_scope(VariableScope())
    with scopes[0], scopes[1], scopes[2], quiet, silence():
        return function(*args, **(kwargs or {}))


def _spec(x: Tensor | None) -> Any:
    return Spec(tuple(x.shape), x.dtype) if isinstance(x, (Tensor, Variable)) else x


def _merge(a: Tensor, b: Tensor) -> Spec:
    if not isinstance(a, (Tensor, Variable)):
        return a
    sizes = tuple(p if p == q else None for p, q in zip(a.shape, b.shape))
    return Spec(sizes, a.dtype)
