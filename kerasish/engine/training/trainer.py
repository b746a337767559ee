"""Trainer: compile, fit, evaluate, predict, and the steps that may be overridden."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish import ops, registry, tree
from kerasish.engine import diagnostics
from kerasish.engine.data.batch import unpack_x_y_sample_weight
from kerasish.engine.data.data import Data
from kerasish.engine.functional.graph_parts import GraphParts
from kerasish.engine.functional.host_stage import HostStage
from kerasish.engine.training import evaluation, step
from kerasish.engine.training.arguments import DataArguments, FitSettings, ValidationArguments
from kerasish.engine.training.compiled import check_known
from kerasish.engine.training.inspection import InspectionMixin
from kerasish.engine.training.loop import FitLoop
from kerasish.engine.training.on_batch import OnBatchMixin
from kerasish.engine.training.program import CompileSettings, TrainingProgram, compile_names
from kerasish.losses.loss import Loss
from kerasish.metrics.metric import Metric
from kerasish.tensor import Tensor, no_gradient
from kerasish.tracebacks import (
    hide_frames,
    hides_frames,
    short_tracebacks,
    takes_no_more,
    unexpected_keywords,
)
from kerasish.typing import CallbackLike, LossLike, MetricLike, OptimizerLike, PathLike, Structure

if TYPE_CHECKING:
    from typing_extensions import Never

    from kerasish.backends.backend import CompiledStep
    from kerasish.callbacks.callback import Callback
    from kerasish.callbacks.history import History
    from kerasish.optimizers import Optimizer


def _of_program(name: str, doc: str) -> Any:
    """Return a property for an attribute of the model's training program."""

    def read(self: Trainer) -> Any:
        return getattr(self.training_program, name)

    def write(self: Trainer, value: Any) -> None:
        setattr(self.training_program, name, value)

    return property(read, write, doc=doc)


class Trainer(OnBatchMixin, InspectionMixin, GraphParts):
    """What a model can do beyond a layer: `Model` adds its graph, files and configs.

    Attributes:
        training_program: what `compile` made; see `TrainingProgram`.
        stop_training: a callback sets it to end `fit`.
        initial_epoch: the first epoch of `fit`.
    """

    training_program: TrainingProgram
    stop_training = False
    initial_epoch = 0

    optimizer: Optimizer = _of_program("optimizer", "The optimizer; None before `compile`.")
    loss: LossLike | Sequence[Any] | Mapping[str, Any] | None = _of_program(
        "loss", "The loss that `compile` was given."
    )
    run_eagerly: bool = _of_program("run_eagerly", "Whether steps run op by op.")
    jit_compile: bool | str = _of_program("jit_compile", "The argument of `compile`.")
    steps_per_execution: int = _of_program("steps_per_execution", "Batches per call of callbacks.")

    @property
    def compiled(self) -> bool:
        """Whether `compile` has been called."""
        return self.training_program.compiled

    def host_stage(self) -> HostStage | None:
        """Return the part of the model that runs on the host, before each step; None: no part."""
        return None

    def on_host(self, data: Data) -> Data:
        """Return data whose x has gone through the model's host stage, if it has one."""
        return data

    def with_structures(self, x: Structure) -> Structure:
        """Return inputs with lists of Python structures as columns, where the model reads such."""
        return x

    def overrides(self, method: str) -> bool:
        """Return whether a subclass overrides a method of `Trainer`.

        Args:
            method: "train_step", "test_step", "predict_step", "compute_metrics", ...
        """
        return getattr(type(self), method) is not getattr(Trainer, method)

    # --- compile ------------------------------------------------------------------------------

    @hides_frames
    def compile(
        self,
        optimizer: OptimizerLike | None = "rmsprop",
        loss: LossLike | Sequence[Any] | Mapping[str, Any] | None = None,
        loss_weights: float | Sequence[float] | Mapping[str, float] | None = None,
        metrics: MetricLike | Sequence[Any] | Mapping[str, Any] | None = None,
        weighted_metrics: MetricLike | Sequence[Any] | Mapping[str, Any] | None = None,
        run_eagerly: bool = False,
        steps_per_execution: int = 1,
        jit_compile: str | bool = "auto",
        auto_scale_loss: bool = True,
    ) -> None:
        """Set what training minimizes, how, and what it reports.

        Args:
            optimizer: name, config or object.
            loss: name, config, function or object; a list or dict of them for several outputs.
            loss_weights: factors of the losses of several outputs.
            metrics: a list of metrics (names, functions, objects); lists or a dict by output.
            weighted_metrics: metrics that sample weights apply to.
            run_eagerly: run steps op by op, so that print and pdb work inside them.
            steps_per_execution: callbacks that want batches are called once per this number of
                batches, with the numbers of the first and the last; the static engine runs as
                many steps at once as no callback needs to see.
            jit_compile: accepted; False asks for the eager engine.
            auto_scale_loss: with the policy "mixed_float16", scale the loss dynamically.
        """
        settings = CompileSettings(
            optimizer, loss, loss_weights, metrics, weighted_metrics, run_eagerly,
            steps_per_execution, jit_compile,
        )  # fmt: skip
        program = TrainingProgram(self, settings, auto_scale_loss)
        program.exclusive = self.training_program.exclusive
        self.training_program, self.stop_training = program, False

    def get_compile_config(self) -> dict[str, Any] | None:
        """Return what `compile` was given as a config, the optimizer as it is now."""
        return self.training_program.config()

    @hides_frames
    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compile with what `get_compile_config` returned."""
        if not config:
            return
        if self.overrides("compile"):
            diagnostics.warn_once(
                self,
                "it was not compiled on loading, because it has its own compile(). Call "
                "compile(), or define get_compile_config() and compile_from_config(config) too.",
            )
            return
        if config.get("optimizer") is None and config.get("loss") is None:
            return
        given = {k: registry.deserialize_keras_object(v) for k, v in config.items()}
        for loss in tree.flatten(given.get("loss")):
            if isinstance(loss, Loss):
                loss.bind(self)
        check_known(given.get("loss"), (given.get("metrics"), given.get("weighted_metrics")))
        names = compile_names()
        self.compile(**{k: v for k, v in given.items() if k in names})
        if self.built and self.optimizer is not None:
            self.optimizer.build(self.trainable_variables)

    # --- metrics --------------------------------------------------------------------------------

    @property
    def metrics(self) -> list[Metric]:
        """The metrics of `compile` and those held as attributes."""
        compiled = self.training_program.metrics()
        known = {id(m) for m in compiled}
        return [*compiled, *(m for m in super().metrics if id(m) not in known)]

    @property
    def metrics_names(self) -> list[str]:
        """The names of the metrics, the loss first."""
        return [m.name for m in self.metrics]

    def reset_metrics(self) -> None:
        """Reset the state of all metrics."""
        for metric in self.metrics:
            metric.reset_state()

    def get_metrics_result(self) -> dict[str, Any]:
        """Return name -> number of all metrics."""
        scores = self.training_program.scores
        of_outputs = set() if scores is None else {id(m) for m in scores.metrics}
        results: dict[str, Any] = {}
        for metric in self.metrics:
            if id(metric) not in of_outputs:
                value = metric.result()
                results.update(value if isinstance(value, dict) else {metric.name: value})
        return results if scores is None else {**results, **scores.result()}

    def compute_metrics(
        self, x: Structure, y: Structure, y_pred: Structure, sample_weight: Structure = None
    ) -> Structure:
        """Update the metrics of `compile` with a batch; return all results. May be overridden."""
        scores = self.training_program.scores
        with no_gradient():
            if scores is not None and y is not None:
                scores.update_state(y, y_pred, sample_weight)
            return self.get_metrics_result()

    # --- loss and steps ---------------------------------------------------------------------------

    def compute_loss(
        self,
        x: Structure = None,
        y: Structure = None,
        y_pred: Structure = None,
        sample_weight: Structure = None,
        training: bool = True,
    ) -> Tensor:
        """Return the number that training minimizes; may be overridden."""
        program, parts = self.training_program, []
        if program.objective is not None:
            if y is None:
                raise ValueError(
                    f"{self.display_name()}: compile() named a loss, but the data has no targets y."
                )
            parts.append(program.objective(y, y_pred, sample_weight))
        penalties = program.penalties()
        parts.extend(ops.cast(loss, "float32") for loss in (*self._losses, *penalties))
        if not parts:
            raise ValueError(
                f"{self.display_name()}: there is no loss to minimize; give compile(loss=...), or "
                "call add_loss() in a layer."
            )
        return step.total(parts)

    def train_step(self, data: Structure) -> Structure:
        """Do one training step on a batch and return the metrics' results; may be overridden."""
        x, y, sample_weight = unpack_x_y_sample_weight(data)
        step.train(self.training_program, self.trainable_variables, x, y, sample_weight)
        return self.get_metrics_result()

    def test_step(self, data: Structure) -> Structure:
        """Do one evaluation step on a batch and return the metrics' results; may be overridden."""
        x, y, sample_weight = unpack_x_y_sample_weight(data)
        with no_gradient():
            step.test(self.training_program, x, y, sample_weight)
            return self.get_metrics_result()

    def predict_step(self, data: Structure) -> Structure:
        """Return the model's result for a batch; may be overridden."""
        x, _, _ = unpack_x_y_sample_weight(data)
        return self(x, training=False)

    def make_train_function(self, force: bool = False) -> CompiledStep:
        """Return the compiled training step; with `force` it is compiled again."""
        return self._step("train", force)

    def make_test_function(self, force: bool = False) -> CompiledStep:
        """Return the compiled evaluation step; with `force` it is compiled again."""
        return self._step("test", force)

    def make_predict_function(self, force: bool = False) -> CompiledStep:
        """Return the compiled prediction step; with `force` it is compiled again."""
        return self._step("predict", force)

    def _step(self, kind: str, force: bool) -> CompiledStep:
        if force:
            self.training_program.drop_steps()
        return self.training_program.step(kind)

    # --- fit, evaluate, predict -------------------------------------------------------------------

    @takes_no_more
    def fit(
        self,
        x: Structure = None,
        y: Structure = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: int | str = "auto",
        callbacks: CallbackLike | Iterable[CallbackLike] | None = None,
        validation_split: float = 0.0,
        validation_data: Structure = None,
        shuffle: bool = True,
        class_weight: Mapping[Any, Any] | None = None,
        sample_weight: Structure = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        validation_batch_size: int | None = None,
        validation_freq: int = 1,
        *,
        resume: Callback | PathLike | None = None,
        **unexpected: Never,
    ) -> History:
        """Train for `epochs` passes over the data; return a History.

        Args:
            x, y: arrays (or lists or dicts of them), or tables, whose columns become inputs by
                name; or only x: a `data.Dataset`, a generator, a PyDataset, or any iterable of
                batches (x,), (x, y) or (x, y, sample_weight).
            batch_size: rows per step; None: 32.
            verbose: 0 silent, 1 a progress bar, 2 one line per epoch, "auto".
            validation_split: the last share of the rows, kept out of training, 0 <= share < 1.
            validation_data: (x, y) or (x, y, sample_weight), or any data that x may be.
            shuffle: whether the rows are in a new order each epoch.
            class_weight: class -> factor of its rows' loss.
            sample_weight: one factor per row.
            initial_epoch: the epoch to start from, when a training continues.
            steps_per_epoch: steps of an epoch; None: all the data.
            validation_freq: validate every this number of epochs, or after the epochs listed.
            resume: a folder, or `callbacks.Resume(folder, ...)`, in which the state of the training
                is kept: after a crash the same program run again continues there, bit for bit.
                `callbacks.Resume` says what else may differ (more epochs, the learning rate) and
                what is refused (another loss, batch size, data).
        """
        with short_tracebacks:  # not a wrapper: the way to a kernel has no frame to spare
            if unexpected:
                raise unexpected_keywords(Trainer.fit, f"{type(self).__name__}.fit", unexpected)
            self.training_program.require_compiled("fit")
            x = self.with_structures(x)
            data = DataArguments(
                x, y, sample_weight, class_weight, batch_size, shuffle, steps_per_epoch
            )
            validation = ValidationArguments(
                validation_split, validation_data, validation_steps, validation_batch_size,
                validation_freq,
            )  # fmt: skip
            settings = FitSettings(epochs, initial_epoch, verbose, callbacks, resume)
            loop = FitLoop(self.training_program, data, validation, settings)
            return loop.run()

    @hides_frames
    def evaluate(
        self,
        x: Structure = None,
        y: Structure = None,
        batch_size: int | None = None,
        verbose: int | str = "auto",
        sample_weight: Structure = None,
        steps: int | None = None,
        callbacks: CallbackLike | Iterable[CallbackLike] | None = None,
        return_dict: bool = False,
        *,
        _use_cached_eval_dataset: bool = False,
    ) -> Structure:
        """Return the loss and metrics on the data: a number, a list, or a dict (`return_dict`)."""
        self.training_program.require_compiled("evaluate")
        x = self.with_structures(x)
        data = DataArguments(x, y, sample_weight, batch_size=batch_size, steps=steps)
        logs = evaluation.evaluate(self.training_program, data, verbose, callbacks)
        return logs if return_dict else evaluation.listed(logs, self.metrics_names)

    @takes_no_more
    def predict(
        self,
        x: Structure,
        batch_size: int | None = None,
        verbose: int | str = "auto",
        steps: int | None = None,
        callbacks: CallbackLike | Iterable[CallbackLike] | None = None,
        **unexpected: Never,
    ) -> Structure:
        """Return the model's results for all rows of the data, as NumPy arrays."""
        try:  # not a wrapper: a call of a small model takes a few microseconds in all
            if unexpected:
                name = f"{type(self).__name__}.predict"
                raise unexpected_keywords(Trainer.predict, name, unexpected)
            plain = verbose == 0 and callbacks is None and steps is None and type(x) is np.ndarray
            if plain and x.ndim and 0 < x.shape[0] <= (batch_size or 32) and x.dtype.kind in "fiub":
                return self._predict_batch(x)  # one small array: nothing to set up
            data = DataArguments(self.with_structures(x), batch_size=batch_size, steps=steps)
            return evaluation.predict(self.training_program, data, verbose, callbacks)
        except Exception as error:
            hide_frames(error)
            raise
