"""The static engine: a step is traced once per signature and then runs as one native call."""

from __future__ import annotations

import contextlib
import gc
import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from kerasish import config, tree
from kerasish.backends.backend import Backend, CompiledStep
from kerasish.backends.eager import Eager
from kerasish.backends.static.lowering.compiled_plan import CompiledPlan, CompiledPlans
from kerasish.backends.static.lowering.interpreted import Interpreted, Unlowered
from kerasish.backends.static.lowering.slow_units import advice
from kerasish.backends.static.lowering.units import Unit, aligned_array
from kerasish.backends.static.machine import native
from kerasish.backends.static.onednn.library import slow_halves
from kerasish.backends.static.runtime.control import Settings, kernels
from kerasish.backends.static.runtime.program import Executable
from kerasish.backends.static.runtime.row_runs import RowGather, RowSteps, can_gather
from kerasish.devices import Device
from kerasish.errors import TraceError
from kerasish.graph.ir import Graph, Value
from kerasish.graph.passes import gather
from kerasish.graph.passes import optimize as run_passes
from kerasish.graph.passes.widen import widen_halves
from kerasish.graph.structure import structure_of
from kerasish.graph.trace import Place, Traced, spec_of, trace
from kerasish.ops import dtypes
from kerasish.ops.op import Op
from kerasish.ranks import current_group
from kerasish.tensor import Tensor, Variable, current_scope, to_numpy, wrap
from kerasish.typing import Array, Structure
from kerasish.watched import Guards, collecting_uses


class VariableBuffer:
    """The memory of a variable that compiled steps use: its address never changes."""

    __slots__ = ("array",)

    def __init__(self, variable: Variable) -> None:
        value = np.asarray(to_numpy(variable.latest))
        self.array = aligned_array(value.shape, dtypes.name_of(value.dtype))


class Static(Backend):
    """Compiles steps; single ops outside of steps are applied by the eager engine."""

    def __init__(self) -> None:
        self.name = "static"
        self.eager = Eager()

    def on(self, device: Device) -> Static | None:
        """Return this engine for the CPU; None for a GPU, for which it cannot compile."""
        return self if device.kind == "cpu" else None

    def apply(self, op: Op, args: Sequence[Any], attrs: dict[str, Any]) -> Structure:
        """Apply one op at once."""
        return self.eager.apply(op, args, attrs)

    def threads(self) -> int:
        """Return how many threads a step may use now."""
        return native.get_threads()

    def compile(self, function: Callable[..., Any], **options: Any) -> TracedStep:
        """Return `function` as a step that is traced and compiled once per signature."""
        return TracedStep(function, self.eager, **options)


class TracedStep(CompiledStep):
    """A step: one executable for each signature (shapes, dtypes, other arguments, threads)."""

    def __init__(
        self, function: Callable[..., Any], eager: Eager, name: str = "step",
        optimize: str | None = None, training: bool = False,
    ) -> None:  # fmt: skip
        self.training = training  # if so, ops without native code are reported
        self.function, self.eager, self.name = function, eager, name
        self.optimize = optimize  # None: the global setting when a signature is compiled
        self._made: dict[Any, CompiledCall] = {}
        self._guard = threading.RLock()

    def __call__(self, *args: Any) -> Structure:
        if current_scope() is not None:
            # Inside a trace, another step or a user's scope, the step is a part of that.
            return self.eager.compile(self.function)(*args)
        return self._find(args)(args)

    def variables(self, *args: Any) -> tuple[Variable, ...]:
        """Return the variables that the step reads for arguments like these."""
        return self._find(args).variables

    def _find(self, args: Sequence[Any]) -> CompiledCall:
        key = tuple([signature(a) for a in args])
        call = self._made.get(key)
        if call is None or call.threads != native.get_threads():
            return self._compile(key, args)
        stale = call.guards.stale()
        if stale is not None:
            if config.is_explaining_compiles():
                say(f"forgetting {self.name}: {stale}")
            self._made.pop(key, None)
            return self._compile(key, args)
        return call

    def _compile(self, key: tuple[Any, ...], args: Sequence[Any]) -> CompiledCall:
        with self._guard:
            call = self._made.get(key)
            if call is None or call.threads != native.get_threads():
                self._check_constants(key, args)
                if config.is_explaining_compiles():
                    say(f"compiling {self.name}: {explain(key, list(self._made))}")
                level = self.optimize or config.optimize()
                with _no_collections():
                    with collecting_uses() as used, _watching_random(self.name):
                        traced = trace(self.function, *args)
                    guards = Guards(used.values())
                    call = CompiledCall(traced, self.eager, level, self.name, guards, self.training)
                self._made[key] = call
            return call

    def _check_constants(self, key: tuple[Any, ...], args: Sequence[Any]) -> None:
        """Raise if a Python value among the arguments changes with each call."""
        kind = without_constants(key)
        alike = [k for k in self._made if without_constants(k) == kind]
        if len(alike) < MOST_CONSTANTS:
            return
        raise TraceError(
            f"{self.name}: compiled {len(alike)} times for arguments that differ in their Python "
            f"values alone, the last time {explain(key, alike)}. Such values are built into what "
            "is compiled: pass those that change as arrays, np.asarray(value)."
        )

    def over_rows(
        self, arrays: Sequence[Any], pack: Callable[[Any], Any], order: Array, batch_size: int
    ) -> RowSteps | None:
        """Return the step as a loop over whole batches of rows; None if it is not native.

        Args:
            arrays: the data, with equal numbers of rows.
            pack: flat list of batch parts -> the step's arguments.
            order: the indices of the rows in the order of processing.
            batch_size: rows per batch.
        """
        if len(order) < batch_size:
            return None
        parts = [a[:batch_size] for a in arrays]
        args = pack(parts)
        return self._find(args).over_rows(arrays, parts, args, order)

    def memory_report(self) -> dict[str, int]:
        """Return the bytes of the largest arena, and of the same step with a buffer per value."""
        plans = [c.executable.plan for c in self._made.values()]
        largest = max(plans, key=lambda plan: plan.nbytes)
        return {"planned": largest.nbytes, "unshared": largest.naive}

    def graphs(self) -> list[tuple[str, Graph]]:
        """Return the first signature's graph as traced, and as it runs."""
        call = next(iter(self._made.values()))
        return [(f"{self.name}: traced", call.traced_graph), (f"{self.name}: fused", call.graph)]

    def executables(self) -> list[Any]:
        """Return the executables compiled so far."""
        return [c.executable for c in self._made.values()]


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    """Pause the garbage collector: a trace makes many objects, and none of them is garbage yet."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@contextlib.contextmanager
def _watching_random(name: str) -> Iterator[None]:
    """Warn if Python draws random numbers in a trace: they would be the same in every call."""

    def states() -> tuple[Any, ...]:
        kind, keys, place, *_ = np.random.get_state()  # noqa: NPY002 (what users draw from)
        return kind, keys.tobytes(), place, random.getstate()

    before = states()
    yield
    if states() != before:
        warnings.warn(
            f"{name}: np.random or random drew numbers while the step was traced. They are "
            "constants of the compiled step, the same at each call. Use kerasish.random with a "
            "SeedGenerator, or run_eagerly=True.",
            RuntimeWarning,
            stacklevel=2,
        )


def say(text: str) -> None:
    """Print a line that the user asked for (explain_compiles, KERASISH_DEBUG)."""
    print(f"kerasish: {text}", file=sys.stderr)


_warned: set[str] = set()


def warn_once(text: str) -> None:
    """Warn about something missing, once per process."""
    if text not in _warned:
        _warned.add(text)
        warnings.warn(text, RuntimeWarning, stacklevel=2)


def _report(name: str, paths: dict[Value, str], traced: Graph, units: Sequence[Unit]) -> None:
    """Warn about the ops of a training step that have no native code."""
    text = advice(name, units, paths, traced)
    if text is not None:
        warn_once(text)


def show_pass(name: str, before: Graph, after: Graph) -> None:
    """Print the graph before and after a pass that changed it."""
    say(f"{name}: {len(before.nodes)} -> {len(after.nodes)} nodes")


def explain(key: Sequence[Any], known: list[Any]) -> str:
    """Return how a signature differs from the nearest one that is compiled already."""
    if not known:
        return "first call"

    def parts(k: Sequence[Any]) -> list[Any]:
        return list(k) if isinstance(k, tuple) else [k]

    def differences(other: Sequence[Any]) -> list[str]:
        left, right = parts(key), parts(other)
        if len(left) != len(right):
            return [f"{len(left)} arguments instead of {len(right)}"]
        return [
            f"argument {i}: {_describe(a)} instead of {_describe(b)}"
            for i, pair in enumerate(zip(left, right))
            for a, b in _differing(*pair)
        ]

    result = min((differences(k) for k in known), key=len)
    return "; ".join(result) or "another number of threads"


def _differing(a: Any, b: Any) -> list[tuple[Any, Any]]:
    """Return the smallest parts in which two signatures of an argument differ."""
    if a == b:
        return []
    nested = type(a) is type(b) is tuple and len(a) == len(b) and a[0] is b[0]
    if nested and a[0] in (list, tuple, dict):
        return [pair for parts in zip(a, b) for pair in _differing(*parts)]
    return [(a, b)]


def _describe(part: Constant | tuple[Any, ...]) -> str:
    if isinstance(part, Constant):
        return repr(part.value)
    if type(part) is tuple and len(part) == 2 and type(part[0]) is tuple:
        return f"{part[1]}{list(part[0])}"
    return str(part)


class Constant(NamedTuple):
    """A Python value among the arguments; it is compiled into the step."""

    value: Any
    kind: type  # 1, 1.0 and True compare equal but are different constants


MOST_CONSTANTS = 32  # different Python values that a step is compiled for before it raises


def without_constants(key: Structure) -> Structure:
    """Return a signature without its Python values."""
    if isinstance(key, Constant):
        return Constant
    return tuple([without_constants(part) for part in key]) if isinstance(key, tuple) else key


def signature(x: Structure) -> Constant | tuple[Any, ...] | None:
    """Return the properties of an argument that a compiled step depends on."""
    if isinstance(x, (np.ndarray, np.generic)):
        if x.dtype.kind in "OUS":  # strings are constants
            return "constant", x.shape, *x.ravel().tolist()
        return x.shape, x.dtype
    if x is None:
        return None
    if isinstance(x, (Tensor, Variable)):
        return tuple(x.shape), x.dtype
    if isinstance(x, (list, tuple)):
        return (type(x), *map(signature, x))
    if isinstance(x, dict):
        return (dict, *((k, signature(x[k])) for k in sorted(x)))
    return Constant(x, type(x))


COMPILED_PLANS = CompiledPlans()


class CompiledCall:
    """One traced and compiled signature of a step."""

    def __init__(
        self, traced: Traced, eager: Eager, level: str, name: str = "step",
        guards: Guards | None = None, training: bool = False,
    ) -> None:  # fmt: skip
        self._name, self._training = name, training
        self.traced, self.traced_graph = traced, traced.graph
        self.guards = guards or Guards(())
        self.threads = native.get_threads()
        self.variables = traced.variables
        for v in (*traced.variables, *traced.updated):
            v.use_buffer(VariableBuffer)
        plan = self._compiled_plan(eager, level, name)
        self.graph = graph = plan.graph
        self.results = graph.outputs[: len(graph.outputs) - len(traced.updated)]
        buffers = dict(zip(graph.inputs[traced.arguments :], traced.variables))
        buffers.update({old: v for (old, _), v in zip(plan.updates, traced.updated)})
        arrays = {value: v.buffer.array for value, v in buffers.items()}
        self.executable: Executable | Interpreted
        if isinstance(plan, CompiledPlan):
            self.executable = Executable(plan, arrays)
        else:
            self.executable = Interpreted(graph, arrays, plan.updates, eager.kernel)
        if config.is_debugging():
            say(f"{name}: fused\n{graph}\n{self.executable.describe()}")
        self._single = isinstance(traced.structure, Place) and len(self.results) == 1
        self._nothing = traced.structure is None

    def _compiled_plan(self, eager: Eager, level: str, name: str) -> Any:
        """Return the compiled plan of the traced graph, that of an equal graph if there is one."""
        traced, watch = self.traced, None
        if config.is_debugging():
            say(f"{name}: traced\n{traced.graph}")
            watch = show_pass
        missing = native.available()
        if missing:
            warn_once(f"The static engine multiplies and convolves by BLAS: {missing}")
        number = {v: i for i, v in enumerate(traced.variables)}
        updated = tuple([number.get(v, -1) for v in traced.updated])
        structure = structure_of(traced.graph) if watch is None else None
        key = None
        if structure is not None:
            key = (
                structure,
                traced.arguments,
                updated,
                level,
                self.threads,
                missing,
                native.forked(),
                slow_halves(),
                id(current_group()),
            )
        return COMPILED_PLANS.find(key, lambda: self._plan(eager, level, updated, watch))

    def _plan(self, eager: Eager, level: str, updated: Sequence[int], watch: Any) -> Any:
        widened = widen_halves(self.traced.graph, slow_halves())
        unfused = graph = run_passes(widened, level, watch)
        if level == "fast_run":
            graph = gather(graph)
        variables = list(graph.inputs[self.traced.arguments :])
        targets = [
            variables[n] if n >= 0 else _unread(v) for n, v in zip(updated, self.traced.updated)
        ]
        results = len(graph.outputs) - len(updated)
        buffers = [*variables, *(t for n, t in zip(updated, targets) if n < 0)]
        try:
            updates = list(zip(targets, graph.outputs[results:]))
            # CompiledPlans outlive their models: what they hold must not hold variables.
            report = None
            if self._training and level == "fast_run":
                report = partial(_report, self._name, self.traced.paths, self.traced_graph)
            inside = Settings(level, watch, report)
            compiled_plan = CompiledPlan(graph, buffers, updates, kernels(eager.kernel, inside))
            if report is not None:
                report(compiled_plan.units)
            return compiled_plan
        except ImportError as error:
            warn_once(
                f"The static engine runs its steps by NumPy, slowly, since {error}. Install what "
                "is missing: pip install llvmlite"
            )
            return Unlowered(unfused, list(zip(targets, unfused.outputs[results:])))

    def __call__(self, args: tuple[Any, ...]) -> Structure:
        executable = self.executable
        with executable.lock:
            for v in self.variables:
                if not v.in_buffer:
                    v.sync_to_buffer()
            self._enter(args)
            executable.run()
            for v in self.traced.updated:
                v.written_in_buffer()
            results = [wrap(executable.output(v)) for v in self.results]
        if self._nothing:
            return None
        if self._single:
            return results[0]
        return tree.map_structure(
            lambda x: results[x.number] if isinstance(x, Place) else x, self.traced.structure
        )

    def over_rows(
        self, arrays: Sequence[Array], parts: Sequence[Array], args: tuple[Any, ...], order: Array
    ) -> RowSteps | None:
        """Return this call as a loop over rows; None if it is not a single native program."""
        executable = self.executable
        if len(executable.parts) != 1 or not executable.is_native or self.results:
            return None
        leaves = [leaf for a in args for leaf in _leaves(a)]
        sources = [array for leaf in leaves for array, part in zip(arrays, parts) if part is leaf]
        targets = executable.inputs
        if len(sources) != len(targets) or not can_gather(sources, targets):
            return None
        gather = RowGather(sources, targets)
        return RowSteps(executable.parts[0], gather, order, self._before, self._after)

    def _before(self) -> None:
        self.executable.lock.acquire()
        try:
            for v in self.variables:
                if not v.in_buffer:
                    v.sync_to_buffer()
        except BaseException:
            self.executable.lock.release()
            raise

    def _after(self) -> None:
        for v in self.traced.updated:
            v.written_in_buffer()
        self.executable.lock.release()

    def _enter(self, args: tuple[Any, ...]) -> None:
        views = iter(self.executable.inputs)
        for a in args:
            if type(a) is np.ndarray:
                np.copyto(next(views), a)
            elif a is not None:
                for leaf in _leaves(a):
                    np.copyto(next(views), to_numpy(leaf))


def _leaves(structure: Structure) -> list[Any]:
    if isinstance(structure, (list, tuple)):
        return [leaf for part in structure for leaf in _leaves(part)]
    if isinstance(structure, dict):
        return [leaf for k in sorted(structure) for leaf in _leaves(structure[k])]
    return [structure] if spec_of(structure) is not None else []


def _unread(variable: Variable) -> Value:
    return Value(tuple(variable.shape), dtypes.name_of(variable.buffer.array.dtype))
