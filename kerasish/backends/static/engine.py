"""The static engine: a step is traced once per signature and then runs as one native call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kerasish import config, tree
from kerasish.backends.backend import Backend, CompiledStep, Formula, Peaks, RowRun, Timing
from kerasish.backends.eager import Eager
from kerasish.backends.onednn import native
from kerasish.backends.onednn.library import slow_halves
from kerasish.backends.origins import Origins, stages, traced_values
from kerasish.backends.static.codegen.driver import Record, RecordError, UnmetConditionError
from kerasish.backends.static.codegen.team import using_helpers, using_team
from kerasish.backends.static.lowering.compiled_plan import (
    CompiledPlan,
    CompiledPlans,
    UndecidedUpdateError,
)
from kerasish.backends.static.lowering.interpreted import Interpreted, Unlowered
from kerasish.backends.static.lowering.program_threads import Threads, program_threads
from kerasish.backends.static.lowering.saved_plans import SavedPlans
from kerasish.backends.static.machine.machine_code import level_setting
from kerasish.backends.static.runtime.blocks import BlockRuns, Blocks, in_blocks, may_divide
from kerasish.backends.static.runtime.control import Settings, kernels
from kerasish.backends.static.runtime.filling import fill
from kerasish.backends.static.runtime.inspection import explained, memory_of, timings
from kerasish.backends.static.runtime.kept import VariableBuffer, unread
from kerasish.backends.static.runtime.lanes import Lanes
from kerasish.backends.static.runtime.messages import report_slow, say, show_pass, warn_once
from kerasish.backends.static.runtime.paths import OtherPath, Paths
from kerasish.backends.static.runtime.peaks import measured_peaks
from kerasish.backends.static.runtime.prefault import MOST, prefault
from kerasish.backends.static.runtime.program import Executable
from kerasish.backends.static.runtime.ready import ready_call
from kerasish.backends.static.runtime.row_runs import RowSteps, row_gather
from kerasish.backends.static.runtime.signatures import (
    MOST_CONSTANTS,
    explain,
    signature,
    without_constants,
)
from kerasish.backends.static.runtime.syncing import sync_to_buffers
from kerasish.backends.static.runtime.watching import watching_random
from kerasish.devices import Device
from kerasish.errors import NumberAskedError, TraceError
from kerasish.graph.answers import Answers
from kerasish.graph.ir import Graph
from kerasish.graph.passes import gather
from kerasish.graph.passes import optimize as run_passes
from kerasish.graph.passes.widen import widen_halves
from kerasish.graph.structure import structure_of
from kerasish.graph.trace import TensorRef, Traced, trace_answering
from kerasish.ops.op import Op
from kerasish.overriding import no_collections
from kerasish.ranks import current_group
from kerasish.row_formulas import first_rows, is_any_mapped
from kerasish.tensor import Tensor, Variable, current_scope, note_written, wrap
from kerasish.typing import Array, Structure
from kerasish.watched import Guards, collecting_uses


class Static(Backend):
    """Compiles steps; single ops outside of steps are applied by the eager engine."""

    fuses_calls = True

    def __init__(self) -> None:
        self.name = "static"
        self.eager = Eager()

    def on(self, device: Device) -> Static | None:
        """Return this engine for the CPU; None for a GPU, for which it cannot compile."""
        return self if device.kind == "cpu" else None

    def apply(self, op: Op, args: Sequence[Any], attrs: dict[str, Any]) -> Structure:
        """Apply one op at once."""
        return self.eager.apply(op, args, attrs)

    def fused_call(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Structure | None:
        """Return the result of a function composed of ops, by one kernel; None if there is none."""
        return self.eager.fused_call(function, args, kwargs)

    def threads(self) -> int:
        """Return the number of threads that a step may use now."""
        return native.get_threads()

    def compile(self, function: Callable[..., Any], **options: Any) -> TracedStep:
        """Return `function` as a step that is traced and compiled once per signature."""
        return TracedStep(function, self.eager, **options)


class TracedStep(CompiledStep):
    """A step: one executable for each signature (shapes, dtypes, other arguments, threads)."""

    reads_blocks = True

    def __init__(
        self, function: Callable[..., Any], eager: Eager, name: str = "step",
        optimize: str | None = None, training: bool = False,
    ) -> None:  # fmt: skip
        self.training = training  # if so, ops without native code are reported
        self.function, self.eager, self.name = function, eager, name
        self.optimize = optimize  # None: the global setting when a signature is compiled
        self._by_signature: dict[Any, CompiledCall | Paths] = {}
        self._guard = threading.RLock()

    def __call__(self, *args: Any) -> Structure:
        if current_scope() is not None:
            # Inside a trace, another step or a user's scope, the step is part of it.
            return self.eager.compile(self.function)(*args)
        return self._find(args)(args)

    def call_on_array(self, x: Array) -> Array | None:
        """Run a step on one array; return its result as a new array, None if nothing has run."""
        call = self._find((x,), ((x.shape, x.dtype),)) if current_scope() is None else None
        return call.call_on_array(x) if type(call) is CompiledCall else None

    def ready_call(self, x: Array, mark: object) -> Callable[[Array], Array | None] | None:
        """See `CompiledStep.ready_call`."""
        call = self._find((x,), ((x.shape, x.dtype),))
        return call.ready_call(x, mark) if type(call) is CompiledCall else None

    def call_timed(self, *args: Any) -> tuple[Structure, list[Timing]]:
        """Run the step; return its result, and the time of each of its records."""
        return self._find(args).call_timed(args)

    def call_reading(self, *args: Any) -> tuple[Structure, list[tuple[Variable, Tensor]] | None]:
        """Run the step; return its result, and each variable that it read, with its value then."""
        return self._find(args).call_reading(args)

    def _find(self, args: Sequence[Any], key: Any = None) -> CompiledCall | Paths:
        key = key or tuple([signature(a) for a in args])
        call = self._by_signature.get(key)
        if call is None or call.threads != native.get_threads():
            return self._compile(key, args)
        stale = call.guards.stale()
        if stale is not None:
            if config.is_explaining_compiles():
                say(f"forgetting {self.name}: {stale}")
            self._by_signature.pop(key, None)
            return self._compile(key, args)
        return call

    def _compile(self, key: tuple[Any, ...], args: Sequence[Any]) -> CompiledCall | Paths:
        with self._guard:
            call = self._by_signature.get(key)
            if call is None or call.threads != native.get_threads():
                self._check_constants(key, args)
                if config.is_explaining_compiles():
                    say(f"compiling {self.name}: {explain(key, list(self._by_signature))}")
                call = self._by_signature[key] = self._compiled(args)
            return call

    def _compiled(self, args: Sequence[Any]) -> CompiledCall | Paths:
        try:
            first = self._path(args, ())
        except (NumberAskedError, UndecidedUpdateError) as error:
            return Paths(self, args, None, str(error))
        return Paths(self, args, first) if first.conditions else first

    def _path(self, args: Sequence[Any], given: Sequence[Array]) -> CompiledCall:
        """Trace and compile the step for data with these answers to Python."""
        answers = Answers(given, self.eager.kernel)
        with no_collections(lasting=not COMPILED_PLANS.count):
            with collecting_uses() as used, watching_random(self.name):
                traced = trace_answering(answers, self.function, args)
            guards = Guards(used.values())
            rest = self.eager, self.optimize or config.optimize(), self.name, guards
            divided = None if self.training else in_blocks(traced)
            if divided is not None:
                call = CompiledCall(divided[0], *rest, blocks=divided[1])
                if may_divide(call.executable):
                    return call
            return CompiledCall(traced, *rest, self.training)

    def path(self, args: Sequence[Any], given: Sequence[Array]) -> CompiledCall:
        """Return the step compiled for data with these answers to Python's questions.

        Args:
            args: the arguments of a call.
            given: the answers to the first questions; the others are computed from `args`.

        Raises:
            NumberAskedError: Python asked for a number that cannot be known.
            UndecidedUpdateError: a variable changes before the last question.
        """
        with self._guard:
            return self._path(args, given)

    def by_op(self, args: Sequence[Any]) -> Structure:
        """Run the step op by op."""
        return self.eager.compile(self.function)(*args)

    def _check_constants(self, key: tuple[Any, ...], args: Sequence[Any]) -> None:
        """Raise if a Python value among the arguments changes with each call."""
        kind = without_constants(key)
        alike = [k for k in self._by_signature if without_constants(k) == kind]
        if len(alike) < MOST_CONSTANTS:
            return
        raise TraceError(
            f"{self.name}: compiled {len(alike)} times for arguments that differ only in their "
            f"Python values, the last time {explain(key, alike)}. Such values are built into what "
            "is compiled: pass those that change as arrays, np.asarray(value)."
        )

    def over_rows(
        self, arrays: Sequence[Any], pack: Callable[[Any], Any], order: Array, batch_size: int
    ) -> RowRun | None:
        """Return the step as a loop over whole batches of rows; None if it is not native.

        Args:
            arrays: the data, with equal numbers of rows: arrays, or `MappedRows`.
            pack: flat list of batch parts -> the step's arguments.
            order: the indices of the rows in the order of processing.
            batch_size: rows per batch.
        """
        if len(order) < batch_size:
            return None
        parts = [first_rows(a, batch_size) for a in arrays]
        args = pack(parts)
        compiled = self._find(args)
        if isinstance(compiled, Paths):
            if is_any_mapped(arrays):
                return None
            return compiled.over_rows(arrays, pack, order, batch_size)
        return compiled.over_rows(arrays, parts, args, order)

    def _calls(self) -> list[CompiledCall]:
        """Return all compiled calls."""
        return [call for known in self._by_signature.values() for call in known.calls]

    def prepare(self, *args: Any) -> bool:
        """Compile the step for arguments like these, and allocate its memory; run nothing."""
        return bool(self._find(args).calls)

    def stages(self, *args: Any) -> list[tuple[str, list[Formula]]]:
        """Return the step as formulas: as traced, after each pass, and as it runs."""
        calls = self._find(args).calls
        level = self.optimize or config.optimize()
        return stages(calls[0].traced, level, slow_halves(), self.function) if calls else []

    def peaks(self) -> Peaks | None:
        """Return the peak performance of the machine, measured once."""
        return measured_peaks()

    def memory_report(self) -> dict[str, int]:
        """Return the memory of the largest compiled call, in bytes.

        "planned" is its arena, with "inputs" among it, "unshared" what a buffer per value would
        take; "constants", "variables" and "overhead" (the arguments of native calls, and what
        aligns each block of memory) are outside the arena.
        """
        reports = [c.memory() for c in self._calls()]
        return max(reports, key=lambda report: report["planned"], default={})

    def graphs(self) -> list[tuple[str, Graph]]:
        """Return the first signature's graph as traced, and as it runs."""
        traced, fused = f"{self.name}: traced", f"{self.name}: fused"
        first = self._calls()[:1]
        return [g for c in first for g in ((traced, c.traced_graph), (fused, c.graph))]

    def executables(self) -> list[Any]:
        """Return the executables compiled so far."""
        return [c.executable for c in self._calls()]


COMPILED_PLANS, SAVED_PLANS = CompiledPlans(), SavedPlans()


class CompiledCall:
    """One traced and compiled signature of a step."""

    def __init__(
        self, traced: Traced, eager: Eager, level: str, name: str = "step",
        guards: Guards | None = None, training: bool = False, blocks: Blocks | None = None,
    ) -> None:  # fmt: skip
        self._name, self._training, self._divided = name, training, blocks is not None
        self.traced, self.traced_graph = traced, traced.graph
        self.guards = guards or Guards(())
        self.conditions = traced.conditions
        self.calls = (self,)
        self.threads = native.get_threads()
        self.variables = traced.variables
        used = dict.fromkeys((*traced.variables, *traced.updated))
        new = [v for v in used if v.buffer is None]
        for v in used:
            v.use_buffer(VariableBuffer)
        prefault([v.buffer.array for v in new if v.buffer.array.nbytes <= MOST])
        with config.using_threads(1 if blocks else None):
            plan = self._compiled_plan(eager, level, name)
        self.graph = graph = plan.graph
        first = plan.traced if isinstance(plan, CompiledPlan) else ()
        self.origins = Origins(traced, graph, first)
        count = len(graph.outputs) - len(traced.updated) - len(traced.conditions)
        self.results = graph.outputs[:count]
        self.asked = graph.outputs[count : count + len(traced.conditions)]
        answers = [c.answer for c in traced.conditions]
        buffers = dict(zip(graph.inputs[traced.arguments :], traced.variables))
        buffers.update({old: v for (old, _), v in zip(plan.updates, traced.updated)})
        memory = {value: v.buffer for value, v in buffers.items()}
        self.executable: Executable | Interpreted
        if isinstance(plan, CompiledPlan):
            with config.using_threads(plan.threads):
                self.executable = Executable(plan, memory, answers)
            shared = None if traced.updated or traced.conditions else memory
            self._lanes = Lanes(self.executable, self.variables, shared)
        else:
            conditions = list(zip(self.asked, answers))
            arrays = {value: buffer.array for value, buffer in memory.items()}
            self.executable = Interpreted(graph, arrays, plan.updates, eager.kernel, conditions)
            self._lanes = Lanes(self.executable, self.variables)
        if config.is_debugging():
            say(f"{name}: fused\n{graph}\n{self.executable.describe()}")
        self._single = isinstance(traced.structure, TensorRef) and len(self.results) == 1
        self._nothing = traced.structure is None
        self._blocks = None if blocks is None else BlockRuns(blocks, self.results, self.threads)

    def _compiled_plan(self, eager: Eager, level: str, name: str) -> Any:
        """Return the compiled plan of the traced graph, or that of an equal graph."""
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
            counts = traced.arguments, updated, len(traced.conditions)
            settings = level, self.threads, missing, level_setting(), native.forked(), slow_halves()
            key = structure, counts, settings, self._divided, self._training
        make = partial(self._plan, eager, level, updated, watch)
        ranks = current_group()
        if key is None or ranks.size > 1:
            return COMPILED_PLANS.find(key and (key, id(ranks)), make)
        return COMPILED_PLANS.find((key, id(ranks)), lambda: SAVED_PLANS.find(key, make))

    def _plan(self, eager: Eager, level: str, updated: Sequence[int], watch: Any) -> Any:
        widened = widen_halves(self.traced.graph, slow_halves())
        unfused = graph = run_passes(widened, level, watch)
        if level == "fast_run":
            graph = gather(graph)
        variables = list(graph.inputs[self.traced.arguments :])
        targets = [
            variables[n] if n >= 0 else unread(v) for n, v in zip(updated, self.traced.updated)
        ]
        results = len(graph.outputs) - len(updated)
        asked = graph.outputs[results - len(self.conditions) : results]
        buffers = [*variables, *(t for n, t in zip(updated, targets) if n < 0)]
        try:
            updates = list(zip(targets, graph.outputs[results:]))
            # Compiled plans outlive their models: what they hold must not hold variables.
            report = None
            if self._training and level == "fast_run":
                report = partial(report_slow, self._name, self.traced.paths, self.traced_graph)
            inside = Settings(level, watch, report)
            kernel_of = kernels(eager.kernel, inside)
            threads = program_threads(graph, self._training)
            if self._divided:
                threads = Threads(1, 1, 1)
            with config.using_threads(threads.parts), using_helpers(threads.helpers):
                compiled_plan = CompiledPlan(
                    graph, buffers, updates, kernel_of, asked, threads, self._divided
                )  # fmt: skip
            compiled_plan.threads = threads.parts
            compiled_plan.traced = [*traced_values(self.traced_graph)]
            if report is not None:
                report(compiled_plan.units)
            return compiled_plan
        except ImportError as error:
            warn_once(
                f"The static engine runs its steps by NumPy, slowly, since {error}. Install what "
                "is missing: pip install llvmlite"
            )
            return Unlowered(unfused, list(zip(targets, unfused.outputs[results:])))

    def memory(self) -> dict[str, int]:
        """Return the memory of this call, in bytes."""
        variables = dict.fromkeys((*self.variables, *self.traced.updated))
        copies = 1 if self._blocks is None else self._blocks.threads
        return memory_of(self.executable, [v.buffer.array for v in variables], copies)

    def call_timed(self, args: tuple[Any, ...]) -> tuple[Structure, list[Timing]]:
        """Run, and return the result and the time of each record."""
        timed: list[Any] = []
        result = self(args, lambda: timed.extend(self.executable.run_timed()))
        return result, timings(timed, self.origins)

    def __call__(self, args: tuple[Any, ...], run: Callable[[], object] | None = None) -> Structure:
        results = [wrap(array) for array in self._results(args, run)]
        if self._nothing:
            return None
        if self._single:
            return results[0]
        return tree.map_structure(
            lambda x: results[x.number] if isinstance(x, TensorRef) else x, self.traced.structure
        )

    def call_on_array(self, x: Array) -> Array | None:
        """Run on one array; return the result, None if the step has several results."""
        return self._results((x,))[0] if self._single else None

    def ready_call(self, x: Array, mark: object) -> Callable[[Array], Array | None] | None:
        """Return a function that runs on one array at little cost, or None."""
        if not self._single or self._blocks is not None:
            return None
        return ready_call(self._lanes, self.graph, self.results[0], x, self.guards, mark)

    def _results(self, args: Sequence[Any], run: Callable[[], object] | None = None) -> list[Array]:
        """Run and return copies of the results."""
        lanes = self._lanes
        executable = lanes.enter(run is not None)
        try:
            if lanes.exclusive:
                sync_to_buffers(self.variables)
            if self._blocks is None:
                fill(executable.inputs, args)
            try:
                if self._blocks is not None:
                    return self._blocks.call(args, executable, lanes, run)
                if run is not None:
                    run()
                elif lanes.exclusive:
                    executable.run()
                else:
                    executable.run_sharing()  # type: ignore[union-attr]
            except UnmetConditionError as error:
                raise self.other_path(error) from None
            except RecordError as error:
                raise self.explained(error, error.memory or executable) from None
            note_written(self.traced.updated)
            return [executable.output(v) for v in self.results]
        finally:
            lanes.leave()

    def other_path(self, error: UnmetConditionError) -> OtherPath:
        """Return the answers of the last run, up to the condition that did not hold."""
        values = self.asked[: error.number + 1]
        return OtherPath([self.executable.output(v) for v in values])

    def explained(self, error: RecordError, executable: Any = None) -> Exception:
        """Return the exception for a record that failed in a run of an executable."""
        ran = executable or self.executable
        return explained(error, ran, self.origins) if isinstance(ran, Executable) else error

    def call_reading(
        self, args: tuple[Any, ...]
    ) -> tuple[Structure, list[tuple[Variable, Tensor]]]:
        """Run; return the result, and each variable that is read, with its previous value."""
        reads = [(v, v.latest) for v in self.variables]
        return self(args), reads

    def over_rows(
        self, arrays: Sequence[Array], parts: Sequence[Array], args: tuple[Any, ...], order: Array
    ) -> RowSteps | None:
        """Return this call as a loop over rows; None if it is not a single native program."""
        executable = self.executable
        if not isinstance(executable, Executable) or not executable.is_native or self.results:
            return None
        if len(executable.parts) != 1:
            return None
        with using_team(executable.compiled_plan.team):
            gather = row_gather(arrays, parts, args, executable.inputs, executable.most_threads)
        part, calls = executable.parts[0], (self._before, self._after, self._row_timings)
        return None if gather is None else RowSteps(part, gather, order, *calls, self.explained)

    def _row_timings(self, timed: Sequence[tuple[Record, float]]) -> list[Timing]:
        """Return the timings of a batch of a run over rows."""
        unit_of = self.executable.unit_of  # type: ignore[union-attr]
        return timings([(r.name or "record", unit_of(r), s) for r, s in timed], self.origins)

    def _before(self) -> None:
        executable = self._lanes.enter(True)
        try:
            sync_to_buffers(self.variables)
            executable.begin()  # type: ignore[union-attr]
        except BaseException:
            self._lanes.leave()
            raise

    def _after(self, whole: bool) -> None:
        if whole:
            self.executable.done()  # type: ignore[union-attr]
        note_written(self.traced.updated)
        self._lanes.leave()
