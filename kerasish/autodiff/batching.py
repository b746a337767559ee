"""vmap: a function of one example runs on a batch of them, each op once for all."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from kerasish import ops, tree
from kerasish.autodiff.batching_rules import RULES, Inputs, one_by_one
from kerasish.autodiff.transforms import grad, vjp
from kerasish.errors import NumberAskedError, ShapeError
from kerasish.ops.basic import control
from kerasish.ops.basic.printing import only_where
from kerasish.ops.op import Engine, Op, current_engine, using_engine
from kerasish.scopes import Scope
from kerasish.tensor import Tensor, Variable, convert, prepare, record, recording, using_scope, wrap
from kerasish.typing import Structure


class Batched:
    """The value of a tensor inside `vmap`: it represents one example, and holds all of them.

    Args:
        inner: all examples, along axis 0.
        batcher: the engine that handles it.
    """

    __slots__ = ("batcher", "inner", "dtype", "shape")

    def __init__(self, inner: Tensor, batcher: Batcher) -> None:
        self.inner, self.batcher = inner, batcher
        self.shape, self.dtype = tuple(inner.shape[1:]), inner.dtype

    def __repr__(self) -> str:
        return f"{self.dtype}{list(self.shape)} of each of {self.inner.shape[0]}"


class NotBatchedError(RuntimeError):
    """A function does something for one example that cannot be done for all together."""


class Batcher(Engine):
    """Applies an op to all examples together, by the previously current engine.

    Args:
        size: the number of examples.
        outer: that engine; None: the default one.
    """

    def __init__(self, size: int, outer: Engine | None) -> None:
        self.size, self.outer = size, outer

    def inner_of(self, tensor: Tensor) -> Tensor | None:
        """Return all examples of a tensor; None for one that is the same for all."""
        value = tensor.value
        mine = type(value) is Batched and value.batcher is self
        return value.inner if mine else None

    def batched(self, inner: Tensor) -> Tensor:
        """Return the tensor that represents one example of `inner`."""
        return wrap(Batched(inner, self))

    def apply(self, op: Op, args: Sequence[Any], attrs: dict[str, Any]) -> Structure:
        """Apply an op; for the outer engine, the examples are along axis 0."""
        tensors, attrs = prepare(op, args, attrs)
        inner = [self.inner_of(t) for t in tensors]
        with using_engine(self.outer):
            if all(t is None for t in inner):
                return op([*tensors], **attrs) if op.variadic else op(*tensors, **attrs)
            if op.name == "random_bits":
                raise NotBatchedError("random numbers are drawn for each example")
            inputs = Inputs(
                [t if b is None else b for t, b in zip(tensors, inner)],
                [b is not None for b in inner],
                self.size,
            )
            rule = RULES.get(op)
            out = (rule or functools.partial(one_by_one, op))(inputs, **attrs)
        results = tuple(map(self.batched, (out,) if op.outputs == 1 else out))
        if op.grad is not None and recording.on and any(t.tracked for t in tensors):
            record(op, tensors, attrs, results)
        return results[0] if op.outputs == 1 else results

    def run_effect(self, op: Op, inputs: Sequence[Any], attrs: dict[str, Any]) -> None:
        """Run an op for its effect, once for all examples."""
        inner = [self.inner_of(t) for t in inputs]
        some = any(t is not None for t in inner)
        with using_engine(self.outer):
            given = [t if b is None else b for t, b in zip(inputs, inner)]
            if some and attrs["conditional"]:  # a condition selects the same rows of all
                given = [
                    ops.broadcast_to(t, (self.size, *t.shape)) if b is None else t
                    for t, b in zip(given, inner)
                ]
            current_engine().run_effect(op, given, attrs)

    def control(self, kind: str, **parts: Any) -> Structure:
        """Return the result of a choice: every branch runs, and each example selects its result."""
        if kind == "cond" and self.inner_of(parts["pred"]) is not None:
            pred = ops.cast(parts["pred"], "bool")
            with only_where(pred):
                results = [parts["true_fn"]()]
            with only_where(ops.logical_not(pred)):
                results.append(parts["false_fn"]())
            return tree.map_structure(lambda a, b: ops.where(parts["pred"], a, b), *results)
        if kind == "switch" and self.inner_of(parts["index"]) is not None:
            index = parts["index"]
            results = []
            for number, branch in enumerate(parts["branches"]):
                with only_where(ops.equal(index, number)):
                    results.append(branch(*parts["operands"]))
            chosen = results[-1]
            for i in reversed(range(len(results) - 1)):
                choose = functools.partial(ops.where, ops.less_equal(index, i))
                chosen = tree.map_structure(choose, results[i], chosen)
            return chosen
        return NotImplemented


class _ReadOnly(Scope):
    """Variables are the same for all examples, and no example may assign one."""

    def read(self, variable: Variable) -> Tensor:
        """Return the variable's value outside."""
        return variable.latest if self.outer is None else self.outer.read(variable)

    def write(self, variable: Variable, value: Tensor) -> None:
        """Refuse the assignment."""
        raise NotBatchedError(f"variable {variable.path!r} is assigned for each example")


def vmap(
    function: Callable[..., Any], in_axes: Structure = 0, out_axes: Structure = 0
) -> Callable[..., Any]:
    """Return `function` mapped over an axis of its arguments, with each op applied once to all.

    Inside, a tensor has the shape that it has for one example. Derivatives of any order may be
    computed inside and outside; `vmap`s nest.

    Args:
        function: takes tensors (or structures of them) and returns such.
        in_axes: the axis of the examples in each argument, or None for an argument that is the same
            for all; one entry for all arguments, or a tuple with an entry (or a structure of
            entries) for each.
        out_axes: the position of the axis of the examples in each result.

    Returns:
        A function of the same arguments with one more axis.

    Raises:
        ShapeError: the arguments have different numbers of examples, or none has such an axis.
        NumberAskedError: Python in the function reads a number of one example.
        NotBatchedError: the function assigns a variable or draws random numbers.

    Source:
        The design of `jax.vmap`: a batching rule for each op.

    Example:
        >>> import numpy as np
        >>> dot = vmap(lambda a, b: (a * b).sum())
        >>> dot(np.float32([[1, 2], [3, 4]]), np.float32([[1, 1], [2, 2]])).tolist()
        [3.0, 14.0]
        >>> vmap(dot, in_axes=(None, 0))(np.ones((2, 3), "float32"), np.ones((4, 2, 3))).shape
        (4, 2)
    """

    @functools.wraps(function)
    def mapped(*args: Any, **kwargs: Any) -> Structure:
        if isinstance(in_axes, (tuple, list)):
            if len(in_axes) != len(args):
                raise ValueError(f"vmap: {len(in_axes)} in_axes for {len(args)} arguments.")
            axes: Sequence[Any] = in_axes
        else:
            axes = [in_axes] * len(args)
        moved = [_moved(a, axis) for a, axis in zip(args, axes)]
        named = {name: _moved(value, 0) for name, value in kwargs.items()}
        leaves = tree.flatten((moved, named))
        sizes = {x.tensor.shape[0] for x in leaves if isinstance(x, _Mapped)}
        if len(sizes) != 1:
            came = f"got {sorted(sizes)}" if sizes else "no argument has one"
            raise ShapeError(f"vmap: all mapped axes must have one size, {came}.")
        result = _run(function, moved, named, sizes.pop())
        return _out(result, out_axes)

    return mapped


class _Mapped:
    """A leaf of an argument whose examples are along axis 0."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def _moved(argument: Any, axes: Any) -> Any:
    """Return an argument with its mapped leaves as `_Mapped`, the examples first."""
    if isinstance(axes, (dict, list, tuple)):
        if isinstance(argument, dict):
            return {k: _moved(argument[k], axes[k]) for k in argument}
        return type(argument)(_moved(a, axis) for a, axis in zip(argument, axes))
    if axes is None:
        return argument

    def one(x: Any) -> Any:
        if x is None or isinstance(x, str):
            return x
        t = convert(x)
        if not t.shape:
            raise ShapeError("vmap: a mapped argument has no axes; give in_axes=None for it.")
        return _Mapped(ops.moveaxis(t, axes, 0) if axes else t)

    return tree.map_structure(one, argument)


def _run(
    function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], size: int
) -> Structure:
    """Return the structure of results, the examples along axis 0."""
    outer = current_engine()
    batcher = Batcher(size, outer)

    def enter(x: Any) -> Any:
        return batcher.batched(x.tensor) if isinstance(x, _Mapped) else x

    def leave(x: Any) -> Any:
        if x is None or isinstance(x, str):
            return x
        t = convert(x)
        inner = batcher.inner_of(t)
        return ops.broadcast_to(t, (size, *t.shape)) if inner is None else inner

    given = tree.map_structure(enter, (tuple(args), kwargs))
    with using_scope(_ReadOnly()), using_engine(batcher):
        result = function(*given[0], **given[1])
        if isinstance(result, Variable):
            result = result.value
    with using_engine(outer):
        return tree.map_structure(leave, result)


def _out(result: Structure, axes: Any) -> Structure:
    if isinstance(axes, (dict, list, tuple)):
        if isinstance(result, dict):
            return {k: _out(result[k], axes[k]) for k in result}
        return type(result)(_out(r, axis) for r, axis in zip(result, axes))
    return tree.map_structure(lambda t: ops.moveaxis(t, 0, axes) if axes else t, result)


def map_all(function: Callable[[Any], Any], elements: Structure) -> Structure:
    """Return the stacked results of a function of each element; NotImplemented: one by one."""
    sizes = {t.shape[0] for t in tree.flatten(elements) if t is not None and t.shape}
    if len(sizes) != 1 or 0 in sizes or None in sizes:
        return NotImplemented
    try:
        return vmap(function)(elements)
    except (NumberAskedError, NotBatchedError):
        return NotImplemented


def jacobian(function: Callable[..., Any], argnums: int = 0) -> Callable[..., Any]:
    """Return a function that computes the derivatives of all results by an argument's elements.

    Args:
        function: takes tensors, returns one tensor.
        argnums: the number of the argument.

    Returns:
        A function of the same arguments; its result has the shape (*result, *argument).

    Example:
        >>> import numpy as np
        >>> jacobian(lambda x: x * x)(np.float32([1, 2])).tolist()
        [[2.0, 0.0], [0.0, 4.0]]
    """

    @functools.wraps(function)
    def derived(*args: Any, **kwargs: Any) -> Tensor:
        x = convert(args[argnums])

        def of_one(x: Any) -> Any:
            return function(*args[:argnums], x, *args[argnums + 1 :], **kwargs)

        y = convert(of_one(x))
        if 0 in y.shape:
            return ops.zeros((*y.shape, *x.shape), x.dtype)
        basis = ops.reshape(ops.eye(y.size, dtype=y.dtype), (y.size, *y.shape))

        def row(g: Any) -> Any:
            result = vjp(of_one, [x], [g])[0]
            return ops.zeros_like(x) if result is None else result

        return ops.reshape(vmap(row)(basis), (*y.shape, *x.shape))

    return derived


def hessian(function: Callable[..., Any], argnums: int = 0) -> Callable[..., Any]:
    """Return a function that computes the second derivatives of a number by an argument.

    Args:
        function: takes tensors, returns one number.
        argnums: the number of the argument.

    Returns:
        A function of the same arguments; its result has the shape (*argument, *argument).

    Example:
        >>> import numpy as np
        >>> hessian(lambda x: (x**3).sum())(np.float32([1, 2])).tolist()
        [[6.0, 0.0], [0.0, 12.0]]
    """
    return jacobian(grad(function, argnums), argnums)


control.transforms.update(vectorized_map=map_all)
