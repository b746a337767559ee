"""TensorFlow's Estimator: `model_fn` and `input_fn`, run as functional models."""

from __future__ import annotations

import inspect
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kerasish import tree
from kerasish.engine import Input, Model
from kerasish.metrics.metric import Metric
from kerasish.reprs import arguments_repr
from kerasish.saving.latest import latest
from kerasish.tensor import Tensor, convert, to_numpy
from kerasish.typing import AnyTensor, OptimizerLike, PathLike, Structure

_MOST_FILES = 5  # kept in the folder of a model


class ModeKeys:
    """What a `model_fn` is called for.

    Attributes:
        TRAIN, EVAL, PREDICT: "train", "eval" and "infer".

    Example:
        >>> ModeKeys.PREDICT
        'infer'
    """

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"

    __repr__ = arguments_repr


@dataclass(frozen=True)
class EstimatorSpec:
    """What a `model_fn` returns.

    Args:
        mode: the mode that it was called with.
        predictions: a symbolic tensor or a structure of them; needed for PREDICT; None: none.
        loss: a symbolic tensor with one number; needed for TRAIN and EVAL; None: none.
        optimizer: an optimizer or its name; needed for TRAIN. It replaces TensorFlow's
            `train_op`; None: none.
        eval_metric_ops: name -> (metric, labels, predictions): a `metrics.Metric` and the symbolic
            tensors that update it.

    Example:
        >>> spec = EstimatorSpec(ModeKeys.PREDICT, predictions=Input((3,)))
        >>> spec.loss is None
        True
    """

    mode: str
    predictions: Structure = None
    loss: AnyTensor | None = None
    optimizer: OptimizerLike | None = None
    eval_metric_ops: Mapping[str, tuple[Metric, Any, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainSpec:
    """The training of `train_and_evaluate`.

    Args:
        input_fn: the input function.
        max_steps: the value of `global_step` at which training ends.

    Example:
        >>> TrainSpec(lambda: (np.ones((2, 3)), np.ones(2)), max_steps=100).max_steps
        100
    """

    input_fn: Callable[[], Any]
    max_steps: int


@dataclass(frozen=True)
class EvalSpec:
    """The evaluations of `train_and_evaluate`.

    Args:
        input_fn: the input function.
        steps: batches per evaluation; None: all.
        every: training steps between two evaluations, 1 or more.

    Example:
        >>> EvalSpec(lambda: (np.ones((2, 3)), np.ones(2)), steps=1).every
        1000
    """

    input_fn: Callable[[], Any]
    steps: int | None = 100
    every: int = 1000


class _SpecModel(Model):
    """A functional model whose first output is its loss."""

    def compute_loss(
        self,
        x: Structure = None,
        y: Structure = None,
        y_pred: Structure = None,
        sample_weight: Structure = None,
        training: bool = True,
    ) -> Tensor:
        return y_pred[0]


class Estimator:
    """A model that a function writes: trained, evaluated and asked by input functions.

    Args:
        model_fn: takes (features, labels, mode, params), or those of them that it names, as
            symbolic tensors, and returns an `EstimatorSpec`. It must make the same layers, in the
            same order, for each mode.
        model_dir: a folder for weights, read if it holds some; None: nothing is written.
        params: what `model_fn` gets as `params`; None: none.

    Attributes:
        global_step: training steps done.

    An input function takes no argument. It returns (features, labels), one batch that is used for
    each step; or an iterable of batches, a `data.Dataset` for example. Features are an array
    or a dict of arrays.

    Example:
        >>> from kerasish import layers, losses, ops
        >>> def model_fn(features, labels, mode):
        ...     y = layers.Dense(1)(features)
        ...     if mode == ModeKeys.PREDICT:
        ...         return EstimatorSpec(mode, predictions=y)
        ...     loss = ops.mean(ops.square(y - labels))
        ...     return EstimatorSpec(mode, predictions=y, loss=loss, optimizer="sgd")
        >>> x = np.ones((4, 2), "float32")
        >>> estimator = Estimator(model_fn).train(lambda: (x, x[:, :1]), steps=3)
        >>> estimator.global_step, sorted(estimator.evaluate(lambda: (x, x[:, :1]), steps=1))
        (3, ['global_step', 'loss'])
    """

    def __init__(
        self,
        model_fn: Callable[..., EstimatorSpec],
        model_dir: PathLike | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        if not callable(model_fn):
            raise TypeError(f"Estimator takes a function model_fn, got {model_fn!r}.")
        self.model_fn, self.params = model_fn, dict(params or {})
        self.model_dir = None if model_dir is None else os.fspath(model_dir)
        self.global_step = 0
        self._models: dict[str, tuple[_SpecModel, EstimatorSpec]] = {}
        self._weights: list[np.ndarray] | None = None
        self._file: str | None = None
        if self.model_dir is not None and os.path.isdir(self.model_dir):
            self._file = latest(self.model_dir)
            if self._file is not None:
                step = re.search(r"-(\d+)\.weights\.h5$", self._file)
                self.global_step = int(step[1]) if step else 0

    # --- train, evaluate, predict -----------------------------------------------------------------

    def train(
        self, input_fn: Callable[[], Any], steps: int | None = None, max_steps: int | None = None
    ) -> Estimator:
        """Train; return the estimator.

        Args:
            input_fn: the input function.
            steps: steps to do; None: until the input ends.
            max_steps: the value of `global_step` at which training ends.

        Raises:
            ValueError: both limits are given, or none for an input without end.
        """
        if steps is not None and max_steps is not None:
            raise ValueError("train: give steps or max_steps, not both.")
        left = steps if max_steps is None else max(max_steps - self.global_step, 0)
        batches = self._batches(input_fn, left, "train: give steps or max_steps")
        for features, labels in batches:
            model, _ = self._model(ModeKeys.TRAIN, features, labels)
            model.train_on_batch([*_arrays(features), *_arrays(labels)])
            self.global_step += 1
        if ModeKeys.TRAIN in self._models:
            self._weights = self._models[ModeKeys.TRAIN][0].get_weights()
            self._save()
        return self

    def evaluate(self, input_fn: Callable[[], Any], steps: int | None = None) -> dict[str, float]:
        """Return the mean loss, the metrics, and the global step.

        Args:
            input_fn: the input function.
            steps: batches; None: until the input ends.
        """
        total, count = 0.0, 0
        spec: EstimatorSpec | None = None
        for features, labels in self._batches(input_fn, steps, "evaluate: give steps"):
            model, spec = self._model(ModeKeys.EVAL, features, labels)
            if not count:
                for metric, _, _ in spec.eval_metric_ops.values():
                    metric.reset_state()
            results = model.predict_on_batch([*_arrays(features), *_arrays(labels)])
            total, count = total + float(results[0]), count + 1
            for i, (metric, _, _) in enumerate(spec.eval_metric_ops.values()):
                metric.update_state(results[1 + 2 * i], results[2 + 2 * i])
        if spec is None:
            raise ValueError("evaluate: the input function gave no batch.")
        scores = {name: float(m.result()) for name, (m, _, _) in spec.eval_metric_ops.items()}
        return {"loss": total / count, **scores, "global_step": self.global_step}

    def predict(self, input_fn: Callable[[], Any], steps: int | None = None) -> Iterator[Any]:
        """Yield the predictions for one row after the other.

        Args:
            input_fn: the input function; its labels, if there are any, are not used.
            steps: batches; None: until the input ends, or one batch.
        """
        given = input_fn()
        source = itertools.repeat(given, steps or 1) if _is_batch(given) else given
        for batch in itertools.islice(source, steps):
            features = batch[0] if isinstance(batch, tuple) else batch
            model, spec = self._model(ModeKeys.PREDICT, features, None)
            results = model.predict_on_batch([*_arrays(features)])
            results = results if isinstance(results, (list, tuple)) else [results]
            for row in zip(*results):
                yield tree.pack_sequence_as(spec.predictions, list(row))

    # --- models -----------------------------------------------------------------------------------

    def _model(
        self, mode: str, features: Structure, labels: Structure
    ) -> tuple[_SpecModel, EstimatorSpec]:
        """Return the model of a mode, with the latest weights."""
        known = self._models.get(mode)
        if known is None:
            known = self._models[mode] = self._make(mode, features, labels)
            if self._weights is None and self._file is not None:
                known[0].load_weights(self._file)
            elif self._weights is not None:
                self._put(known[0], mode)
        elif mode != ModeKeys.TRAIN and self._weights is not None:
            self._put(known[0], mode)
        return known

    def _put(self, model: Model, mode: str) -> None:
        assert self._weights is not None
        shapes = [tuple(w.shape) for w in model.weights]
        expected = [w.shape for w in self._weights]
        if shapes != expected:
            raise ValueError(
                f"model_fn must create the same layers for each mode: for {mode!r} its weights "
                f"have the shapes {shapes}, the trained ones {expected}."
            )
        model.set_weights(self._weights)

    def _make(
        self, mode: str, features: Structure, labels: Structure
    ) -> tuple[_SpecModel, EstimatorSpec]:
        symbols = [tree.map_structure(_symbol, part) for part in (features, labels)]
        given = {"features": symbols[0], "labels": symbols[1], "mode": mode, "params": self.params}
        names = inspect.signature(self.model_fn).parameters
        spec = self.model_fn(**{name: given[name] for name in names if name in given})
        if not isinstance(spec, EstimatorSpec):
            raise TypeError(
                f"model_fn must return an EstimatorSpec, got {type(spec).__name__} for {mode!r}."
            )
        if mode == ModeKeys.PREDICT:
            if spec.predictions is None:
                raise ValueError("model_fn gave no predictions for the mode 'infer'.")
            outputs = tree.flatten(spec.predictions)
            return _SpecModel(tree.flatten(symbols[0]), outputs), spec
        if spec.loss is None or tuple(spec.loss.shape):
            shape = None if spec.loss is None else tuple(spec.loss.shape)
            raise ValueError(
                f"model_fn must give a loss of one number for {mode!r}, got the shape {shape}: "
                "take its mean."
            )
        outputs = [spec.loss]
        for _, target, predicted in spec.eval_metric_ops.values():
            outputs.extend((target, predicted))
        inputs = [*tree.flatten(symbols[0]), *tree.flatten(symbols[1])]
        if mode == ModeKeys.TRAIN:
            outputs = [spec.loss, spec.loss]  # a list, whatever else there is
        model = _SpecModel(inputs, outputs if len(outputs) > 1 else outputs * 2)
        if mode == ModeKeys.TRAIN:
            if spec.optimizer is None:
                raise ValueError("model_fn gave no optimizer for the mode 'train'.")
            model.compile(spec.optimizer)
        return model, spec

    # --- input, files -----------------------------------------------------------------------------

    def _batches(
        self, input_fn: Callable[[], Any], steps: int | None, advice: str
    ) -> Iterable[tuple[Any, Any]]:
        given = input_fn()
        if _is_batch(given):
            if steps is None:
                raise ValueError(f"{advice}: the input function returns one batch, without end.")
            return itertools.repeat(given, steps)
        return itertools.islice(given, steps)

    def _save(self) -> None:
        if self.model_dir is None:
            return
        os.makedirs(self.model_dir, exist_ok=True)
        path = os.path.join(self.model_dir, f"model-{self.global_step}.weights.h5")
        self._models[ModeKeys.TRAIN][0].save_weights(path)
        steps = {}
        for name in os.listdir(self.model_dir):
            match = re.fullmatch(r"model-(\d+)\.weights\.h5", name)
            if match:
                steps[int(match[1])] = name
        for step in sorted(steps)[:-_MOST_FILES]:
            os.remove(os.path.join(self.model_dir, steps[step]))

    __repr__ = arguments_repr


def train_and_evaluate(
    estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec
) -> dict[str, float]:
    """Train to the last step, with an evaluation now and then; return the results of the last.

    Args:
        estimator: what is trained.
        train_spec: the training's input function and last step.
        eval_spec: the evaluations' input function, and how often they run.

    Raises:
        ValueError: the training's input gives no batch.

    Example:
        >>> from kerasish import layers, ops
        >>> def model_fn(features, labels, mode):
        ...     y = layers.Dense(1)(features)
        ...     loss = ops.mean(ops.square(y - labels))
        ...     return EstimatorSpec(mode, predictions=y, loss=loss, optimizer="sgd")
        >>> one = lambda: (np.ones((4, 2), "float32"), np.ones((4, 1), "float32"))
        >>> train, test = TrainSpec(one, max_steps=4), EvalSpec(one, steps=1, every=2)
        >>> train_and_evaluate(Estimator(model_fn), train, test)["global_step"]
        4
    """
    results = {}
    while estimator.global_step < train_spec.max_steps:
        before = estimator.global_step
        until = min(before + eval_spec.every, train_spec.max_steps)
        estimator.train(train_spec.input_fn, max_steps=until)
        if estimator.global_step == before:
            raise ValueError("train_and_evaluate: the training's input function gave no batch.")
        results = estimator.evaluate(eval_spec.input_fn, eval_spec.steps)
    return results or estimator.evaluate(eval_spec.input_fn, eval_spec.steps)


def _is_batch(given: Any) -> bool:
    """Return whether an input function gave a batch rather than an iterable of batches."""
    if isinstance(given, tuple) and len(given) == 2:
        return isinstance(given[0], dict) or hasattr(given[0], "shape")
    return isinstance(given, dict) or hasattr(given, "shape")


def _arrays(part: Structure) -> list[np.ndarray]:
    return [] if part is None else [to_numpy(convert(leaf)) for leaf in tree.flatten(part)]


def _symbol(leaf: Any) -> Any:
    if leaf is None:
        return None
    tensor = convert(leaf)
    return Input(tuple(tensor.shape[1:]), dtype=tensor.dtype)
