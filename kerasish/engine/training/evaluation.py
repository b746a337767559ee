"""The loops of evaluate and predict, and what they share with fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kerasish import tree
from kerasish.backends import CompiledStep
from kerasish.callbacks import CallbackList, Resume
from kerasish.devices import current, is_accelerated
from kerasish.engine import diagnostics
from kerasish.engine.data import make_data
from kerasish.engine.data.arrays import ArrayData
from kerasish.engine.data.data import Data
from kerasish.engine.data.sequences import SequenceData, holds_ragged
from kerasish.engine.training.arguments import DataArguments, limited_steps, verbosity
from kerasish.engine.training.given import read_given
from kerasish.engine.training.program import TrainingProgram
from kerasish.engine.training.sequence_outputs import sequence_outputs
from kerasish.engine.training.step import batch_size_of, numbers
from kerasish.engine.training.updates import SECONDS_BETWEEN_UPDATES, Updates
from kerasish.tensor import Tensor, to_numpy
from kerasish.typing import Array, Structure


def one_batch(
    x: Structure,
    y: Structure = None,
    sample_weight: Structure = None,
    class_weight: Mapping[Any, Any] | None = None,
) -> Data:
    """Return the data of arrays that are one batch, checked as fit checks them."""
    rows = batch_size_of(x if holds_ragged(x) else tree.map_structure(_arrayed, x))
    return make_data(x, y, sample_weight, class_weight, batch_size=max(rows, 1), shuffle=False)


def _arrayed(x: Array) -> Array:
    return x if hasattr(x, "shape") else np.asarray(x)


def lies_on_gpu(*given: Any) -> bool:
    """Return whether all leaves are tensors on the current GPU, with the same number of rows.

    A step takes them as they are; other data goes through `one_batch`.
    """
    if not is_accelerated() or current().kind == "cpu":
        return False
    here, leaves = str(current()), tree.flatten(given)
    there = all(type(x) is Tensor and x.device == here for x in leaves)
    return there and len({x.shape[:1] for x in leaves}) == 1


def own_array(x: Structure) -> Array:
    """Return a tensor or an array as a NumPy array that the caller may write to."""
    array = to_numpy(x)
    return array if array.flags.writeable else array.copy()


def logs_of(program: TrainingProgram, own: Any) -> dict[str, Any]:
    """Return a step's own logs, or else the metrics' results, as Python numbers."""
    return program.results() if own is None else numbers(own)


def run_rows(
    program: TrainingProgram,
    run: CompiledStep,
    data: Data,
    epoch: int,
    batch_end: Callable[..., None],
    updates: Updates,
    resume: Resume | None = None,
    start: int = 0,
) -> tuple[int, bool]:
    """Do the whole batches of an epoch natively, where engine, data and callbacks allow it.

    Args:
        program: what runs.
        run: its compiled step.
        data: the data.
        epoch: the number of the epoch, which decides the order of the rows.
        batch_end: called with (number of the batch, logs) where `updates` says so.
        updates: which batches the callbacks are called for.
        resume: saves states, or None.
        start: batches of the epoch that are done already.

    Returns:
        The number of the last batch done, or -1, and whether the callbacks were called for it.
    """
    if not isinstance(data, ArrayData) or not data.in_memory or updates.every:
        return start - 1, True
    order = data.order(epoch)[start * data.batch_size :]
    steps = run.over_rows(data.arrays, data.pack, order, data.batch_size)
    if steps is None:
        return start - 1, True
    shown = True
    while steps.left and not program.stopping():
        seconds, most = (SECONDS_BETWEEN_UPDATES, None) if resume is None else resume.ahead()
        done = steps.run(seconds, most)
        shown = updates.due(start + steps.done - 1)
        if shown:
            batch_end(start + steps.done - 1, program.results())
        if resume is not None and resume.due(done):
            resume.save(epoch, start + steps.done)
    return start + steps.done - 1, shown


def _data_and_callbacks(
    program: TrainingProgram, kind: str, given: DataArguments, verbose: int | str, callbacks: Any
) -> tuple[Data, CallbackList]:
    """Return the data, with the step of this kind prepared for it, and the callbacks."""
    x, y, weights = read_given(program.model, given.x, given.y, given.sample_weight)
    data = make_data(
        x, y, weights, batch_size=given.batch_size,
        steps_per_epoch=limited_steps(given.steps), shuffle=False, training=False,
    )  # fmt: skip
    data = program.model.on_host(data)
    program.prepare(kind, *data.peek())
    if kind == "test":
        diagnostics.check_all(program.model, data)
    if not isinstance(callbacks, CallbackList):
        shown = verbosity(verbose)
        callbacks = CallbackList(
            callbacks, add_progbar=shown != 0, model=program.model, verbose=shown, epochs=1,
            steps=data.num_batches,
        )  # fmt: skip
    return data, callbacks


def evaluate(
    program: TrainingProgram, given: DataArguments, verbose: Any = "auto", callbacks: Any = None
) -> dict[str, Any]:
    """Evaluate; see `Model.evaluate`."""
    data, callbacks = _data_and_callbacks(program, "test", given, verbose, callbacks)
    try:
        with program.exclusive.take("evaluate", long=True):
            return run_test(program, data, callbacks, 0)
    except BaseException:
        callbacks.release()
        raise
    finally:
        data.close()


def run_test(
    program: TrainingProgram, data: Data, callbacks: CallbackList, epoch: int
) -> dict[str, Any]:
    """Run the evaluation step over data; return the results of the metrics."""
    run = program.step("test")
    updates = Updates(callbacks, "test", program.steps_per_execution)
    program.model.reset_metrics()
    callbacks.on_test_begin()
    own_logs: Any = None
    scores, kept = program.host_scores(), []
    last, shown = -1, True
    if scores is None:
        last, shown = run_rows(program, run, data, 0, callbacks.on_test_batch_end, updates)
    first = last + 1
    check = None if data.in_memory else diagnostics.batch_check(program.model)
    with data.epoch(0, start=first) as batches:
        for last, (x, y, weights) in enumerate(batches, first):
            if check is not None:
                check(x, y, weights)
            if updates.begins(last):
                callbacks.on_test_batch_begin(last)
            own_logs = run(x, y, weights)
            if scores is not None:
                predictions = tree.map_structure(to_numpy, program.step("predict")(x))
                kept.append((y, predictions, weights))
            shown = updates.due(last)
            if shown:
                callbacks.on_test_batch_end(last, logs_of(program, own_logs))
    logs = logs_of(program, own_logs)
    if scores is not None:
        logs = {**logs, **scores.score(kept)}
    if not shown and updates.some:
        callbacks.on_test_batch_end(updates.number(last), logs)
    callbacks.on_test_end(logs)
    return logs


def predict(
    program: TrainingProgram, given: DataArguments, verbose: Any = "auto", callbacks: Any = None
) -> Structure:
    """Predict; see `Model.predict`."""
    data, callbacks = _data_and_callbacks(program, "predict", given, verbose, callbacks)
    run = program.step("predict")
    updates = Updates(callbacks, "predict", program.steps_per_execution)
    results: list[Any] = []
    structure: Any = None
    last, shown = -1, True
    try:
        callbacks.on_predict_begin()
        with data.epoch(0) as batches:
            for last, (batch, _, _) in enumerate(batches):
                if updates.begins(last):
                    callbacks.on_predict_batch_begin(last)
                structure = run(batch)
                results.append([to_numpy(t) for t in tree.flatten(structure)])
                shown = updates.due(last)
                if shown:
                    outputs = _outputs(updates, last, structure, results)
                    callbacks.on_predict_batch_end(last, outputs)
        if not shown and updates.some:
            outputs = _outputs(updates, last, structure, results)
            callbacks.on_predict_batch_end(updates.number(last), outputs)
        callbacks.on_predict_end()
    except BaseException:
        callbacks.release()
        raise
    finally:
        data.close()
    if isinstance(data, SequenceData):
        columns = sequence_outputs(data, program.model, list(zip(*results)))
        return tree.pack_sequence_as(structure, columns)
    columns = [
        np.concatenate(parts) if len(parts) > 1 else own_array(parts[0]) for parts in zip(*results)
    ]
    return tree.pack_sequence_as(structure, columns)


def _outputs(updates: Updates, last: int, structure: Structure, results: list[Any]) -> Any:
    """Return what callbacks get after an execution of predict: its batches' results together."""
    if not updates.every:
        return None
    if updates.per_call == 1:
        return {"outputs": structure}
    columns = zip(*results[-(last % updates.per_call + 1) :])
    return {"outputs": tree.pack_sequence_as(structure, [np.concatenate(c) for c in columns])}


def listed(logs: Mapping[str, Any], names: Sequence[str]) -> Any:
    """Return results as `evaluate` and `train_on_batch` list them; a single one is a number.

    The order is Keras's: those that bear a metric's name in the order of the metrics, then the
    others (an output's metrics, what a `train_step` names itself) by the alphabet.
    """
    first = [name for name in dict.fromkeys(names) if name in logs]
    values = [logs[name] for name in (*first, *sorted(logs.keys() - set(first)))]
    return values[0] if len(values) == 1 else values
