"""The loop of fit: data in, steps, validation, callbacks, states to resume from."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from kerasish import config
from kerasish.callbacks import CallbackList, Resume
from kerasish.callbacks.resume import find_resume
from kerasish.engine import diagnostics
from kerasish.engine.data import make_data, train_validation_split
from kerasish.engine.data.arrays import ArrayData
from kerasish.engine.data.data import Data
from kerasish.engine.data.py_dataset import PyDataset
from kerasish.engine.data.sequences import SequenceData
from kerasish.engine.training.arguments import (
    DataArguments,
    FitSettings,
    ValidationArguments,
    limited_steps,
    verbosity,
)
from kerasish.engine.training.blocks import Block, BlockRun
from kerasish.engine.training.evaluation import logs_of, run_rows, run_test
from kerasish.engine.training.facts import training_facts
from kerasish.engine.training.given import read_given
from kerasish.engine.training.interface import TrainedModel
from kerasish.engine.training.program import TrainingProgram
from kerasish.engine.training.step import numbers
from kerasish.engine.training.updates import Updates
from kerasish.ranks import current_group, current_sharding


class FitLoop:
    """One call of `fit`: see `Model.fit`.

    Args:
        program: what is trained.
        given: the training's data.
        validation: what it is validated on.
        settings: epochs, callbacks and other arguments of `fit`.
    """

    data: Data
    validation: Data | None
    callbacks: CallbackList
    seed: int  # of the order of the rows

    def __init__(
        self,
        program: TrainingProgram,
        given: DataArguments,
        validation: ValidationArguments,
        settings: FitSettings,
    ) -> None:
        self.program, self.model = program, program.model
        self.given, self.validates, self.settings = given, validation, settings
        self.resume: Resume | None = find_resume(settings.callbacks, settings.resume)
        self._block: Block | None = None  # memory for batches

    # --- before the first step --------------------------------------------------------------------

    @contextmanager
    def _running(self) -> Iterator[None]:
        """A context in which data, model and callbacks are ready; it releases them at its end."""
        resume = self.resume
        held = nullcontext() if resume is None else resume.held(self.model)
        with self.program.exclusive.take("fit", long=True), held:
            self.last_epoch = self.settings.checked_epochs()
            seed = None if resume is None else resume.open()
            self.seed = config.next_seed() if seed is None else seed
            if current_sharding() is not None:
                self.seed = current_group().broadcast(self.seed)
            self._prepare()
            try:
                yield
            except BaseException:
                self.callbacks.release()
                raise
            finally:
                self.program.example = None
                self.data.close()
                if self.validation is not None:
                    self.validation.close()

    def _prepare(self) -> None:
        """Make data and callbacks, build the model, check what can be checked."""
        given, validation = self.given, self.validates
        x, y, weights = read_given(self.model, given.x, given.y, given.sample_weight)
        held_out = validation.data
        is_split = bool(validation.split) and held_out is None
        if is_split:
            (x, y, weights), held_out = train_validation_split((x, y, weights), validation.split)
        data = make_data(
            x, y, weights, given.class_weight, batch_size=given.batch_size,
            steps_per_epoch=limited_steps(given.steps), shuffle=given.shuffle, seed=self.seed,
            training=True,
        )  # fmt: skip
        first = self.settings.initial_epoch
        is_cut = data.in_memory or isinstance(data, SequenceData)
        self.data = data = self.model.on_host(data)
        self.program.example = data.peek(first)
        self.program.prepare("train", *self.program.example)
        self.validation = None
        if held_out is not None:
            rows = validation.batch_size or (given.batch_size if is_cut else None)
            self.validation = self.model.on_host(
                _validation(self.model, held_out, rows, validation.steps)
            )
            self.program.prepare("test", *self.validation.peek())
            held = self.validation
            self.program.when_matched(lambda: diagnostics.check_all(self.model, held))
        split = (self.validation, validation.split) if is_split else None
        self.program.when_matched(lambda: check_training_data(self.program, data, first, split))
        if self.resume is not None:
            self.resume.compare(training_facts(self.program, data), self.last_epoch)
        self.callbacks = self._make_callbacks()
        if not self.program.is_built and self._needs_weights():
            self.program.build_on("train", *data.peek(first))

    def _needs_weights(self) -> bool:
        """Return whether something reads the model's weights before the first step."""
        callbacks = self.callbacks.callbacks
        return self.resume is not None or any(c.needs_weights for c in callbacks)

    def _make_callbacks(self) -> CallbackList:
        callbacks = self.settings.callbacks
        if not isinstance(callbacks, CallbackList):
            verbose = verbosity(self.settings.verbose)
            callbacks = CallbackList(
                callbacks, add_history=True, add_progbar=verbose != 0, model=self.model,
                verbose=verbose, epochs=self.last_epoch, steps=self.data.num_batches,
            )  # fmt: skip
        if self.resume is not None and self.resume not in callbacks.callbacks:
            callbacks.append(self.resume)
        return callbacks

    # --- the epochs -------------------------------------------------------------------------------

    def run(self) -> Any:
        """Run all epochs, with validation and callbacks; return the History."""
        with self._running():
            logs: dict[str, Any] = {}
            first, batch = self._begin()
            sharding = current_sharding()
            if sharding is not None:
                self.program.replicate(sharding)
            epoch = first - 1
            for epoch in () if self.program.stopping() else range(first, self.last_epoch):
                self.model.reset_metrics()
                self.callbacks.on_epoch_begin(epoch)
                trained = self._train(epoch, batch)
                if trained is None:
                    break
                if epoch == first:
                    diagnostics.check_loss_value(self.model, trained, _arrays_of(self.data))
                logs, batch = self._end_epoch(epoch, trained), 0
                if self.program.stopping():
                    break
            self._end(epoch, logs)
        return self.callbacks.history or getattr(self.model, "history", None)

    def _begin(self) -> tuple[int, int]:
        """Return the (epoch, batch) to begin at."""
        model = self.model
        model.stop_training = False
        model.initial_epoch = self.settings.initial_epoch  # a callback may change it
        self.callbacks.on_train_begin()
        if self.resume is None:
            return model.initial_epoch, 0
        return self.resume.begin(self.callbacks, self.data, self.seed, model.initial_epoch)

    def _end_epoch(self, epoch: int, logs: dict[str, Any]) -> dict[str, Any]:
        """Validate and call the callbacks; return the logs of the epoch."""
        if self.validation is not None and self.validates.is_due(epoch):
            results = run_test(self.program, self.validation, self.callbacks, epoch)
            logs = {**logs, **{f"val_{k}": v for k, v in results.items()}}
        self.callbacks.on_epoch_end(epoch, logs)
        if self.resume is not None:
            self.resume.epoch_ended(epoch, logs)
        return logs

    def _end(self, epoch: int, logs: dict[str, Any]) -> None:
        if self.resume is not None:
            logs = self.resume.end(epoch + 1, logs)
        self.program.require_optimizer().finalize_variable_values(self.model.trainable_variables)
        self.callbacks.on_train_end(logs)
        if self.resume is not None:
            self.resume.close()

    def _train(self, epoch: int, start: int) -> dict[str, Any] | None:
        """Train for an epoch; return its logs, or None if the data ended before it.

        Args:
            epoch: its number.
            start: batches of this epoch that were done before the training was interrupted.
        """
        program, data, callbacks, resume = self.program, self.data, self.callbacks, self.resume
        own_logs: Any = None
        if resume is not None:
            own_logs = resume.go_on(data) if start else None
            resume.epoch_begins(epoch)
        run = program.step("train")
        updates = Updates(callbacks, "train", program.steps_per_execution)
        run.note_data(data, epoch)
        began, program.input_wait = time.perf_counter(), (0.0, 0.0)
        waited = 0.0
        last, shown = run_rows(
            program, run, data, epoch, callbacks.on_train_batch_end, updates, resume, start
        )
        if not self.program.stopping():
            first = last + 1
            check = None if data.in_memory else diagnostics.batch_check(self.model)
            with data.epoch(epoch, start=first) as batches:
                blocks = BlockRun(
                    program, run, data, batches, (epoch, first, shown), updates,
                    callbacks.on_train_batch_end, resume, check, self._block,
                )  # fmt: skip
                blocks.run()
                last, shown, self._block = blocks.last, blocks.shown, blocks.block
                rest, first = () if self.model.stop_training else batches, last + 1
                for last, (x, y, weights) in enumerate(rest, first):
                    if check is not None:
                        check(x, y, weights)
                    if updates.begins(last):
                        callbacks.on_train_batch_begin(last)
                    own_logs = run(x, y, weights)
                    shown = updates.due(last)
                    if shown:
                        callbacks.on_train_batch_end(last, logs_of(program, own_logs))
                    if resume is not None and resume.due(1) and updates.ends(last):
                        done = None if own_logs is None else numbers(own_logs)
                        resume.save(epoch, last + 1, done)
                    if self.program.stopping():
                        break
                waited = batches.waited
        program.input_wait = waited, time.perf_counter() - began
        if last < 0:
            if data.exhausted:
                return None  # the data has warned
            raise ValueError("fit: the data gave no batch.")
        logs = logs_of(program, own_logs)
        if not shown and updates.some:
            callbacks.on_train_batch_end(updates.number(last), logs)
        return logs


def check_training_data(
    program: TrainingProgram, data: Data, epoch: int, split: tuple[Any, float] | None = None
) -> None:
    """Check a training's data, all of it or its first batch, for what is likely a mistake.

    Args:
        program: what is trained.
        data: the training's data.
        epoch: the first epoch.
        split: (the data kept for validation, the share) where `validation_split` cut it off.
    """
    x, y, weights = _arrays_of(data).values() if data.in_memory else data.peek(epoch)
    matches = program.matches(y, weights)
    metrics = [program.metrics_of(m.index) for m in matches]
    diagnostics.check_data(program.model, x, matches, metrics, weights)
    program.check_frozen()
    program.drop_stale_steps()
    if split is not None and data.in_memory and split[0].in_memory:
        kept = program.matches(split[0].pack(split[0].arrays)[1])
        for here, there in zip(matches, kept):
            diagnostics.check_split(program.model, here, there, split[1])


def _arrays_of(data: Data) -> dict[str, Any]:
    """Return x, y and sample_weight of data in memory; nothing of other data."""
    if not isinstance(data, ArrayData) or not data.in_memory:
        return {}
    return dict(zip(("x", "y", "sample_weight"), data.pack(data.arrays)))


def _validation(
    model: TrainedModel, given: PyDataset | tuple[Any, ...], rows: int | None, steps: int | None
) -> Data:
    x, y, weights = given, None, None
    if isinstance(given, (tuple, list)) and len(given) in (2, 3) and not hasattr(given, "shape"):
        x, y, weights = (*given, None)[:3]
    x, y, weights = read_given(model, model.with_structures(x), y, weights)
    return make_data(
        x, y, weights, batch_size=rows, steps_per_epoch=steps, shuffle=False, training=False
    )
