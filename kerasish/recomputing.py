"""Computing inner values again in the reverse pass instead of keeping them: less memory, more time.

Source: Chen et al., "Training deep nets with sublinear memory cost", 2016.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from kerasish import tree
from kerasish.autodiff import name_of, walk_back
from kerasish.ops.basic.conversion import optimization_barrier
from kerasish.ops.basic.printing import silence
from kerasish.overriding import override
from kerasish.scopes import Scope, current_scope, using_scope
from kerasish.tensor import (
    TapeRecord,
    Tensor,
    Variable,
    VariableScope,
    _serials,
    is_traced,
    record,
    recording,
    wrap,
)
from kerasish.typing import Structure, TensorLike

Around = Callable[[], contextlib.AbstractContextManager[Any]]


def recompute(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    around: Around = contextlib.nullcontext,
    condition: Callable[[Any], bool] | None = None,
) -> Any:
    """Return function(*args, **kwargs), of which only the arguments and results are kept.

    The reverse pass calls the function again: with the variables, and so the random numbers, of
    the first time, and what it assigns then is dropped.

    Args:
        around: makes the context in which the second call runs.
        condition: result -> whether to do so; otherwise all is kept as usual.
    """
    if not recording.on:
        return function(*args, **kwargs)
    since = next(_serials)
    past = _Past(current_scope())
    with past.noting():
        result = function(*args, **kwargs)
    results = [t for t in tree.flatten(result) if isinstance(t, Tensor)]
    entering = _entering(results, since)
    if not entering or (condition is not None and not condition(result)):
        return result

    def again() -> list[Tensor]:
        with past.back(), around(), silence():
            renewed = function(*_renewed(tuple(args)), **_renewed(kwargs))
        return [t for t in tree.flatten(renewed) if isinstance(t, Tensor)]

    kept = [_kept(t) for t in results]
    op: Any = _Recomputed(again, [t.tracked for t in results])
    record(op, entering, {}, kept)
    left = iter(kept)
    return tree.map_structure(lambda t: next(left) if isinstance(t, Tensor) else t, result)


class _Recomputed:
    """Replaces an op in a record: its gradient runs a function again, and back through it."""

    name = "remat"
    sparse_gradients = False

    def __init__(self, again: Callable[[], list[Tensor]], tracked: list[bool]) -> None:
        self._again, self._tracked, self.outputs = again, tracked, len(tracked)

    def grad(self, g: Tensor, y: Tensor, *inputs: Tensor) -> list[Tensor | None]:
        arriving = g if self.outputs > 1 else (g,)
        since = next(_serials)
        with override(recording, "on", True), override(recording, "maker", None):
            created = self._again()
        pairs = [(t, d) for t, d, used in zip(created, arriving, self._tracked) if used]
        names = [name_of(t) for t in inputs]
        result = walk_back(pairs, names, since)
        return [result.get(name) for name in names]


def _entering(created: Iterable[Tensor], since: int) -> list[Tensor]:
    """Return what results depend on that was there before: arguments, closures, variables."""
    results: dict[Any, Tensor] = {}
    seen: set[TapeRecord] = set()
    waiting = list(created)
    while waiting:
        t = waiting.pop()
        if not t.tracked:
            continue
        maker = t.maker
        if maker is None or maker.serial < since:
            results.setdefault(name_of(t), t)
        elif maker not in seen:
            seen.add(maker)
            waiting.extend(maker.inputs)
    return list(results.values())


def _renewed(structure: Structure) -> Any:
    """Return arguments for the second call: a trace must not detect that the results are known."""
    return tree.map_structure(_fresh, structure)


def _fresh(x: TensorLike) -> Any:
    return _marked(optimization_barrier(x), x) if isinstance(x, Tensor) and is_traced(x) else x


def _kept(t: Tensor) -> Tensor:
    return _marked(wrap(t.value), t)


def _marked(new: Tensor, old: Tensor) -> Tensor:
    for name in ("_keras_mask", "dropped_mask"):
        mark = getattr(old, name, None)
        if mark is not None:
            setattr(new, name, mark)
    return new


class _Past:
    """What variables held before a call that assigns some, to go back there for a while."""

    def __init__(self, scope: Scope | None) -> None:
        self._scope: Any = VariableScope() if scope is None else scope
        self._commits = scope is None
        self._before: dict[Variable, Tensor] = {}
        self._changed: list[Variable] = []

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        """Note what is assigned inside the block."""
        written = self._scope.written
        self._before = dict(written)
        try:
            with using_scope(self._scope):
                yield
        finally:
            self._changed = [v for v, new in written.items() if self._before.get(v) is not new]
            for variable in self._changed:
                if variable not in self._before:
                    with _without(written, variable):
                        self._before[variable] = self._scope.read(variable)
            if self._commits:
                self._scope.commit()

    @contextlib.contextmanager
    def back(self) -> Iterator[None]:
        """Let variables hold what they held; what is assigned inside the block is dropped."""
        written = self._scope.written
        now = dict(written)
        written.clear()
        with using_scope(self._scope):
            written.update(self._before)
            for variable in self._changed:
                if is_traced(self._before[variable]):
                    self._scope.write(variable, optimization_barrier(self._before[variable]))
            try:
                yield
            finally:
                written.clear()
                written.update(now)


@contextlib.contextmanager
def _without(written: dict[Variable, Tensor], variable: Variable) -> Iterator[None]:
    value = written.pop(variable)
    yield
    written[variable] = value
