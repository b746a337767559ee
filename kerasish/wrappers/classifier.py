"""KerasClassifier: predicts labels and probabilities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import column_or_1d

from kerasish import losses
from kerasish.engine.model.model import Model
from kerasish.errors import UnknownNameError
from kerasish.losses.loss import Loss
from kerasish.tracebacks import hides_frames
from kerasish.typing import ActivationLike, Array, Structure, TensorLike
from kerasish.wrappers.arrays import float_of, output_width
from kerasish.wrappers.estimator import KerasEstimator

_TARGETS = ("binary", "multiclass", "multiclass-multioutput", "multilabel-indicator")
_SMALLEST = np.finfo(np.float64).tiny


class KerasClassifier(ClassifierMixin, KerasEstimator):
    """A model as a scikit-learn classifier.

    Labels may be of any type. y may hold one class per row, an indicator matrix (multi-label), or
    several columns of classes (multi-output). Without a `model`, an MLP is built for the data.

    Args:
        model: a function that returns a model, a Model class, a Model (copied, weights included),
            or None. A function gets the routed parameters (`model__units`), parameters with its
            own names, and `meta`, `compile_kwargs` or `params` if it has such parameters.
        build_fn: the old name of `model`; None: `model` is given.
        warm_start: whether `fit` continues from the weights of the last `fit`.
        random_state: with an int, weights, order and dropout are a function of it, and the model
            runs on one thread, so that a fit gives the same bits by itself and in every search.
            `config.set_threads` sets another number of threads. None: numbers of the process.
        optimizer, loss, metrics: for models that are not compiled. None: "rmsprop" ("adam" for
            the built-in MLP), the cross-entropy that fits the data, no metrics.
        batch_size: rows per step; None: 32 (min(200, rows) for the built-in MLP); -1: all rows.
        epochs: None: 1; for the built-in MLP the number that it needs, up to 200.
        validation_split: the share of the rows, from the end, that is not used for training.
        verbose, callbacks, shuffle, validation_batch_size, run_eagerly: as for `Model.fit` and
            `Model.compile`; callbacks may be classes, and are copied for each fit.
        hidden_layer_sizes, activation, alpha: of the built-in MLP, as for `MLPClassifier`.
        memory: a directory, `SearchMemory` or `joblib.Memory` that stores fits: see `SearchMemory`.
        class_weight: {label: weight}, "balanced", or None; several outputs: a list of dicts.
        **routed: `model__`, `optimizer__`, `loss__`, `callbacks__`, `compile__`, `fit__`,
            `predict__` and a parameter's name; and parameters of the model function.

    Attributes:
        model_: the fitted model.
        classes_: the labels (a list of them for several outputs).
        history_: name -> one number per epoch, including the fits that were continued.
        n_iter_: the number of epochs run.
        best_epoch_: the best epoch, counted from 0.

    Example:
        >>> import numpy as np
        >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
        >>> classifier = KerasClassifier(hidden_layer_sizes=(8,), random_state=0)
        >>> classifier = classifier.set_params(optimizer__learning_rate=0.1)
        >>> classifier.fit(X, ["low", "low", "high", "high"]).predict([[0.0], [3.0]])
        array(['low', 'high'], dtype='<U4')
    """

    def __init__(
        self,
        model: Model | Callable[..., Model] | None = None,
        *,
        build_fn: Structure = None,
        warm_start: bool = False,
        random_state: Any = None,
        optimizer: Structure = None,
        loss: Structure = None,
        metrics: Structure = None,
        batch_size: Structure = None,
        validation_batch_size: int | None = None,
        verbose: Structure = 0,
        callbacks: Structure = None,
        validation_split: float = 0.0,
        shuffle: Structure = True,
        run_eagerly: bool = False,
        epochs: int | None = None,
        hidden_layer_sizes: Structure = None,
        activation: ActivationLike | None = None,
        alpha: float | None = None,
        memory: Structure = None,
        class_weight: Structure = None,
        **routed: Any,
    ) -> None:
        super().__init__(
            model, build_fn=build_fn, warm_start=warm_start, random_state=random_state,
            optimizer=optimizer, loss=loss, metrics=metrics, batch_size=batch_size,
            validation_batch_size=validation_batch_size, verbose=verbose, callbacks=callbacks,
            validation_split=validation_split, shuffle=shuffle, run_eagerly=run_eagerly,
            epochs=epochs, hidden_layer_sizes=hidden_layer_sizes, activation=activation,
            alpha=alpha, memory=memory, **routed,
        )  # fmt: skip
        self.class_weight = class_weight

    # --- fitting --------------------------------------------------------------------------------

    @hides_frames
    def partial_fit(
        self,
        X: TensorLike,
        y: Structure,
        classes: Array = None,
        sample_weight: Structure = None,
        **fit_arguments: Any,
    ) -> KerasClassifier:
        """Train for one more epoch; the first call tells all `classes` if its y lacks some."""
        epochs = fit_arguments.pop("epochs", 1)
        return self._fit(X, y, sample_weight, epochs, True, labels=classes, **fit_arguments)

    def _learn_targets(self, y: TensorLike, weights: Array, labels: Array, going_on: bool) -> None:
        y = np.asarray(y)
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        if going_on:
            self._known_labels(y)
            return
        self.target_type_ = type_of_target(y, input_name="y")
        if self.target_type_ not in _TARGETS:
            check_classification_targets(y)  # tells what is wrong
        self.y_dtype_, self.y_ndim_ = y.dtype, y.ndim
        if self.target_type_ == "multilabel-indicator":
            self.classes_: Any = np.arange(y.shape[1])
            self.n_classes_: Any = y.shape[1]
            self.n_outputs_, self.n_outputs_expected_ = y.shape[1], y.shape[1]
        elif y.ndim == 2:
            self.target_type_ = "multiclass-multioutput"
            self.classes_ = [np.unique(column) for column in y.T]
            self.n_classes_ = [len(c) for c in self.classes_]
            self.n_outputs_ = y.shape[1]
            self.n_outputs_expected_ = [1 if n <= 2 else n for n in self.n_classes_]
        else:
            self.classes_ = np.unique(y if labels is None else labels)
            if labels is not None:
                self._known_labels(y)
            count = self.n_classes_ = len(self.classes_)
            self.target_type_ = "binary" if count <= 2 else "multiclass"
            self.n_outputs_, self.n_outputs_expected_ = 1, 1 if count <= 2 else count

    def _known_labels(self, y: Array) -> None:
        if getattr(self, "target_type_", None) == "multilabel-indicator":
            if y.ndim != 2 or y.shape[1] != self.n_outputs_:
                raise ValueError(
                    f"y: expected an indicator matrix of {self.n_outputs_} labels, got shape "
                    f"{y.shape}."
                )
            return
        columns = list(y.T) if y.ndim == 2 else [y]
        known = self.classes_ if isinstance(self.classes_, list) else [self.classes_]
        if len(columns) != len(known):
            raise ValueError(f"y: expected {len(known)} outputs, got shape {y.shape}.")
        for column, labels in zip(columns, known):
            new = np.setdiff1d(column, labels)
            if len(new):
                raise ValueError(
                    f"y: the labels {new.tolist()} are not among the known classes "
                    f"{labels.tolist()}; give partial_fit(classes=...) all of them at the start."
                )

    def _weigh(self, y: TensorLike, weights: Array) -> Array:
        if self.class_weight is None:
            return weights
        own = compute_sample_weight(self.class_weight, y)
        return own if weights is None else own * weights

    def _default_loss(self, model: Model | None) -> Loss | list[Loss]:
        widths = self.n_outputs_expected_ if model is None else self._widths(model)
        if isinstance(widths, list):
            return [self._loss_for(w, model) for w in widths]
        return self._loss_for(widths, model)

    def _loss_for(self, width: int, model: Model | None) -> Loss:
        single = width == 1 or self.target_type_ == "multilabel-indicator"
        kind = losses.BinaryCrossentropy if single else losses.SparseCategoricalCrossentropy
        dtype = None if model is None else float_of(model)
        return kind(from_logits=self._own_model(), dtype=dtype)

    def _widths(self, model: Model) -> int | list[int]:
        if model.layer_graph is not None:
            return output_width(model, None)
        return self.n_outputs_expected_

    def _encode(self, y: Array, X: Structure) -> Structure:
        """Return y in the form that the model's loss expects."""
        widths = output_width(self.model_, X)
        loss = self.model_.loss
        if self.target_type_ == "multilabel-indicator":
            return np.asarray(y, "float32")
        if isinstance(self.classes_, list):
            result = widths if isinstance(widths, list) else [widths]
            if len(result) != len(self.classes_):
                raise ValueError(
                    f"y has {len(self.classes_)} outputs, the model has {len(result)}."
                )
            each = loss if isinstance(loss, (list, tuple)) else [loss] * len(result)
            columns = zip(np.asarray(y).T, self.classes_, result, each)
            return [_encode_column(*column) for column in columns]
        y = np.asarray(y).reshape(-1)
        return _encode_column(y, self.classes_, widths, loss)

    # --- predicting -----------------------------------------------------------------------------

    @hides_frames
    def predict(self, X: TensorLike, **predict_arguments: Any) -> Array:
        """Return the most likely label of each row (each output of a row)."""
        raw = self._raw(X, **predict_arguments)
        if self.target_type_ == "multilabel-indicator":
            return (self._scores(raw) > 0).astype(int)
        if isinstance(self.classes_, list):
            results = [_chosen(s, c) for s, c in zip(self._scores(raw), self.classes_)]
            return np.stack(results, axis=1)
        return _chosen(self._scores(raw), self.classes_)

    @hides_frames
    def predict_proba(self, X: TensorLike, **predict_arguments: Any) -> Structure:
        """Return the probability of each class (label), columns in the order of `classes_`."""
        raw = self._raw(X, **predict_arguments)
        if self.target_type_ == "multilabel-indicator":
            return _sigmoid(self._scores(raw))
        if isinstance(self.classes_, list):
            return [_probabilities(s, len(c)) for s, c in zip(self._scores(raw), self.classes_)]
        return _probabilities(self._scores(raw), len(self.classes_))

    def predict_log_proba(self, X: TensorLike) -> Array:
        """Return the logarithms of `predict_proba`."""
        result = self.predict_proba(X)
        if isinstance(result, list):
            return [np.log(np.maximum(p, _SMALLEST)) for p in result]
        return np.log(np.maximum(result, _SMALLEST))

    def decision_function(self, X: TensorLike) -> Array:
        """Return log odds: positive for `classes_[1]`; with several classes, a column per class."""
        scores = self._scores(self._raw(X))
        if isinstance(scores, list):
            return [_decisions(s, len(c)) for s, c in zip(scores, self.classes_)]
        if self.target_type_ == "multilabel-indicator":
            return scores
        return _decisions(scores, len(self.classes_))

    def _scores(self, raw: Structure) -> Structure:
        """Return logits, float64: the model's output, or computed from its probabilities."""
        loss = self.model_.loss
        if isinstance(raw, (list, tuple)):
            each = loss if isinstance(loss, (list, tuple)) else [loss] * len(raw)
            return [self._logits(r, one) for r, one in zip(raw, each)]
        if isinstance(self.classes_, list):
            return [self._logits(raw, loss)]
        return self._logits(raw, loss)

    def _logits(self, raw: Array, loss: Structure) -> Array:
        raw = np.asarray(raw, np.float64)
        raw = raw.reshape(len(raw), -1)
        if from_logits(loss):
            return raw
        binary = raw.shape[1] == 1 or self.target_type_ == "multilabel-indicator"
        positive = np.log(np.maximum(raw, _SMALLEST))
        return positive - np.log(np.maximum(1 - raw, _SMALLEST)) if binary else positive

    def score(self, X: TensorLike, y: Structure, sample_weight: Structure = None) -> float:
        """Return the share of rows whose labels are all correct."""
        y = np.asarray(y)
        if y.ndim == 2 and isinstance(getattr(self, "classes_", None), list):
            right = (self.predict(X) == y).all(axis=1)
            return float(np.average(right, weights=sample_weight))
        return float(super().score(X, y, sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


def _encode_column(y: TensorLike, classes: Array, width: int, loss: Structure) -> Array:
    if width != 1 and width < len(classes):
        raise ValueError(
            f"The model gives {width} outputs for {len(classes)} classes; the model function finds "
            'the number in meta["n_classes_"].'
        )
    if width == 1 and len(classes) > 2:
        raise ValueError(
            f"The model gives 1 output for {len(classes)} classes; the model function finds the "
            'number to give in meta["n_outputs_expected_"].'
        )
    numbers = np.searchsorted(classes, y)
    if width == 1:
        return numbers.astype("float32")[:, None]
    if name_of_loss(loss).startswith("sparse_"):
        return numbers.astype("int32")
    return np.eye(width, dtype="float32")[numbers]


def name_of_loss(loss: Structure) -> str:
    """Return a loss's name in snake case.

    Example:
        >>> name_of_loss("SparseCategoricalCrossentropy"), name_of_loss(losses.mean_squared_error)
        ('sparse_categorical_crossentropy', 'mean_squared_error')
    """
    if isinstance(loss, str):
        try:
            loss = losses.get(loss)
        except UnknownNameError:
            return loss
    return str(getattr(loss, "name", None) or getattr(loss, "__name__", type(loss).__name__))


def from_logits(loss: Structure) -> bool:
    """Return whether a loss takes logits.

    Example:
        >>> from_logits(losses.BinaryCrossentropy(from_logits=True)), from_logits("mse")
        (True, False)
    """
    config = loss.get_config() if hasattr(loss, "get_config") else {}
    return bool(config.get("from_logits"))


def _sigmoid(x: Array) -> Array:
    return np.exp(-np.logaddexp(0, -x))


def _probabilities(scores: Array, count: int) -> Array:
    if count == 1:
        return np.ones((len(scores), 1))
    if scores.shape[1] == 1:
        return np.concatenate([_sigmoid(-scores), _sigmoid(scores)], axis=1)
    shifted = np.exp(scores - scores.max(axis=1, keepdims=True))
    return (shifted / shifted.sum(axis=1, keepdims=True))[:, :count]


def _decisions(scores: Array, count: int) -> Array:
    if scores.shape[1] == 1:
        return scores[:, 0]
    return scores[:, 1] - scores[:, 0] if count == 2 else scores[:, :count]


def _chosen(scores: Array, classes: Array) -> Array:
    if scores.shape[1] == 1:
        result = (scores[:, 0] > 0).astype(int)
    else:
        result = scores[:, : len(classes)].argmax(axis=1)
    return classes[np.minimum(result, len(classes) - 1)]
