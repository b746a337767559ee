"""Keras's own estimators: SKLearnClassifier, SKLearnRegressor, SKLearnTransformer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from kerasish.engine import Model, clone_model
from kerasish.tracebacks import hides_frames
from kerasish.typing import Array, Structure, TensorLike
from kerasish.wrappers.arrays import require_targets, takes_sparse
from kerasish.wrappers.building import free_steps

if TYPE_CHECKING:
    from typing_extensions import Self


class SKLearnDialect(BaseEstimator):
    """The base of Keras's three estimators.

    Args:
        model: a compiled model, cloned with new weights for each fit, or a function that returns
            one; it gets X, y and `model_kwargs`.
        warm_start: whether the model itself is trained, starting from its current weights.
        model_kwargs: arguments of the model function.
        fit_kwargs: arguments of `Model.fit`; arguments of `fit` override them.

    Attributes:
        model_: the fitted model.
        history_: name -> one number per epoch.
    """

    def __init__(
        self,
        model: Model | Callable[..., Model],
        warm_start: bool = False,
        model_kwargs: dict[str, Any] | None = None,
        fit_kwargs: dict[str, Any] | None = None,
    ) -> None:
        self.model = model
        self.warm_start = warm_start
        self.model_kwargs = model_kwargs
        self.fit_kwargs = fit_kwargs

    def _get_model(self, X: TensorLike, y: TensorLike | None) -> Model:
        if self.warm_start and hasattr(self, "model_"):
            return self.model_
        if isinstance(self.model, Model):
            return self.model if self.warm_start else _renewed(self.model)
        if not callable(self.model):
            raise TypeError(
                f"model: expected a compiled Model or a function that returns one, "
                f"got {self.model!r}."
            )
        return self.model(X=X, y=y, **(self.model_kwargs or {}))

    @hides_frames
    def fit(self, X: TensorLike, y: Structure = None, **kwargs: Any) -> Self:
        """Train on X and y; further arguments are passed to `Model.fit`."""
        X, y = self._check_data(X, y)
        target = self._process_target(y, reset=True)
        model = self._get_model(X, target)
        if not model.compiled:
            raise RuntimeError(
                f"{type(self).__name__}: the model must be compiled; call "
                "model.compile(optimizer=..., loss=...) on it."
            )
        given = {"verbose": 0, **(self.fit_kwargs or {}), **kwargs}
        history = model.fit(_narrow(model, X), target, **given)
        self.history_ = history.history
        model.history = None
        self.model_ = model
        self.n_iter_ = len(history.epoch)
        return self

    def __del__(self) -> None:
        model = self.__dict__.get("model_")
        if model is not self.__dict__.get("model"):
            free_steps(model)

    def _check_data(self, X: TensorLike, y: TensorLike | None) -> tuple[Array, ...]:
        require_targets(self, y)
        return validate_data(
            self, X, y, multi_output=True, accept_sparse=("csr", "csc"), allow_nd=True,
            y_numeric=isinstance(self, RegressorMixin),
        )  # fmt: skip

    def _raw(self, X: TensorLike) -> Array:
        check_is_fitted(self, "model_")
        X = validate_data(
            self, X, reset=False, accept_sparse=("csr", "csc"), allow_nd=True
        )  # fmt: skip
        return np.asarray(self.model_.predict(_narrow(self.model_, X), batch_size=1024, verbose=0))

    @hides_frames
    def predict(self, X: TensorLike) -> Array:
        """Return the model's results for X in the form of y."""
        return self._reverse_process_target(self._raw(X))

    def _process_target(self, y: TensorLike | None, reset: bool = False) -> Array:
        return y

    def _reverse_process_target(self, y: TensorLike) -> Any:
        return y

    @property
    def epoch_(self) -> int:
        """The number of epochs of the last fit."""
        check_is_fitted(self, "history_")
        return len(next(iter(self.history_.values()), ()))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = True  # as in Keras, there is no random_state
        return tags


def _renewed(model: Model) -> Any:
    """Return a copy of the model with new weights, compiled in the same way."""
    return clone_model(model)


def _narrow(model: Model, X: Array) -> Array:
    if hasattr(X, "toarray"):
        if takes_sparse(model):
            return X
        X = X.toarray()
    return X.astype("float32") if X.dtype == np.float64 else X


class SKLearnClassifier(ClassifierMixin, SKLearnDialect):
    """Keras's scikit-learn classifier: the model gets classes as one-hot rows.

    Args:
        model: a compiled model, cloned with new weights for each fit, or a function that returns
            one; it gets X, y and `model_kwargs`.
        warm_start: whether the model itself is trained, starting from its current weights.
        model_kwargs: arguments of the model function; None: none.
        fit_kwargs: arguments of `Model.fit`; arguments of `fit` override them. None: none.

    Example:
        >>> from kerasish import Input, Sequential, layers
        >>> def make(X, y, units=4):
        ...     inputs, outputs = Input((X.shape[1],)), layers.Dense(y.shape[1], "softmax")
        ...     model = Sequential([inputs, layers.Dense(units, "relu"), outputs])
        ...     model.compile("adam", "categorical_crossentropy")
        ...     return model
        >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
        >>> classifier = SKLearnClassifier(make, model_kwargs={"units": 8})
        >>> classifier.fit(X, ["a", "a", "b", "c"], epochs=2).predict_proba(X).shape
        (4, 3)
    """

    def _process_target(self, y: TensorLike, reset: bool = False) -> Array:
        check_classification_targets(y)
        if np.ndim(y) == 2 and np.shape(y)[1] > 1:
            raise ValueError(
                "y: SKLearnClassifier takes one class per row; KerasClassifier takes several."
            )
        y = column_or_1d(y, warn=True)
        if reset:
            self.classes_ = np.unique(y)
        rows = np.searchsorted(self.classes_, y)
        return np.eye(max(len(self.classes_), 2), dtype="float32")[rows]

    def _reverse_process_target(self, y: Array) -> Array:
        chosen = np.minimum(y.argmax(axis=1), len(self.classes_) - 1)
        return self.classes_[chosen]

    @hides_frames
    def predict_proba(self, X: TensorLike) -> Array:
        """Return the model's output: one column per class."""
        return self._raw(X)[:, : len(self.classes_)]

    def decision_function(self, X: TensorLike) -> Array:
        """Return the model's output; for two classes, the second column minus the first."""
        result = self._raw(X)
        return result[:, 1] - result[:, 0] if len(self.classes_) == 2 else result


class SKLearnRegressor(RegressorMixin, SKLearnDialect):
    """Keras's scikit-learn regressor.

    Args:
        model: a compiled model, cloned with new weights for each fit, or a function that returns
            one; it gets X, y and `model_kwargs`.
        warm_start: whether the model itself is trained, starting from its current weights.
        model_kwargs: arguments of the model function; None: none.
        fit_kwargs: arguments of `Model.fit`; arguments of `fit` override them. None: none.

    Example:
        >>> from kerasish import Input, Sequential, layers
        >>> def make(X, y):
        ...     model = Sequential([Input((X.shape[1],)), layers.Dense(1)])
        ...     model.compile("adam", "mse")
        ...     return model
        >>> X = np.arange(4.0)[:, None]
        >>> SKLearnRegressor(make).fit(X, X[:, 0], epochs=2).predict(X).shape
        (4,)
    """

    def _process_target(self, y: Array, reset: bool = False) -> Array:
        if reset:
            self._one_column = np.ndim(y) == 1
        return np.reshape(y, (len(y), -1)).astype("float32")

    def _reverse_process_target(self, y: TensorLike) -> Array:
        y = np.asarray(y, np.float64)
        return y.reshape(len(y)) if self._one_column and y.size == len(y) else y

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class SKLearnTransformer(TransformerMixin, SKLearnDialect):
    """Keras's scikit-learn transformer: transforms rows by the model.

    Args:
        model: a compiled model, cloned with new weights for each fit, or a function that returns
            one; it gets X, y and `model_kwargs`.
        warm_start: whether the model itself is trained, starting from its current weights.
        model_kwargs: arguments of the model function; None: none.
        fit_kwargs: arguments of `Model.fit`; arguments of `fit` override them. None: none.

    Example:
        >>> from kerasish import Input, Sequential, layers
        >>> def make(X, y):
        ...     model = Sequential([Input((X.shape[1],)), layers.Dense(2)])
        ...     model.compile("adam", "mse")
        ...     return model
        >>> X = np.zeros((4, 3))
        >>> SKLearnTransformer(make).fit(X, np.zeros((4, 2))).transform(X).shape
        (4, 2)
    """

    def _check_data(self, X: TensorLike, y: TensorLike | None) -> tuple[Any, ...]:
        given = {"accept_sparse": ("csr", "csc"), "allow_nd": True}
        if y is None:
            return validate_data(self, X, **given), None
        return validate_data(self, X, y, multi_output=True, **given)

    @hides_frames
    def transform(self, X: TensorLike) -> Array:
        """Return the model's results for X."""
        return self._raw(X)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the columns of `transform`."""
        check_is_fitted(self, "model_")
        prefix = type(self).__name__.lower()
        return np.array([f"{prefix}{i}" for i in range(self.model_.output_shape[-1])], object)
