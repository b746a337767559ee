"""Running sums and means, plain or of what a function gives for each sample."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from kerasish import ops, registry
from kerasish.losses.reduction import align, masked_weights, spread
from kerasish.metrics.metric import Metric
from kerasish.ops.basic.statistics import running_sums
from kerasish.scopes import autocast
from kerasish.signatures import with_defaults
from kerasish.tensor import Tensor, put_all
from kerasish.typing import AnyTensor, DTypeLike, TensorLike

if TYPE_CHECKING:
    from typing_extensions import Self


def by_sample(
    values: TensorLike, sample_weight: TensorLike | None, dtype: str, reduce: Callable[..., Any]
) -> tuple[Any, Any]:
    """Return (values, weights), one entry per sample, values multiplied by weights already.

    What a sample holds beyond its first axis is reduced by `reduce` (mean or sum), so that a long
    sequence counts as much as a short one. Weights are None where none are given. A mask that the
    values carry (as those of targets of an ignored class) sets weights to 0.

    Raises:
        ShapeError: the weights do not fit the values.
    """
    mask = getattr(values, "_keras_mask", None)
    values = ops.convert_to_tensor(values, dtype)
    if sample_weight is None:
        return _flat(values, reduce), None
    weights = masked_weights(sample_weight, mask, dtype, "sum")
    values, weights = align(values, weights)
    few, many = len(weights.shape), len(values.shape)
    if 0 < few < many:
        values = reduce(values, tuple(range(few, many)))
    weights = spread(weights, values)
    if weights.shape != values.shape:
        weights = ops.multiply(weights, ops.ones_like(values))
    return _flat(ops.multiply(values, weights), reduce), _flat(weights, reduce)


def _flat(x: Tensor, reduce: Callable[..., Any]) -> Tensor:
    return x if len(x.shape) < 2 else reduce(x, tuple(range(1, len(x.shape))))


class Sum(Metric):
    """sum(weight * value) over all batches.

    Args:
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.

    Example:
        >>> Sum()([1.0, 3.0]).item()
        4.0
    """

    def __init__(self, name: str | None = "sum", dtype: DTypeLike | None = None) -> None:
        super().__init__(name=name, dtype=dtype)
        self.total = self.add_variable((), name="total")

    def update_state(self, values: TensorLike, sample_weight: TensorLike | None = None) -> None:
        """Add the values of a batch."""
        values, _ = by_sample(values, sample_weight, self._dtype, ops.sum)
        self.total.assign_add(ops.sum(values))

    def result(self) -> Tensor:
        """Return the sum."""
        return ops.cast(self.total.value, self._dtype)


class Mean(Metric):
    """sum(weight * value) / sum(weight) over all batches.

    Args:
        name: name in the logs; None: made from the class.
        dtype: dtype of the result and the state; None: the default float.

    Example:
        >>> mean = Mean()
        >>> mean.update_state([1.0, 3.0])
        >>> mean.update_state([8.0], sample_weight=[2.0])
        >>> mean.result().item()
        5.0
    """

    def __init__(self, name: str | None = "mean", dtype: DTypeLike | None = None) -> None:
        super().__init__(name=name, dtype=dtype)
        self.total = self.add_variable((), name="total")
        self.count = self.add_variable((), name="count")

    def update_state(self, values: TensorLike, sample_weight: TensorLike | None = None) -> None:
        """Take in the values of a batch."""
        if type(sample_weight) in (int, float) and not getattr(values, "shape", ()):
            weight = float(sample_weight)  # type: ignore[arg-type]
            self._add(values, weight, weight)
            return
        values, weights = by_sample(values, sample_weight, self._dtype, ops.mean)
        if weights is None:
            self._add(values, 1.0, float(values.size))
            return
        self.total.assign_add(ops.sum(values) if values.shape else values)
        self.count.assign_add(ops.sum(weights))

    def _add(self, values: Any, factor: float, number: float) -> None:
        with autocast(None):
            total, count = running_sums(self.total, self.count, values, factor, number)
            put_all([(self.total, total), (self.count, count)])

    def result(self) -> Tensor:
        """Return the mean; 0 before the first batch."""
        return ops.divide_no_nan(self.total.value, self.count.value)


class MeanMetricWrapper(Mean):
    """The mean of a function's values over all samples.

    Args:
        fn: a function (y_true, y_pred, **kwargs) -> one value per sample (or per step, per pixel).
        name: the name under which it is reported; None: made from the class's name.
        dtype: the dtype of its sums; None: `config.floatx()`.
        kwargs: further arguments of `fn`.

    Example:
        >>> error = MeanMetricWrapper(lambda y, p: ops.absolute(ops.subtract(y, p)), name="error")
        >>> error([1.0, 2.0], [1.0, 4.0]).item()
        1.0
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        name: str | None = None,
        dtype: DTypeLike | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        self._fn, self.fn_kwargs = fn, kwargs
        if type(self) is not MeanMetricWrapper:
            # The other arguments of the kinds are attributes, too.
            for key, value in kwargs.items():
                vars(self).setdefault(key, value)

    def update_state(  # type: ignore[override]
        self, y_true: TensorLike, y_pred: TensorLike, sample_weight: AnyTensor | None = None
    ) -> None:
        """Take in targets and predictions of a batch."""
        mask = getattr(y_pred, "_keras_mask", None)
        values = self._fn(y_true, y_pred, **self.fn_kwargs)
        if mask is not None:
            sample_weight = masked_weights(sample_weight, mask, self._dtype, "sum")
        super().update_state(values, sample_weight)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        config = {"name": self.name, "dtype": self._dtype, **self.fn_kwargs}
        if type(self) is MeanMetricWrapper:
            config["fn"] = registry.serialize_keras_object(self._fn)
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Return the metric that `get_config` describes."""
        fn = config.get("fn")
        if fn is not None and not callable(fn):
            names = {**registry.BUILTINS["keras.losses"], **registry.BUILTINS["keras.metrics"]}
            names.update(_functions_of("keras.losses"))
            fn = registry.deserialize_keras_object(
                fn, module_objects=names, printable_module_name="metric function"
            )
            config = {**config, "fn": fn}
        return cls(**config)


class PlainMetric(MeanMetricWrapper):
    """The mean of a function without options, `_function`, whose name it has by default."""

    _function: ClassVar[Callable[..., Any]]
    _default_name: ClassVar[str] = ""  # where it is not the function's

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if "_function" in vars(cls):
            names = {"name": cls._default_name or cls._function.__name__}
            cls.__init__ = with_defaults(cls.__init__, names)  # type: ignore[method-assign]
        super().__init_subclass__(**kwargs)

    def __init__(self, name: str | None = None, dtype: DTypeLike | None = None) -> None:
        super().__init__(self._function, name, dtype)


class AxisMetric(PlainMetric):
    """The same of a function that has an axis: -1 by default."""

    def __init__(
        self, name: str | None = None, dtype: DTypeLike | None = None, axis: int = -1
    ) -> None:
        MeanMetricWrapper.__init__(self, self._function, name, dtype, axis=axis)


def _functions_of(module: str) -> dict[str, Any]:
    known = registry.BUILTINS[module]
    return {name: x for name, x in known.items() if not isinstance(x, type)}
