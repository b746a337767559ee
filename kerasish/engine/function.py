"""`@kerasish.function`: any Python function of tensors as a compiled step."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerasish import autodiff, tree
from kerasish.backends import CompiledStep, choose
from kerasish.devices import lies_on_gpu
from kerasish.engine.layer.operation import KerasTensor
from kerasish.ops import dtypes
from kerasish.ops.basic.printing import silence
from kerasish.tensor import (
    Tensor,
    Variable,
    VariableScope,
    convert,
    current_scope,
    record,
    recording,
    using_scope,
    wrap,
)
from kerasish.tracebacks import hide_frames
from kerasish.typing import AnyTensor, Structure, TensorLike
from kerasish.watched import note_use


def function(
    f: Callable[..., Any] | None = None, *, backend: str | None = None, optimize: str | None = None
) -> Callable[..., Any]:
    """Return `f` compiled by the current backend, once for each signature of its arguments.

    Variables that it reads are read at each call, assignments to variables are made when it is
    done. Arguments that are no arrays (numbers, strings, flags) are constants: another value is
    another signature. Derivatives of any order flow through it, by its tensor arguments and by
    the variables that it reads. Inside another compiled function, or a model's `call`, it becomes
    a part of that.

    Args:
        f: a function of structures of tensors or arrays; None: returns the decorator.
        backend: name of the backend; None: that of the settings.
        optimize: "fast_run", "fast_compile" or "none" for the static engine; None: the setting of
            `kerasish.config.set_optimize`.

    Raises:
        TraceError: Python asked a traced tensor for its number.

    Example:
        >>> @function
        ... def hypotenuse(a, b):
        ...     return (a * a + b * b) ** 0.5
        >>> import numpy as np
        >>> float(hypotenuse(np.float32([3.0]), np.float32([4.0]))[0])
        5.0
        >>> import kerasish
        >>> float(kerasish.grad(function(lambda x: x**3))(2.0))
        12.0
    """
    if f is None:
        return functools.partial(function, backend=backend, optimize=optimize)
    steps: dict[int, CompiledStep] = {}
    reverse = _Reverse(f, backend, optimize)

    def whole(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Structure:
        args, kwargs = tree.map_structure(_as_tensor, (args, kwargs))
        note_use(f)
        return f(*args, **kwargs)

    @functools.wraps(f)
    def compiled(*args: Any, **kwargs: Any) -> Structure:
        try:
            if any(isinstance(x, KerasTensor) for x in tree.flatten((args, kwargs))):
                return f(*args, **kwargs)
            chosen = choose(backend)
            step = steps.get(id(chosen))
            if step is None:
                name = getattr(f, "__name__", "function")
                step = steps[id(chosen)] = chosen.compile(whole, name=name, optimize=optimize)
            if recording.on and current_scope() is None:
                return reverse.recorded(step, args, kwargs)
            return step(args, kwargs)
        except Exception as error:
            hide_frames(error)
            raise

    return compiled


def _as_tensor(x: TensorLike) -> Any:
    if isinstance(x, Tensor):
        return x
    numbers = isinstance(x, np.ndarray) and x.dtype.kind not in "OUS"
    return convert(x) if numbers or lies_on_gpu(x) else x


class _Reverse:
    """Makes calls of a compiled function differentiable: its reverse pass is compiled, too."""

    def __init__(self, f: Callable[..., Any], backend: str | None, optimize: str | None) -> None:
        self.f, self.options = f, {"backend": backend, "optimize": optimize}
        self._compiled: dict[tuple[Variable, ...], Callable[..., Any]] = {}

    def recorded(
        self, step: CompiledStep, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Structure:
        """Call the step; leave a record where a derivative may be asked for."""
        leaves = tree.flatten((args, kwargs))
        values = [x.value if isinstance(x, Variable) else x for x in leaves]
        result, reads = step.call_reading(args, kwargs)
        if reads is None:
            return result
        variables = tuple(v for v, _ in reads)
        entering = [*values, *(value for _, value in reads)]
        places = [i for i, t in enumerate(entering) if isinstance(t, Tensor) and t.tracked]
        if not places:
            return result
        outputs = [t for t in tree.flatten(result) if isinstance(t, Tensor)]
        kept = [wrap(t.value) for t in outputs]
        op: Any = _CompiledCall(self, (args, kwargs), variables, entering, places, len(kept))
        if kept:
            record(op, [entering[i] for i in places], {}, kept)
        left = iter(kept)
        return tree.map_structure(lambda t: next(left) if isinstance(t, Tensor) else t, result)

    def pull_back(self, variables: tuple[Variable, ...]) -> Callable[..., Any]:
        """Return the compiled reverse pass of calls that read these variables."""
        if variables not in self._compiled:
            self._compiled[variables] = function(
                functools.partial(_pull_back, self.f, variables), **self.options
            )
        return self._compiled[variables]


class _CompiledCall:
    """Replaces an op in a record: a call of a compiled function."""

    name = "function"
    sparse_gradients = False

    def __init__(
        self,
        reverse: _Reverse,
        structure: Structure,
        variables: tuple[Variable, ...],
        entering: Sequence[Any],
        places: Sequence[int],
        outputs: int,
    ) -> None:
        self.reverse, self.variables, self.outputs = reverse, variables, outputs
        self._structure, self._entering, self._places = structure, entering, tuple(places)

    def grad(self, g: AnyTensor, y: TensorLike, *inputs: Tensor) -> list[Tensor | None]:
        entering = list(self._entering)
        for place, tensor in zip(self._places, inputs):
            entering[place] = tensor
        count = len(entering) - len(self.variables)
        call = tree.pack_sequence_as(self._structure, entering[:count])
        arriving = list(g) if self.outputs > 1 else [g]
        results: list[Tensor | None] = self.reverse.pull_back(self.variables)(
            call, entering[count:], arriving, self._places
        )
        return results


def _pull_back(
    f: Callable[..., Any],
    variables: tuple[Variable, ...],
    call: tuple[Any, ...],
    values: Sequence[Tensor],
    arriving: Sequence[Tensor],
    places: Sequence[int],
) -> list[Tensor | None]:
    """Return the derivatives of sum(f(...) * arriving) by the tensors at `places`.

    Args:
        call: (args, kwargs).
        values: what the variables held at the call; new values are dropped.
        arriving: the derivatives by f's results.
        places: numbers in the flat list of the arguments, then the variables' values.
    """
    entering = [*tree.flatten(call), *values]
    count = len(entering) - len(variables)

    def results(*chosen: Tensor) -> list[Tensor]:
        filled = list(entering)
        for place, tensor in zip(places, chosen):
            filled[place] = tensor
        args, kwargs = tree.map_structure(_as_tensor, tree.pack_sequence_as(call, filled[:count]))
        scope = VariableScope()
        scope.given = dict(zip(variables, filled[count:]))
        with using_scope(scope), silence():
            result = f(*args, **kwargs)
        created = [t for t in tree.flatten(result) if isinstance(t, Tensor)]
        return [t for t in created if dtypes.is_inexact(t.dtype)]

    return autodiff.vjp(results, [entering[i] for i in places], [
        g for g in arriving if dtypes.is_inexact(g.dtype)
    ])  # fmt: skip
