"""KerasRegressor: predicts numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from kerasish import losses
from kerasish.engine.model.model import Model
from kerasish.losses.loss import Loss
from kerasish.tracebacks import hides_frames
from kerasish.typing import Array, Structure, TensorLike
from kerasish.wrappers.arrays import float_of, output_width
from kerasish.wrappers.estimator import KerasEstimator


class KerasRegressor(RegressorMixin, KerasEstimator):
    """A model as a scikit-learn regressor.

    Without a `model`, an MLP is built for the data; it is trained on standardized targets, and
    predicts in their original units. Attributes are those of `KerasClassifier` without the classes.

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
            the built-in MLP), the mean squared error, no metrics.
        batch_size: rows per step; None: 32 (min(200, rows) for the built-in MLP); -1: all rows.
        epochs: None: 1; for the built-in MLP the number that it needs, up to 200.
        validation_split: the share of the rows, from the end, that is not used for training.
        verbose, callbacks, shuffle, validation_batch_size, run_eagerly: as for `Model.fit` and
            `Model.compile`; callbacks may be classes, and are copied for each fit.
        hidden_layer_sizes, activation, alpha: of the built-in MLP, as for `MLPRegressor`.
        memory: a directory, `SearchMemory` or `joblib.Memory` that stores fits: see `SearchMemory`.
        **routed: `model__`, `optimizer__`, `loss__`, `callbacks__`, `compile__`, `fit__`,
            `predict__` and a parameter's name; and parameters of the model function.

    Example:
        >>> import numpy as np
        >>> X = np.linspace(0, 1, 50)[:, None]
        >>> regressor = KerasRegressor(random_state=0, optimizer__learning_rate=0.01)
        >>> bool(regressor.fit(X, 1000 * X[:, 0]).score(X, 1000 * X[:, 0]) > 0.99)
        True
    """

    _y_numeric = True

    @hides_frames
    def partial_fit(
        self, X: TensorLike, y: Structure, sample_weight: Structure = None, **fit_arguments: Any
    ) -> KerasRegressor:
        """Train for one more epoch; targets are standardized as in the first call."""
        epochs = fit_arguments.pop("epochs", 1)
        return self._fit(X, y, sample_weight, epochs, True, **fit_arguments)

    @hides_frames
    def predict(self, X: TensorLike, **predict_arguments: Any) -> Array:
        """Return the number(s) of each row, float64, in the shape of the y of `fit`."""
        raw = self._raw(X, **predict_arguments)
        if isinstance(raw, (list, tuple)):
            raw = np.concatenate([np.reshape(r, (len(r), -1)) for r in raw], axis=1)
        raw = np.asarray(raw, np.float64).reshape(len(raw), -1)
        result = raw * self._y_scale + self._y_mean
        return result[:, 0] if self.y_ndim_ == 1 and result.shape[1] == 1 else result

    def target_scale(self) -> tuple[Array, Array]:
        """Return (scale, mean): predictions are the model's outputs times scale, plus mean."""
        return self._y_scale, self._y_mean

    def _learn_targets(self, y: Array, weights: Array, labels: Any, going_on: bool) -> None:
        columns = y.reshape(len(y), -1)
        if going_on:
            if columns.shape[1] != self.n_outputs_:
                raise ValueError(f"y: expected {self.n_outputs_} outputs, got shape {y.shape}.")
            return
        self.target_type_ = "continuous" if y.ndim == 1 else "continuous-multioutput"
        self.y_dtype_, self.y_ndim_ = y.dtype, y.ndim
        self.n_outputs_ = self.n_outputs_expected_ = columns.shape[1]
        self._y_mean, self._y_scale = np.zeros(columns.shape[1]), np.ones(columns.shape[1])
        if self._own_model() and self.loss is None:
            columns = columns.astype(np.float64)
            self._y_mean = np.average(columns, axis=0, weights=weights)
            spread = np.average((columns - self._y_mean) ** 2, axis=0, weights=weights) ** 0.5
            self._y_scale = np.where(spread > 1e-12 * np.abs(self._y_mean), spread, 1.0)

    def _default_loss(self, model: Model) -> Loss:
        dtype = None if model is None else float_of(model)
        return losses.MeanSquaredError(dtype=dtype)

    def _encode(self, y: Array, X: TensorLike) -> Structure:
        columns = (y.reshape(len(y), -1) - self._y_mean) / self._y_scale
        columns = columns.astype(float_of(self.model_))
        widths = output_width(self.model_, X)
        if isinstance(widths, list):
            cuts = np.cumsum(widths)[:-1]
            return [np.ascontiguousarray(c) for c in np.split(columns, cuts, axis=1)]
        return columns

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
