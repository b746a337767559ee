"""Control flow on tensors: cond, switch, while_loop, scan, fori_loop, map, associative_scan.

Where the deciding numbers are known (on the eager engine; a count known when a step is traced),
these are Python's `if` and `for`, and gradients flow through what was recorded: a loop in a trace
is unrolled. An engine that can do better overrides `Engine.control(kind, **parts)`, with `kind`
the function's name and `parts` its arguments, checked and with leaves made tensors:

- `cond(pred, true_fn, false_fn)`
- `switch(index, branches, operands)`
- `while_loop(cond, body, loop_vars, maximum_iterations)`
- `scan(f, init, xs, length, reverse)`
- `fori_loop(lower, upper, body_fun, init_val)`

A trace offers it: one branch runs, and long loops are not unrolled. Without it, a `cond` or
`switch` on values without numbers computes every branch and selects, and a `while_loop` needs
`maximum_iterations`: its body runs that many times, masked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kerasish import tree
from kerasish.errors import DTypeError, ShapeError, TraceError, at_user_line
from kerasish.ops.basic.comparison import equal, less, logical_and, select
from kerasish.ops.basic.conversion import as_tensor, cast
from kerasish.ops.basic.creation import zeros
from kerasish.ops.basic.movement import concatenate, reshape, strided_slice
from kerasish.ops.basic.printing import only_where
from kerasish.ops.basic.reshaping import expand_dims, flip, stack
from kerasish.ops.basic.selection import get_item
from kerasish.ops.basic.statistics import clip
from kerasish.ops.op import current_engine, function
from kerasish.ops.shapes import normalize_axis
from kerasish.typing import Structure, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = [
    "associative_scan", "cond", "fori_loop", "map", "scan", "switch", "vectorized_map",
    "while_loop",
]  # fmt: skip

# --- known values ---------------------------------------------------------------------------------


def _known(x: Tensor) -> bool:
    """Return whether the tensor x has numbers (a value of a trace has none yet)."""
    return type(x.value.dtype) is not str


def _by_engine(kind: str, **parts: Any) -> Structure:
    return current_engine().control(kind, **parts)


def tensors_of(structure: Structure) -> Structure:
    """Return the structure with leaves made tensors; None stays."""
    return tree.map_structure(lambda x: x if x is None else as_tensor(x), structure)


def _scalar(x: TensorLike, what: str) -> Tensor:
    x = as_tensor(x)
    if x.shape not in ((), (1,)):
        raise ShapeError(f"{what}: expected one number, got shape {x.shape}.")
    return x if x.shape == () else reshape(x, ())


def keep_kind(new: Structure, old: Structure, what: str) -> Structure:
    """Return `new` as tensors, or say where it differs from `old` in structure, shape or dtype."""
    try:
        tree.assert_same_structure(tree.lists_to_tuples(old), tree.lists_to_tuples(new))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{what} must keep the structure {_sketch(old)}: {error}") from None
    results: list[Any] = []
    for (path, a), b in zip(tree.flatten_with_path(old), tree.flatten(new)):
        place = f"{what}, value {'/'.join(str(part) for part in path)}" if path else what
        if a is None or b is None:
            if a is not b:
                raise ValueError(f"{place}: None must stay None, got {b!r} after {a!r}.")
            results.append(None)
            continue
        # Python's numbers are weak: they take the dtype that is there.
        b = cast(b, a.dtype) if type(b) in (bool, int, float) else as_tensor(b)
        if b.shape != a.shape:
            raise ShapeError(f"{place}: the shape must stay {a.shape}, got {b.shape}.")
        if b.dtype != a.dtype:
            raise DTypeError(f"{place}: the dtype must stay {a.dtype}, got {b.dtype}.")
        results.append(b)
    return tree.pack_sequence_as(old, results)


def _sketch(structure: Structure) -> str:
    return str(tree.map_structure(lambda x: "*", structure)).replace("'", "")


def _choose(condition: Tensor, yes: TensorLike, no: TensorLike) -> Structure:
    return tree.map_structure(lambda a, b: a if a is None else select(condition, a, b), yes, no)


# --- branches -------------------------------------------------------------------------------------


@function
def cond(pred: TensorLike, true_fn: Callable[[], Any], false_fn: Callable[[], Any]) -> Structure:
    """Return true_fn() if `pred` holds, else false_fn().

    Args:
        pred: a truth value, as a tensor or Python's.
        true_fn: a function without arguments.
        false_fn: a function without arguments, with results of the same structure.

    Example:
        >>> float(cond(as_tensor(2.0) > 1.0, lambda: as_tensor(1.0), lambda: as_tensor(0.0)))
        1.0
    """
    pred = _scalar(pred, "cond: pred")
    done = _by_engine("cond", pred=pred, true_fn=true_fn, false_fn=false_fn)
    if done is not NotImplemented:
        return done
    if _known(pred):
        return true_fn() if bool(pred) else false_fn()
    yes = tensors_of(true_fn())
    return _choose(pred, yes, keep_kind(false_fn(), yes, "cond: the result of false_fn"))


@function
def switch(index: TensorLike, branches: Sequence[Callable[..., Any]], *operands: Any) -> Structure:
    """Return branches[index](*operands); an index outside goes to the nearest branch.

    Args:
        index: number of the branch, an integer or a tensor.
        branches: functions of the operands, with results of one structure.
        *operands: what the function gets.

    Example:
        >>> switch(5, [lambda x: x, lambda x: -x], 3)
        -3
    """
    if not branches:
        raise ValueError("switch: expected at least one branch, got none.")
    index = clip(_scalar(index, "switch: index"), 0, len(branches) - 1)
    done = _by_engine("switch", index=index, branches=tuple(branches), operands=operands)
    if done is not NotImplemented:
        return done
    if _known(index):
        return branches[int(index)](*operands)
    result = tensors_of(branches[0](*operands))
    for number, branch in enumerate(branches[1:], 1):
        other = keep_kind(branch(*operands), result, f"switch: the result of branch {number}")
        result = _choose(equal(index, number), other, result)
    return result


# --- loops ----------------------------------------------------------------------------------------


@function
def while_loop(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: Structure,
    maximum_iterations: int | None = None,
) -> Structure:
    """Return the loop variables after body(*loop_vars) ran for as long as cond(*loop_vars) held.

    Args:
        cond: function of the loop variables that returns a truth value.
        body: function of the loop variables that returns their next values.
        loop_vars: a tuple or list is passed by position, anything else as one argument; its
            structure, shapes and dtypes must stay.
        maximum_iterations: the most often that the body runs, or None.

    Example:
        >>> [int(v) for v in while_loop(lambda i, s: i < 4, lambda i, s: (i + 1, s + i), (0, 0))]
        [4, 6]
    """
    single = not isinstance(loop_vars, (tuple, list))
    values = tensors_of((loop_vars,) if single else loop_vars)

    def step(values: Any) -> Tensor | Sequence[Any]:
        new = body(*values)
        if single:
            new = new if isinstance(new, (tuple, list)) and len(new) == 1 else (new,)
            return keep_kind(tuple(new), values, "while_loop: the result of body")
        new = type(values)(new) if type(new) in (tuple, list) else new
        return keep_kind(new, values, "while_loop: the result of body")

    values = _repeat(cond, step, values, maximum_iterations)
    return values[0] if single else values


def _repeat(
    cond: Callable[..., Any], step: Callable[..., Any], values: Sequence[Any], most: int | None
) -> str | Sequence[Any]:
    done = _by_engine("while_loop", cond=cond, body=step, loop_vars=values, maximum_iterations=most)
    if done is not NotImplemented:
        return done
    count, active = 0, None
    while most is None or count < most:
        holds = _scalar(cond(*values), "while_loop: the result of cond")
        if not _known(holds):
            return _masked(cond, step, values, most, count, active)
        if not bool(holds):
            break
        values, count = step(values), count + 1
    return values


def _masked(
    cond: Callable[..., Any],
    step: Callable[..., Any],
    values: Sequence[Tensor],
    most: int | None,
    count: int,
    active: Any,
) -> Any:
    if most is None:
        raise TraceError(
            f"while_loop{at_user_line()}: how often the body runs depends on numbers that a trace "
            "does not have. "
            "Give maximum_iterations, use fori_loop or scan with a known count, or compile the "
            "model with run_eagerly=True."
        )
    for _ in range(count, most):
        holds = cast(_scalar(cond(*values), "while_loop: the result of cond"), "bool")
        active = holds if active is None else logical_and(active, holds)
        with only_where(active):
            new = step(values)
        values = _choose(active, new, values)
    return values


@function
def fori_loop(
    lower: int, upper: TensorLike, body_fun: Callable[[Any, Any], Any], init_val: TensorLike
) -> str | Tensor:
    """Return the state after state = body_fun(i, state) for i = lower, ..., upper - 1.

    Args:
        lower: the first i.
        upper: the bound of i, which is not reached.
        body_fun: a function (i, state) -> state of the same shapes and dtypes.
        init_val: the first state: a tensor or a structure of tensors.

    Example:
        >>> int(fori_loop(0, 5, lambda i, total: total + i, 0))
        10
    """
    low, high = (_scalar(x, "fori_loop: bound") for x in (lower, upper))
    state = tensors_of(init_val)

    def step(i: TensorLike, state: TensorLike) -> Tensor | Sequence[Any]:
        return keep_kind(body_fun(i, state), state, "fori_loop: the result of body_fun")

    done = _by_engine("fori_loop", lower=low, upper=high, body_fun=step, init_val=state)
    if done is not NotImplemented:
        return done
    if _known(low) and _known(high):
        for i in range(int(low), int(high)):
            state = step(as_tensor(i), state)
        return state

    def advance(values: Sequence[Tensor]) -> tuple[Any, ...]:
        i, state = values
        return i + 1, step(i, state)

    return _repeat(lambda i, _: less(i, high), advance, (low, state), None)[1]


@function
def scan(
    f: Callable[[Any, Any], Any],
    init: TensorLike | None,
    xs: Structure = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int = 1,
) -> Structure:
    """Return (last carry, stacked ys) of carry, y = f(carry, x) along the leading axis of xs.

    Args:
        f: function (carry, x) -> (carry, y).
        init: the first carry; its structure, shapes and dtypes must stay.
        xs: a structure of tensors of one leading size, or None with `length`.
        length: number of steps; needed where xs is None.
        reverse: go from the last x to the first; ys keep the order of xs.
        unroll: accepted for compatibility with Keras; the engine decides.

    Example:
        >>> total, sums = scan(lambda c, x: (c + x, c + x), 0, as_tensor([1, 2, 3]))
        >>> int(total), sums.tolist()
        (6, [1, 3, 6])
    """
    if not callable(f):
        raise TypeError(f"scan: f must be a function, got {type(f).__name__}.")
    carry, xs = tensors_of(init), tensors_of(xs)
    count = _length(xs, length)

    def step(carry: TensorLike | None, x: Structure) -> tuple[Any, Any]:
        pair = f(carry, x)
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ValueError(f"scan: f must return (carry, y), got {type(pair).__name__}.")
        return keep_kind(pair[0], carry, "scan: the carry that f returns"), tensors_of(pair[1])

    done = _by_engine("scan", f=step, init=carry, xs=xs, length=count, reverse=bool(reverse))
    if done is not NotImplemented:
        return done
    ys: list[Any] = []
    for i in range(count)[:: -1 if reverse else 1]:
        carry, y = step(carry, _slice_of(xs, i))
        ys.append(y)
    if not ys:
        return carry, _no_results(step, carry, xs)
    return carry, _stacked(ys[:: -1 if reverse else 1], "scan: the y that f returns")


def _length(xs: Structure, length: int | None) -> int:
    sizes = set()
    for x in tree.flatten(xs):
        if x is None:
            continue
        if not x.shape or x.shape[0] is None:
            raise ShapeError(f"scan: xs need a known leading size, got shape {x.shape}.")
        sizes.add(x.shape[0])
    if length is not None:
        sizes.add(int(length))
    if len(sizes) != 1:
        came = f"got {sorted(sizes)}" if sizes else "got neither xs nor length"
        raise ShapeError(f"scan: the leading sizes of xs and length must be one number, {came}.")
    return sizes.pop()


def _slice_of(xs: Structure, i: int) -> Structure:
    return tree.map_structure(lambda x: x if x is None else get_item(x, i), xs)


def _stacked(ys: list[Any], what: str) -> Structure:
    first = ys[0]
    ys = [first, *(keep_kind(y, first, what) for y in ys[1:])]
    return tree.map_structure(lambda *parts: None if parts[0] is None else stack(parts), *ys)


def _no_results(step: Callable[..., Any], carry: Tensor, xs: Tensor) -> Tensor:
    """Return ys without rows: one step with zeros determines their shapes and dtypes."""
    x = tree.map_structure(lambda x: x if x is None else zeros(x.shape[1:], x.dtype), xs)
    y = step(carry, x)[1]
    return tree.map_structure(lambda y: y if y is None else expand_dims(y, 0)[:0], y)


@function
def map(f: Callable[[Any], Any], xs: TensorLike) -> Structure:
    """Return the stacked f(x) for each x along the leading axis of xs.

    Args:
        f: function of one slice.
        xs: tensor, or structure of tensors, of which each step gets one slice along axis 0.

    Example:
        >>> map(lambda x: x * x, as_tensor([1, 2, 3])).tolist()
        [1, 4, 9]
    """
    return scan(lambda _, x: (None, f(x)), None, xs)[1]


@function
def vectorized_map(function: Callable[[Any], Any], elements: TensorLike) -> Structure:
    """Return the stacked function(e) for each e along axis 0 of `elements`, all at once.

    Each op runs once for all elements (see `kerasish.vmap`). One after the other they go through a
    function that assigns variables, draws random numbers or asks for the number of an element.

    Args:
        function: a function of one slice.
        elements: a tensor, or a structure of tensors of one leading size; `function` gets the
            same structure of slices.

    Example:
        >>> vectorized_map(lambda ab: ab[0] + ab[1], [[1, 2], [3, 4]]).tolist()
        [4, 6]
    """
    if isinstance(elements, (list, tuple)) and not any(
        hasattr(e, "shape") or isinstance(e, (list, tuple, dict)) for e in elements
    ):
        elements = as_tensor(elements)
    elif isinstance(elements, (list, tuple)):
        elements = type(elements)(
            as_tensor(e) if not isinstance(e, dict) else tensors_of(e) for e in elements
        )
    done = transforms["vectorized_map"](function, tensors_of(elements))
    return map(function, elements) if done is NotImplemented else done


# What `autodiff` records of functions.
transforms: dict[str, Callable[..., Any]] = {}


# --- associative scan -----------------------------------------------------------------------------


@function
def associative_scan(
    f: Callable[[Any, Any], Any], elems: TensorLike, reverse: bool = False, axis: int = 0
) -> Structure:
    """Return all the running results x0, f(x0, x1), f(f(x0, x1), x2), ... along `axis`.

    Neighbors meet first, then their results: about 2 log2(n) calls of f on whole slices.

    Args:
        f: an associative function of two structures, elementwise over `axis`.
        elems: tensor, or structure of tensors, that is scanned.
        reverse: whether it runs from the end.
        axis: axis or axes; negative ones count from the last.

    Source: Blelloch, Prefix sums and their applications, 1990.

    Example:
        >>> associative_scan(lambda a, b: a + b, as_tensor([1, 2, 3, 4])).tolist()
        [1, 3, 6, 10]
    """
    if not callable(f):
        raise TypeError(f"associative_scan: f must be a function, got {type(f).__name__}.")
    elems = tensors_of(elems)
    flat = tree.flatten(elems)
    axes = {normalize_axis(axis, len(x.shape), "associative_scan") for x in flat}
    sizes = {x.shape[normalize_axis(axis, len(x.shape), "associative_scan")] for x in flat}
    if len(sizes) != 1 or None in sizes:
        raise ShapeError(
            f"associative_scan: all elems need one known size along axis {axis}, got shapes "
            f"{[x.shape for x in flat]}."
        )
    if len(axes) != 1:
        raise ShapeError(f"associative_scan: axis {axis} is not the same axis of all elems.")
    place = axes.pop()

    def meet(a: list[Any], b: list[Any]) -> list[Any]:
        pair = [tree.pack_sequence_as(elems, part) for part in (a, b)]
        pair = pair[::-1] if reverse else pair
        return tree.flatten(keep_kind(f(*pair), pair[0], "associative_scan: the result of f"))

    parts = [flip(x, place) for x in flat] if reverse else flat
    result = _prefixes(meet, parts, place)
    return tree.pack_sequence_as(elems, [flip(x, place) for x in result] if reverse else result)


def _cut(parts: list[Any], axis: int, *bounds: Any) -> list[Any]:
    lead = [slice(None)] * axis
    return [strided_slice(x, [*lead, slice(*bounds)]) for x in parts]


def _prefixes(meet: Callable[..., Any], parts: list[Any], axis: int) -> list[Any]:
    n = parts[0].shape[axis]
    if n < 2:
        return parts
    even = n - n % 2
    pairs = meet(_cut(parts, axis, 0, even, 2), _cut(parts, axis, 1, even, 2))
    odd = _prefixes(meet, pairs, axis)  # the results at 1, 3, 5, ...
    rest = _cut(parts, axis, 2, n, 2)
    first = _cut(parts, axis, 0, 1)
    if rest[0].shape[axis]:
        before = _cut(odd, axis, 0, rest[0].shape[axis])
        first = [concatenate([a, b], axis) for a, b in zip(first, meet(before, rest))]
    return [_interleave(a, b, axis) for a, b in zip(first, odd)]


def _interleave(a: Tensor, b: Tensor, axis: int) -> Tensor:
    """Return a[0], b[0], a[1], b[1], ... along `axis`; a may have one more."""
    count = b.shape[axis]
    body = stack([_cut([a], axis, 0, count)[0], b], axis + 1)
    shape = (*b.shape[:axis], 2 * count, *b.shape[axis + 1 :])
    both = reshape(body, shape)
    if a.shape[axis] == count:
        return both
    return concatenate([both, _cut([a], axis, count, None)[0]], axis)
