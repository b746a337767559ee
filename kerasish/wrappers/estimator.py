"""KerasEstimator: the base of the classifier and the regressor."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from kerasish import config
from kerasish.callbacks import EarlyStopping
from kerasish.engine import Model
from kerasish.tracebacks import hides_frames
from kerasish.typing import ActivationLike, Array, Structure, TensorLike
from kerasish.wrappers.arrays import (
    drop_weightless,
    finite,
    float_of,
    require_targets,
    takes_sparse,
)
from kerasish.wrappers.building import ModelBuilding, free_steps
from kerasish.wrappers.memory import describe_fit, open_memory
from kerasish.wrappers.parameters import check_settings
from kerasish.wrappers.routing import check_names, make_callbacks, named_parameters, part

if TYPE_CHECKING:
    from typing_extensions import Self

    from kerasish.callbacks.callback import Callback

# The built-in MLP has the limits of scikit-learn's MLP.
EPOCHS, PATIENCE, TOLERANCE, BATCH_SIZE = 200, 10, 1e-4, 200
_DENSE_BYTES = 1 << 28  # sparse X up to this size is converted to dense, which is faster


class KerasEstimator(ModelBuilding):
    """A model as a scikit-learn estimator; see `KerasClassifier` and `KerasRegressor`."""

    _seed: Any = None  # of the last fit from the start

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
        **routed: Any,
    ) -> None:
        self.model = model
        self.build_fn = build_fn
        self.warm_start = warm_start
        self.random_state = random_state
        self.optimizer = optimizer
        self.loss = loss
        self.metrics = metrics
        self.batch_size = batch_size
        self.validation_batch_size = validation_batch_size
        self.verbose = verbose
        self.callbacks = callbacks
        self.validation_split = validation_split
        self.shuffle = shuffle
        self.run_eagerly = run_eagerly
        self.epochs = epochs
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.alpha = alpha
        self.memory = memory
        self._routed = dict(routed)

    # --- data -----------------------------------------------------------------------------------

    def _check_arguments(self) -> dict[str, Any]:
        own = self._own_model()
        return {
            "accept_sparse": ("csr", "csc"), "allow_nd": not own,
            "dtype": _FLOATS if own else "numeric",
        }  # fmt: skip

    @property
    def feature_encoder(self) -> Any:
        """A transformer from X to the model's inputs (a list for several), or None.

        Subclasses override it. Fitted to the rows of `fit`, it is the attribute `feature_encoder_`.
        """
        return None

    def _inputs(self, X: Array) -> Structure:
        """Return X in the form that the model expects."""
        encoder = getattr(self, "feature_encoder_", None)
        if encoder is not None:
            return encoder.transform(X)
        if hasattr(X, "toarray"):
            if takes_sparse(self.model_):
                return X
            if np.prod(X.shape) * 4 > _DENSE_BYTES:
                return X
            X = X.toarray()
        return self._as_model(X)

    def _as_model(self, x: Array) -> Array:
        """Return float64 arrays in the model's floating dtype, anything else unchanged."""
        if x is None or x.dtype != np.float64:
            return x
        return finite(x.astype(float_of(self.model_)))

    def _choose_numbers(self, X: Array, weights: Array) -> None:
        """Let one batch of float64 data be trained in float64: order and weights then matter to
        the last digits only. More rows are trained in the default float.
        """
        small = X.shape[0] <= BATCH_SIZE and X.dtype == np.float64
        self.compute_dtype_ = "float64" if small else config.floatx()
        batch = self._batch_size(X.shape[0])
        total = X.shape[0] if weights is None else float(weights.sum())
        self.batch_weight_ = total if batch >= X.shape[0] else batch

    def _validation(self, data: Sequence[Array]) -> Any:
        """Return `validation_data` in the form the model expects; data without rows unchanged."""
        if not isinstance(data, (tuple, list)) or len(data) not in (2, 3):
            return data
        X, y = validate_data(
            self, data[0], data[1], reset=False, multi_output=True, **self._check_arguments()
        )
        self._learn_targets(y, None, None, True)
        inputs = self._inputs(X)
        return (inputs, self._encode(y, inputs), *data[2:])

    # --- fitting --------------------------------------------------------------------------------

    def _take_data(
        self, X: TensorLike, y: TensorLike | None, sample_weight: Structure, going_on: bool
    ) -> tuple[Any, ...]:
        require_targets(self, y)
        X, y = validate_data(
            self, X, y, reset=not going_on, multi_output=True, y_numeric=self._y_numeric,
            **self._check_arguments(),
        )  # fmt: skip
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(
                sample_weight, X, dtype=np.float64, ensure_non_negative=True
            )
        return X, y, weights

    _y_numeric = False
    history_: dict[str, list[Any]]

    @hides_frames
    def fit(
        self,
        X: TensorLike,
        y: Structure,
        sample_weight: Structure = None,
        **fit_arguments: Any,
    ) -> Self:
        """Train on rows X and targets y; further arguments are passed to this `Model.fit`."""
        epochs = fit_arguments.pop("epochs", self._epochs())
        return self._fit(X, y, sample_weight, epochs, self.warm_start, **fit_arguments)

    def _fit(
        self, X: TensorLike, y: TensorLike | None, sample_weight: Structure, epochs: int,
        going_on: bool,
        labels: Array = None, **fit_arguments: Any,
    ) -> Self:  # fmt: skip
        memory = open_memory(self.memory)
        going_on = going_on and hasattr(self, "model_")
        X, y, weights = self._prepare(X, y, sample_weight, going_on, labels)
        if going_on or memory is None:
            return self._train(X, y, weights, epochs, going_on, fit_arguments)
        seed = None if self.random_state is None else self._seed
        key = describe_fit(self, seed, X, y, weights, labels, epochs, fit_arguments)
        kept = memory.get(key)
        if kept is None:
            self._train(X, y, weights, epochs, going_on, fit_arguments)
            memory.put(key, self._learnt())
        else:
            self.__dict__.update(kept)
        return self

    def _prepare(
        self,
        X: TensorLike,
        y: TensorLike | None,
        sample_weight: Structure,
        going_on: bool,
        labels: Array,
    ) -> tuple[Any, ...]:
        """Return (X, y, weights) ready for training; store their description and a seed."""
        check_settings(self)
        X, y, weights = self._take_data(X, y, sample_weight, going_on)
        if not going_on:
            self.X_shape_, self.X_dtype_ = X.shape, X.dtype
        self._learn_targets(y, weights, labels, going_on)
        weights = self._weigh(y, weights)
        X, y, weights = drop_weightless(X, y, weights)
        if not going_on:
            self._choose_numbers(X, weights)
            encoder = self.feature_encoder
            self.feature_encoder_ = None if encoder is None else clone(encoder).fit(X)
        if weights is not None:
            weights = weights * (len(weights) / weights.sum())
        if not going_on or self._seed is None:
            self._seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
            self._fits = 0
        return X, y, weights

    def initialize(self, X: TensorLike, y: Structure) -> Self:
        """Build the untrained model for these data, to inspect it or to call `partial_fit`."""
        self._prepare(X, y, None, False, None)
        with config.seeded(self._seed << 20):
            self.model_ = self._make_model()
        self.history_, self.n_iter_ = {}, 0
        return self

    def _train(
        self,
        X: Array,
        y: TensorLike,
        weights: Array,
        epochs: int,
        going_on: bool,
        fit_arguments: dict[Any, Any],
    ) -> Self:
        with config.seeded((self._seed << 20) + self._fits), self._threads():
            if not going_on:
                free_steps(getattr(self, "model_", None))
                self.model_ = self._make_model()
                self.history_ = {}
            inputs = self._inputs(X)
            target = self._encode(y, inputs)
            self._run(inputs, target, weights, X.shape[0], epochs, fit_arguments)
        self._fits += 1
        return self

    def _learnt(self) -> dict[str, Any]:
        """Return the attributes that `fit` has set."""
        given = {*self._get_param_names(), "_routed", "_sklearn_output_config"}
        return {
            k: v for k, v in vars(self).items() if k not in given and not k.startswith("_metadata")
        }

    def _threads(self) -> Any:
        """Return the block in which a model runs. With a seed that is one thread, unless
        `config.set_threads` tells another number: sums split among threads differ in the last
        digit, and a worker of a search has another share of the processors than the rest.
        """
        seeded = self.random_state is not None and config.threads() is None
        return config.using_threads(1 if seeded else None)

    def _run(
        self,
        X: TensorLike,
        y: TensorLike,
        weights: Array,
        rows: int,
        epochs: int,
        fit_arguments: dict[str, Any],
    ) -> None:
        routed = part(self._routed, "fit")
        known = [n for n in named_parameters(Model.fit) if n not in ("x", "y", "sample_weight")]
        check_names({**routed, **fit_arguments}, known, "fit", "Model.fit")
        callbacks = make_callbacks(self.callbacks, part(self._routed, "callbacks"))
        if self._own_model() and self.epochs is None and epochs > 1:
            callbacks.append(self._stop_when_settled())
        given: dict[str, Any] = {
            "batch_size": self._batch_size(rows), "epochs": epochs, "verbose": self.verbose,
            "callbacks": callbacks, "validation_split": self.validation_split,
            "validation_batch_size": self.validation_batch_size, "shuffle": self.shuffle,
        }  # fmt: skip
        given.update(routed)
        given.update(fit_arguments)
        if "validation_data" in given:
            given["validation_data"] = self._validation(given["validation_data"])
        history = self.model_.fit(X, y, sample_weight=self._as_model(weights), **given)
        for name, values in history.history.items():
            self.history_.setdefault(name, []).extend(values)
        self.model_.history = None
        self.n_iter_ = len(self.history_["loss"]) if self.history_ else 0
        self._note_best(given["callbacks"], len(history.epoch))

    def _stop_when_settled(self) -> Callback:
        watched = "val_loss" if self.validation_split else "loss"
        return EarlyStopping(
            watched, min_delta=TOLERANCE, patience=PATIENCE, mode="min",
            restore_best_weights=bool(self.validation_split),
        )  # fmt: skip

    def _note_best(self, callbacks: Sequence[Callback], epochs_run: int) -> None:
        """Store the best epoch (from 0, over all fits) by early stopping, or by the loss."""
        before = self.n_iter_ - epochs_run
        for callback in callbacks or ():
            if isinstance(callback, EarlyStopping) and callback.best is not None:
                self.best_epoch_ = before + callback.best_epoch
                return
        losses_of = self.history_.get("val_loss") or self.history_.get("loss")
        if losses_of and np.isfinite(losses_of).any():
            self.best_epoch_ = int(np.nanargmin(losses_of))

    def _batch_size(self, rows: int) -> int:
        if self.batch_size in (None, "auto"):
            return min(BATCH_SIZE, rows) if self._own_model() else 32
        return rows if self.batch_size == -1 else self.batch_size

    def _epochs(self) -> int:
        if self.epochs is not None:
            return self.epochs
        return EPOCHS if self._own_model() else 1

    @property
    def current_epoch(self) -> int:
        """The number of epochs that the model has been trained for."""
        check_is_fitted(self, "model_")
        return int(self.n_iter_)

    def _raw(self, X: TensorLike, **predict_arguments: Any) -> Structure:
        """Return the model's predictions for X."""
        check_is_fitted(self, "model_")
        X = validate_data(self, X, reset=False, **self._check_arguments())
        given = {"verbose": 0, "batch_size": max(self._batch_size(X.shape[0]), 1024)}
        extra = {**part(self._routed, "predict"), **predict_arguments}
        check_names(extra, list(named_parameters(Model.predict)), "predict", "Model.predict")
        with self._threads():
            return self.model_.predict(self._inputs(X), **{**given, **extra})

    def _weigh(self, y: TensorLike, weights: Array) -> Array:
        return weights

    @abstractmethod
    def _learn_targets(self, y: TensorLike, weights: Any, labels: Any, going_on: bool) -> None:
        """Store the description of the targets; if a fit is continued, check that they match it."""

    @abstractmethod
    def _encode(self, y: TensorLike, X: TensorLike) -> Any:
        """Return y in the form that the model's loss expects."""

    def __del__(self) -> None:
        free_steps(self.__dict__.get("model_"))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


_FLOATS = (np.float64, np.float32)
