"""Runs a program on one engine, and keeps all that it leaves: outputs, gradients, weights, logs."""

from __future__ import annotations

import contextlib
import math
import pathlib
import pickle
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from loops_of_any_size import loops_of_any_size

import kerasish
from kerasish import backends, config
from kerasish.autodiff import gradients_of
from kerasish.backends.onednn import native
from kerasish.backends.static import engine as static_engine
from kerasish.backends.static.codegen import cost
from kerasish.backends.static.lowering import (
    branches,
    concurrent,
    early_updates,
    few_pixels,
    in_place,
    kernel_gradients,
    library,
    program_threads,
    recurrent,
    shared_products,
    winograd,
    winograd_gradients,
)
from kerasish.backends.static.lowering import loops as column_loops
from kerasish.backends.static.lowering.compiled_plan import CompiledPlans
from kerasish.backends.static.lowering.saved_plans import can_save, packed, unpacked
from kerasish.backends.static.runtime import blocks as row_blocks
from kerasish.graph.passes import (
    fuse_epilogues,
    late_readers,
    recompute,
    recurrences,
    thin_products,
)
from kerasish.tensor import first_value

from .draft import NAMESPACE
from .programs import Program, targets

epilogues = sys.modules[fuse_epilogues.__module__]


class Engine(NamedTuple):
    """Where a program runs."""

    name: str
    backend: str
    optimize: str = "fast_run"
    threads: int = 1
    onednn: bool = True
    native: bool = True
    branches: bool = False
    rows: bool = False  # in blocks of two or three rows
    saved: bool = False  # every plan is read from the bytes of its file
    loops: bool = False  # of the eager engine, for arrays of any size


EAGER = Engine("eager", "eager")
STATIC = (
    Engine("fast_run", "static"),
    Engine("none", "static", "none"),
    Engine("fast_compile", "static", "fast_compile"),
    Engine("two threads", "static", threads=2),
    Engine("branches", "static", threads=3, branches=True),
    Engine("rows", "static", threads=2, rows=True),
    Engine("saved plans", "static", threads=2, saved=True),
    Engine("without oneDNN", "static", onednn=False),
    Engine("interpreter", "static", native=False),
    Engine("eager loops", "eager", threads=2, loops=True),
)
ENGINES = {e.name: e for e in (EAGER, *STATIC)}
Found = dict[str, np.ndarray]


class Refusal(Exception):  # noqa: N818 - a result of a run, as numbers are
    """What an engine says no to, with the error it gave."""


@contextlib.contextmanager
def using(engine: Engine) -> Iterator[None]:
    """Let programs run on an engine in this block."""
    before = config.backend(), config.optimize(), config.dtype_policy()
    limited = (
        cost, concurrent, branches, program_threads, library, row_blocks, recurrent,
        shared_products, early_updates, in_place, recompute, first_value, kernel_gradients,
        column_loops, few_pixels, winograd, winograd_gradients, late_readers, epilogues,
    )  # fmt: skip
    limits = {m: dict(vars(m)) for m in limited}
    kept = native.available, static_engine.CompiledPlan
    block, thin = recurrences.BLOCK, (thin_products.SMALLEST, thin_products.WORTH)
    compiled_plans = static_engine.COMPILED_PLANS
    try:
        config.set_backend(engine.backend)
        config.set_optimize(engine.optimize)
        if engine.branches:
            # One thread for each unit, and all that can run at the same time does.
            cost.GRAIN, program_threads.SMALL_PROGRAM = 1e12, 0
            branches.WORTH, branches.MEETING = 1e-9, 0.0
        elif engine.rows:
            row_blocks.SMALL, row_blocks.FEWEST, row_blocks.MOST, row_blocks.BLOCKS = 0, 1, 3, 2
            recurrent.STEP_FLOPS, library.SMALL_FLOPS = 0, 0.0  # by packed loops, and recurrences
        elif engine.threads > 1:
            # As many threads as are set, however little there is to do; all products by oneDNN.
            cost.GRAIN, concurrent.WORTH_FLOPS = 1e-6, 0
            library.SMALL_FLOPS, library.NARROW_DEPTH = 0.0, 1
            shared_products.GRAIN, shared_products.LINE = 1e-6, 1
        if engine.threads > 1 or not engine.onednn:
            recurrences.BLOCK = 2  # sequences are short
            thin_products.SMALLEST, thin_products.WORTH = 1, 0.0
            for module in (early_updates, in_place, recompute, first_value):
                module.LARGE = 0  # type: ignore[attr-defined]
            late_readers.FAR = late_readers.LEAST = 0
            few_pixels.LEAST_FLOPS, few_pixels.LEAST_SAMPLES = 0, 1
            column_loops.OWN_CODE_FOR_COLUMNS = 0
            kernel_gradients.LEAST_FLOPS = kernel_gradients.LEAST_PIXELS = 0
            kernel_gradients.BALANCED = 0.0
            epilogues.WORTH = 0  # type: ignore[attr-defined]
            winograd.LEAST_FLOPS, winograd.GRAIN, winograd.MOST_PRODUCTS = 0, 1, math.inf
            winograd_gradients.LEAST_FLOPS = 0
            winograd_gradients.BALANCED, winograd_gradients.WORTH = 0.0, math.inf
        if not engine.onednn:
            native.available = lambda: "switched off by the fuzzer"  # type: ignore[assignment]
        if not engine.native:
            static_engine.CompiledPlan = _NoCode  # type: ignore[assignment,misc]
            static_engine.COMPILED_PLANS = CompiledPlans()
        if engine.saved:
            static_engine.COMPILED_PLANS = _ReadPlans()
        loops = loops_of_any_size() if engine.loops else contextlib.nullcontext()
        with loops, config.using_threads(engine.threads), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        config.set_backend(before[0])
        config.set_optimize(before[1])
        config.set_dtype_policy(before[2])
        for module, names in limits.items():
            vars(module).update(names)
        native.available, static_engine.CompiledPlan = kept  # type: ignore[misc,assignment]
        recurrences.BLOCK = block
        thin_products.SMALLEST, thin_products.WORTH = thin
        static_engine.COMPILED_PLANS = compiled_plans


class _ReadPlans(CompiledPlans):
    """Plans that are packed as a file and read again before each use."""

    def find(self, key: Any, make: Any) -> Any:
        plan = make()
        if not can_save(plan):
            return plan
        try:
            return unpacked(packed(plan))
        except pickle.PicklingError:
            return plan


class _NoCode(static_engine.CompiledPlan):
    """A compiled plan that cannot be made, as without llvmlite: NumPy runs each node."""

    def __init__(self, *_: Any) -> None:
        raise ImportError("the fuzzer lets NumPy interpret this")


def build(program: Program) -> Any:
    """Return the compiled model of a program."""
    space = dict(NAMESPACE)
    before = config.dtype_policy()
    try:
        exec(program.source(), space)
        return space["build"]()
    finally:
        config.set_dtype_policy(before)


def run(
    program: Program,
    engine: Engine,
    saved: bool = False,
    gradients: bool = True,
    whole: bool = True,
) -> Found:
    """Return all that a program gives on an engine, by name.

    Args:
        program: what to run.
        engine: where.
        saved: keep the model in a file after training, and continue from there.
        gradients: ask for every gradient of the first batch, too.
        whole: train as well, not only outputs and gradients.
    """
    with using(engine):
        model = build(program)
        data = program.inputs()
        result: Found = {}
        outputs = _predict(model, data, program.total) if whole else _called(model, data)
        if whole:
            _keep(result, "forward", outputs)
        ys = [
            targets(goal.targets, np.shape(y), program.seed + k)
            for k, (goal, y) in enumerate(zip(program.goals, outputs))
        ]
        if gradients or not whole:
            _keep(result, "gradients", _gradients(model, data, ys, program))
        if not whole:
            return result
        _train(model, data, ys, program, result)
        if saved:
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder) / "model.keras"
                model.save(path)
                loaded = kerasish.models.load_model(path)
            model = loaded
        _keep_state(result, model)
        _keep(result, "forward after", _predict(model, data, program.total))
        _train(model, data, ys, program, result, "more")
        _keep_state(result, model, "more ")
        return result


def _listed(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (list, tuple)) else [result]


def _one_or_all(many: list[Any]) -> Any:
    return many[0] if len(many) == 1 else many


def _keep(result: Found, name: str, arrays: Any) -> None:
    for k, a in enumerate(_listed(arrays)):
        if a is not None:
            result[f"{name}[{k}]"] = np.array(a)


def _predict(model: Any, data: list[np.ndarray], rows: int) -> list[np.ndarray]:
    return _listed(model.predict(_one_or_all(data), batch_size=rows, verbose=0))


def _called(model: Any, data: list[np.ndarray]) -> list[Any]:
    """Return what the model gives at once, op by op: only for the shapes of its outputs."""
    return _listed(model(_one_or_all(data)))


def _gradients(model: Any, data: list[np.ndarray], ys: list[Any], program: Program) -> Any:
    """Return outputs, loss and gradients by all weights, by a step that changes nothing."""
    variables = model.trainable_variables
    kept = [(v, v.numpy().copy()) for v in model.variables]

    def step(x: Any, y: Any) -> Any:
        outputs = model(x, training=True)
        loss = model.compute_loss(x=x, y=y, y_pred=outputs, training=True)
        return (*_listed(outputs), loss, *gradients_of(loss, variables))

    compiled = backends.get(config.backend()).compile(step)
    result = compiled(
        _one_or_all([a[: program.rows] for a in data]), _one_or_all([y[: program.rows] for y in ys])
    )
    for v, value in kept:
        v.assign(value)
    return result


def _train(
    model: Any, data: list[np.ndarray], ys: list[Any], program: Program, result: Found,
    name: str = "training",
) -> None:  # fmt: skip
    """Train three steps, two of whole batches and one of the rest, and keep the logs."""
    x, y = _one_or_all(data), _one_or_all(ys)
    more: dict[str, Any] = {}
    if program.weights == "sample" and len(ys) == 1:
        rng = np.random.default_rng(program.seed + 2)
        more["sample_weight"] = rng.integers(0, 3, program.total).astype("float32")
    classes = program.weights == "class" and [g.targets for g in program.goals] == ["classes"]
    if classes and ys[0].ndim == 1:
        more["class_weight"] = {k: 0.5 + k for k in range(int(ys[0].max()) + 1)}
    if program.by_fit:
        logs = model.fit(
            x, y, batch_size=program.rows, epochs=1, shuffle=False, verbose=0, **more
        ).history
        _keep(result, f"{name} logs", _in_order(logs))
        return
    for at in range(0, program.total, program.rows):
        part = slice(at, at + program.rows)
        given = dict(more)
        if "sample_weight" in given:
            given["sample_weight"] = given["sample_weight"][part]
        logs = model.train_on_batch(
            _one_or_all([a[part] for a in data]), _one_or_all([b[part] for b in ys]),
            return_dict=True, **given,
        )  # fmt: skip
        _keep(result, f"{name} logs {at}", _in_order(logs))


def _in_order(logs: dict[str, Any]) -> list[Any]:
    """Return the logs by name, with max_9 before max_10: names of two runs count on."""
    return [logs[k] for k in sorted(logs, key=natural)]


def natural(name: str) -> list[Any]:
    """Return a key that sorts names by the numbers in them: text and numbers take turns."""
    return [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", name)]


def _keep_state(result: Found, model: Any, name: str = "") -> None:
    for k, v in enumerate(model.variables):
        result[f"{name}weights[{k}] {_plain(v.name)}"] = v.numpy().copy()
    for k, v in enumerate(model.optimizer.variables):
        result[f"{name}optimizer[{k}]"] = v.numpy().copy()


def _plain(name: str) -> str:
    """Return a name without the numbers that tell layers of one class apart."""
    return re.sub(r"_\d+", "", name)
