"""Trainer: compile, fit, evaluate, predict, and the steps that may be overridden."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from kerasish import ops, optimizers, registry, tree
from kerasish.backends import choose as choose_backend
from kerasish.engine import diagnostics as mistakes
from kerasish.engine.functional.host_stage import front_of, prepare_data
from kerasish.engine.saving_hooks import saving
from kerasish.engine.training import loop, step
from kerasish.engine.training.busy import Turn
from kerasish.engine.training.compiled import CompiledLoss, CompiledMetrics, check_known
from kerasish.graph.abstract import infer
from kerasish.graph.draw import write_picture
from kerasish.losses.loss import Loss
from kerasish.metrics import Mean
from kerasish.metrics.metric import Metric
from kerasish.ops.op import Spec
from kerasish.tensor import Tensor, Variable, no_gradient, to_numpy, wrap


class Trainer:
    """What a model can do beyond a layer; mixed into `Model`."""

    # --- compile ------------------------------------------------------------------------------

    def _start_training_state(self) -> None:
        self.optimizer: Any = None
        self.loss: Any = None
        self.compiled = False
        self.stop_training = False
        self.run_eagerly = False
        self.jit_compile: Any = "auto"
        self.steps_per_execution = 1
        self._compile_arguments: dict[str, Any] | None = None
        self._compiled_loss: CompiledLoss | None = None
        self._compiled_metrics: CompiledMetrics | None = None
        self._loss_tracker: Any = None
        self._compiled_functions: dict[Any, Any] = {}
        self._prepared: set[Any] = set()
        self._penalised: list[Any] | None = None
        self._advised: set[str] = set()
        self._flags = mistakes.Flags()
        self._trained: set[int] = set()
        self._turn = Turn()
        self._batch_check: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """Return what pickles and copies hold: no compiled steps, which are made again on use."""
        state: dict[str, Any] = super().__getstate__()  # type: ignore[assignment]
        return {
            **state,
            "_compiled_functions": {},
            "_prepared": set(),
            "_penalised": None,
            "_batch_check": None,
        }

    def compile(
        self,
        optimizer: Any = "rmsprop",
        loss: Any = None,
        loss_weights: Any = None,
        metrics: Any = None,
        weighted_metrics: Any = None,
        run_eagerly: bool = False,
        steps_per_execution: int = 1,
        jit_compile: Any = "auto",
        auto_scale_loss: bool = True,
    ) -> None:
        """Set what training minimises, how, and what it reports.

        Args:
            optimizer: name, config or object.
            loss: name, config, function or object; a list or dict of them for several outputs.
            loss_weights: factors of the losses of several outputs.
            metrics: a list of metrics (names, functions, objects); lists or a dict by output.
            weighted_metrics: metrics that sample weights apply to.
            run_eagerly: run steps op by op, so that print and pdb work inside them.
            steps_per_execution: callbacks that want batches are called once per so many, with the
                numbers of the first and the last; the static engine runs as many steps at once as
                nobody wants to look at.
            jit_compile: accepted; False asks for the eager engine.
            auto_scale_loss: with the policy "mixed_float16", scale the loss dynamically.
        """
        made = optimizers.get(optimizer)
        if auto_scale_loss and getattr(self, "compute_dtype", "") == "float16":
            made = _with_loss_scale(made, self)
        names = getattr(self, "output_names", [])
        loss_part = None if loss is None else CompiledLoss(loss, loss_weights, names)
        metrics_part = None
        if metrics is not None or weighted_metrics is not None:
            metrics_part = CompiledMetrics(metrics, weighted_metrics, names)
        if not isinstance(steps_per_execution, int) or steps_per_execution < 1:
            raise ValueError(
                f"compile: steps_per_execution is a number >= 1, got {steps_per_execution!r}."
            )
        self.optimizer, self.loss = made, loss
        self._compiled_loss, self._compiled_metrics = loss_part, metrics_part
        self.run_eagerly, self.jit_compile = bool(run_eagerly), jit_compile
        self.steps_per_execution = steps_per_execution
        self._loss_tracker = Mean(name="loss")
        self._compile_arguments = {
            "optimizer": optimizer, "loss": loss, "loss_weights": loss_weights,
            "metrics": metrics, "weighted_metrics": weighted_metrics,
            "run_eagerly": run_eagerly, "steps_per_execution": steps_per_execution,
            "jit_compile": jit_compile,
        }  # fmt: skip
        self.compiled, self.stop_training = True, False
        self._compiled_functions.clear()
        self._prepared.clear()
        self._batch_check = None
        self._flags = mistakes.flags_of(self)

    def _need_compiled(self, method: str) -> None:
        if not self.compiled:
            raise ValueError(
                f"{self._who()}: call compile(optimizer=..., loss=...) before {method}()."  # type: ignore[attr-defined]
            )

    def get_compile_config(self) -> dict[str, Any] | None:
        """Return what `compile` was given as a config, the optimizer as it is now."""
        if not self.compiled or self._compile_arguments is None:
            return {} if getattr(self, "_graph", None) is not None else None
        return registry.serialize_keras_object(self._settings())  # type: ignore[no-any-return]

    def _copy_compile_arguments(self) -> dict[str, Any]:
        """Return what to call `compile` of an equal model with: new optimizer, losses, metrics."""
        given = copy.deepcopy({k: v for k, v in self._settings().items() if k != "optimizer"})
        kind = type(self.optimizer)
        made = kind.from_config(self.optimizer.get_config()) if self.optimizer else None
        return {**given, "optimizer": made}

    def _settings(self) -> dict[str, Any]:
        return {**(self._compile_arguments or {}), "optimizer": self.optimizer}

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compile with what `get_compile_config` returned."""
        if not config:
            return
        if type(self).compile is not Trainer.compile:
            mistakes.advise(
                self,
                "it was not compiled on loading, its compile() being its own. Call compile(), or "
                "define get_compile_config() and compile_from_config(config) as well.",
            )
            return
        if config.get("optimizer") is None and config.get("loss") is None:
            return
        made = {k: registry.deserialize_keras_object(v) for k, v in config.items()}
        for loss in tree.flatten(made.get("loss")):
            if isinstance(loss, Loss):
                loss.bind(self)
        check_known(made.get("loss"), (made.get("metrics"), made.get("weighted_metrics")))
        known = self._compile_names()
        self.compile(**{k: v for k, v in made.items() if k in known})
        if self.built and self.optimizer is not None:  # type: ignore[attr-defined]
            self.optimizer.build(self.trainable_variables)  # type: ignore[attr-defined]

    @staticmethod
    def _compile_names() -> tuple[str, ...]:
        return (
            "optimizer", "loss", "loss_weights", "metrics", "weighted_metrics", "run_eagerly",
            "steps_per_execution", "jit_compile",
        )  # fmt: skip

    # --- metrics --------------------------------------------------------------------------------

    @property
    def metrics(self) -> list[Metric]:
        """The metrics of `compile` and those held as attributes."""
        found: list[Metric] = []
        if self._loss_tracker is not None:
            found.append(self._loss_tracker)
        if self._compiled_loss is not None:
            found.extend(self._compiled_loss.trackers)
        if self._compiled_metrics is not None:
            found.extend(self._compiled_metrics.metrics)
        own = {id(m) for m in found}
        found.extend(m for m in super().metrics if id(m) not in own)  # type: ignore[misc]
        return found

    @property
    def metrics_names(self) -> list[str]:
        """The names of the metrics, the loss first."""
        return [m.name for m in self.metrics]

    def reset_metrics(self) -> None:
        """Forget the batches seen by all metrics."""
        for metric in self.metrics:
            metric.reset_state()

    def get_metrics_result(self) -> dict[str, Any]:
        """Return name -> number of all metrics."""
        found: dict[str, Any] = {}
        compiled: set[int] = set()
        if self._compiled_metrics is not None:
            compiled = {id(m) for m in self._compiled_metrics.metrics}
        for metric in self.metrics:
            if id(metric) in compiled:
                continue
            value = metric.result()
            found.update(value if isinstance(value, dict) else {metric.name: value})
        if self._compiled_metrics is not None:
            found.update(self._compiled_metrics.result())
        return found

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Take a batch into the metrics of `compile` and return all results; may be overridden."""
        with no_gradient():
            if self._compiled_metrics is not None and y is not None:
                self._compiled_metrics.update_state(y, y_pred, sample_weight)
            return self.get_metrics_result()

    def _update_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any) -> None:
        if type(self).compute_metrics is not Trainer.compute_metrics:
            self.compute_metrics(x, y, y_pred, sample_weight)
        elif self._compiled_metrics is not None and y is not None:
            self._compiled_metrics.update_state(y, y_pred, sample_weight)

    # --- loss and steps ---------------------------------------------------------------------------

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """Return the number that training minimises; may be overridden."""
        parts = []
        if self._compiled_loss is not None:
            if y is None and self.loss is not None:
                raise ValueError(
                    f"{self._who()}: compile() named a loss, but the data has no targets y."  # type: ignore[attr-defined]
                )
            parts.append(self._compiled_loss(y, y_pred, sample_weight))
        parts.extend(ops.cast(loss, "float32") for loss in self._step_losses())
        if not parts:
            raise ValueError(
                f"{self._who()}: there is no loss to minimise; give compile(loss=...), or call "  # type: ignore[attr-defined]
                "add_loss() in a layer."
            )
        return step.total(parts)

    def _step_losses(self) -> list[Any]:
        """Return the losses of the call just made; the list of penalised weights is kept."""
        if self._penalised is None:
            weights = self.trainable_weights  # type: ignore[attr-defined]
            self._penalised = [v for v in weights if v.regularizer is not None]
        penalties = [v.regularizer(v) for v in self._penalised]
        return [*self._losses, *penalties]  # type: ignore[attr-defined]

    def train_step(self, data: Any) -> Any:
        """Do one training step on a batch and return the metrics' results; may be overridden."""
        x, y, sample_weight = step.unpack(data)
        step.train(self, self.trainable_variables, x, y, sample_weight)  # type: ignore[attr-defined]
        return self.get_metrics_result()

    def test_step(self, data: Any) -> Any:
        """Do one evaluation step on a batch and return the metrics' results; may be overridden."""
        x, y, sample_weight = step.unpack(data)
        with no_gradient():
            step.test(self, x, y, sample_weight)
            return self.get_metrics_result()

    def predict_step(self, data: Any) -> Any:
        """Return the model's result for a batch; may be overridden."""
        x, _, _ = step.unpack(data)
        return self(x, training=False)  # type: ignore[operator]

    # --- compiled steps ---------------------------------------------------------------------------

    def _backend(self) -> Any:
        front = front_of(self._graph)  # type: ignore[attr-defined]
        eagerly = self.run_eagerly or self.jit_compile is False
        eagerly = eagerly or (front is not None and front.needs_eager)
        return choose_backend("eager" if eagerly else None)

    def _function(self, kind: str) -> Any:
        """Return the step called `kind` as the backend in charge runs it."""
        backend = self._backend()
        key = (kind, backend.name, id(backend))
        found = self._compiled_functions.get(key)
        if found is None:
            self._penalised = None
            self._trained = self._trained if kind != "train" else self._now_trained()
            options: dict[str, Any] = {"name": f"{kind} {self.name}"}  # type: ignore[attr-defined]
            if kind == "train":
                options["training"] = True
            found = backend.compile(self._step_function(kind), **options)
            self._compiled_functions[key] = found
        return found

    def _step_function(self, kind: str) -> Any:
        cls = type(self)
        if kind == "train":
            if cls.train_step is not Trainer.train_step:
                return lambda x, y, w: self.train_step(step.pack(x, y, w))
            variables = self.trainable_variables  # type: ignore[attr-defined]
            return lambda x, y, w: step.train(self, variables, x, y, w)
        if kind == "test":
            if cls.test_step is not Trainer.test_step:
                return step.quietly(lambda x, y, w: self.test_step(step.pack(x, y, w)))
            return step.quietly(lambda x, y, w: step.test(self, x, y, w))
        if kind == "results":
            return step.quietly(self.get_metrics_result)
        if cls.predict_step is not Trainer.predict_step:
            return step.quietly(lambda x: self.predict_step(step.pack(x)))
        return step.quietly(lambda x: self(x, training=False))  # type: ignore[operator]

    def make_train_function(self, force: bool = False) -> Any:
        """Return the compiled training step, made anew with `force`."""
        return self._made("train", force)

    def make_test_function(self, force: bool = False) -> Any:
        """Return the compiled evaluation step, made anew with `force`."""
        return self._made("test", force)

    def make_predict_function(self, force: bool = False) -> Any:
        """Return the compiled prediction step, made anew with `force`."""
        return self._made("predict", force)

    def _made(self, kind: str, force: bool) -> Any:
        if force:
            self._compiled_functions.clear()
        return self._function(kind)

    def _prepare(self, kind: str, x: Any, y: Any = None, w: Any = None) -> None:
        """Run a step on shapes alone: builds layers, metrics and optimizer, finds shape errors."""
        if kind in self._prepared:
            return
        specs = [_specs(part) for part in (x, y, w)]
        if kind == "predict":
            if not self.built:  # type: ignore[attr-defined]
                infer(self._step_function("predict"), specs[:1])
            self._prepared.add(kind)
            return
        if kind == "train" and not self.built:  # type: ignore[attr-defined]
            infer(lambda x: self(x, training=True), specs[:1])  # type: ignore[operator]
        if kind == "train":
            self._check_front()
            self._check_trainable()
            self.optimizer.build(self.trainable_variables)  # type: ignore[attr-defined]
        if kind == "train" and type(self).train_step is Trainer.train_step:
            infer(step.quietly(lambda x, y, w: step.outline(self, x, y, w)), specs)
        else:
            infer(self._step_function(kind), specs)
        self._prepared.add(kind)

    def _has_front(self) -> bool:
        return front_of(self._graph) is not None  # type: ignore[attr-defined]

    def _check_front(self) -> None:
        front = front_of(self._graph)  # type: ignore[attr-defined]
        if front is not None:
            front.check_trainable(self._who())  # type: ignore[attr-defined]

    def _check_trainable(self) -> None:
        if not self.trainable_variables and self.weights:  # type: ignore[attr-defined]
            mistakes.advise(
                self,
                "no weight is trainable, so training changes nothing. Set trainable=True on a "
                "layer and call compile() again.",
            )

    def _now_trained(self) -> set[int]:
        return {id(v) for v in self.trainable_variables}  # type: ignore[attr-defined]

    def _drop_stale_step(self) -> None:
        """Forget compiled training steps that were made for other trainable variables."""
        stale = [key for key in self._compiled_functions if key[0] == "train"]
        if stale and self._trained != self._now_trained():
            for key in stale:
                del self._compiled_functions[key]

    def _matches(self, y: Any, sample_weight: Any = None) -> list[mistakes.Match]:
        """Return each output that has a loss, beside its targets."""
        if self._compiled_loss is None or y is None:
            return []
        return self._compiled_loss.matches(y, sample_weight)

    def _scoring(self) -> CompiledMetrics | None:
        """Return the metrics of `compile` if some are computed outside of the steps."""
        found = self._compiled_metrics
        return found if found is not None and any(m.on_host for m in found.metrics) else None

    def _results(self) -> dict[str, Any]:
        """Return the metrics' results as Python numbers."""
        return step.numbers(self.get_metrics_result())

    # --- looking into compiled steps --------------------------------------------------------------

    def memory_report(self) -> dict[str, dict[str, int]]:
        """Return, for each compiled step, bytes of the shared arena and of one buffer a value.

        Empty before a step was compiled, and on engines that compile nothing.
        """
        found: dict[str, dict[str, int]] = {}
        for (kind, *_), step_ in self._compiled_functions.items():
            report = step_.memory_report()
            if report:
                found[kind] = report
        return found

    def plot_graph(self, path: str, step: str = "train") -> None:
        """Draw the compiled step's graph, as traced and as it runs, into an .svg or .dot file.

        Args:
            path: the file.
            step: "train", "test" or "predict"; it must have run once.
        """
        made = [f for (kind, *_), f in self._compiled_functions.items() if kind == step]
        graphs = next((f.graphs() for f in made), [])
        if not graphs:
            raise ValueError(
                f"{self._who()}: no compiled step {step!r} to draw; run fit, evaluate or "  # type: ignore[attr-defined]
                "predict on the static engine first."
            )
        write_picture(graphs, str(path))

    # --- fit, evaluate, predict -------------------------------------------------------------------

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: Any = "auto",
        callbacks: Any = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: Any = True,
        class_weight: Any = None,
        sample_weight: Any = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        validation_batch_size: int | None = None,
        validation_freq: Any = 1,
        *,
        resume: Any = None,
    ) -> Any:
        """Train for `epochs` rounds over the data; return a History.

        Args:
            x, y: arrays (or lists or dicts of them); or x alone: a generator, a PyDataset, or
                any iterable of batches (x,), (x, y) or (x, y, sample_weight).
            batch_size: rows a step; None: 32.
            verbose: 0 silent, 1 a progress bar, 2 a line an epoch, "auto".
            validation_split: the last share of the rows, kept out of training, 0 <= share < 1.
            validation_data: (x, y) or (x, y, sample_weight), or any data that x may be.
            shuffle: whether the rows come in a new order each epoch.
            class_weight: class -> factor of its rows' loss.
            sample_weight: one factor a row.
            initial_epoch: the epoch to start from, when going on with a training.
            steps_per_epoch: steps of an epoch; None: all the data.
            validation_freq: validate every so many epochs, or after the epochs listed.
            resume: a folder, or `callbacks.Resume(folder, ...)`, in which the state of the training
                is kept: after a crash the same program run again goes on there, bit for bit.
                `callbacks.Resume` says what else may differ (more epochs, the learning rate) and
                what is refused (another loss, batch size, data).
        """
        self._need_compiled("fit")
        return loop.fit(
            self, resume, x, y, callbacks, batch_size, epochs, verbose, validation_split,
            validation_data, shuffle, class_weight, sample_weight, initial_epoch,
            steps_per_epoch, validation_steps, validation_batch_size, validation_freq,
        )  # fmt: skip

    def _engine_facts(self) -> dict[str, Any]:
        """Return what the bits of a training depend on beside the state: engine and threads."""
        backend = self._backend()
        return {"name": backend.name, "threads": backend.threads()}

    def _state_folder(self, path: str) -> Any:
        """Return the training states kept in a folder."""
        return saving("state_folder")(path)

    def _clear_cut_off(self, pattern: str) -> None:
        """Remove what saves under names like `pattern` left when they were cut off."""
        saving("clear_cut_off")(pattern)

    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        verbose: Any = "auto",
        sample_weight: Any = None,
        steps: int | None = None,
        callbacks: Any = None,
        return_dict: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Return the loss and metrics on the data: a number, a list, or a dict (`return_dict`)."""
        self._need_compiled("evaluate")
        logs = loop.evaluate(
            self, x, y, batch_size, verbose, sample_weight, steps, callbacks, **kwargs
        )
        return logs if return_dict else _listed(logs)

    def predict(
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: Any = "auto",
        steps: int | None = None,
        callbacks: Any = None,
    ) -> Any:
        """Return the model's results for all rows of the data, as NumPy arrays."""
        rows = batch_size or 32
        plain = verbose == 0 and callbacks is None and steps is None and type(x) is np.ndarray
        if plain and x.ndim and 0 < x.shape[0] <= rows and x.dtype.kind == "f":
            return self.predict_on_batch(x)  # one small array: nothing to set up
        return loop.predict(self, x, batch_size, verbose, steps, callbacks)

    def train_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        class_weight: Any = None,
        return_dict: bool = False,
    ) -> Any:
        """Do one training step; return loss and metrics of this batch alone."""
        self._need_compiled("train_on_batch")
        return self._on_batch("train", x, y, sample_weight, class_weight, return_dict)

    def test_on_batch(
        self, x: Any, y: Any = None, sample_weight: Any = None, return_dict: bool = False
    ) -> Any:
        """Do one evaluation step; return loss and metrics of this batch alone."""
        self._need_compiled("test_on_batch")
        return self._on_batch("test", x, y, sample_weight, None, return_dict)

    def _on_batch(
        self, kind: str, x: Any, y: Any, sample_weight: Any, class_weight: Any, as_dict: bool
    ) -> Any:
        new, weights = kind not in self._prepared, None
        plain = sample_weight is None and class_weight is None and not self._has_front()
        if new or not plain or not loop.lies_on_gpu(x, y):
            data = prepare_data(self, loop.one_batch(x, y, sample_weight, class_weight))
            x, y, weights = data.peek()
            self._prepare(kind, x, y, weights)
            if new and kind == "train":
                loop.look(self, data, 0)
            else:
                self._check_batch(x, y, weights)
        with self._turn.take(f"{kind}_on_batch", long=False):
            self.reset_metrics()
            logs = self._function(kind)(x, y, weights)
            found = self._results() if logs is None else step.numbers(logs)
        return found if as_dict else _listed(found)

    def _check_batch(self, x: Any, y: Any, sample_weight: Any) -> None:
        """Raise where class numbers or indices of a batch are none of the model's."""
        if self._batch_check is None:
            self._batch_check = mistakes.batch_check(self) or (lambda x, y, w: None)
        self._batch_check(x, y, sample_weight)

    def predict_on_batch(self, x: Any) -> Any:
        """Return the model's results for one batch, as NumPy arrays."""
        if "predict" not in self._prepared:
            x = prepare_data(self, loop.one_batch(x)).peek()[0]
            self._prepare("predict", x)
        elif type(x) is not np.ndarray or x.dtype != np.float32 or self._has_front():
            x = prepare_data(self, loop.one_batch(x)).peek()[0]
        result = self._function("predict")(x)
        return to_numpy(result) if type(result) is Tensor else tree.map_structure(to_numpy, result)


def _with_loss_scale(optimizer: Any, model: Any) -> Any:
    kind = getattr(optimizers, "LossScaleOptimizer", None)
    if kind is None or isinstance(optimizer, kind):
        return optimizer
    return kind(optimizer)


def _specs(structure: Any) -> Any:
    def spec(x: Any) -> Any:
        if isinstance(x, (Tensor, Variable)):
            return Spec(tuple(x.shape), x.dtype)
        if isinstance(x, np.ndarray) and x.dtype.kind not in "OUS":
            return Spec(x.shape, wrap(x).dtype)
        return x

    return tree.map_structure(spec, structure)


def _listed(logs: dict[str, Any]) -> Any:
    values = list(logs.values())
    return values[0] if len(values) == 1 else values
