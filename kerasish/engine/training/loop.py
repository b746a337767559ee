"""The loops of fit, evaluate and predict: data in, steps, callbacks."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import numpy as np

from kerasish import config, tree
from kerasish.callbacks import CallbackList
from kerasish.callbacks.resume import find_resume
from kerasish.devices import current, is_accelerated
from kerasish.engine import diagnostics as mistakes
from kerasish.engine.data import make_data, train_validation_split
from kerasish.engine.functional.host_stage import prepare_data
from kerasish.engine.training.facts import training_facts
from kerasish.engine.training.step import batch_size_of, numbers
from kerasish.tensor import Tensor, to_numpy

_SECONDS_BETWEEN_UPDATES = 0.1


def one_batch(x: Any, y: Any = None, sample_weight: Any = None, class_weight: Any = None) -> Any:
    """Return the data of arrays that are one batch, checked as fit checks them."""
    rows = batch_size_of(tree.map_structure(_arrayed, x))
    return make_data(x, y, sample_weight, class_weight, batch_size=max(rows, 1), shuffle=False)


def lies_on_gpu(*given: Any) -> bool:
    """Return whether all leaves are tensors on the current GPU, of as many rows each.

    A step takes them as they are; whatever else it may be is for `one_batch` to check.
    """
    if not is_accelerated() or current().kind == "cpu":
        return False
    here, leaves = str(current()), tree.flatten(given)
    there = all(type(x) is Tensor and x.device == here for x in leaves)
    return there and len({x.shape[:1] for x in leaves}) == 1


def _arrayed(x: Any) -> Any:
    return x if hasattr(x, "shape") else np.asarray(x)


def _verbosity(verbose: Any) -> int:
    return 1 if verbose == "auto" else int(verbose)


def _seed() -> int:
    """Return the seed of this fit's shuffling."""
    return config.next_seed()


def _epochs(epochs: Any) -> int:
    if not isinstance(epochs, (int, np.integer)) or isinstance(epochs, bool) or epochs < 0:
        raise ValueError(f"fit: epochs is a number >= 0, got {epochs!r}.")
    cap = config.max_epochs()
    return int(epochs) if cap is None else min(int(epochs), cap)


def _steps(steps: Any) -> Any:
    cap = config.max_steps_per_epoch()
    return steps if cap is None else cap if steps is None else min(steps, cap)


class _Updates:
    """Says which batches the callbacks hear of, and by which numbers.

    Those that want every batch are called once per execution: `steps_per_execution` batches, whose
    first and last number they get; as in Keras the last one counts as if it were complete. Those
    content with a few updates per second are called when the next one is due.
    """

    def __init__(self, callbacks: Any, mode: str, steps: int) -> None:
        self.every = callbacks.wants_batches(mode)
        self.per_call = steps if self.every else 1
        self.some = self.every or callbacks.wants_updates(mode)
        self.last = time.perf_counter()

    def begins(self, batch: int) -> bool:
        """Return whether the callbacks are called before a batch."""
        return self.every and batch % self.per_call == 0

    def ends(self, batch: int) -> bool:
        """Return whether an execution ends with a batch."""
        return (batch + 1) % self.per_call == 0

    def number(self, batch: int) -> int:
        """Return the number of the last batch of an execution."""
        return batch - batch % self.per_call + self.per_call - 1

    def due(self, batch: int) -> bool:
        """Return whether the callbacks are called after a batch."""
        if self.every:
            return self.ends(batch)
        if not self.some:
            return False
        now = time.perf_counter()
        if now - self.last < _SECONDS_BETWEEN_UPDATES:
            return False
        self.last = now
        return True


def fit(model: Any, resume: Any, x: Any, y: Any, callbacks: Any, *rest: Any) -> Any:
    """Train; see `Model.fit`."""
    keeper = find_resume(callbacks, resume)
    held = contextlib.nullcontext() if keeper is None else keeper.held(model)
    with model._turn.take("fit", long=True), held:
        return _fit(model, keeper, x, y, callbacks, *rest)


def _fit(
    model: Any, keeper: Any, x: Any, y: Any, callbacks: Any, batch_size: Any, epochs: int,
    verbose: Any, validation_split: float, validation_data: Any, shuffle: Any, class_weight: Any,
    sample_weight: Any, initial_epoch: int, steps_per_epoch: Any, validation_steps: Any,
    validation_batch_size: Any, validation_freq: Any,
) -> Any:  # fmt: skip
    epochs = _epochs(epochs)
    seed = None if keeper is None else keeper.open()
    seed = _seed() if seed is None else seed
    split = validation_split and validation_data is None
    if split:
        (x, y, sample_weight), validation_data = train_validation_split(
            (x, y, sample_weight), validation_split
        )
    data = make_data(
        x, y, sample_weight, class_weight, batch_size=batch_size,
        steps_per_epoch=_steps(steps_per_epoch), shuffle=shuffle, seed=seed, training=True,
    )  # fmt: skip
    data = prepare_data(model, data)
    model._prepare("train", *data.peek(initial_epoch))
    validation = None
    if validation_data is not None:
        rows = validation_batch_size or (batch_size if data.in_memory else None)
        validation = prepare_data(model, _validation(validation_data, rows, validation_steps))
        model._prepare("test", *validation.peek())
        mistakes.check_all(model, validation)
    look(model, data, initial_epoch, (validation, validation_split) if split else None)
    if keeper is not None:
        keeper.compare(training_facts(model, data), epochs)
    calls = callbacks
    if not isinstance(callbacks, CallbackList):
        calls = CallbackList(
            callbacks, add_history=True, add_progbar=_verbosity(verbose) != 0, model=model,
            verbose=_verbosity(verbose), epochs=epochs, steps=data.num_batches,
        )  # fmt: skip
    if keeper is not None and keeper not in calls.callbacks:
        calls.append(keeper)
    model.stop_training = False
    model._initial_epoch = initial_epoch  # on_train_begin of a callback may set it anew
    try:
        calls.on_train_begin()
        first, batch = model._initial_epoch, 0
        if keeper is not None:
            first, batch = keeper.begin(calls, data, seed, first)
        logs: dict[str, Any] = {}
        epoch = first - 1
        for epoch in () if model.stop_training else range(first, epochs):
            model.reset_metrics()
            calls.on_epoch_begin(epoch)
            found = _train_epoch(model, data, epoch, calls, keeper, batch)
            if found is None:
                break
            logs, batch = found, 0
            if epoch == first:
                mistakes.check_loss_value(model, logs, _arrays_of(data))
            if validation is not None and _validates(epoch, validation_freq):
                found = _run_test(model, validation, calls, epoch)
                logs = {**logs, **{f"val_{k}": v for k, v in found.items()}}
            calls.on_epoch_end(epoch, logs)
            if keeper is not None:
                keeper.epoch_ended(epoch, logs)
            if model.stop_training:
                break
        if keeper is not None:
            logs = keeper.end(epoch + 1, logs)
        model.optimizer.finalize_variable_values(model.trainable_variables)
        calls.on_train_end(logs)
        if keeper is not None:
            keeper.close()
    except BaseException:
        calls.release()
        raise
    finally:
        data.close()
        if validation is not None:
            validation.close()
    return calls.history or getattr(model, "history", None)


def look(model: Any, data: Any, epoch: int, split: Any = None) -> None:
    """Look for what is hardly meant in a training's data, all of it or its first batch.

    Args:
        split: (the data kept for validation, the share) where `validation_split` cut it off.
    """
    x, y, weights = _arrays_of(data).values() if data.in_memory else data.peek(epoch)
    matches = model._matches(y, weights)
    found = model._compiled_metrics
    metrics = [found.of_output(m.index) if found is not None else [] for m in matches]
    mistakes.check_data(model, x, matches, metrics, weights)
    mistakes.check_frozen(model, model._flags)
    model._drop_stale_step()
    if split is not None and data.in_memory and split[0].in_memory:
        kept = model._matches(split[0].pack(split[0].arrays)[1])
        for here, there in zip(matches, kept):
            mistakes.check_split(model, here, there, split[1])


def _arrays_of(data: Any) -> dict[str, Any]:
    """Return x, y and sample_weight of data in memory; nothing of other data."""
    if not data.in_memory:
        return {}
    return dict(zip(("x", "y", "sample_weight"), data.pack(data.arrays)))


def _validation(given: Any, rows: Any, steps: Any) -> Any:
    x, y, weights = given, None, None
    if isinstance(given, (tuple, list)) and len(given) in (2, 3) and not hasattr(given, "shape"):
        x, y, weights = (*given, None)[:3]
    return make_data(
        x, y, weights, batch_size=rows, steps_per_epoch=steps, shuffle=False, training=False
    )


def _validates(epoch: int, frequency: Any) -> bool:
    if isinstance(frequency, int):
        if frequency < 1:
            raise ValueError(f"fit: validation_freq is a number >= 1, got {frequency}.")
        return (epoch + 1) % frequency == 0
    return epoch + 1 in list(frequency)


def _train_epoch(
    model: Any, data: Any, epoch: int, calls: Any, keeper: Any, start: int
) -> dict[str, Any] | None:
    """Train for an epoch; return its logs, or None if the data has run dry before it.

    Args:
        keeper: the `Resume` that saves states, or None.
        start: batches of this epoch that were done before the run was cut off.
    """
    own_logs: Any = None
    if keeper is not None:
        own_logs = keeper.go_on(data) if start else None
        keeper.epoch_begins(epoch)
    run = model._function("train")
    updates = _Updates(calls, "train", model.steps_per_execution)
    tell = calls.on_train_batch_end
    run.note_data(data, epoch)
    last, shown = _run_rows(model, run, data, epoch, tell, updates, keeper, start)
    if not model.stop_training:
        first = last + 1
        check = None if data.in_memory else mistakes.batch_check(model)
        with data.epoch(epoch, start=first) as batches:
            for last, (x, y, weights) in enumerate(batches, first):
                if check is not None:
                    check(x, y, weights)
                if updates.begins(last):
                    calls.on_train_batch_begin(last)
                own_logs = run(x, y, weights)
                shown = updates.due(last)
                if shown:
                    calls.on_train_batch_end(last, _logs(model, own_logs))
                if keeper is not None and keeper.due(1) and updates.ends(last):
                    keeper.save(epoch, last + 1, None if own_logs is None else numbers(own_logs))
                if model.stop_training:
                    break
    if last < 0:
        if data.exhausted:
            return None  # the data has said so in a warning
        raise ValueError("fit: the data gave no batch.")
    logs = _logs(model, own_logs)
    if not shown and updates.some:
        calls.on_train_batch_end(updates.number(last), logs)
    return logs


def _run_rows(
    model: Any, run: Any, data: Any, epoch: int, tell: Any, updates: _Updates,
    keeper: Any = None, start: int = 0,
) -> tuple[int, bool]:  # fmt: skip
    """Do the whole batches of an epoch natively, where engine, data and callbacks allow it.

    Returns (the number of the last batch done or -1, whether the callbacks know of it).
    """
    if not data.in_memory or updates.every:
        return start - 1, True
    order = data.order(epoch)[start * data.batch_size :]
    steps = run.over_rows(data.arrays, data.pack, order, data.batch_size)
    if steps is None:
        return start - 1, True
    shown = True
    while steps.left and not model.stop_training:
        seconds, most = (_SECONDS_BETWEEN_UPDATES, None) if keeper is None else keeper.ahead()
        done = steps.run(seconds, most)
        shown = updates.due(start + steps.done - 1)
        if shown:
            tell(start + steps.done - 1, model._results())
        if keeper is not None and keeper.due(done):
            keeper.save(epoch, start + steps.done)
    return start + steps.done - 1, shown


def _logs(model: Any, own: Any) -> dict[str, Any]:
    """Return a step's own logs, or else the metrics' results, as Python numbers."""
    if own is None:
        return model._results()  # type: ignore[no-any-return]
    return numbers(own)


def evaluate(
    model: Any, x: Any, y: Any, batch_size: Any, verbose: Any, sample_weight: Any, steps: Any,
    callbacks: Any, _data: Any = None,
) -> dict[str, Any]:  # fmt: skip
    """Evaluate; see `Model.evaluate`."""
    data = make_data(
        x, y, sample_weight, batch_size=batch_size, steps_per_epoch=_steps(steps),
        shuffle=False, training=False,
    )  # fmt: skip
    data = prepare_data(model, data)
    model._prepare("test", *data.peek())
    mistakes.check_all(model, data)
    calls = callbacks
    if not isinstance(callbacks, CallbackList):
        calls = CallbackList(
            callbacks, add_progbar=_verbosity(verbose) != 0, model=model,
            verbose=_verbosity(verbose), epochs=1, steps=data.num_batches,
        )  # fmt: skip
    try:
        with model._turn.take("evaluate", long=True):
            return _run_test(model, data, calls, 0)
    except BaseException:
        calls.release()
        raise
    finally:
        data.close()


def _run_test(model: Any, data: Any, calls: Any, epoch: int) -> dict[str, Any]:
    run = model._function("test")
    updates = _Updates(calls, "test", model.steps_per_execution)
    model.reset_metrics()
    calls.on_test_begin()
    own_logs: Any = None
    scoring, kept = model._scoring(), []
    last, shown = -1, True
    if scoring is None:
        last, shown = _run_rows(model, run, data, 0, calls.on_test_batch_end, updates)
    first = last + 1
    check = None if data.in_memory else mistakes.batch_check(model)
    with data.epoch(0, start=first) as batches:
        for last, (x, y, weights) in enumerate(batches, first):
            if check is not None:
                check(x, y, weights)
            if updates.begins(last):
                calls.on_test_batch_begin(last)
            own_logs = run(x, y, weights)
            if scoring is not None:
                predictions = tree.map_structure(to_numpy, model._function("predict")(x))
                kept.append((y, predictions, weights))
            shown = updates.due(last)
            if shown:
                calls.on_test_batch_end(last, _logs(model, own_logs))
    logs = _logs(model, own_logs)
    if scoring is not None:
        logs = {**logs, **scoring.score(kept)}
    if not shown and updates.some:
        calls.on_test_batch_end(updates.number(last), logs)
    calls.on_test_end(logs)
    return logs


def predict(model: Any, x: Any, batch_size: Any, verbose: Any, steps: Any, callbacks: Any) -> Any:
    """Predict; see `Model.predict`."""
    data = make_data(
        x, None, None, batch_size=batch_size, steps_per_epoch=_steps(steps), shuffle=False,
        training=False,
    )  # fmt: skip
    data = prepare_data(model, data)
    model._prepare("predict", data.peek()[0])
    calls = callbacks
    if not isinstance(callbacks, CallbackList):
        calls = CallbackList(
            callbacks, add_progbar=_verbosity(verbose) != 0, model=model,
            verbose=_verbosity(verbose), epochs=1, steps=data.num_batches,
        )  # fmt: skip
    run = model._function("predict")
    updates = _Updates(calls, "predict", model.steps_per_execution)
    found: list[Any] = []
    structure: Any = None
    last, shown = -1, True
    try:
        calls.on_predict_begin()
        with data.epoch(0) as batches:
            for last, (batch, _, _) in enumerate(batches):
                if updates.begins(last):
                    calls.on_predict_batch_begin(last)
                structure = run(batch)
                found.append([_own(t) for t in tree.flatten(structure)])
                shown = updates.due(last)
                if shown:
                    calls.on_predict_batch_end(last, _outputs(updates, last, structure, found))
        if not shown and updates.some:
            outputs = _outputs(updates, last, structure, found)
            calls.on_predict_batch_end(updates.number(last), outputs)
        calls.on_predict_end()
    except BaseException:
        calls.release()
        raise
    finally:
        data.close()
    columns = [np.concatenate(parts) if len(parts) > 1 else parts[0] for parts in zip(*found)]
    return tree.pack_sequence_as(structure, columns)


def _outputs(updates: _Updates, last: int, structure: Any, found: list[Any]) -> Any:
    """Return what callbacks get after an execution of predict: its batches' results together."""
    if not updates.every:
        return None
    if updates.per_call == 1:
        return {"outputs": structure}
    columns = zip(*found[-(last % updates.per_call + 1) :])
    return {"outputs": tree.pack_sequence_as(structure, [np.concatenate(c) for c in columns])}


def _own(t: Any) -> Any:
    """Return a result as a NumPy array that no later step writes into."""
    return to_numpy(t)
