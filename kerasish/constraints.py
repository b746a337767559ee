"""What weights are mapped to after each update, by name: Keras's `constraints` module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kerasish import config, ops
from kerasish.identifiers import get_by_name
from kerasish.registry import add_builtins, own_objects, serialize_keras_object
from kerasish.reprs import arguments_repr
from kerasish.signatures import Configured
from kerasish.tracebacks import hides_frames
from kerasish.typing import Array, Axis, Config, ConstraintLike, Structure, TensorLike
from kerasish.watched import Watched

if TYPE_CHECKING:
    from kerasish.tensor import Tensor


class Constraint(Configured, Watched):
    """A function weight -> allowed weight; subclasses write `__call__`. This one allows any.

    Example:
        >>> class AtMostOne(Constraint):
        ...     def __call__(self, w):
        ...         return ops.minimum(w, 1.0)
        >>> AtMostOne()([0.5, 3.0]).tolist()
        [0.5, 1.0]
    """

    def __call__(self, w: TensorLike) -> TensorLike:
        """Return the weight to keep instead of w."""
        return w

    __repr__ = arguments_repr


def _norms(w: Tensor, axis: Axis) -> Tensor:
    return ops.sqrt(ops.sum(ops.square(w), axis=axis, keepdims=True))


class MaxNorm(Constraint):
    """w scaled down where its norm along `axis` is above `max_value`.

    Args:
        max_value: the largest norm allowed, >= 0.
        axis: the axis, or axes, along which norms are taken: 0 for the kernel of Dense (one norm
            an output), (0, 1, 2) for a 2-D convolution.

    Source: Srivastava et al., Dropout, JMLR 2014.

    Example:
        >>> MaxNorm(5.0)([[6.0, 3.0], [8.0, 4.0]]).numpy().round(3).tolist()
        [[3.0, 3.0], [4.0, 4.0]]
    """

    def __init__(self, max_value: float = 2, axis: int = 0) -> None:
        self.max_value, self.axis = max_value, axis

    def __call__(self, w: TensorLike) -> Tensor:
        w = ops.convert_to_tensor(w)
        norms = _norms(w, self.axis)
        target = ops.clip(norms, 0.0, self.max_value)
        return ops.multiply(w, ops.divide(target, ops.add(norms, config.epsilon())))


class MinMaxNorm(Constraint):
    """w scaled so that its norm along `axis` goes towards [min_value, max_value].

    Args:
        min_value, max_value: the bounds of the norm.
        rate: how far towards the bound, 0 (not at all) to 1 (all the way).
        axis: the axis, or axes, along which norms are taken.

    Example:
        >>> MinMaxNorm(1.0, 2.0)([[0.6], [0.0]]).numpy().round(3).tolist()
        [[1.0], [0.0]]
    """

    def __init__(
        self,
        min_value: float = 0.0,
        max_value: float = 1.0,
        rate: float = 1.0,
        axis: int = 0,
    ) -> None:
        self.min_value, self.max_value = min_value, max_value
        self.rate, self.axis = rate, axis

    def __call__(self, w: TensorLike) -> Tensor:
        w = ops.convert_to_tensor(w)
        norms = _norms(w, self.axis)
        bounded = ops.clip(norms, self.min_value, self.max_value)
        target = ops.add(ops.multiply(bounded, self.rate), ops.multiply(norms, 1 - self.rate))
        return ops.multiply(w, ops.divide(target, ops.add(norms, config.epsilon())))


class NonNeg(Constraint):
    """max(w, 0).

    Example:
        >>> NonNeg()([-1.0, 2.0]).tolist()
        [0.0, 2.0]
    """

    def __call__(self, w: Array) -> Tensor:
        return ops.relu(w)


class UnitNorm(Constraint):
    """w scaled so that its norm along `axis` is 1.

    Args:
        axis: axis or axes along which norms are taken.

    Example:
        >>> UnitNorm()([[0.0], [4.0]]).numpy().round(3).tolist()
        [[0.0], [1.0]]
    """

    def __init__(self, axis: Axis = 0) -> None:
        self.axis = axis

    def __call__(self, w: TensorLike) -> Tensor:
        w = ops.convert_to_tensor(w)
        return ops.divide(w, ops.add(_norms(w, self.axis), config.epsilon()))


max_norm, min_max_norm, non_neg, unit_norm = MaxNorm, MinMaxNorm, NonNeg, UnitNorm

add_builtins("keras.constraints", {**own_objects(__name__), "nonneg": NonNeg})


@hides_frames
def get(identifier: ConstraintLike | None) -> Structure:
    """Return the constraint for a name, a config, a class or a function; None stays None.

    Args:
        identifier: a name, config, class, function or object; None gives None.

    Raises:
        ValueError: a name that is not known; the message lists the nearest known ones.

    Example:
        >>> get("max_norm").max_value
        2
    """
    return get_by_name(identifier, "keras.constraints", "constraint")


def serialize(constraint: ConstraintLike) -> dict[str, Any]:
    """Return a constraint's config, as files hold it.

    Args:
        constraint: a constraint.

    Example:
        >>> serialize(NonNeg())["class_name"]
        'NonNeg'
    """
    return serialize_keras_object(constraint)


@hides_frames
def deserialize(config: Config | str, custom_objects: Mapping[str, Any] | None = None) -> Structure:
    """Return the constraint that `serialize` was given.

    Args:
        config: what `serialize` returned.
        custom_objects: name -> class or function, for names that are not registered; None: none.

    Example:
        >>> type(deserialize(serialize(NonNeg()))).__name__
        'NonNeg'
    """
    return get_by_name(config, "keras.constraints", "constraint", custom_objects)
