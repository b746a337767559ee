"""scikit-learn's scorers as metrics: gathered over an epoch, computed once, on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish import registry
from kerasish.errors import UnknownNameError
from kerasish.metrics.metric import Metric
from kerasish.tensor import to_numpy
from kerasish.typing import Array, DTypeLike, TensorLike

if TYPE_CHECKING:
    from typing_extensions import Self


def is_scorer(x: object) -> bool:
    """Return whether x is a scorer or a metric function of scikit-learn."""
    own = getattr(x, "__module__", None) if callable(x) and not isinstance(x, type) else None
    return str(own or "").startswith("sklearn.") or type(x).__module__.startswith("sklearn.")


class SklearnScorer(Metric):
    """A scorer of scikit-learn over all rows of a validation or an `evaluate`.

    No step computes it: `evaluate`, and `fit` for its validation data, predict each batch after
    the step and score all rows at the end, so that it is exact for any batch size and the same on
    every engine; a second forward pass is its price. Training rows are not scored: as many models
    as there are steps would have predicted them.

    Args:
        scorer: a name such as "f1_macro" (`sklearn.metrics.get_scorer_names()`), what
            `make_scorer` gives, a function of `sklearn.metrics`, or a function
            (y_true, y_pred) -> number, which gets the arrays as they are.
        from_logits: whether predictions are logits.
        name: the name in reports; None: the scorer's.
        dtype: accepted; the score is a float64.

    Raises:
        UnknownNameError: scikit-learn has no such scorer; the message lists the nearest ones.

    Example:
        >>> score = SklearnScorer("accuracy")
        >>> score.update_state([0, 1], [[0.9, 0.1], [0.2, 0.8]])
        >>> score.update_state([1], [[0.9, 0.1]])
        >>> round(float(score.result()), 4)
        0.6667
    """

    on_host = True

    def __init__(
        self,
        scorer: Any,
        from_logits: bool = False,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(name=name or _name_of(scorer), dtype=dtype)
        self.scorer, self.from_logits = scorer, from_logits
        self._score: Callable[..., float] | None = _find(scorer)  # a wrong name is reported here
        self._rows: list[tuple[Any, Any, Any]] = []
        lower = any(word in self.name for word in ("error", "loss", "deviance", "distance"))
        self.direction = "down" if lower and not self.name.startswith("neg_") else "up"

    def update_state(
        self, y_true: TensorLike, y_pred: TensorLike, sample_weight: TensorLike | None = None
    ) -> None:
        """Keep the rows of a batch."""
        parts = (y_true, y_pred, sample_weight)
        self._rows.append(
            tuple(None if part is None else np.array(to_numpy(part)) for part in parts)  # type: ignore[arg-type]
        )

    def result(self) -> float:
        """Return the score of all rows since the reset; NaN before the first."""
        if not self._rows:
            return float("nan")
        if self._score is None:
            self._score = _find(self.scorer)
        y, predictions, weights = (
            None if column[0] is None else np.concatenate(column) for column in zip(*self._rows)
        )
        return float(self._score(y, predictions, weights, self.from_logits))

    def reset_state(self) -> None:
        """Drop all rows."""
        self._rows = []

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        scorer = self.scorer
        if not isinstance(scorer, str):
            scorer = _public_name(scorer) or registry.serialize_keras_object(scorer)
        return {**super().get_config(), "scorer": scorer}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Return the scorer that `get_config` describes."""
        if isinstance(config["scorer"], dict):
            scorer = registry.deserialize_keras_object(config["scorer"])
            config = {**config, "scorer": scorer}
        return cls(**config)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_rows": [], "_score": None}


def _name_of(scorer: Callable[..., Any] | str) -> str:
    if isinstance(scorer, str):
        return scorer
    function = vars(scorer).get("_score_func", scorer)
    return getattr(function, "__name__", type(scorer).__name__)


def _public_name(scorer: Callable[..., Any]) -> str | None:
    """Return the name of a function of `sklearn.metrics`, else None."""
    from sklearn import metrics

    name = getattr(scorer, "__name__", "")
    return name if name and getattr(metrics, name, None) is scorer else None


def _find(scorer: Any) -> Callable[..., float]:
    """Return (y_true, y_pred, sample_weight, from_logits) -> score."""
    from sklearn import metrics

    if isinstance(scorer, str):
        known = metrics.get_scorer_names()
        functions = [name for name in metrics.__all__ if name.endswith(("_score", "_error"))]
        if scorer not in known and scorer not in functions:
            raise UnknownNameError.of("scorer of scikit-learn", scorer, [*known, *functions])
        scorer = metrics.get_scorer(scorer) if scorer in known else getattr(metrics, scorer)
    if not is_scorer(scorer):
        return _own_function(scorer)
    if not type(scorer).__module__.startswith("sklearn."):  # a function: labels, unless measured
        scorer = metrics.make_scorer(scorer)
    return _sklearn_scorer(scorer)


def _own_function(function: Callable[..., Any]) -> Callable[..., float]:
    def score(y: Array, predictions: Array, weights: Array, from_logits: bool) -> float:
        options = {} if weights is None else {"sample_weight": weights}
        return float(function(y, predictions, **options))

    return score


def _sklearn_scorer(scorer: Any) -> Callable[..., float]:
    module = getattr(vars(scorer).get("_score_func"), "__module__", "") or ""
    measures = module.endswith("_regression")

    def score(y: Array, predictions: Array, weights: Array, from_logits: bool) -> float:
        rows = np.arange(len(y)).reshape(-1, 1)
        options = {} if weights is None else {"sample_weight": weights}
        if measures:
            target, shape = _flat(y), _flat(predictions)
            return float(scorer(_Regression(shape), rows, target, **options))
        shares = _shares(predictions, from_logits)
        return float(scorer(_Classification(shares), rows, _classes(y, shares), **options))

    return score


def _flat(x: Array) -> Array:
    return x[:, 0] if x.ndim == 2 and x.shape[1] == 1 else x


def _classes(y: Array, shares: Array) -> Array:
    """Return the class number of each row (several labels per row stay as they are)."""
    if y.ndim == 2 and y.shape[1] == shares.shape[1] and (y.sum(1) == 1).all():
        return y.argmax(1)
    return _flat(y).astype(int)


def _shares(predictions: Array, from_logits: bool) -> Array:
    """Return the probabilities (n, classes) for predictions of one unit or of several."""
    p = predictions.reshape(len(predictions), -1).astype("float64")
    if from_logits and p.shape[1] == 1:
        p = 0.5 * (1 + np.tanh(p / 2))
    elif from_logits:
        p = np.exp(p - p.max(1, keepdims=True))
    if p.shape[1] == 1:
        return np.concatenate([1 - p, p], 1)
    total = p.sum(1, keepdims=True)
    return p / np.where(total > 0, total, 1)


class _Fixed:
    """What scikit-learn takes for a fitted estimator: it answers with numbers made before."""

    def fit(self, x: Any, y: Any = None) -> Self:
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True


class _Regression(_Fixed):
    def __init__(self, predictions: Array) -> None:
        self._predictions = predictions

    def __sklearn_tags__(self) -> Any:
        return _tags("regressor")

    def predict(self, x: Array) -> Array:
        return self._predictions[x[:, 0]]


class _Classification(_Fixed):
    def __init__(self, shares: Array) -> None:
        self._shares = shares
        self.classes_ = np.arange(shares.shape[1])

    def __sklearn_tags__(self) -> Any:
        return _tags("classifier")

    def predict(self, x: Array) -> Array:
        return self._shares[x[:, 0]].argmax(1)

    def predict_proba(self, x: Array) -> Array:
        return self._shares[x[:, 0]]


def _tags(kind: str) -> Any:
    from sklearn.utils import ClassifierTags, RegressorTags, Tags, TargetTags

    return Tags(
        estimator_type=kind,
        target_tags=TargetTags(required=True),
        classifier_tags=ClassifierTags() if kind == "classifier" else None,
        regressor_tags=RegressorTags() if kind == "regressor" else None,
    )


registry.add_builtins("keras.metrics", {"SklearnScorer": SklearnScorer})
