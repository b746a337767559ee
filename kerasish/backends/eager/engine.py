"""The define-by-run engine: looks up an op's kernel, runs it, records data for gradients."""

from __future__ import annotations

import contextvars
import functools
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from kerasish.backends.backend import Backend, CompiledStep, Formula, Timing
from kerasish.backends.eager.branches import run_branch
from kerasish.backends.eager.fused_on_cpu import fused_call, results_of
from kerasish.backends.eager.memory import Pool, using_pool
from kerasish.backends.eager.numpy_kernels import KERNELS
from kerasish.backends.eager.numpy_update import update_all
from kerasish.backends.onednn import native
from kerasish.backends.origins import stages
from kerasish.devices import Device, _State, current, place_of
from kerasish.errors import user_place
from kerasish.graph.answers import Answers
from kerasish.graph.trace import trace_answering
from kerasish.graph.work import flops_of
from kerasish.ops.op import Engine, Op, UpdateFormula, has_chosen_engine, using_engine
from kerasish.ops.shapes import Spec
from kerasish.scopes import current_path
from kerasish.tensor import (
    Tensor,
    Variable,
    VariableScope,
    concrete,
    current_scope,
    is_traced,
    prepare,
    record,
    recording,
    unshared,
    using_scope,
    wrap,
)
from kerasish.typing import Array, ArrayModule, Structure

# Before NumPy 2 the setting was the thread's, not the context's.
_CONTEXTUAL = int(np.__version__.split(".")[0]) >= 2


class _Quiet(threading.local):
    """How kernels run in this thread: `run(kernel, ...)` silences NumPy about NaN and infinity.

    None if NumPy is already silenced. Entering a context that was created once costs a tenth of
    `np.errstate`.
    """

    def __init__(self) -> None:
        self.run: Any = _with_errstate
        if _CONTEXTUAL:
            context = contextvars.copy_context()
            context.run(np.seterr, all="ignore")
            self.run = context.run


def _with_errstate(kernel: Array, *values: Any, **attrs: Any) -> Any:
    with np.errstate(all="ignore"):
        return kernel(*values, **attrs)


class _StepScope(AbstractContextManager[None]):
    """The context of `step_scope`. NumPy is silent about NaN and infinity inside.

    Args:
        quiet: how kernels run.
        scope: the scope in which the step reads and writes variables.
    """

    def __init__(self, quiet: _Quiet, scope: VariableScope) -> None:
        self._quiet, self._scope = quiet, scope
        self._silence, self._variables = np.errstate(all="ignore"), using_scope(scope)

    def __enter__(self) -> None:
        self._before, self._quiet.run = self._quiet.run, None
        self._silence.__enter__()
        self._variables.__enter__()

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._variables.__exit__()
        self._silence.__exit__()
        self._quiet.run = self._before
        if kind is None:
            self._scope.commit()


class Eager(Backend):
    """Runs ops one by one with `xp`'s functions and a table of faster kernels.

    Args:
        xp: the array module, NumPy or CuPy.
        overrides: op name -> kernel(*arrays, **attrs) that is faster than the reference.
        elsewhere: device -> the engine that runs ops on data there; None: none does.
    """

    defines_by_run = True

    def __init__(
        self,
        xp: ArrayModule = np,
        overrides: dict[str, Callable[..., Any]] | None = None,
        elsewhere: Callable[[Device], Eager] | None = None,
    ) -> None:
        self.xp = xp
        self.fuses_updates = True
        self.name = "eager"
        self.elsewhere = elsewhere
        self._overrides = KERNELS if overrides is None else overrides
        self._kernels: dict[Op, Callable[..., Any]] = {}
        self._quiet = _Quiet()

    def kernel(self, op: Op) -> Callable[..., Any]:
        """Return the function of arrays that computes `op` here."""
        result = self._overrides.get(op.name) or functools.partial(op.kernel, self.xp)
        self._kernels[op] = result
        return result

    def apply(self, op: Op, args: Sequence[Any], attrs: dict[str, Any]) -> Structure:
        """Compute `op` now; record it if a gradient may be requested."""
        tensors, attrs = prepare(op, args, attrs)
        if _State.accelerated and self.elsewhere is not None:
            engine = self._where_it_lies(tensors)
            if engine is not self:
                return engine.run(op, tensors, attrs)
        kernel = self._kernels.get(op) or self.kernel(op)
        run = self._quiet.run
        try:
            if len(tensors) == 1:
                value = tensors[0].value
                out = kernel(value, **attrs) if run is None else run(kernel, value, **attrs)
            elif len(tensors) == 2 and run is None:
                out = kernel(tensors[0].value, tensors[1].value, **attrs)
            else:
                values = [t.value for t in tensors]
                out = kernel(*values, **attrs) if run is None else run(kernel, *values, **attrs)
        except Exception as error:
            self._explain(op, tensors, attrs, error)
            raise
        return self._recorded(op, tensors, attrs, out)

    def run(self, op: Op, tensors: Sequence[Tensor], attrs: dict[str, Any]) -> Structure:
        """Compute `op` on prepared inputs; the engine of a GPU overrides this."""
        return self.apply(op, tensors, attrs)

    def _where_it_lies(self, tensors: Sequence[Tensor]) -> Eager:
        """Return the engine of the first GPU that holds an input, else of the current device."""
        for t in tensors:
            place = place_of(t.value)
            if place.kind != "cpu":
                break
        else:
            place = current()
        return self.on(place)

    def control(self, kind: str, **parts: Any) -> Any:
        """Leave control flow to Python; in a step, the other branches have zero gradients."""
        if recording.on and current_scope() is not None and kind in ("cond", "switch"):
            return run_branch(kind, **parts)
        return NotImplemented

    def on(self, device: Device) -> Eager:
        """Return the engine of `device`."""
        if device.kind == "cpu" or self.elsewhere is None:
            return self
        return self.elsewhere(device)

    def _recorded(
        self, op: Op, tensors: Sequence[Tensor], attrs: dict[str, Any], out: Array
    ) -> Any:
        """Return the results as tensors, with a record if a gradient may be requested."""
        tracked = borrowed = False
        for t in tensors:
            tracked, borrowed = tracked or t.tracked, borrowed or t.borrowed
        if borrowed:
            out = unshared(out, tensors)
        recorded = tracked and op.grad is not None and recording.on
        if op.outputs == 1:
            result = wrap(out)
            if recorded:
                record(op, tensors, attrs, (result,))
            return result
        results = tuple([wrap(o) for o in out])
        if recorded:
            record(op, tensors, attrs, results)
        return results

    fuses_calls = True

    def fused_call(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Structure | None:
        """Return the result of a function composed of ops, or None if no kernel computes it."""
        if _State.accelerated or self.xp is not np:
            return None
        call = fused_call(function, args, kwargs)
        return None if call is None else results_of(call, self.apply(*call))

    def fused_update(
        self,
        formula: UpdateFormula,
        elements: Sequence[Sequence[Tensor]],
        numbers: Sequence[Tensor | None],
        decays: Sequence[float],
    ) -> list[list[Tensor]] | None:
        """Return [new values, new slots, ...] of an optimizer's variables, computed together."""
        if self.elsewhere is not None and _State.accelerated:
            engine = self._where_it_lies([t for some in elements for t in some])
            if engine is not self:
                return engine.fused_update(formula, elements, numbers, decays)
        arrays = [[t.value for t in some] for some in elements]
        for some in arrays:
            for a in some:
                if type(a.dtype) is str:  # of a trace
                    return None
        given = [None if n is None else n.value for n in numbers]
        run, fused = self._quiet.run, (formula, arrays, given, decays, self.kernel)
        result = update_all(*fused) if run is None else run(update_all, *fused)
        return None if result is None else [[wrap(a) for a in some] for some in result]

    def _explain(
        self, op: Op, tensors: Sequence[Tensor], attrs: dict[str, Any], error: Exception
    ) -> None:
        """Raise a clearer error than the kernel's if the shape rule or a trace explains it."""
        if any(is_traced(t) for t in tensors):
            raise RuntimeError(
                f"{op.name}: a tensor of a finished trace was used outside it. Return it from the "
                "traced function instead of keeping it in an attribute or a global."
            ) from error
        try:
            op.shape(*(Spec(t.shape, t.dtype) for t in tensors), **attrs)
        except ValueError as clearer:
            raise clearer from None  # NumPy's error is less specific

    def threads(self) -> int | None:
        """Return the number of threads of products and loops; None on a GPU."""
        if self.xp is not np:
            return None
        import threadpoolctl

        pools = threadpoolctl.threadpool_info()
        counts = [p["num_threads"] for p in pools if p["user_api"] == "blas"]
        if not native.available():  # else: why oneDNN and compiled loops cannot be used
            counts.append(native.get_threads())
        return max(counts, default=None)

    def compile(self, function: Callable[..., Any], **options: Any) -> CompiledStep:
        """Return `function` as a step whose assignments are made together at its end."""
        return EagerStep(self, function)

    def step_scope(self) -> AbstractContextManager[None]:
        """A context of a step: its assignments are made together at its end, if it succeeds."""
        return _StepScope(self._quiet, self._scope())

    def _scope(self) -> VariableScope:
        return VariableScope()


class TimingEngine(Engine):
    """Passes ops on to another engine, and measures the time of each."""

    def __init__(self, inner: Eager) -> None:
        self.inner, self.timings = inner, list[Timing]()
        self.fuses_updates, self.fuses_calls = inner.fuses_updates, inner.fuses_calls
        self._origins: dict[int, tuple[str, str]] = {}
        self._records: list[Any] = []

    def apply(self, op: Op, args: Sequence[Any], attrs: dict[str, Any]) -> Structure:
        """Apply an op; ops that it calls inside are measured separately."""
        before = len(self.timings)
        start = time.perf_counter()
        result = self.inner.apply(op, args, attrs)
        self.inner.synchronize()
        seconds = time.perf_counter() - start
        seconds -= sum(t.seconds for t in self.timings[before:])
        outputs = result if isinstance(result, tuple) else (result,)
        inputs = [x for x in args if isinstance(x, (Tensor, Variable))]
        nbytes = sum(concrete(t).nbytes for t in outputs)
        nbytes += sum(concrete(x.value if isinstance(x, Variable) else x).nbytes for x in inputs)
        shapes = ", ".join(f"{t.dtype}{list(t.shape)}" for t in outputs)
        flops = flops_of(op, [tuple(x.shape) for x in inputs], [tuple(t.shape) for t in outputs])
        path, line = self._origin(outputs)
        self.timings.append(Timing(op.name, path, shapes, seconds, nbytes, flops, line))
        return result

    def _origin(self, results: Sequence[Tensor]) -> tuple[str, str]:
        """Return the layers, and the user's line, of results; a reverse pass's are the op's."""
        maker = recording.maker
        if maker is not None:
            return self._origins.get(id(maker), ("", ""))
        place = user_place()
        origin = current_path(), "" if place is None else f"{place[0]}:{place[1]}"
        record = results[0].maker
        if record is not None:
            self._origins[id(record)] = origin
            self._records.append(record)  # keeps its id from being reused
        return origin

    def fused_update(self, *args: Any) -> list[list[Tensor]] | None:
        """Update all variables together, as one part."""
        start = time.perf_counter()
        result = self.inner.fused_update(*args)
        if result is not None:
            seconds = time.perf_counter() - start
            nbytes = 2 * sum(concrete(t).nbytes for some in result for t in some)
            self.timings.append(Timing("update", "optimizer", "", seconds, nbytes))
        return result

    def fused_call(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Structure | None:
        """Apply a composed function by the inner engine's kernel, as one part."""
        call = fused_call(function, args, kwargs)
        return None if call is None else results_of(call, self.apply(*call))

    def control(self, kind: str, **parts: Any) -> Any:
        """Leave control flow to the inner engine."""
        return self.inner.control(kind, **parts)


class EagerStep(CompiledStep):
    """A function that runs op by op; its assignments are made together when it has returned."""

    def __init__(self, engine: Eager, function: Callable[..., Any]) -> None:
        self.engine, self.function = engine, function
        self._pool = Pool()

    def stages(self, *args: Any) -> list[tuple[str, list[Formula]]]:
        """Return the step as formulas, op by op: no pass changes it."""
        traced = trace_answering(Answers((), self.engine.kernel), self.function, args)
        return stages(traced, "none", (), self.function)

    def call_timed(self, *args: Any) -> tuple[Structure, list[Timing]]:
        """Run the step; return its result, and the time of each op."""
        engine = TimingEngine(self.engine)
        with using_engine(engine), using_pool(self._pool), self.engine.step_scope():
            result = self.function(*args)
        return result, engine.timings

    def __call__(self, *args: Any, **kwargs: Any) -> Structure:
        # Inside a trace, or another engine's step, that engine stays the current one.
        chosen = nullcontext() if has_chosen_engine() else using_engine(self.engine)
        with chosen, using_pool(self._pool), self.engine.step_scope():
            return self.function(*args, **kwargs)
