"""TrainingProgram: optimizer, losses, metrics and compiled steps of a model."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from kerasish import optimizers, registry
from kerasish.backends import Backend, CompiledStep
from kerasish.backends import choose as choose_backend
from kerasish.changes import note_change
from kerasish.engine import diagnostics
from kerasish.engine.data.batch import pack_x_y_sample_weight as pack
from kerasish.engine.data.parts import assemble
from kerasish.engine.training import sharded, step
from kerasish.engine.training.busy import ExclusiveUse
from kerasish.engine.training.compiled import CompiledLoss, CompiledMetrics
from kerasish.engine.training.interface import TrainedModel
from kerasish.engine.training.preparing import PreparationMixin
from kerasish.engine.training.probing import Probe
from kerasish.engine.training.sharded_step import ShardedStep
from kerasish.metrics import Mean
from kerasish.metrics.metric import Metric
from kerasish.optimizers import LossScaleOptimizer
from kerasish.optimizers.optimizer import Optimizer
from kerasish.ranks import Sharding, current_sharding
from kerasish.tensor import Variable
from kerasish.typing import Array, Structure

if TYPE_CHECKING:
    from kerasish.engine.model.model import Model


ReadyCall = Callable[[Array], Array | None]
MOST_READY = 32  # shapes for which ready calls are kept


class CompileSettings(NamedTuple):
    """The arguments of `Model.compile`, as given; see there."""

    optimizer: Any = "rmsprop"
    loss: Any = None
    loss_weights: Any = None
    metrics: Any = None
    weighted_metrics: Any = None
    run_eagerly: bool = False
    steps_per_execution: int = 1
    jit_compile: Any = "auto"


class TrainingProgram(PreparationMixin):
    """Owns what a model needs for training: optimizer, objective, metrics, compiled steps.

    `Model.compile` makes one; `model.training_program` is it. A model that is not compiled has one
    without optimizer and losses, which predicts. The loop of `fit`, callbacks, resume and
    diagnostics use its public methods.

    Args:
        model: the model that is trained.
        settings: the arguments of `compile`; None: the model is not compiled.
        auto_scale_loss: whether losses of the dtype policy "mixed_float16" are scaled.

    Attributes:
        optimizer: the optimizer, or None.
        objective: the losses of `compile`, matched to the outputs; None without a loss.
        scores: the metrics of `compile`, matched to the outputs; None without metrics.
        loss_tracker: the running mean of the loss; None if the model is not compiled.
        ready_calls: shape of an array -> what predicts it at little cost, or None, and the mark
            (`Changes.mark`) under which the step was asked for that.
        exclusive: which thread may change the model's variables.
        input_wait: of the last epoch of training: the seconds that it waited for batches, and those
            that it took, without validation.

    Example:
        >>> import kerasish
        >>> model = kerasish.Sequential([kerasish.Input((2,)), kerasish.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> program = model.training_program
        >>> program.compiled, program.loss_tracker.name
        (True, 'loss')
    """

    def __init__(
        self,
        model: TrainedModel,
        settings: CompileSettings | None = None,
        auto_scale_loss: bool = True,
    ) -> None:
        self.model, self.settings = cast("Model", model), settings
        self.optimizer: Optimizer | None = None
        self.loss: Any = None
        self.objective: CompiledLoss | None = None
        self.scores: CompiledMetrics | None = None
        self.loss_tracker: Mean | None = None
        self.run_eagerly = False
        self.jit_compile = "auto"
        self.steps_per_execution = 1
        self.exclusive = ExclusiveUse()
        self.input_wait = (0.0, 0.0)
        self.example: tuple[Any, ...] | None = None
        self._steps: dict[Any, CompiledStep] = {}
        self.ready_calls: dict[tuple[int, ...], tuple[ReadyCall | None, object]] = {}
        self._prepared: set[str] = set()
        self._regularized: list[Any] | None = None
        self._trained: set[int] = set()
        self._at_start: list[Variable] = []  # the variables that training changes
        self._known: dict[int, Variable] = {}  # all variables that were there then, by id
        self._batch_check: Callable[[Any, Any, Any], None] | None = None
        self._by_values = False  # whether Python in the model reads numbers
        self._waiting: list[Callable[[], None]] = []
        self._trainable_flags = diagnostics.Flags()
        if settings is not None:
            self._compile(settings, auto_scale_loss)

    def _compile(self, settings: CompileSettings, auto_scale_loss: bool) -> None:
        optimizer = optimizers.get(settings.optimizer)
        scales = auto_scale_loss and self.model.compute_dtype == "float16"
        if scales and not isinstance(optimizer, LossScaleOptimizer):
            optimizer = LossScaleOptimizer(optimizer)
        names = self.model.output_names
        if settings.loss is not None:
            self.objective = CompiledLoss(settings.loss, settings.loss_weights, names)
        if settings.metrics is not None or settings.weighted_metrics is not None:
            self.scores = CompiledMetrics(settings.metrics, settings.weighted_metrics, names)
        steps = settings.steps_per_execution
        if not isinstance(steps, int) or steps < 1:
            raise ValueError(f"compile: steps_per_execution is a number >= 1, got {steps!r}.")
        self.optimizer, self.loss = optimizer, settings.loss
        self.run_eagerly, self.jit_compile = bool(settings.run_eagerly), settings.jit_compile
        self.steps_per_execution = steps
        self.loss_tracker = Mean(name="loss")
        self._trainable_flags = diagnostics.flags_of(self.model)

    @property
    def run_eagerly(self) -> bool:
        """Whether steps run op by op."""
        return self._run_eagerly

    @run_eagerly.setter
    def run_eagerly(self, value: Any) -> None:
        self._run_eagerly = bool(value)
        note_change()

    @property
    def jit_compile(self) -> Any:
        """The argument of `compile`; False: steps run op by op."""
        return self._jit_compile

    @jit_compile.setter
    def jit_compile(self, value: Any) -> None:
        self._jit_compile = value
        note_change()

    def __getstate__(self) -> dict[str, Any]:
        """Return what pickles and copies hold: no compiled steps, which are compiled on use."""
        empty: dict[str, Any] = {
            "_steps": {}, "_prepared": set(), "_regularized": None, "_batch_check": None,
            "_waiting": [], "example": None, "ready_calls": {},
        }  # fmt: skip
        return {**self.__dict__, **empty}

    @property
    def compiled(self) -> bool:
        """Whether the model has been compiled."""
        return self.settings is not None

    def require_compiled(self, method: str) -> None:
        """Raise if the model is not compiled.

        Args:
            method: the method that needs it, for the message.
        """
        if not self.compiled:
            raise ValueError(
                f"{self.model.display_name()}: call compile(optimizer=..., loss=...) before "
                f"{method}()."
            )

    def require_optimizer(self) -> Optimizer:
        """Return the optimizer; raise if there is none."""
        if self.optimizer is None:
            raise ValueError(
                f"{self.model.display_name()}: training needs an optimizer, got None. Call "
                'compile(optimizer="adam", loss=...).'
            )
        return self.optimizer

    # --- config -----------------------------------------------------------------------------------

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `compile` by name, the optimizer as it is now."""
        if self.settings is None:
            return {"optimizer": self.optimizer}
        given = {name: getattr(self.settings, name) for name in compile_names()}
        return {**given, "optimizer": self.optimizer}

    def config(self) -> dict[str, Any] | None:
        """Return the arguments of `compile` as a config, the optimizer as it is now."""
        return registry.serialize_keras_object(self.arguments()) if self.compiled else None

    def copy_arguments(self) -> dict[str, Any]:
        """Return arguments for `compile` of an equal model: new optimizer, losses and metrics."""
        given = {k: v for k, v in self.arguments().items() if k != "optimizer"}
        optimizer = self.optimizer
        if optimizer is not None:
            optimizer = type(optimizer).from_config(optimizer.get_config())
        return {**copy.deepcopy(given), "optimizer": optimizer}

    # --- metrics and losses -----------------------------------------------------------------------

    def metrics(self) -> list[Metric]:
        """Return the metrics of `compile`: the mean loss, the loss of each output, the others."""
        metrics: list[Metric] = []
        if self.loss_tracker is not None:
            metrics.append(self.loss_tracker)
        if self.objective is not None:
            metrics.extend(self.objective.trackers)
        if self.scores is not None:
            metrics.extend(self.scores.metrics)
        return metrics

    def update_metrics(
        self, x: Structure, y: Structure, y_pred: Structure, sample_weight: Structure
    ) -> None:
        """Update the metrics with a batch; the model's own `compute_metrics` goes first."""
        if self.model.overrides("compute_metrics"):
            self.model.compute_metrics(x, y, y_pred, sample_weight)
        elif self.scores is not None and y is not None:
            self.scores.update_state(y, y_pred, sample_weight)

    def results(self) -> dict[str, Any]:
        """Return the results of all metrics as Python numbers."""
        return step.numbers(self.model.get_metrics_result())

    def host_scores(self) -> CompiledMetrics | None:
        """Return the metrics of `compile` if some of them are computed outside of the steps."""
        scores = self.scores
        return scores if scores is not None and any(m.on_host for m in scores.metrics) else None

    def matches(self, y: Structure, sample_weight: Structure = None) -> list[diagnostics.Match]:
        """Return each output that has a loss, with its targets and weights."""
        if self.objective is None or y is None:
            return []
        return self.objective.matches(y, sample_weight)

    def metrics_of(self, output: int) -> list[Metric]:
        """Return the metrics of the output with a number."""
        return [] if self.scores is None else self.scores.of_output(output)

    def penalties(self) -> list[Any]:
        """Return the penalty of each weight that has a regularizer."""
        if self._regularized is None:
            weights = self.model.trainable_weights
            self._regularized = [v for v in weights if v.regularizer is not None]
        return [v.regularizer(v) for v in self._regularized]

    def probe(self, rows: int) -> Probe | None:
        """Return what looks at the layers for the first rows of the training's first batch.

        Args:
            rows: the most rows that are looked at.

        Returns:
            None outside of a training, and where the loss of `compile` is not what is trained.
        """
        computes = self.objective is not None or self.model.overrides("compute_loss")
        if self.example is None or not computes or self.model.overrides("train_step"):
            return None
        return Probe(self, self.example, rows)

    # --- compiled steps ---------------------------------------------------------------------------

    def backend(self) -> Backend:
        """Return the backend that runs the steps."""
        host = self.model.host_stage()
        eagerly = self.run_eagerly or self.jit_compile is False
        eagerly = eagerly or (host is not None and host.needs_eager)
        return choose_backend("eager" if eagerly else None)

    def engine_facts(self) -> dict[str, Any]:
        """Return what the bits of a training depend on other than its state: engine and threads."""
        backend, sharding = self.backend(), current_sharding()
        facts = {"name": backend.name, "threads": backend.threads()}
        return facts if sharding is None else {**facts, "shards": sharding.shards}

    def step(self, kind: str) -> CompiledStep:
        """Return a step as the current backend runs it; it is compiled on its first call.

        Args:
            kind: "train", "test", "predict", or "results" (of the metrics).
        """
        self.divide_variables()
        backend, sharding = self.backend(), self.sharding(kind)
        key = (kind, backend.name, id(backend), sharding)
        compiled = self._steps.get(key)
        if compiled is None:
            self._regularized = None
            if sharding is not None:
                self.replicate(sharding)
            options: dict[str, Any] = {"name": f"{kind} {self.model.name}"}
            if kind == "train":
                self._at_start = self.model.trainable_variables
                self._trained = {id(v) for v in self._at_start}
                self._known = {id(v): v for v in self.model.variables}
                options["training"] = True
            compiled = backend.compile(self.step_function(kind, sharding), **options)
            if sharding is not None:
                compiled = ShardedStep(compiled, sharding, kind)
            self._steps[key] = compiled
        return compiled

    def keep_ready_call(self, compiled: CompiledStep, x: Array, mark: object) -> None:
        """Keep what predicts arrays of the shape of `x` at little cost, if the step has it.

        Args:
            compiled: the step that has just predicted `x`.
            x: the array.
            mark: `Changes.mark` before.
        """
        if len(self.ready_calls) >= MOST_READY:
            self.ready_calls.clear()
        self.ready_calls[x.shape] = compiled.ready_call(x, mark), mark

    def sharding(self, kind: str) -> Sharding | None:
        """Return how the batches of a step are cut; None where every batch is computed whole.

        Args:
            kind: "train", "test", "predict" or "results".
        """
        sharding = current_sharding()
        if sharding is None or kind == "results":
            return None
        if self.reads_values:
            diagnostics.warn_once(
                self.model,
                "Python in it reads values, so ranks could take different ways: each rank "
                "computes whole batches. The results are right, but no faster. Use ops.cond "
                "or ops.where instead.",
            )
            return None
        if kind != "predict" and self.model.overrides(f"{kind}_step"):
            diagnostics.warn_once(
                self.model,
                f"it has its own {kind}_step(), which every rank does with whole batches: the "
                "results are right, but no faster. Override compute_loss() instead, or cut "
                "the batch and use ops.all_sum() in it.",
            )
            return None
        return sharding

    def replicate(self, sharding: Sharding, only: Sequence[Variable] | None = None) -> None:
        """Give all ranks the values that the variables have on rank 0.

        Args:
            sharding: whose group of processes it is.
            only: these variables; None: all, but those of which each rank keeps a segment.
        """
        whole = [v for v in self.model.variables if v.store is None]
        variables: list[Any] = whole if only is None else [*only]
        if self.optimizer is not None and only is None:
            division = self.optimizer.division
            variables += self.optimizer.variables if division is None else division.shared()
        if sharding.group.size > 1:
            known = {id(v): v for v in variables}
            facts = tuple((v.path, tuple(v.shape), v.dtype) for v in known.values())
            sharding.agree("variable", facts)
            values = sharding.group.broadcast([v.numpy() for v in known.values()])
            if sharding.group.rank:
                for variable, value in zip(known.values(), values):
                    variable.assign(value)

    def stopping(self) -> bool:
        """Return whether a callback, on any rank, has asked the training to stop."""
        sharding = current_sharding()
        if sharding is not None and sharding.group.size > 1:
            self.model.stop_training = any(sharding.group.gather(self.model.stop_training))
        return self.model.stop_training

    def replace_step(self, kind: str, make: Callable[[CompiledStep], CompiledStep]) -> None:
        """Let `make(step)` run in place of each compiled step of a kind.

        Args:
            kind: "train", "test" or "predict".
            make: returns the step to run; it may return the one it is given.
        """
        self.ready_calls.clear()
        for key in [k for k in self._steps if k[0] == kind]:
            self._steps[key] = make(self._steps[key])

    def compiled_steps(self, kind: str | None = None) -> list[tuple[str, CompiledStep]]:
        """Return (kind, step) of the steps compiled so far, of one kind or of all."""
        return [(k[0], s) for k, s in self._steps.items() if kind is None or k[0] == kind]

    def drop_steps(self) -> None:
        """Free all compiled steps; they are compiled again on use."""
        self._steps.clear()
        self.ready_calls.clear()

    def drop_stale_steps(self) -> None:
        """Free compiled training steps that were made for other trainable variables."""
        stale = [key for key in self._steps if key[0] == "train"]
        if stale and self._trained != self._trainable_ids():
            for key in stale:
                del self._steps[key]

    def _trainable_ids(self) -> set[int]:
        return {id(v) for v in self.model.trainable_variables}

    def step_function(self, kind: str, sharding: Sharding | None = None) -> Callable[..., Any]:
        """Return a step as a function of tensors, before any backend compiles it.

        Args:
            kind: "train", "test", "predict", or "results" (of the metrics).
            sharding: how batches are cut: the function takes this rank's rows of a batch, and the
                number of rows of the whole batch. None: it takes whole batches.
        """
        model = self.model
        if kind == "train":
            if model.overrides("train_step"):
                step.check_own_step(model, "train_step")
                return lambda x, y, w: model.train_step(pack(assemble(x), y, w))
            if sharding is not None:
                return functools.partial(sharded.train, self, model.trainable_variables, sharding)
            # Python that reads numbers, or a flag, may build layers in a step. A trace asks for
            # the variables at no cost; op by op they are asked for only where this may be.
            fixed = self.backend().defines_by_run and not self._by_values
            variables = model.trainable_variables if fixed else None
            # A partial adds no frame to tracebacks, and costs nothing per step.
            return functools.partial(step.train, self, variables)
        if kind == "test":
            if model.overrides("test_step"):
                step.check_own_step(model, "test_step")
                return step.quietly(lambda x, y, w: model.test_step(pack(assemble(x), y, w)))
            if sharding is not None:
                return step.quietly(functools.partial(sharded.test, self, sharding))
            return step.quietly(lambda x, y, w: step.test(self, x, y, w))
        if kind == "results":
            return step.quietly(model.get_metrics_result)
        if model.overrides("predict_step"):
            step.check_own_step(model, "predict_step")
            return step.quietly(lambda x: model.predict_step(pack(assemble(x))))
        return step.quietly(lambda x: model(assemble(x), training=False))

    def apply_gradients(
        self, gradients: Sequence[Any], variables: Sequence[Variable], **signals: Any
    ) -> None:
        """Let the optimizer change variables by their gradients.

        Args:
            gradients: one per variable; None where there is none.
            variables: trainable variables.
            signals: more that the optimizer asks for: see `Optimizer.apply`.
        """
        optimizer = self.require_optimizer()
        if optimizer.division is None:
            optimizer.apply(gradients, variables, **signals)
        else:
            optimizer.division.apply(optimizer, gradients, variables, **signals)

    # --- checks -----------------------------------------------------------------------------------

    def check_batch(self, x: Structure, y: Structure, sample_weight: Structure) -> None:
        """Raise where class numbers or indices of a batch are out of the model's range."""
        if self._batch_check is None:
            self._batch_check = diagnostics.batch_check(self.model) or (lambda x, y, w: None)
        self._batch_check(x, y, sample_weight)

    def check_frozen(self) -> None:
        """Warn where `trainable` of a layer was changed after `compile`."""
        diagnostics.check_frozen(self.model, self._trainable_flags)


def compile_names() -> tuple[str, ...]:
    """Return the names of the arguments of `compile` that configs hold."""
    return CompileSettings._fields
