"""The one reverse pass, and what is built on it: backward, tapes, grad, custom gradients.

Rules are written in ops, so a reverse pass can be traced, and differentiated again.
"""

from __future__ import annotations

import functools
import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kerasish import ops, tree
from kerasish.errors import ShapeError
from kerasish.ops import dtypes
from kerasish.ops.arrays import core
from kerasish.tensor import (
    Key,
    Record,
    Tensor,
    Variable,
    _serials,
    convert,
    no_gradient,
    record,
    recording,
    wrap,
)


def sum_to_shape(g: Any, shape: tuple[int, ...]) -> Any:
    """Return g summed over the axes along which a value of `shape` was broadcast to g's shape."""
    lead = len(g.shape) - len(shape)
    axes = tuple(range(lead)) + tuple(
        i + lead for i, size in enumerate(shape) if size == 1 and g.shape[i + lead] != 1
    )
    if axes:
        g = ops.sum(g, axes)
    return g if g.shape == shape else ops.reshape(g, shape)


def _name(t: Tensor) -> Any:
    """Return what a tensor's gradient is filed under: its maker's result, or its leaf's key."""
    return t.key if t.maker is None else (t.maker, t.index)


def _results(maker: Record) -> list[Tensor]:
    tensors = []
    for index, value in enumerate(maker.results):
        t = wrap(value)
        t.maker, t.index, t.tracked = maker, index, True
        tensors.append(t)
    return tensors


def _zeros_like(value: Any) -> Tensor:
    return ops.zeros(value.shape, wrap(value).dtype)


def _apply_rule(maker: Record, found: dict[Any, Tensor]) -> Sequence[Any]:
    results = _results(maker)
    op = maker.op
    if op.outputs == 1:
        g, rule = found.pop((maker, 0)), op.grad
        if type(rule) is tuple:
            return [
                each(g, results[0], *maker.inputs, **maker.attrs) if t.tracked else None
                for each, t in zip(rule, maker.inputs)
            ]
        return rule(g, results[0], *maker.inputs, **maker.attrs)
    arriving = [found.pop((maker, i), None) for i in range(len(results))]
    if op.sparse_gradients:
        return op.grad(tuple(arriving), tuple(results), *maker.inputs, **maker.attrs)
    gs = [_zeros_like(r.value) if g is None else g for g, r in zip(arriving, results)]
    return op.grad(tuple(gs), tuple(results), *maker.inputs, **maker.attrs)


def walk_back(
    targets: Iterable[tuple[Tensor, Tensor]], wanted: Iterable[Any] = (), since: int = -1
) -> dict[Any, Tensor]:
    """Return the derivatives of the sum of target * g, by leaf key and by the `wanted` names.

    Args:
        targets: pairs (tensor, g), g being the derivative that arrives there.
        wanted: names (see `_name`) of tensors inside whose derivatives are kept too.
        since: records made before this serial number count as constants.
    """
    found: dict[Any, Tensor] = {}
    kept: dict[Any, Tensor] = {}
    queue: list[tuple[int, Record]] = []
    seen: set[int] = set()
    keep = set(wanted)

    def arrive(t: Tensor, g: Tensor) -> None:
        name = _name(t)
        if name is None:
            return
        found[name] = ops.add(found[name], g) if name in found else g
        maker = t.maker
        if maker is not None and maker.serial not in seen:
            seen.add(maker.serial)
            heapq.heappush(queue, (-maker.serial, maker))

    for t, g in targets:
        if t.tracked or t.key is not None:
            arrive(t, g)
    while queue:
        maker = heapq.heappop(queue)[1]
        for i in range(len(maker.results)):
            if (maker, i) in keep and (maker, i) in found:
                kept[maker, i] = found[maker, i]
        if maker.serial < since:
            continue
        grads = _apply_rule(maker, found)
        for t, g in zip(maker.inputs, grads):
            if g is None or not t.tracked:
                continue
            if g.shape != t.value.shape:
                g = sum_to_shape(g, t.shape)
            if g.dtype != t.dtype:
                g = ops.cast(g, t.dtype)
            arrive(t, g)
    kept.update((name, g) for name, g in found.items() if type(name) is Key)
    return kept


def _differentiate(
    targets: Sequence[Tensor], gradients: Any, wanted: Iterable[Any], create_graph: bool,
    since: int = -1,
) -> dict[Any, Tensor]:  # fmt: skip
    if gradients is None:
        gradients = [ops.ones(t.shape, t.dtype) for t in targets]
    pairs = []
    for t, g in zip(targets, gradients):
        g = convert(g, t.dtype)
        if g.shape != t.shape:
            g = ops.broadcast_to(g, t.shape)
        pairs.append((t, g))
    before = recording.on
    recording.on = create_graph or recording.depth > 0
    try:
        return walk_back(pairs, wanted, since)
    finally:
        recording.on = before


def backward(target: Tensor, gradient: Any = None, create_graph: bool = False) -> None:
    """Add the derivatives of `target` to the `.grad` of every leaf that it depends on."""
    if not target.tracked:
        raise ValueError(
            "backward(): this tensor depends on nothing that requires a gradient. Start from a "
            "Variable or from Tensor(..., requires_grad=True)."
        )
    if gradient is None and target.size != 1:
        raise ShapeError(
            f"backward() needs gradient= for a tensor of {target.size} elements (shape "
            f"{target.shape}); reduce it to one number first, for example with .sum()."
        )
    found = _differentiate([target], None if gradient is None else [gradient], (), create_graph)
    for key, g in found.items():
        owner = key.owner()
        if owner is not None:
            owner.grad = g if owner.grad is None else ops.add(owner.grad, g)


def gradients_of(target: Tensor, variables: Sequence[Variable]) -> list[Tensor | None]:
    """Return the derivatives of the one-number `target` by each variable (None: no way there)."""
    found = _differentiate([target], None, (), False)
    return [found.get(v.key) for v in variables]


def leaves_of(results: Iterable[Tensor]) -> dict[Key, Tensor]:
    """Return the leaves that tensors depend on, by name."""
    found: dict[Key, Tensor] = {}
    seen: set[Record] = set()
    waiting = [t for t in results if t.tracked]
    while waiting:
        t = waiting.pop()
        if t.maker is None:
            found[t.key] = t
        elif t.maker not in seen:
            seen.add(t.maker)
            waiting.extend(i for i in t.maker.inputs if i.tracked)
    return found


def _leaf(source: Any) -> Any:
    return source.key if isinstance(source, Variable) else _name(source)


class GradientTape:
    """Records what happens inside its `with` block and differentiates it.

    Trainable variables are watched by themselves; other tensors after `watch(tensor)`.

    Args:
        persistent: whether `gradient` may be called more than once.
        watch_accessed_variables: whether variables are watched without being asked for.

    Example:
        >>> import kerasish
        >>> v = kerasish.Variable(3.0)
        >>> with kerasish.GradientTape() as tape:
        ...     y = v * v
        >>> float(tape.gradient(y, v))
        6.0
    """

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True) -> None:
        self._persistent = persistent
        self._all_variables = watch_accessed_variables
        self._watched: list[Any] = []
        self._marked: list[Tensor] = []
        self._open = False
        self._used = False
        self._since = 0

    def __enter__(self) -> GradientTape:
        if self._open:
            raise RuntimeError("GradientTape: this tape is recording already.")
        self._since = next(_serials)
        self._before, recording.on = recording.on, True
        recording.depth += 1
        self._open, self._used = True, False
        return self

    def __exit__(self, *error: object) -> None:
        self._close()

    def _close(self) -> None:
        if self._open:
            recording.on = self._before
            recording.depth -= 1
            self._open = False

    def watch(self, tensor: Any) -> None:
        """Let `gradient` differentiate by `tensor` (or by each one of a structure of them)."""
        for t in tree.flatten(tensor):
            if isinstance(t, Variable):
                self._watched.append(t.key)
            elif isinstance(t, Tensor):
                if not t.tracked:
                    t.require_grad()
                    self._marked.append(t)
                self._watched.append(_name(t))
            else:
                raise TypeError(f"GradientTape.watch: expected tensors, got {type(t).__name__}.")

    def watched_variables(self) -> list[Variable]:
        """Return the variables that were watched by name."""
        owners = [k.owner() for k in self._watched if isinstance(k, Key)]
        return [o for o in owners if isinstance(o, Variable)]

    def stop_recording(self) -> Any:
        """Return a context in which nothing is recorded."""
        return no_gradient()

    def reset(self) -> None:
        """Forget what was recorded so far."""
        self._since = next(_serials)
        self._used = False

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: str = "none",
    ) -> Any:
        """Return the derivatives of the sum of `target` by `sources`, in the structure of these.

        Args:
            target: a tensor or a structure of tensors.
            sources: variables or watched tensors, in any structure.
            output_gradients: what arrives at the target (ones by default), in its structure.
            unconnected_gradients: "none" or "zero": what stands for a derivative that is not there.

        Raises:
            RuntimeError: a second call on a tape that is not persistent.
        """
        if self._used and not self._persistent:
            raise RuntimeError(
                "GradientTape.gradient: the tape was used once; pass persistent=True for more."
            )
        if unconnected_gradients not in ("none", "zero"):
            raise ValueError(
                f"unconnected_gradients: 'none' or 'zero', got {unconnected_gradients!r}."
            )
        inside = self._open
        if inside and not self._persistent:
            self._close()
        targets = [convert(t) for t in tree.flatten(target)]
        gradients: list[Any] | None = None
        if output_gradients is not None:
            gradients = []
            tree.map_structure_up_to(target, gradients.append, output_gradients)
        leaves = tree.flatten(sources)
        names = [_leaf(s) for s in leaves]
        if inside and self._persistent:
            recording.depth -= 1
        try:
            found = _differentiate(targets, gradients, names, False, self._since)
        finally:
            if inside and self._persistent:
                recording.depth += 1
        self._used = True
        watched = set(self._watched)
        result = []
        for source, name in zip(leaves, names):
            allowed = self._all_variables or not isinstance(source, Variable) or name in watched
            g = found.get(name) if allowed else None
            if g is None and unconnected_gradients == "zero":
                g = ops.zeros(source.shape, source.dtype)
            result.append(g)
        if not self._persistent:
            for t in self._marked:
                t.tracked = False
            self._marked.clear()
        return tree.pack_sequence_as(sources, result)


def _as_leaf(x: Any) -> Any:
    t = convert(x)
    leaf = wrap(t.value.copy() if t.borrowed else t.value)
    leaf.require_grad()
    if t.tracked:
        # Keep the way back to what x came from, for derivatives of derivatives.
        leaf = ops.multiply(t, 1)
    return leaf


def _run_watched(function: Callable[..., Any], args: Any, chosen: tuple[int, ...]) -> Any:
    leaves = list(args)
    for i in chosen:
        leaves[i] = tree.map_structure(_as_leaf, args[i])
    return function(*leaves), [leaves[i] for i in chosen], leaves


def value_and_grad(
    function: Callable[..., Any],
    argnums: int | Sequence[int] | None = 0,
    has_aux: bool = False,
    variables: Any = None,
) -> Callable[..., Any]:
    """Return a function giving (f(...), derivatives of its one-number result).

    Args:
        function: returns a tensor of one element, or (it, anything) with `has_aux`.
        argnums: the position(s) of the arguments to differentiate by (each may be a structure);
            None: by variables instead.
        has_aux: whether `function` returns (loss, aux).
        variables: with `argnums=None`: the variables to differentiate by; None: all trainable
            ones that were used, and the derivatives come as a dict {variable: derivative}.

    Example:
        >>> f = value_and_grad(lambda x: x**2)
        >>> value, slope = f(3.0)
        >>> float(value), float(slope)
        (9.0, 6.0)
    """
    chosen = (argnums,) if isinstance(argnums, int) else tuple(argnums or ())

    @functools.wraps(function)
    def with_derivatives(*args: Any, **kwargs: Any) -> Any:
        for i in chosen:
            if not -len(args) <= i < len(args):
                raise ValueError(f"argnums={argnums}: the function was called with {len(args)}.")
        before, recording.on = recording.on, True
        recording.depth += 1
        since = next(_serials)
        try:
            call = functools.partial(function, **kwargs)
            result, leaves, _ = _run_watched(call, args, tuple(i % len(args) for i in chosen))
        finally:
            recording.on = before
            recording.depth -= 1
        value, aux = result if has_aux else (result, None)
        value = convert(value)
        if value.size != 1:
            raise ShapeError(
                f"value_and_grad: the function must return one number, got shape {value.shape}."
            )
        flat = tree.flatten(leaves)
        names = [_name(t) for t in flat]
        # An argument that has a past of its own may be differentiated by later on.
        outer = any(t.maker is not None for t in flat)
        found = _differentiate([value], None, names, outer, since if argnums is None else -1)
        output = (value, aux) if has_aux else value
        if argnums is None:
            return output, _of_variables(found, variables)
        grads = [
            g if g is not None else ops.zeros(t.shape, t.dtype)
            for t, g in ((t, found.get(n)) for t, n in zip(flat, names))
        ]
        packed = tree.pack_sequence_as(leaves, grads)
        return output, packed[0] if isinstance(argnums, int) else tuple(packed)

    return with_derivatives


def _of_variables(found: dict[Any, Tensor], variables: Any) -> Any:
    if variables is not None:
        return tree.map_structure(lambda v: found.get(v.key), variables)
    owners = ((key.owner(), g) for key, g in found.items())
    return {owner: g for owner, g in owners if isinstance(owner, Variable)}


def grad(
    function: Callable[..., Any],
    argnums: int | Sequence[int] | None = 0,
    has_aux: bool = False,
    variables: Any = None,
) -> Callable[..., Any]:
    """Return a function giving the derivatives of `function`; see `value_and_grad`.

    Example:
        >>> float(grad(grad(lambda x: x**3))(2.0))
        12.0
    """
    both = value_and_grad(function, argnums, has_aux, variables)

    @functools.wraps(function)
    def derivatives(*args: Any, **kwargs: Any) -> Any:
        value, grads = both(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return derivatives


class _Custom:
    """Stands in a record for the op: the user's own gradient."""

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
    """Make `f`, which returns (result, gradient function), an op with that gradient.

    The gradient function gets what arrives at the result(s), as `upstream` by keyword or by
    position, and returns one gradient for each argument of `f`.

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


def vjp(function: Callable[..., Any], inputs: Sequence[Any], g: Sequence[Any]) -> list[Any]:
    """Return, for each input, the derivative of sum(function(*inputs) * g).

    Serves as the gradient of an op that is defined by a composition:
    `grad=lambda g, y, *xs: vjp(f, xs, [g])`.
    """
    recording.depth += 1
    before, recording.on = recording.on, True
    try:
        leaves = [_as_leaf(x) if dtypes.is_inexact(convert(x).dtype) else x for x in inputs]
        results = tree.flatten(function(*leaves))
    finally:
        recording.depth -= 1
        recording.on = before
    names = [_name(t) for t in leaves]
    found = _differentiate(results, list(g), names, before)
    return [found.get(n) for n in names]


def jvp(fun: Callable[..., Any], primals: Any, tangents: Any, has_aux: bool = False) -> Any:
    """Return (fun(*primals), the directional derivative along `tangents`), by reverse on reverse.

    Source: the double-backward trick, J. Townsend 2017.

    Example:
        >>> value, slope = jvp(lambda x: x * x, (3.0,), (1.0,))
        >>> float(value), float(slope)
        (9.0, 6.0)
    """
    if len(primals) != len(tangents):
        raise ValueError(f"jvp: {len(primals)} primals beside {len(tangents)} tangents.")
    recording.depth += 1
    before, recording.on = recording.on, True
    try:
        leaves = tree.map_structure(_as_leaf, tuple(primals))
        result = fun(*leaves)
        result, aux = result if has_aux else (result, None)
        outputs = [convert(r) for r in tree.flatten(result)]
        dummies = [_as_leaf(ops.zeros(t.shape, t.dtype)) for t in outputs]
        flat = tree.flatten(leaves)
        found = _differentiate(outputs, dummies, [_name(t) for t in flat], True)
        pairs = [(found.get(_name(t)), v) for t, v in zip(flat, tree.flatten(tuple(tangents)))]
        total = [(t, convert(v, t.dtype)) for t, v in pairs if t is not None]
        names = [_name(t) for t in dummies]
        slopes = _differentiate([t for t, _ in total], [v for _, v in total], names, False)
    finally:
        recording.depth -= 1
        recording.on = before
    out = [
        slopes[n] if n in slopes else ops.zeros(t.shape, t.dtype) for n, t in zip(names, outputs)
    ]
    packed = tree.pack_sequence_as(result, out)
    return (result, packed, aux) if has_aux else (result, packed)


core.derivatives.update(backward=backward, custom_gradient=custom_gradient, jvp=jvp, vjp=vjp)
