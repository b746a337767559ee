"""KerasEstimator: what the classifier and the regressor share."""

from __future__ import annotations

import copy
import inspect
import warnings
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from kerasish import config, losses, optimizers
from kerasish.callbacks import EarlyStopping
from kerasish.engine import Model
from kerasish.errors import UnknownNameError
from kerasish.wrappers.arrays import drop_weightless, finite, float_of
from kerasish.wrappers.perceptron import build_perceptron
from kerasish.wrappers.routing import (
    DESTINATIONS,
    check_names,
    goes_somewhere,
    make,
    make_callbacks,
    named_parameters,
    part,
    takes_any,
)

# The model of no `model`: scikit-learn's MLP's limits.
EPOCHS, PATIENCE, TOLERANCE, BATCH_SIZE = 200, 10, 1e-4, 200
_DENSE_BYTES = 1 << 28  # sparse X up to this size is made dense for the fast loops
_OWN_MODEL = ("hidden_layer_sizes", "activation", "alpha")


class KerasEstimator(BaseEstimator):
    """A model as a scikit-learn estimator; see `KerasClassifier` and `KerasRegressor`."""

    def __init__(
        self,
        model: Any = None,
        *,
        build_fn: Any = None,
        warm_start: bool = False,
        random_state: Any = None,
        optimizer: Any = None,
        loss: Any = None,
        metrics: Any = None,
        batch_size: Any = None,
        validation_batch_size: int | None = None,
        verbose: Any = 0,
        callbacks: Any = None,
        validation_split: float = 0.0,
        shuffle: Any = True,
        run_eagerly: bool = False,
        epochs: int | None = None,
        hidden_layer_sizes: Any = None,
        activation: Any = None,
        alpha: float | None = None,
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
        self._routed = dict(routed)

    # --- parameters -----------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return all parameters, the routed ones among them."""
        return {**super().get_params(deep=False), **self._routed}

    def set_params(self, **params: Any) -> Any:
        """Set parameters; `model__units` and the like may be new.

        Raises:
            UnknownNameError: a name is neither a parameter nor goes to a known destination.
        """
        own = self._get_param_names()
        builder = params.get("model", params.get("build_fn", self._builder()))
        for name in params:
            if name not in own and name not in self._routed and not goes_somewhere(name, builder):
                known = [*own, *(f"{d}__" for d in DESTINATIONS)]
                known += list(named_parameters(builder)) if callable(builder) else []
                raise UnknownNameError.of(f"parameter of {type(self).__name__}", name, known)
        for name, value in params.items():
            if name in own:
                setattr(self, name, value)
            else:
                self._routed[name] = value
        return self

    def _check_routed(self, builder: Any) -> None:
        for name in self._routed:
            if not goes_somewhere(name, builder):
                known = [*self._get_param_names()]
                known += list(named_parameters(builder)) if callable(builder) else []
                raise UnknownNameError.of(f"parameter of {type(self).__name__}", name, known)

    def _builder(self) -> Any:
        return self.build_fn if self.model is None else self.model

    # --- the model ------------------------------------------------------------------------------

    def _meta(self) -> dict[str, Any]:
        """Return what is known of the data, as model functions get it."""
        return {k: v for k, v in vars(self).items() if k.endswith("_") and k != "model_"}

    def _make_model(self) -> Any:
        """Return a new compiled model."""
        if self.build_fn is not None and self.model is None:
            warnings.warn("build_fn is the old name of model.", DeprecationWarning, stacklevel=4)
        builder = self._builder()
        self._check_routed(builder)
        wanted = part(self._routed, "model")
        asked: set[str] = set()
        if builder is None:
            own = {k: getattr(self, k) for k in _OWN_MODEL}
            check_names(wanted, _OWN_MODEL, "model", "the built-in model")
            model = build_perceptron(self._meta(), **{**own, **wanted})
        elif isinstance(builder, Model):
            check_names(wanted, (), "model", "a ready model, which takes none")
            model = copy.deepcopy(builder)
        elif callable(builder):
            model, asked = self._call_builder(builder, wanted)
        else:
            raise TypeError(
                "model: expected a model, a function that returns one, a Model class or None, "
                f"got {builder!r}."
            )
        if model.compiled:
            self._check_compiled(asked)
        else:
            model.compile(**self._compile_arguments(model))
        return model

    def _call_builder(self, builder: Any, wanted: dict[str, Any]) -> tuple[Any, set[str]]:
        names, open_ended = named_parameters(builder), takes_any(builder)
        where = getattr(builder, "__name__", type(builder).__name__)
        if not open_ended:
            check_names(wanted, list(names), "model", f"{where}()")
        given = {k: v for k, v in self._routed.items() if "__" not in k}
        for name, value in super().get_params(deep=False).items():
            needed = name in names and names[name].default is inspect.Parameter.empty
            if (
                name in names
                and name not in ("model", "build_fn")
                and (value is not None or needed)
            ):
                given[name] = value
        special = {
            "meta": self._meta,
            "compile_kwargs": lambda: self._compile_arguments(None),
            "params": self.get_params,
        }
        for name, value in special.items():
            if name in names:
                given[name] = value()
        model = builder(**{**given, **wanted})
        if not isinstance(model, Model):
            raise TypeError(f"model: {where}() returned {type(model).__name__}, expected a Model.")
        return model, set(names)

    def _check_compiled(self, asked: set[str]) -> None:
        if "compile_kwargs" in asked or "params" in asked:
            return
        for name in ("optimizer", "loss", "metrics"):
            given = getattr(self, name) is not None or part(self._routed, name)
            if given and name not in asked:
                warnings.warn(
                    f"{type(self).__name__}: the model comes compiled, {name} has no effect; let "
                    "the model function take `compile_kwargs`, or return an uncompiled model.",
                    UserWarning,
                    stacklevel=5,
                )

    def _compile_arguments(self, model: Any) -> dict[str, Any]:
        routed = self._routed
        default = "adam" if self._builder() is None else "rmsprop"
        found = {
            "optimizer": make(
                default if self.optimizer is None else self.optimizer,
                part(routed, "optimizer"), "optimizer", optimizers.get,
            ),
            "loss": self._make_loss(model),
            "metrics": self.metrics,
        }  # fmt: skip
        if self.run_eagerly:
            found["run_eagerly"] = True
        extra = part(routed, "compile")
        check_names(extra, list(named_parameters(Model.compile)), "compile", "Model.compile")
        return {**found, **extra}

    def _make_loss(self, model: Any) -> Any:
        given = part(self._routed, "loss")
        if self.loss is None:
            return self._default_loss(model)
        if isinstance(self.loss, (list, dict)) and not given:
            return self.loss
        return make(self.loss, given, "loss", losses.get) if given else self.loss

    def _default_loss(self, model: Any) -> Any:
        raise NotImplementedError

    # --- data -----------------------------------------------------------------------------------

    def _own_model(self) -> bool:
        return self.model is None and self.build_fn is None

    def _check_arguments(self) -> dict[str, Any]:
        own = self._own_model()
        return {
            "accept_sparse": ("csr", "csc"), "allow_nd": not own,
            "dtype": _FLOATS if own else "numeric",
        }  # fmt: skip

    def _inputs(self, X: Any) -> Any:
        """Return X as the model takes it."""
        if hasattr(X, "toarray"):
            if np.prod(X.shape) * 4 > _DENSE_BYTES:
                return X
            X = X.toarray()
        return self._as_model(X)

    def _as_model(self, x: Any) -> Any:
        """Return float64 as the model's float, anything else as it is."""
        if x is None or x.dtype != np.float64:
            return x
        return finite(x.astype(float_of(self.model_)))

    def _choose_numbers(self, X: Any, weights: Any) -> None:
        """Let one batch of float64 data be trained in float64: order and weights then matter to
        the last digits only. More rows are trained in the default float.
        """
        small = X.shape[0] <= BATCH_SIZE and X.dtype == np.float64
        self.compute_dtype_ = "float64" if small else config.floatx()
        batch = self._batch_size(X.shape[0])
        total = X.shape[0] if weights is None else float(weights.sum())
        self.batch_weight_ = total if batch >= X.shape[0] else batch

    def _check_X(self, X: Any) -> Any:
        check_is_fitted(self, "model_")
        return self._inputs(validate_data(self, X, reset=False, **self._check_arguments()))

    # --- fitting --------------------------------------------------------------------------------

    def _take_data(self, X: Any, y: Any, sample_weight: Any, going_on: bool) -> Any:
        if y is None:
            raise ValueError(
                f"This {type(self).__name__} estimator requires y to be passed, but the target y "
                "is None."
            )
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

    def _fit(
        self, X: Any, y: Any, sample_weight: Any, epochs: int, going_on: bool,
        labels: Any = None, **fit_arguments: Any,
    ) -> Any:  # fmt: skip
        going_on = going_on and hasattr(self, "model_")
        X, y, weights = self._take_data(X, y, sample_weight, going_on)
        if not going_on:
            self.X_shape_, self.X_dtype_ = X.shape, X.dtype
        self._learn_targets(y, weights, labels, going_on)
        weights = self._weigh(y, weights)
        X, y, weights = drop_weightless(X, y, weights)
        if not going_on:
            self._choose_numbers(X, weights)
        if weights is not None:
            weights = weights * (len(weights) / weights.sum())
        if not going_on or not hasattr(self, "_seed"):
            self._seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
            self._fits = 0
        with config.seeded((self._seed << 20) + self._fits):
            if not going_on:
                self.model_ = self._make_model()
                self.history_: dict[str, list[Any]] = {}
            inputs = self._inputs(X)
            self._run(inputs, self._encode(y, inputs), weights, epochs, fit_arguments)
        self._fits += 1
        return self

    def _run(self, X: Any, y: Any, weights: Any, epochs: int, fit_arguments: Any) -> None:
        routed = part(self._routed, "fit")
        known = [n for n in named_parameters(Model.fit) if n not in ("x", "y", "sample_weight")]
        check_names({**routed, **fit_arguments}, known, "fit", "Model.fit")
        callbacks = make_callbacks(self.callbacks, part(self._routed, "callbacks"))
        if self._own_model() and self.epochs is None and epochs > 1:
            callbacks.append(self._stop_when_settled())
        given: dict[str, Any] = {
            "batch_size": self._batch_size(X.shape[0]), "epochs": epochs, "verbose": self.verbose,
            "callbacks": callbacks, "validation_split": self.validation_split,
            "validation_batch_size": self.validation_batch_size, "shuffle": self.shuffle,
        }  # fmt: skip
        given.update(routed)
        given.update(fit_arguments)
        history = self.model_.fit(X, y, sample_weight=self._as_model(weights), **given)
        for name, values in history.history.items():
            self.history_.setdefault(name, []).extend(values)
        self.model_.history = None
        self.n_iter_ = len(self.history_["loss"]) if self.history_ else 0
        self._note_best(given["callbacks"], len(history.epoch))

    def _stop_when_settled(self) -> Any:
        watched = "val_loss" if self.validation_split else "loss"
        return EarlyStopping(
            watched, min_delta=TOLERANCE, patience=PATIENCE, mode="min",
            restore_best_weights=bool(self.validation_split),
        )  # fmt: skip

    def _note_best(self, callbacks: Any, epochs_run: int) -> None:
        """Keep the epoch (from 0, over all fits) that early stopping or the loss calls best."""
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
        """The number of epochs that the model was trained for."""
        check_is_fitted(self, "model_")
        return int(self.n_iter_)

    def _raw(self, X: Any, **predict_arguments: Any) -> Any:
        """Return what the model gives for X."""
        X = self._check_X(X)
        given = {"verbose": 0, "batch_size": max(self._batch_size(X.shape[0]), 1024)}
        extra = {**part(self._routed, "predict"), **predict_arguments}
        check_names(extra, list(named_parameters(Model.predict)), "predict", "Model.predict")
        return self.model_.predict(X, **{**given, **extra})

    def _weigh(self, y: Any, weights: Any) -> Any:
        return weights

    def _learn_targets(self, y: Any, weights: Any, labels: Any, going_on: bool) -> None:
        raise NotImplementedError

    def _encode(self, y: Any, X: Any) -> Any:
        raise NotImplementedError

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


_FLOATS = (np.float64, np.float32)
