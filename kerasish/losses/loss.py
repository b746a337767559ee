"""Loss: how far predictions are from targets, as one number to minimize."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from kerasish import ops, registry, tree
from kerasish.identifiers import deserialize_of
from kerasish.losses.reduction import align, check_reduction, reduce_losses
from kerasish.losses.targets import targets_of
from kerasish.naming import name_for
from kerasish.ops import dtypes
from kerasish.signatures import Configured, any_arguments, with_defaults
from kerasish.tensor import Tensor
from kerasish.tracebacks import hide_frames
from kerasish.tree import is_namedtuple
from kerasish.typing import DTypeLike, Structure, TensorLike
from kerasish.watched import Watched, note_use

if TYPE_CHECKING:
    from typing_extensions import Self

    from kerasish.engine.training.interface import TrainedModel


class Loss(Configured, Watched):
    """The reduction of `call(y_true, y_pred)`, the losses of single samples.

    Args:
        name: the name; None: made from the class.
        reduction: "sum_over_batch_size" (also "mean": the mean over all values), "sum",
            "mean_with_sample_weight" (over the sum of the weights), "none" (or None).
        dtype: the dtype (or policy) that it computes in; None: `floatx()`.

    Example:
        >>> class Distance(Loss):
        ...     def call(self, y_true, y_pred):
        ...         return ops.absolute(y_true - y_pred)
        >>> Distance()([1.0, 2.0], [2.0, 2.0]).item()
        0.5
    """

    def __init__(
        self,
        name: str | None = None,
        reduction: str | None = "sum_over_batch_size",
        dtype: DTypeLike | None = None,
    ) -> None:
        self.name = name_for(self, name)
        self.reduction = check_reduction(reduction)
        self._dtype = dtypes.name_of(getattr(dtype, "compute_dtype", dtype))

    @property
    def dtype(self) -> str:
        """The dtype that it computes in."""
        return self._dtype

    @any_arguments
    def call(self, y_true: Tensor, y_pred: Tensor) -> TensorLike:
        """Return the loss of each sample."""
        raise NotImplementedError(f"{type(self).__name__} defines no call(y_true, y_pred).")

    def __call__(
        self, y_true: TensorLike, y_pred: TensorLike, sample_weight: TensorLike | None = None
    ) -> Tensor:
        """Return the loss, weighted and reduced.

        Args:
            y_true: targets.
            y_pred: predictions; their mask, where they carry one, leaves values out.
            sample_weight: one factor a sample (or a value).

        Raises:
            ShapeError: the shapes do not fit.
        """
        try:
            note_use(self)
            mask = getattr(y_pred, "_keras_mask", None)
            values = self.call(self._target(y_true), _as_dtype(y_pred, self._dtype))
            own = getattr(values, "_keras_mask", None)
            if own is not None:
                mask = own if mask is None else ops.logical_and(mask, own)
            values = ops.convert_to_tensor(values, self._dtype)
            return reduce_losses(values, sample_weight, mask, self.reduction)
        except Exception as error:
            hide_frames(error)
            raise

    def _target(self, y_true: TensorLike) -> dict[str, Any] | Tensor:
        return _as_dtype(y_true, self._dtype)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"name": self.name, "reduction": self.reduction}

    def bind(self, model: TrainedModel) -> None:
        """Take from a model that was read from a file what the config gives only by name."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} name={self.name} reduction={self.reduction}>"


def _as_dtype(structure: Structure, dtype: str) -> Structure:
    if type(structure) is Tensor and structure.dtype == dtype:
        return structure
    if isinstance(structure, dict):
        return type(structure)((k, _as_dtype(v, dtype)) for k, v in structure.items())
    if isinstance(structure, (list, tuple)) and _holds_arrays(structure):
        parts = [_as_dtype(v, dtype) for v in structure]
        return type(structure)(*parts) if is_namedtuple(structure) else type(structure)(parts)
    return ops.convert_to_tensor(structure, dtype)


def _holds_arrays(structure: Structure) -> bool:
    """Return whether a list is one of several outputs' parts; one of numbers is a tensor itself."""
    return any(hasattr(x, "shape") for x in tree.flatten(structure))


class LossFunction(Loss):
    """The loss that a function of targets and predictions gives.

    Args:
        fn: a function (y_true, y_pred, **kwargs) -> the loss of each sample.
        reduction, name, dtype: as for `Loss`.
        kwargs: further arguments of `fn`.

    Example:
        >>> LossFunction(lambda y, p: ops.absolute(y - p), name="l1")([1.0], [3.0]).item()
        2.0
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        reduction: str | None = "sum_over_batch_size",
        name: str | None = None,
        dtype: DTypeLike | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.fn, self.fn_kwargs = fn, kwargs

    def call(self, y_true: TensorLike, y_pred: TensorLike) -> Tensor:
        """Return the loss of each sample."""
        if type(y_true) is Tensor and type(y_pred) is Tensor:
            y_true, y_pred = align(y_true, y_pred)
        return self.fn(y_true, y_pred, **self.fn_kwargs)

    def _target(self, y_true: TensorLike) -> Structure:
        targets = targets_of(self.fn)
        if targets is not None and targets.integers:
            return ops.convert_to_tensor(y_true)
        return _as_dtype(y_true, self._dtype)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        config = {**super().get_config(), **self.fn_kwargs}
        if type(self) is LossFunction:
            config["fn"] = registry.serialize_keras_object(self.fn)
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Return the loss that `get_config` describes."""
        if "fn" in config:
            config = {**config, "fn": _function_of(config["fn"])}
        return cls(**config)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} name={self.name} {self.fn_kwargs}>"


class PlainLoss(LossFunction):
    """The loss of a function without options, `_function`, whose name it has by default."""

    _function: ClassVar[Callable[..., Any]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if "_function" in vars(cls):
            names = {"name": cls._function.__name__}
            cls.__init__ = with_defaults(cls.__init__, names)  # type: ignore[method-assign]
        super().__init_subclass__(**kwargs)

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(self._function, reduction, name, dtype)


def _function_of(fn: str) -> Callable[..., Any]:
    return fn if callable(fn) else deserialize_of(fn, "keras.losses", "loss")
