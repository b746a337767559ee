"""NaNAutopsy: finds the origin of the first NaN or Inf of a training."""

from __future__ import annotations

import functools
import json
import math
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kerasish import random, tree
from kerasish.callbacks.callback import Callback, Logs
from kerasish.callbacks.message import say
from kerasish.callbacks.nan_tracer import Origin, find_origin
from kerasish.callbacks.state_checks import check_values, is_count
from kerasish.callbacks.values import plain
from kerasish.callbacks.wrapped_step import WrappedStep, innermost, layers_of, without
from kerasish.optimizers.division import gathered
from kerasish.ranks import writes_here
from kerasish.row_formulas import is_any_mapped
from kerasish.typing import Array, TensorLike

if TYPE_CHECKING:
    from kerasish.backends.backend import CompiledStep
    from kerasish.engine.data.data import Data
    from kerasish.engine.model.model import Model

_SHARE = 0.005  # the largest share of the training time that saving states may take
_SECONDS_BETWEEN_LOOKS = 0.05
# Batches are kept for a replay until they are this many times as large as a state; then a new
# state is saved.
_LEAST_BYTES, _TIMES_A_STATE = 32 << 20, 8


class Finding(NamedTuple):
    """The result of an autopsy.

    Attributes:
        origin: the origin of the first value that is not finite, found op by op; None if it did
            not appear again when the step was repeated.
        epoch, batch: those of the step, from 0.
        step: the number of the optimizer's updates before it.
        data_rows: the indices in the data, if known, of the rows `origin.rows` of the batch.
        file: the replay file.
    """

    origin: Origin | None
    epoch: int
    batch: int
    step: int
    data_rows: tuple[int, ...]
    file: str

    def __str__(self) -> str:
        where = f"epoch {self.epoch + 1}, batch {self.batch} (update {self.step})"
        return f"{where}: {_describe(self.origin, self.data_rows)}"


def _describe(origin: Origin | None, data_rows: tuple[int, ...]) -> str:
    if origin is None:
        return "loss or weights turned NaN or Inf, but op by op the step did not repeat it"
    at = f" in {origin.layer!r}" if origin.layer else ""
    line = f" at {origin.source}" if origin.source else ""
    if origin.direction == "data":
        text = f"the first {origin.kind} is in the data, {origin.layer}"
    elif origin.direction == "weights":
        text = f"the weight {origin.layer!r} held {origin.kind} before the step"
    elif origin.direction == "backward":
        text = f"the first {origin.kind} is in the gradient of {origin.op}{at}{line}"
    else:
        text = f"the first {origin.kind} comes from {origin.op}{at}{line} ({origin.direction})"
    text += f"; {origin.bad} of {math.prod(origin.shape)} values"
    if origin.rows:
        text += f", rows {_short(origin.rows)} of the batch"
    if data_rows:
        text += f" (rows {_short(data_rows)} of the data)"
    return text


def _short(rows: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, rows[:8]))
    return f"[{shown}, ... {len(rows)} in all]" if len(rows) > 8 else f"[{shown}]"


class NaNAutopsy(Callback):
    """Ends training at the first NaN or Inf, and reports the layer, op and rows that caused it.

    During training it checks the running loss a few times per second and saves a recent state of
    all variables, which takes about one percent of the time. When the loss (or, at the end, a
    weight) is no longer finite, it restores that state, finds the step, runs it op by op, prints
    the result and writes a file with which `NaNAutopsy.replay` repeats the step. The model then has
    the state before that step.

    Args:
        filepath: the replay file (.npz) with variables, batch and finding.
        raise_error: whether to raise a RuntimeError instead of stopping.

    Attributes:
        finding: the Finding; None as long as all values are finite.

    Example:
        >>> import kerasish as keras
        >>> import tempfile, os
        >>> dense = keras.layers.Dense(1, keras.ops.log, kernel_initializer="zeros", name="last")
        >>> model = keras.Sequential([keras.Input((1,)), dense])
        >>> model.compile("sgd", "mse")
        >>> autopsy = NaNAutopsy(os.path.join(tempfile.mkdtemp(), "autopsy.npz"))
        >>> data = np.ones((2, 1), "float32")
        >>> history = model.fit(data, data, shuffle=False, verbose=0, callbacks=[autopsy])
        Epoch 1, batch 0 (update 0): the first Inf comes from log in 'last' (forward); 2 of 2
        values, rows [0, 1] of the batch (rows [0, 1] of the data). Replay: ...
        >>> autopsy.finding.origin.op
        'log'
    """

    every_batch = False

    def __init__(
        self, filepath: str | os.PathLike[str] = "nan_autopsy.npz", raise_error: bool = False
    ) -> None:
        super().__init__()
        self.filepath, self.raise_error = os.fspath(filepath), raise_error
        self.finding: Finding | None = None
        self._forget()

    def _forget(self) -> None:
        self._epoch = 0
        self._since = time.thread_time()  # not wall time: other processes may slow the machine
        self._spent = self._last_cost = self._looked = 0.0
        self._state: dict[str, Any] | None = None  # type: ignore[assignment]
        self._batches: list[_Batches] = []
        self._kept_bytes = self._most_bytes = 0

    # --- hooks ------------------------------------------------------------------------------------

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._forget()
        self.finding = None

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self._epoch = epoch
        self._put_in()
        if self._state is None or self._may_keep():
            self._state = None  # the model may have other variables since
            self._keep()

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if self.finding is None and not _finite_losses(logs or {}):
            self._autopsy()

    def on_train_end(self, logs: Logs | None = None) -> None:
        if self.finding is None and not _finite_weights(self.model):
            self._autopsy()
        self._release()

    def _release(self) -> None:
        if self.model is not None:
            program = self.model.training_program
            program.replace_step("train", lambda step: without(step, _is_watched))
        self._state, self._batches = None, []

    def _put_in(self) -> None:
        """Wrap the training step that the loop calls, so the batches are known at no cost."""
        program = self.model.training_program
        run = program.step("train")
        if not any(map(_is_watched, layers_of(run))):
            watched: Any = _WatchedStep(run, self)
            program.replace_step("train", lambda step: watched if step is run else step)

    def _watched(self) -> _WatchedStep | None:
        if self.model is None:
            return None
        steps = self.model.training_program.compiled_steps("train")
        return next((s for _, step in steps for s in layers_of(step) if _is_watched(s)), None)

    def get_state(self) -> dict[str, Any]:
        """Return the epoch, and the batches of it that are done."""
        step = self._watched()
        done = step._count if step is not None and step._epoch == self._epoch else 0
        return {"epoch": self._epoch, "batches": done}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from there; states saved before belong to another state of the model."""
        check_values("the state of Autopsy", state, {"epoch": is_count, "batches": is_count})
        self._epoch = state["epoch"]
        step = self._watched()
        if step is not None:
            step._epoch, step._count = self._epoch, state["batches"]
            self._keep()

    # --- while all is well ------------------------------------------------------------------------

    def _may_keep(self) -> bool:
        elapsed = time.thread_time() - self._since
        return self._spent + self._last_cost <= _SHARE * elapsed

    def _keep(self) -> None:
        start = time.thread_time()
        self._state = _take_state(self.model, self._state)
        self._batches, self._kept_bytes = [], 0
        size = sum(value.nbytes for _, value in self._state["values"])
        self._most_bytes = max(_LEAST_BYTES, _TIMES_A_STATE * size)
        self._last_cost = time.thread_time() - start
        self._spent += self._last_cost

    def _after(self, done: _Batches, own_logs: dict[str, Any] | None) -> None:
        """Record the batches done; check the loss from time to time."""
        if self.finding is not None:
            return
        if not (self._batches and self._batches[-1].goes_on(done)):
            self._batches.append(done)
        self._kept_bytes += done.size
        full = self._kept_bytes > self._most_bytes
        now = time.perf_counter()
        if now - self._looked < _SECONDS_BETWEEN_LOOKS and not full:
            return
        self._looked = now
        if not _finite_loss(self.model, own_logs):
            self._autopsy()
        elif full or self._may_keep():
            self._keep()

    # --- when it is not ---------------------------------------------------------------------------

    def _autopsy(self) -> None:
        model, program = self.model, self.model.training_program
        run = innermost(program.step("train"))  # what replays must not be watched or timed
        batches = [(*one, many.epoch) for many in self._batches for one in many]
        if not batches or self._state is None:
            return
        place = self._find_step(run, batches)
        _give_state(model, self._state)
        for batch, *_ in batches[:place]:
            run(*batch)
        batch, number, rows, epoch = batches[place]
        origin = find_origin(model, program.step_function("train"), batch)
        data_rows = (
            () if origin is None or rows is None else tuple(int(rows[r]) for r in origin.rows)
        )
        updates = int(np.asarray(model.optimizer.iterations))
        self.finding = Finding(origin, epoch, number, updates, data_rows, self.filepath)
        with gathered(model, "NaNAutopsy"):
            if writes_here():
                _write(self.filepath, model, batch, self.finding)
        model.stop_training = True
        text = f"{self.finding}. Replay: {self.filepath}"
        if self.raise_error:
            raise RuntimeError(text)
        say(text[0].upper() + text[1:])

    def _find_step(self, run: CompiledStep, batches: list[Any]) -> int:
        """Return the index of the first step since the saved state with a NaN or Inf."""
        _give_state(self.model, self._state or {})
        for i, (batch, *_) in enumerate(batches):
            logs = run(*batch)
            if not (_finite_loss(self.model, logs) and _finite_weights(self.model)):
                return i
        return len(batches) - 1

    # --- replay -----------------------------------------------------------------------------------

    @staticmethod
    def replay(model: Model, filepath: str | os.PathLike[str]) -> Origin | None:
        """Load a replay file's state into `model` and run its step again, op by op.

        Args:
            model: built and compiled as the one that trained.

        Returns:
            The origin of the first value that is not finite; None if there is none, for example
            after a change of the code.
        """
        with np.load(filepath, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        head = json.loads(str(arrays["head"]))
        batch = tuple(_filled(part, arrays) for part in head["batch"])
        program = model.training_program
        program.prepare("train", *batch)
        variables = _variables(model, whole=True)
        shapes = [[list(v.shape), v.dtype] for v in variables]
        if shapes != head["variables"]:
            raise ValueError(
                f"NaNAutopsy.replay: {os.fspath(filepath)!r} is of a model with "
                f"{len(head['variables'])} variables of other shapes than this one: {len(shapes)}"
            )
        for i, v in enumerate(variables):
            v.assign(arrays[f"variable/{i}"])
        return find_origin(model, program.step_function("train"), batch)


def _is_watched(step: Any) -> bool:
    return isinstance(step, _WatchedStep)


class _Batches:
    """Batches that the training step was given, in order."""

    def __init__(self, epoch: int, first: int, items: Any, count: int, size: int) -> None:
        self.epoch, self.first, self.items, self.count = epoch, first, items, count
        self.size = size  # bytes that only the autopsy keeps alive

    def __iter__(self) -> Any:
        for number in range(self.first, self.first + self.count):
            batch, rows = self.items(number)
            yield batch, number, rows

    def goes_on(self, more: _Batches) -> bool:
        """Append the batches that follow, if they are from the same source."""
        if self.items is not more.items or more.first != self.first + self.count:
            return False
        self.count += more.count
        return True


class _EpochBatches:
    """The batches of an epoch over arrays in memory: number -> (batch, its rows)."""

    def __init__(self, data: Any, epoch: int) -> None:
        self._data, self._epoch = data, epoch

    @functools.cached_property
    def _order(self) -> Array:
        return self._data.order(self._epoch)

    def __call__(self, number: int) -> tuple[Any, ...]:
        data, size = self._data, self._data.batch_size
        rows = self._order[number * size : (number + 1) * size]
        return data.pack([a[rows] for a in data.arrays]), rows


class _WatchedStep(WrappedStep):
    """A compiled training step that reports its batches to the autopsy."""

    reads_blocks = False  # batches of data that is not in memory are kept one by one

    def __init__(self, inner: CompiledStep, autopsy: NaNAutopsy) -> None:
        super().__init__(inner)
        self._autopsy = autopsy
        self._epoch, self._count = -1, 0
        self._last: Any = None
        self._rows: _EpochBatches | None = None

    def note_data(self, data: Data, epoch: int) -> None:
        """Note the data that the batches of the epoch are taken from; the loop calls this."""
        self._rows = _EpochBatches(data, epoch) if data.in_memory else None

    def _next(self, count: int) -> int:
        """Return the number of the next batch of the epoch."""
        if self._epoch != self._autopsy._epoch:
            self._epoch, self._count = self._autopsy._epoch, 0
        first = self._count
        self._count += count
        return first

    def __call__(self, x: Array, y: Array, w: Any) -> dict[str, Any]:
        if self._rows is not None:  # nothing to keep: the rows can be read again
            logs = self.inner(x, y, w)
            first = self._next(1)
            self._autopsy._after(_Batches(self._epoch, first, self._rows, 1, 0), logs)
            return logs
        arrays = _arrays((x, y, w))
        batch = (x, y, w)
        if self._lends_again(arrays):
            batch = tree.map_structure(_copied, batch)
        logs = self.inner(x, y, w)
        size = sum(a.nbytes for a in arrays)
        first = self._next(1)
        done = _Batches(self._epoch, first, lambda number: (batch, None), 1, size)
        self._autopsy._after(done, logs)
        return logs

    def _lends_again(self, arrays: list[Any]) -> bool:
        """Whether the batch uses the memory of the last one, which its source then overwrites."""
        start = arrays[0].ctypes.data if arrays else 0
        again, self._last = self._last == start, start
        return again

    def over_rows(self, arrays: Any, *args: Any) -> _WatchedRows | None:
        """Return the run over rows, watched; None if there is none."""
        steps = None if is_any_mapped(arrays) else self.inner.over_rows(arrays, *args)
        return None if steps is None else _WatchedRows(steps, self, self._autopsy)


class _WatchedRows:
    """Steps over the rows of an epoch that report their progress to the autopsy."""

    def __init__(self, inner: Any, step: _WatchedStep, autopsy: NaNAutopsy) -> None:
        self.inner, self._step, self._autopsy = inner, step, autopsy

    def _noting(self, run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        before = self.inner.done
        result = run(*args, **kwargs)
        count = self.inner.done - before
        first = self._step._next(count)
        self._autopsy._after(_Batches(self._step._epoch, first, self._step._rows, count, 0), None)
        return result

    def __getattr__(self, name: str) -> Any:
        result = getattr(self.inner, name)
        return functools.partial(self._noting, result) if name.startswith("run") else result


def _arrays(batch: tuple[Any, ...]) -> list[Any]:
    """Return the NumPy arrays of a batch; the usual batch is three of them, or two and None."""
    plain = all(part is None or type(part) is np.ndarray for part in batch)
    leaves = batch if plain else tree.flatten(batch)
    return [leaf for leaf in leaves if isinstance(leaf, np.ndarray)]


def _copied(x: Array) -> Array:
    return x.copy() if isinstance(x, np.ndarray) else x


# --- states and files -----------------------------------------------------------------------------


def _variables(model: Model, whole: bool = False) -> list[Any]:
    """Return all variables that a training step may read or change; `whole` slots are a file's."""
    metrics = [v for m in model.metrics for v in m.variables]
    slots = model.optimizer.undivided_variables if whole else model.optimizer.variables
    return list({id(v): v for v in (*model.variables, *metrics, *slots)}.values())


def _take_state(model: Model, old: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return copies of all variables, in the memory of an old state if there is one."""
    result = len(model.optimizer.variables)  # more of them may appear with the first step
    if old is not None and old["drawn"] == result:
        kept = old["values"]
        for v, value in kept:
            np.copyto(value, v.numpy())
    else:
        kept = [(v, np.array(v.numpy())) for v in _variables(model)]
    return {"values": kept, "drawn": result, "shared": random.shared_state()}


def _give_state(model: Model, state: dict[str, Any]) -> None:
    for v, value in state["values"]:
        v.assign(value)
    random.set_shared_state(state["shared"])


def _finite(value: TensorLike) -> bool:
    return bool(np.isfinite(np.asarray(plain(value), "float64")).all())


def _finite_losses(logs: Logs) -> bool:
    """Whether the losses among the logs are finite (all values, if none is named a loss)."""
    named = [v for k, v in logs.items() if k == "loss" or k.endswith("_loss")]
    return all(_finite(v) for v in (named or logs.values()))


def _finite_loss(model: Model, own_logs: dict[str, Any] | None) -> bool:
    """Whether the epoch's running loss is finite; once NaN, it stays NaN."""
    if isinstance(own_logs, dict):
        return _finite_losses(own_logs)
    tracker = model.training_program.loss_tracker
    return tracker is None or _finite(tracker.total.numpy())


def _finite_weights(model: Model) -> bool:
    return all(np.isfinite(np.asarray(w.numpy(), "float32")).all() for w in model.weights)


def _write(path: str, model: Model, batch: tuple[Any, ...], finding: Finding) -> None:
    """Write the state before the step, its batch and the finding."""
    variables = _variables(model, whole=True)
    arrays = {f"variable/{i}": _plain_array(v.numpy()) for i, v in enumerate(variables)}
    skeleton = []
    for name, part in zip(("x", "y", "sample_weight"), batch):
        leaves = [] if part is None else tree.flatten(part)
        names = [f"data/{name}/{i}" for i in range(len(leaves))]
        arrays.update((n, np.asarray(a)) for n, a in zip(names, leaves))
        skeleton.append(None if part is None else tree.pack_sequence_as(part, names))
    origin = finding.origin
    head = {
        "format": "kerasish NaN autopsy 1",
        "batch": skeleton,
        "variables": [[list(v.shape), v.dtype] for v in variables],
        "paths": [v.path for v in variables],
        "finding": {**finding._asdict(), "origin": None if origin is None else origin._asdict()},
    }
    with open(path, "wb") as file:  # opened here, since NumPy would add .npz to the name
        np.savez(file, head=np.array(json.dumps(head)), **arrays)


def _plain_array(array: Array) -> Array:
    """Return an array with a dtype that NumPy's files support: float32 for bfloat16."""
    return array if array.dtype.kind != "V" else np.asarray(array, "float32")


def _filled(skeleton: dict[str, Any] | str | None, arrays: dict[str, Any]) -> Any:
    return None if skeleton is None else tree.map_structure(lambda name: arrays[name], skeleton)
