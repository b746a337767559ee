"""TrainingProgram: optimizer, losses, metrics and compiled steps of a model."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from kerasish import optimizers, registry, tree
from kerasish.backends import Backend, CompiledStep
from kerasish.backends import choose as choose_backend
from kerasish.engine import diagnostics
from kerasish.engine.training import step
from kerasish.engine.training.busy import ExclusiveUse
from kerasish.engine.training.compiled import CompiledLoss, CompiledMetrics
from kerasish.engine.training.interface import TrainedModel
from kerasish.errors import TraceError
from kerasish.graph.abstract import infer, run_aside
from kerasish.metrics import Mean
from kerasish.metrics.metric import Metric
from kerasish.ops.shapes import Spec
from kerasish.optimizers import LossScaleOptimizer
from kerasish.optimizers.optimizer import Optimizer
from kerasish.tensor import Tensor, Variable, convert, wrap
from kerasish.typing import Array, Structure

if TYPE_CHECKING:
    from kerasish.engine.layer.layer import Layer
    from kerasish.engine.model.model import Model


@dataclass(frozen=True)
class CompileSettings:
    """The arguments of `Model.compile`, as given; see there."""

    optimizer: Any = "rmsprop"
    loss: Any = None
    loss_weights: Any = None
    metrics: Any = None
    weighted_metrics: Any = None
    run_eagerly: bool = False
    steps_per_execution: int = 1
    jit_compile: Any = "auto"


class TrainingProgram:
    """Owns what training needs besides the model: optimizer, objective, metrics, compiled steps.

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
        self.jit_compile: Any = "auto"
        self.steps_per_execution = 1
        self.exclusive = ExclusiveUse()
        self.input_wait = (0.0, 0.0)
        self._steps: dict[Any, CompiledStep] = {}
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

    def __getstate__(self) -> dict[str, Any]:
        """Return what pickles and copies hold: no compiled steps, which are compiled on use."""
        empty: dict[str, Any] = {
            "_steps": {}, "_prepared": set(), "_regularized": None, "_batch_check": None,
            "_waiting": [],
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

    # --- compiled steps ---------------------------------------------------------------------------

    def backend(self) -> Backend:
        """Return the backend that runs the steps."""
        host = self.model.host_stage()
        eagerly = self.run_eagerly or self.jit_compile is False
        eagerly = eagerly or (host is not None and host.needs_eager)
        return choose_backend("eager" if eagerly else None)

    def engine_facts(self) -> dict[str, Any]:
        """Return what the bits of a training depend on besides its state: engine and threads."""
        backend = self.backend()
        return {"name": backend.name, "threads": backend.threads()}

    def step(self, kind: str) -> CompiledStep:
        """Return a step as the backend in charge runs it; it is compiled on its first call.

        Args:
            kind: "train", "test", "predict", or "results" (of the metrics).
        """
        backend = self.backend()
        key = (kind, backend.name, id(backend))
        compiled = self._steps.get(key)
        if compiled is None:
            self._regularized = None
            options: dict[str, Any] = {"name": f"{kind} {self.model.name}"}
            if kind == "train":
                self._trained = self._trainable_ids()
                self._at_start = self.model.trainable_variables
                self._known = {id(v): v for v in self.model.variables}
                options["training"] = True
            compiled = self._steps[key] = backend.compile(self.step_function(kind), **options)
        return compiled

    def replace_step(self, kind: str, make: Callable[[CompiledStep], CompiledStep]) -> None:
        """Let `make(step)` run in place of each compiled step of a kind.

        Args:
            kind: "train", "test" or "predict".
            make: returns the step to run; it may return the one it is given.
        """
        for key in [k for k in self._steps if k[0] == kind]:
            self._steps[key] = make(self._steps[key])

    def compiled_steps(self, kind: str | None = None) -> list[tuple[str, CompiledStep]]:
        """Return (kind, step) of the steps compiled so far, of one kind or of all."""
        return [(k[0], s) for k, s in self._steps.items() if kind is None or k[0] == kind]

    def drop_steps(self) -> None:
        """Free all compiled steps; they are compiled again on use."""
        self._steps.clear()

    def drop_stale_steps(self) -> None:
        """Free compiled training steps that were made for other trainable variables."""
        stale = [key for key in self._steps if key[0] == "train"]
        if stale and self._trained != self._trainable_ids():
            for key in stale:
                del self._steps[key]

    def _trainable_ids(self) -> set[int]:
        return {id(v) for v in self.model.trainable_variables}

    def step_function(self, kind: str) -> Callable[..., Any]:
        """Return a step as a function of tensors, before any backend compiles it."""
        model = self.model
        if kind == "train":
            if model.overrides("train_step"):
                return lambda x, y, w: model.train_step(step.pack(x, y, w))
            # Python that reads numbers, or a flag, may build layers in a step. A trace asks for
            # the variables at no cost; op by op they are asked for only where this may be.
            fixed = self.backend().defines_by_run and not self._by_values
            variables = model.trainable_variables if fixed else None
            # A partial adds no frame to tracebacks, and costs nothing per step.
            return functools.partial(step.train, self, variables)
        if kind == "test":
            if model.overrides("test_step"):
                return step.quietly(lambda x, y, w: model.test_step(step.pack(x, y, w)))
            return step.quietly(lambda x, y, w: step.test(self, x, y, w))
        if kind == "results":
            return step.quietly(model.get_metrics_result)
        if model.overrides("predict_step"):
            return step.quietly(lambda x: model.predict_step(step.pack(x)))
        return step.quietly(lambda x: model(x, training=False))

    def is_prepared(self, kind: str) -> bool:
        """Return whether `prepare` has run for a step."""
        return kind in self._prepared

    def prepare(
        self, kind: str, x: Structure, y: Structure = None, sample_weight: Structure = None
    ) -> None:
        """Run a step on shapes alone: builds layers, metrics and optimizer, finds shape errors.

        Where Python in a step reads numbers, the step runs on the batch itself, and what it assigns
        is forgotten. On an engine that defines by run, a model with code of the user's is left to
        its first step: its Python runs once, on the numbers of the data.

        Args:
            kind: "train", "test" or "predict".
            x, y, sample_weight: a batch.
        """
        if kind in self._prepared:
            return
        if self.backend().defines_by_run and _has_users_code(self.model):
            self._by_values = True
        else:
            try:
                self._infer(kind, x, y, sample_weight)
            except TraceError:
                self._by_values = True
                self.build_on(kind, x, y, sample_weight)
        self._prepared.add(kind)

    def _infer(self, kind: str, x: Structure, y: Structure, sample_weight: Structure) -> None:
        model = self.model
        specs = [_specs(part) for part in (x, y, sample_weight)]
        if kind == "predict":
            if not model.built:
                infer(self.step_function("predict"), specs[:1])
        else:
            if kind == "train":
                self._prepare_training(specs[0])
            if kind == "train" and not model.overrides("train_step"):
                infer(step.quietly(lambda x, y, w: step.outline(self, x, y, w)), specs)
            else:
                infer(self.step_function(kind), specs)

    def build_on(
        self, kind: str, x: Structure, y: Structure = None, sample_weight: Structure = None
    ) -> None:
        """Run a step on a batch and forget what it assigns: builds what is not built yet.

        Args:
            kind: "train", "test" or "predict".
            x, y, sample_weight: the batch.
        """
        batch = tree.map_structure(_as_tensor, (x, y, sample_weight))
        if kind == "predict":
            run_aside(self.step_function("predict"), batch[:1])
        elif kind == "train" and not self.model.overrides("train_step"):
            run_aside(functools.partial(step.outline, self), batch)
            self._build_optimizer()
        elif kind == "train":
            # The gradients of a training step of the user's need records.
            run_aside(self.step_function(kind), batch, records=True)
        else:
            run_aside(self.step_function(kind), batch)

    @property
    def reads_values(self) -> bool:
        """Whether Python in the model may read numbers, so that steps differ."""
        return self._by_values

    @property
    def is_built(self) -> bool:
        """Whether the variables of the model, the optimizer and the metrics are there."""
        parts = (self.objective, self.scores)
        optimizer = self.optimizer is None or self.optimizer.built
        matched = all(part is None or part.parts is not None for part in parts)
        return self.model.built and optimizer and matched

    def late_variables(self) -> list[Variable]:
        """Return the trainable variables, those of layers that have just been built among them."""
        new = [v for v in self.model.trainable_variables if id(v) not in self._known]
        variables = [*self._at_start, *new]
        optimizer = self.require_optimizer()
        if not optimizer.built:
            self._build_optimizer()
        elif not optimizer.knows(variables):
            present = {id(v): v for v in (*optimizer.trainable_variables, *variables)}
            ordered = [present.pop(id(v)) for v in self.model.variables if id(v) in present]
            optimizer.extend([*present.values(), *ordered])
        return variables

    def when_matched(self, check: Callable[[], None]) -> None:
        """Call `check` when losses and metrics are matched to the outputs: now, or in a step.

        Args:
            check: raises where training cannot go on; the step then changes nothing.
        """
        if self._by_values and self.objective is not None and self.objective.parts is None:
            self._waiting.append(check)
        else:
            check()

    def loss_known(self) -> None:
        """Run the checks that wait for the first loss."""
        while self._waiting:
            self._waiting.pop(0)()

    def _prepare_training(self, x: Structure) -> None:
        model = self.model
        if not model.built:
            infer(lambda x: model(x, training=True), [x])
        self._build_optimizer()

    def _build_optimizer(self) -> None:
        model = self.model
        host = model.host_stage()
        if host is not None:
            host.check_trainable(model.display_name())
        variables = model.trainable_variables
        if not variables and model.weights:
            diagnostics.warn_once(
                model,
                "no weight is trainable, so training changes nothing. Set trainable=True on a "
                "layer and call compile() again.",
            )
        self.require_optimizer().build(variables)

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
    return tuple(f.name for f in fields(CompileSettings))


def _has_users_code(model: Layer) -> bool:
    """Return whether a layer has a `call` that kerasish did not bring."""
    calls = (type(layer).call for layer in model.flatten_layers())
    return any(call.__module__.partition(".")[0] != _OWN for call in calls)


_OWN = __name__.partition(".")[0]


def _as_tensor(x: Array) -> Any:
    numbers = isinstance(x, np.ndarray) and x.dtype.kind not in "OUS"
    return convert(x) if numbers else x


def _specs(structure: Structure) -> Structure:
    def spec(x: Array) -> Any:
        if isinstance(x, (Tensor, Variable)):
            return Spec(tuple(x.shape), x.dtype)
        if isinstance(x, np.ndarray) and x.dtype.kind not in "OUS":
            return Spec(x.shape, wrap(x).dtype)
        return x

    return tree.map_structure(spec, structure)
