"""Resume: an interrupted training continues exactly at its last saved state."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from kerasish import tree
from kerasish.callbacks.background import Background
from kerasish.callbacks.callback import Callback
from kerasish.callbacks.resume_point import ResumePoint
from kerasish.callbacks.state_checks import WRONG_KINDS, check_state
from kerasish.callbacks.training_state import (
    capture,
    put_back,
    random_state,
    set_random_state,
    state_variables,
)
from kerasish.errors import ResumeError
from kerasish.optimizers.division import gathered
from kerasish.ranks import divides_slots, from_writer, writes_here
from kerasish.tensor import using_scope
from kerasish.typing import Logs, PathLike

if TYPE_CHECKING:
    from kerasish.engine.data.data import Data
    from kerasish.engine.model.model import Model
    from kerasish.engine.training.interface import TrainedModel

_SLICE = 0.1  # seconds between two checks of the clock
_SLICE_OVERDUE = 0.02  # the same, while a state is due and waits for the previous one
_VERSION = 1


class Resume(Callback):
    """Saves the state of the training; the same program, run again, continues from there.

    The state is everything that the rest of the training depends on: weights, the optimizer's slots
    and step, metrics so far, the counters of all random sequences, the order of the rows and the
    position in it, and the state of the other callbacks (patience, best value, history, length of
    the log file). So a run that is killed at any moment and run again ends with the same bits as an
    uninterrupted run. A finished run, run again, gives the same result without training.

    Each state is a new file in `directory`, written under another name and renamed. The latest two
    files are kept, and a damaged one is skipped with a warning. The state is saved when `fit`
    starts, after each epoch and when `fit` ends, in addition to the times given by the arguments.

    Args:
        directory: a folder for this one `fit`; created if missing.
        every: the number of batches between saves; None: not by batches.
        seconds: the number of seconds between saves; None: not by time.
        background: whether a thread writes during training. It writes at most one state at a time;
            of the states that fall due meanwhile only the latest is saved. False saves exactly at
            the requested batches, and waits for the disk.

    Attributes:
        share: the largest share of the computing time for saving in the background, initially
            0.05. If steps are so short that saving would take more, states are skipped.

    The bits are the same on the same machine, engine and number of threads. With another engine or
    number of threads training continues with a warning, and results agree up to rounding.

    A generator cannot be positioned: its first batches are read again and skipped, with a warning.
    The same is true of other iterables. A `data.Dataset` is positioned. A `PyDataset` is asked
    for its batches by index, and its `on_epoch_begin` and `on_epoch_end` are called again. Worker
    threads that draw from shared random generators do so in any order, with or without a crash;
    `Dataset.random_map` does not. Your own callback is included if it defines `get_state` and
    `set_state`.

    These are compared before anything is restored:

    - Another model, optimizer, loss, metrics, number or shape of the data's rows, batch size, order
      (`shuffle`) or set of callbacks: `fit` raises a ResumeError, and nothing is changed.
    - Another learning rate: a warning; the one in the state is used. To change it on purpose use a
      LearningRateScheduler, or start in another folder with the weights of the first.
    - Rows of the same shapes with other numbers (a sample of them is compared), another engine or
      number of threads: a warning; the training continues with these.
    - More epochs than before: the training continues. Fewer than the state has begun: a warning;
      the model gets the saved state, nothing is trained, and the state is kept for a later run.

    While a training runs, no other training can use its folder, in this or any other process. The
    operating system releases the lock when the process ends, in any way.

    Raises:
        ValueError: directory is empty, `every` or `seconds` is not positive.
        FolderInUseError: by `fit`; another training is using the folder.
        ResumeError: by `fit`; the training cannot continue from the state in the folder.

    Example:
        >>> Resume("run-1", every=100).every
        100
    """

    share: float = 0.05

    def __init__(
        self,
        directory: str | os.PathLike[str],
        every: int | None = None,
        seconds: float | None = 10.0,
        background: bool = True,
    ) -> None:
        super().__init__()
        who = type(self).__name__
        if not os.fspath(directory):
            raise ValueError(f"{who}: expected the name of a folder, got ''.")
        if every is not None and (not isinstance(every, int) or every < 1):
            raise ValueError(f"{who}: every is a number of batches >= 1 or None, got {every!r}.")
        if seconds is not None and not seconds > 0:
            raise ValueError(f"{who}: seconds must be positive or None, got {seconds!r}.")
        self.directory = os.fspath(directory)
        self.every, self.seconds, self.background = every, seconds, bool(background)
        self._thread = Background("kerasish-resume")
        self._start_run()

    def _start_run(self) -> None:
        self._folder: Any = None
        self._past: dict[str, Any] | None = None
        self._calls: Any = None
        self._data: Data | None = None
        self._variables: list[Any] = []
        self._kept: dict[str, Any] = {}  # the part that is the same in all states of a run
        self._at_epoch: Any = None  # the random state at the start of the epoch, if needed
        self._batches = 0  # since the last save
        self._saved = time.perf_counter()
        self._rest_until = (0.0, 0.0)  # process time, wall-clock time: the first that is reached
        self._overdue = False
        self._epochs = 0  # asked of fit
        self._over = False  # whether nothing is left to train
        self._begun = False  # whether the state, if there is one, has been taken up
        self._random: Any = None  # that of before

    # --- the beginning: called by the loop of fit, in this order ---------------------------------

    @contextmanager
    def held(self, model: TrainedModel) -> Iterator[None]:
        """Lock the folder for one `fit`; the other methods are called inside this context.

        Raises:
            FolderInUseError: another training is using it.
        """
        self._start_run()
        if not writes_here():
            yield  # rank 0 holds the folder, and reads and writes it
            return
        self._folder = folder = cast("Model", model).state_folder(self.directory)
        folder.lock.take()
        self._random = random_state()
        try:
            yield
        except BaseException:
            if not self._begun:
                set_random_state(self._random)
            raise
        finally:
            folder.lock.drop()

    def open(self) -> int | None:
        """Read the latest complete state; return its seed of the data's order, None without one.

        Raises:
            ResumeError: there are states, but all are damaged.
        """
        who = type(self).__name__
        past, damages = from_writer(
            lambda: self._folder.read(partial(check_state, version=_VERSION))
        )
        if past is None and damages:
            raise ResumeError(
                f"{who}: no state in {self.directory!r} is whole: {'; '.join(damages)} "
                "Delete the folder to start over."
            )
        for damage in damages:
            warnings.warn(f"{who}: {damage} Took the one before.", stacklevel=4)
        if past is not None and past.get("version") != _VERSION:
            raise ResumeError(f"{who}: {self.directory!r} is of another version of kerasish.")
        self._past = past
        if past is None:
            self._kept["at_start"] = from_writer(random_state)
            return None
        if past["at_start"] is not None:  # the first read of the data draws the same numbers
            set_random_state(past["at_start"])
        return int(past["seed"])

    def compare(self, facts: dict[str, str], epochs: int) -> None:
        """Compare the description of the training that starts now with that in the state.

        Args:
            facts: name -> text: loss, metrics, optimizer, learning_rate, data ...
            epochs: the number of epochs that `fit` was asked for.

        Raises:
            ResumeError: it is another training.
        """
        self._epochs = epochs
        past = self._past
        then = facts if past is None else past.get("facts") or facts
        self._kept["facts"] = then
        who = type(self).__name__
        wrong = [n for n in sorted(then.keys() | facts.keys()) if then.get(n) != facts.get(n)]
        refused = [n for n in wrong if n not in ("learning_rate", "contents")]
        if refused:
            shown = "\n  ".join(
                f"{n}: {then.get(n)} in the state, {facts.get(n)} now" for n in refused
            )
            raise ResumeError(
                f"{who}: the state in {self.directory!r} is of another training:\n  {shown}\n"
                "Train as before, or name another folder."
            )
        if "learning_rate" in wrong:
            warnings.warn(
                f"{who}: the training in {self.directory!r} began with learning_rate "
                f"{then.get('learning_rate')}, {facts.get('learning_rate')} is given now. The "
                "state's holds; a LearningRateScheduler changes it.",
                stacklevel=5,
            )
        if "contents" in wrong:
            warnings.warn(
                f"{who}: the data have the shapes of those in {self.directory!r}, but other "
                "numbers. The training continues with them, not as it would have without the stop.",
                stacklevel=5,
            )

    def begin(self, calls: Callback, data: Data, seed: int, epoch: int) -> tuple[int, int]:
        """Take the callbacks after their on_train_begin; return the (epoch, batch) to start at."""
        self._calls, self._variables, self._begun = calls, state_variables(self.model), True
        self._data = data
        past, engine = self._past, self.model.training_program.engine_facts()
        if past is None:
            self._kept.update(version=_VERSION, first=epoch, seed=seed, engine=engine)
            if data.in_memory:
                self._kept["at_start"] = None
            else:
                self._at_epoch = self._kept["at_start"]
            self.save(epoch, 0)
            return epoch, 0
        same = {name: past[name] for name in ("version", "first", "seed", "at_start")}
        self._kept = {**same, "engine": engine, "facts": self._kept["facts"]}
        self._at_epoch = past["at_epoch"]
        if past["engine"] != engine:
            self._tell_engine(past["engine"], engine)
        self._over = past["epoch"] >= self._epochs
        if self._over:
            self._tell_over(past)
            self.go_on(None)
            return past["epoch"], 0
        if past["batch"] == 0:  # between two epochs; else `go_on` follows
            self.go_on(data)
        return past["epoch"], past["batch"]

    def _tell_over(self, past: dict[str, Any]) -> None:
        epoch, batch = past["epoch"], past["batch"]
        if (epoch, batch) == (self._epochs, 0):
            return  # the run had ended; it is the same one
        done = f"{epoch} epochs" + (f" and {batch} batches" if batch else "")
        warnings.warn(
            f"{type(self).__name__}: the training in {self.directory!r} has {done} done, more "
            f"than epochs={self._epochs}. Nothing is trained: the model is as it was saved there, "
            f"and continues from there with epochs={epoch + 1} or more.",
            stacklevel=5,
        )

    def _tell_engine(self, then: dict[str, Any], now: dict[str, Any]) -> None:
        said = [
            f"{e['name']}, {e['threads'] or 'any number of'} threads"
            + (f", {e['shards']} shards" if "shards" in e else "")
            for e in (then, now)
        ]
        warnings.warn(
            f"{type(self).__name__}: the state was saved on another engine, number of threads or "
            f"number of shards ({said[0]}; now {said[1]}). These add up in another order: the "
            "training continues, but not bit for bit.",
            stacklevel=4,
        )

    def go_on(self, data: Data | None) -> dict[str, Any]:
        """Restore the position of the data and the state; return the logs saved with them.

        Args:
            data: the training's data; None if nothing is left to train.

        Raises:
            ResumeError: the state does not fit the model, which is unchanged.
        """
        past = self._past
        assert past is not None
        own = state_variables(self.model, whole=False)
        values, random = list(capture(own).values()), random_state()
        try:
            if data is not None:
                at = (past["first"], past["epoch"], past["batch"])
                data.go_to(ResumePoint(*at, self._redraw_epoch, past.get("data")))
            self._put_back(past)
        except BaseException:
            with using_scope(None):
                for variable, value in zip(own, values):
                    variable.assign(value)
            set_random_state(random)
            raise
        self.model.stop_training = past["stopped"]
        self._saved = time.perf_counter()
        return past["logs"]

    def _put_back(self, past: dict[str, Any]) -> None:
        who = f"{type(self).__name__}: {self.directory!r}"
        try:
            put_back(self._variables, past["variables"], who)
            set_random_state(past["random"])
            self._calls.set_state(past["callbacks"])
        except ResumeError:
            raise
        except WRONG_KINDS as error:
            raise ResumeError(
                f"{who}: the state there cannot be taken up ({type(error).__name__}: {error}). "
                "Train as before, or name another folder."
            ) from error

    def _redraw_epoch(self) -> None:
        if self._at_epoch is not None:
            set_random_state(self._at_epoch)

    # --- while it runs ------------------------------------------------------------------------

    def epoch_begins(self, epoch: int) -> None:
        """Record the random state that the data of an epoch starts from."""
        if self._kept["at_start"] is not None and epoch != self._kept["first"]:
            self._at_epoch = random_state()

    def ahead(self) -> tuple[float, int | None]:
        """Return (seconds, batches) that may pass before the next call of `due`."""
        now = time.perf_counter()
        if self._overdue:
            return _SLICE_OVERDUE, None
        wait = _SLICE if self.seconds is None else self._saved + self.seconds - now
        most = None if self.every is None else self.every - self._batches
        return min(max(wait, 0.0), _SLICE), most

    def due(self, batches: int) -> bool:
        """Count batches done; return whether the state should be saved now.

        Raises:
            OSError: the previous state could not be written.
        """
        if divides_slots():  # all ranks save together, when the one that writes says so
            return from_writer(lambda: self._is_due(batches))
        return writes_here() and self._is_due(batches)

    def _is_due(self, batches: int) -> bool:
        self._thread.check()
        self._batches += batches
        now = time.perf_counter()
        if self.every is not None and self._batches >= self.every:
            self._overdue = True
        if self.seconds is not None and now - self._saved >= self.seconds:
            self._overdue = True
        if not self._overdue or not self.background:
            return self._overdue
        # A state must not refer to files that are still being written.
        computed, passed = self._rest_until
        rested = time.process_time() >= computed or now >= passed
        return rested and not self._thread.busy and not self._calls._is_working()

    def save(self, epoch: int, batch: int, logs: Logs | None = None) -> None:
        """Save the state, on the rank that writes; `epoch` and `batch` are the next to do."""
        with gathered(self.model, "the saving of a training state"):
            if writes_here():
                self._save(epoch, batch, logs)

    def _save(self, epoch: int, batch: int, logs: Logs | None) -> None:
        self._calls.flush_state()
        began = time.perf_counter()
        state = {
            **self._kept,
            "epoch": epoch,
            "batch": batch,
            "logs": logs,
            "stopped": bool(self.model.stop_training),
            "at_epoch": self._at_epoch,
            "random": random_state(),
            "callbacks": self._calls.get_state(),
            "data": None if self._data is None else self._data.state(),
            "variables": capture(self._variables),
        }
        self._batches, self._overdue = 0, False
        self._saved = time.perf_counter()
        if self.background:
            self._rest(self._saved - began)
            self._thread.start(partial(self._write_aside, state))
        else:
            self._write(state)

    def _rest(self, cost: float) -> None:
        """Save nothing until `cost` seconds are a small share of the time that was computed."""
        # Half of the share for what holds up the training, half for what the thread takes away.
        # A process that hardly computes (a GPU does, the data are slow) uses the clock.
        rest = 2 * cost / self.share
        computed, passed = time.process_time() + rest, time.perf_counter() + 10 * rest
        self._rest_until = max(self._rest_until[0], computed), max(self._rest_until[1], passed)

    def _write_aside(self, state: dict[str, Any]) -> None:
        began = time.thread_time()
        self._write(state)
        self._rest(time.thread_time() - began)

    def _write(self, state: dict[str, Any]) -> None:
        self._folder.write(state)

    def epoch_ended(self, epoch: int, logs: Logs) -> None:
        """Save the state after an epoch and its callbacks."""
        self._overdue = True
        if self.due(0):
            self.save(epoch + 1, 0, logs)

    def end(self, epoch: int, logs: Logs) -> dict[str, Any]:
        """Save the last state and wait until it is written; return the last epoch's logs."""
        self._thread.wait()
        past = self._past
        if past is not None and (self._over or (past["epoch"], past["batch"]) == (epoch, 0)):
            return past["logs"] or {}  # the run had ended already
        self.save(epoch, 0, logs)
        self._thread.wait()
        return logs

    def _holds_more(self) -> bool:
        """Return whether the state has more epochs than `fit` was asked for."""
        past = self._past
        place = None if past is None else (past["epoch"], past["batch"])
        return self._over and place != (self._epochs, 0)

    def close(self) -> None:
        """Called when all callbacks have ended."""

    def _release(self) -> None:
        self._thread.wait()

    def __getstate__(self) -> dict[str, Any]:
        # A copy belongs to no run.
        copied = super().__getstate__()
        of_a_run = dict.fromkeys(("_folder", "_past", "_calls", "_data", "_at_epoch"))
        return {**copied, **of_a_run, "_variables": [], "_kept": {}}


def find_resume(callbacks: Sequence[Any] | None, resume: PathLike | Resume | None) -> Resume | None:
    """Return the only `Resume` of fit's arguments: `resume` (a folder or object), or a callback."""
    many = getattr(callbacks, "callbacks", callbacks)
    result = [c for c in tree.flatten(many) if isinstance(c, Resume)] if many else []
    if isinstance(resume, Resume):
        result.append(resume)
    elif resume is not None:
        if not isinstance(resume, (str, os.PathLike)):
            raise ValueError(f"fit: resume is a folder or callbacks.Resume(...), got {resume!r}.")
        result.append(Resume(resume))
    if len(result) > 1:
        names = ", ".join(type(c).__name__ for c in result)
        raise ValueError(f"fit: one place to resume from, got {names}.")
    return result[0] if result else None
