"""A step looked at before it runs: its memory, and its formulas."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish import losses, tree
from kerasish.backends.backend import Formula, Peaks, Timing
from kerasish.callbacks.timeline import lines_of, placed
from kerasish.engine.data import make_data
from kerasish.engine.data.tables import as_inputs
from kerasish.graph.draw import write_picture
from kerasish.losses.targets import targets_of
from kerasish.ops import dtypes
from kerasish.tensor import Variable
from kerasish.typing import Array, Structure

if TYPE_CHECKING:
    from kerasish.engine.model.model import Model
    from kerasish.engine.training.program import TrainingProgram

_DEFAULT_ROWS = 32  # of a batch, as in `fit`


def example_batch(
    program: TrainingProgram, x: Structure, y: Structure, sample_weight: Structure,
    batch_size: int | None,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Return a batch as `fit` would make it of data; of zeros without data.

    Args:
        program: the model's program.
        x, y, sample_weight: data, or None.
        batch_size: rows of the batch; None: 32.

    Raises:
        ValueError: there is no data, and the shapes of the model's inputs are not known.
    """
    model = program.model
    if x is None:
        x, y = _zeros(program, batch_size or _DEFAULT_ROWS, with_targets=y is None), y
        x, y = x if y is None else (x[0], y)
    data = make_data(
        as_inputs(x, model.input_keys), as_inputs(y), sample_weight, batch_size=batch_size,
        shuffle=False, training=False,
    )  # fmt: skip
    data = model.on_host(data)
    try:
        return data.peek()
    finally:
        data.close()


def _zeros(program: TrainingProgram, rows: int, with_targets: bool) -> tuple[Any, Any]:
    model = program.model
    if model.layer_graph is None:
        raise ValueError(
            f"{model.display_name()} has no known input shapes before it gets data: "
            "give x (and y) as for fit(), or make a functional or sequential model with Input()."
        )

    def zeros(t: Any, shape: Iterable[int | None], dtype: str) -> Array:
        sizes = [rows, *list(shape)[1:]]
        if None in sizes:
            raise ValueError(
                f"{model.display_name()} has open sizes other than the batch, {t.shape}: "
                "give x (and y) as for fit()."
            )
        return np.zeros(sizes, dtypes.array_dtype(dtype))

    x = tree.map_structure(lambda t: zeros(t, t.shape, t.dtype), model.inputs_structure)
    if not with_targets or program.objective is None:
        return x, None
    sparse = _takes_classes(program.loss)

    def target(t: Any) -> Array:
        return zeros(t, t.shape[:-1], "int32") if sparse else zeros(t, t.shape, "float32")

    return x, tree.map_structure(target, model.outputs_structure)


def _takes_classes(loss: object) -> bool:
    """Return whether a loss, as given to `compile`, compares with class numbers."""
    loss = losses.get(loss) if isinstance(loss, str) else loss
    targets = targets_of(getattr(loss, "fn", loss))
    return targets is not None and targets.integers


# --- memory ---------------------------------------------------------------------------------------


def _nbytes(variables: Iterable[Variable]) -> int:
    each = {id(v): v for v in variables}
    return sum(
        int(np.prod(v.shape, dtype=np.int64)) * int(dtypes.array_dtype(v.dtype).itemsize)
        for v in each.values()
    )


def memory(program: TrainingProgram, kind: str, batch: tuple[Any, Any, Any]) -> dict[str, int]:
    """Return what a step for batches like this one holds, in bytes; nothing runs.

    Args:
        program: the model's program.
        kind: "train", "test" or "predict".
        batch: x, y, sample_weight.
    """
    program.prepare(kind, *batch)
    step = program.step(kind)
    arguments = batch[:1] if kind == "predict" else batch
    known = step.prepare(*arguments)
    return complete(program, kind, step.memory_report() if known else _inputs(arguments))


def _inputs(arguments: Iterable[Any]) -> dict[str, int]:
    leaves = [leaf for leaf in tree.flatten(tuple(arguments)) if hasattr(leaf, "nbytes")]
    return {"inputs": sum(int(leaf.nbytes) for leaf in leaves)}


def complete(program: TrainingProgram, kind: str, report: dict[str, int]) -> dict[str, int]:
    """Return a step's report with the bytes of weights, gradients, optimizer and metrics."""
    model, optimizer = program.model, program.optimizer
    report = {k: n for k, n in report.items() if k != "variables"}
    metrics = [v for m in model.metrics for v in m.variables]
    known = {id(v) for v in metrics}
    report["weights"] = _nbytes(v for v in model.variables if id(v) not in known)
    trains = kind == "train" and optimizer is not None
    report["gradients"] = _nbytes(model.trainable_variables) if trains else 0
    report["optimizer"] = _nbytes(optimizer.variables) if optimizer is not None else 0
    report["metrics"] = _nbytes(metrics)
    if "planned" in report:
        outside = ("constants", "weights", "optimizer", "metrics", "overhead")
        report["total"] = report["planned"] + sum(report.get(name, 0) for name in outside)
    return report


# --- formulas -------------------------------------------------------------------------------------


class Explanation:
    """A step as formulas; `print` shows it as a table.

    Attributes:
        title: which step of which model it is.
        stages: (name, formulas): the step as traced, after each pass that changes it, and as it
            runs. A formula has `text`, `result`, `layer`, `line`, `flops` and `nbytes`.
        timings: the parts of one run with their seconds, in order; [] where no time was asked for.
        peaks: what the machine does at best; None if that is not known.
    """

    def __init__(
        self,
        title: str,
        stages: list[tuple[str, list[Formula]]],
        passes: bool,
        timings: list[Timing],
        peaks: Peaks | None,
    ) -> None:
        self.title, self.stages = title, stages
        self.timings, self.peaks, self._passes = timings, peaks, passes

    @property
    def formulas(self) -> list[Formula]:
        """The formulas of the step as it runs."""
        return self.stages[-1][1] if self.stages else []

    def __str__(self) -> str:
        shown = self.stages if self._passes else self.stages[-1:]
        lines = [self.title]
        before = None
        for name, formulas in shown:
            lines += ["", _heading(name, formulas, before), *map(_line, formulas)]
            before = len(formulas)
        if self.timings:
            total = sum(t.seconds for t in self.timings)
            lines += ["", f"measured: {len(self.timings)} parts, {total * 1e6:,.1f} µs"]
            lines += [_timed_line(t, self.peaks) for t in self.timings]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)


def _heading(name: str, formulas: list[Formula], before: int | None) -> str:
    flops, nbytes = sum(f.flops for f in formulas), sum(f.nbytes for f in formulas)
    count = f"{len(formulas)} formulas" + ("" if before is None else f" ({before} before)")
    when = name if name == "traced" else f"after {name}"
    return f"{when}: {count}, {flops / 1e6:,.3f} MFLOP, {nbytes / 1e3:,.1f} kB"


def _line(f: Formula) -> str:
    where = ", ".join(part for part in (f.layer, os.path.basename(f.line)) if part)
    note = f"   # {where}" if where else ""
    return f"{f.flops / 1e6:10.3f} MFLOP {f.nbytes / 1e3:10.1f} kB   {f.text}: {f.result}{note}"


def _timed_line(t: Timing, peaks: Peaks | None) -> str:
    share = "" if peaks is None or not t.nbytes else f"{100 * peaks.share(t):5.0f} % of the peak"
    where = ", ".join(part for part in (t.layer, os.path.basename(t.line)) if part)
    note = f"   # {where}" if where else ""
    return f"{t.seconds * 1e6:10.1f} µs {share:20}   {t.name}: {t.result}{note}"


def explain(
    program: TrainingProgram, kind: str, batch: tuple[Any, Any, Any], passes: bool, time: bool
) -> Explanation:
    """Return a step as formulas; see `Trainer.explain`."""
    model: Model = program.model
    program.prepare(kind, *batch)
    step = program.step(kind)
    arguments = batch[:1] if kind == "predict" else batch
    lines = lines_of(model)
    stages = [(name, [placed(f, lines) for f in some]) for name, some in step.stages(*arguments)]
    title = f"{kind} step of {model.display_name()}, {program.backend().name} engine"
    if not time:
        return Explanation(title, stages, passes, [], None)
    values = [(v, v.numpy().copy()) for v in _all_variables(program)]
    try:
        step.call_timed(*arguments)  # the first run warms caches up
        timings = step.call_timed(*arguments)[1]
    finally:
        for variable, value in values:
            variable.assign(value)
    timings = [placed(t, lines) for t in timings]
    return Explanation(title, stages, passes, timings, step.peaks())


def _all_variables(program: TrainingProgram) -> list[Variable]:
    optimizer = program.optimizer
    own = [] if optimizer is None else optimizer.variables
    metrics = [v for m in program.model.metrics for v in m.variables]
    return list({id(v): v for v in (*program.model.variables, *own, *metrics)}.values())


# --- methods of models ----------------------------------------------------------------------------


class InspectionMixin:
    """The methods of a model that look into its steps."""

    training_program: TrainingProgram

    def memory_report(
        self,
        x: Structure = None,
        y: Structure = None,
        sample_weight: Structure = None,
        *,
        batch_size: int | None = None,
        step: str | None = None,
    ) -> dict[str, dict[str, int]]:
        """Return what steps hold, in bytes; with data or a batch size, before the first step.

        With `x` or `batch_size` the step for such batches is compiled, and takes its memory, but
        does not run. Without, the report is that of the steps compiled so far.

        Args:
            x, y, sample_weight: data as for `fit`, of which a batch is looked at. None: functional
                and sequential models know the shapes.
            batch_size: rows of a batch; None: 32.
            step: "train", "test" or "predict"; None: "train" if the model has been compiled with
                a loss, else "predict".

        Returns:
            Kind of the step -> bytes by name. "planned": the arena, in which the values of the
            step share memory, with "inputs" and "gradients" among it; "unshared": what a buffer
            per value would take; "constants"; "weights": all variables of the model; "optimizer";
            "metrics"; "overhead": the arguments of native calls, and what aligns each block of
            memory; "total": what the run holds, without the data: planned + constants + weights +
            optimizer + metrics + overhead. The eager engine plans no memory: there "planned",
            "unshared", "constants", "overhead" and "total" are missing.

        Raises:
            ValueError: the shapes of the model's inputs are not known, and x is missing.

        Example:
            >>> import kerasish
            >>> from kerasish import layers
            >>> model = kerasish.Sequential([kerasish.Input((8,)), layers.Dense(4)])
            >>> model.compile("adam", "mse")
            >>> report = model.memory_report(batch_size=16)["train"]
            >>> report["weights"], report["gradients"], report["inputs"]
            (144, 144, 768)
        """
        program = self.training_program
        if x is not None or batch_size is not None:
            kind = self._kind(step)
            batch = example_batch(program, x, y, sample_weight, batch_size)
            return {kind: memory(program, kind, batch)}
        steps = [(k, s) for k, s in program.compiled_steps() if step in (None, k)]
        reports = {kind: compiled.memory_report() for kind, compiled in steps}
        return {kind: complete(program, kind, r) for kind, r in reports.items() if r}

    def explain(
        self,
        x: Structure = None,
        y: Structure = None,
        sample_weight: Structure = None,
        *,
        batch_size: int | None = None,
        step: str | None = None,
        passes: bool = False,
        time: bool = False,
    ) -> Explanation:
        """Return a step as readable formulas, with operations and bytes; nothing is trained.

        Args:
            x, y, sample_weight: data as for `fit`, of which a batch is looked at. None: functional
                and sequential models know the shapes.
            batch_size: rows of a batch; None: 32.
            step: "train", "test" or "predict"; None: "train" if the model has been compiled with
                a loss, else "predict".
            passes: whether to show the step as traced and after each pass that changes it, too.
            time: whether to run the step twice and show how long each part takes; variables keep
                their values.

        Returns:
            An `Explanation`: `print` shows it; `formulas`, `stages` and `timings` hold the parts.

        Raises:
            ValueError: the shapes of the model's inputs are not known, and x is missing.

        Example:
            >>> import kerasish
            >>> from kerasish import layers
            >>> model = kerasish.Sequential([kerasish.Input((3,)), layers.Dense(2)], name="m")
            >>> model.explain(batch_size=4).formulas[0].flops
            56
        """
        program, kind = self.training_program, self._kind(step)
        batch = example_batch(program, x, y, sample_weight, batch_size)
        return explain(program, kind, batch, passes, time)

    def _kind(self, step: str | None) -> str:
        if step is None:
            return "predict" if self.training_program.objective is None else "train"
        if step not in ("train", "test", "predict"):
            raise ValueError(f"step: expected 'train', 'test' or 'predict', got {step!r}.")
        return step

    def plot_graph(self, path: str, step: str = "train") -> None:
        """Draw the compiled step's graph, as traced and as it runs, into an .svg or .dot file.

        Args:
            path: the file.
            step: "train", "test" or "predict"; it must have run once.
        """
        steps = self.training_program.compiled_steps(step)
        graphs = next((compiled.graphs() for _, compiled in steps), [])
        if not graphs:
            raise ValueError(
                f"{self.training_program.model.display_name()}: no compiled step {step!r} to draw; "
                "run fit, evaluate or predict on the static engine first."
            )
        write_picture(graphs, str(path))
