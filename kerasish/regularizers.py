"""Penalties on weights and results, by name: Keras's `regularizers` module."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kerasish import ops
from kerasish.errors import ShapeError, UnknownNameError
from kerasish.identifiers import get_by_name
from kerasish.registry import add_builtins, own_objects, serialize_keras_object
from kerasish.reprs import arguments_repr
from kerasish.signatures import ConfiguredByArguments
from kerasish.tracebacks import hides_frames
from kerasish.typing import Config, RegularizerLike, Structure, TensorLike
from kerasish.watched import Watched

if TYPE_CHECKING:
    from kerasish.tensor import Tensor


class Regularizer(ConfiguredByArguments, Watched):
    """A function tensor -> penalty, added to the loss; subclasses write `__call__`.

    Example:
        >>> class Mean(Regularizer):
        ...     def __call__(self, x):
        ...         return ops.mean(x)
        >>> float(Mean()([1.0, 3.0]))
        2.0
    """

    def __call__(self, x: Any) -> Any:
        """Return the penalty, a single number."""
        return 0.0

    __repr__ = arguments_repr


class L1L2(Regularizer):
    """l1 * sum(|x|) + l2 * sum(x^2).

    Args:
        l1, l2: the factors, >= 0; None counts as 0.

    Shape: any -> ().

    Example:
        >>> float(L1L2(l1=1.0, l2=0.5)([1.0, -2.0]))
        5.5
    """

    def __init__(self, l1: float | None = 0.0, l2: float | None = 0.0) -> None:
        self.l1 = _factor(self, "l1", 0.0 if l1 is None else l1)
        self.l2 = _factor(self, "l2", 0.0 if l2 is None else l2)

    def __call__(self, x: TensorLike) -> Tensor:
        x = ops.convert_to_tensor(x)
        terms = []
        if self.l1:
            terms.append(ops.multiply(ops.sum(ops.absolute(x)), self.l1))
        if self.l2:
            terms.append(ops.multiply(ops.sum(ops.square(x)), self.l2))
        if not terms:
            return ops.zeros((), x.dtype)
        return terms[0] if len(terms) == 1 else ops.add(*terms)


class L1(L1L2):
    """l1 * sum(|x|).

    Args:
        l1: factor of the sum of absolute values, >= 0.

    Example:
        >>> L1(0.5)([1.0, -2.0]).item()
        1.5
    """

    def __init__(self, l1: float | None = 0.01) -> None:
        super().__init__(0.01 if l1 is None else l1, 0.0)


class L2(L1L2):
    """l2 * sum(x^2).

    Args:
        l2: factor of the sum of squares, >= 0.

    Example:
        >>> L2(0.5)([1.0, -2.0]).item()
        2.5
    """

    def __init__(self, l2: float | None = 0.01) -> None:
        super().__init__(0.0, 0.01 if l2 is None else l2)


class OrthogonalRegularizer(Regularizer):
    """factor * the mean of |cos| over the pairs of rows (or columns) of a matrix.

    Args:
        factor: the penalty of parallel rows, >= 0.
        mode: "rows" or "columns".

    Shape: (m, n) -> ().

    Example:
        >>> float(OrthogonalRegularizer(factor=2.0)([[1.0, 0.0], [3.0, 0.0]]))
        2.0
    """

    def __init__(self, factor: float = 0.01, mode: str = "rows") -> None:
        if mode not in ("rows", "columns"):
            raise UnknownNameError.of("mode of OrthogonalRegularizer", mode, ("rows", "columns"))
        self.factor, self.mode = _factor(self, "factor", factor), mode

    def __call__(self, x: TensorLike) -> Tensor:
        x = ops.convert_to_tensor(x)
        if len(x.shape) != 2:
            raise ShapeError(f"OrthogonalRegularizer: a matrix was expected, got {x.shape}.")
        x = x if self.mode == "rows" else ops.transpose(x)
        x = ops.normalize(x, axis=1)
        count = x.shape[0]
        cosines = ops.multiply(ops.matmul(x, ops.transpose(x)), 1.0 - ops.eye(count, dtype=x.dtype))
        pairs = max(count * (count - 1) / 2, 1.0)
        return ops.multiply(ops.sum(ops.absolute(cosines)), self.factor * 0.5 / pairs)


def _factor(regularizer: RegularizerLike, name: str, value: float) -> float:
    number = value if isinstance(value, (int, float)) else float(value)
    if isinstance(value, bool) or not math.isfinite(number) or number < 0:
        raise ValueError(
            f"{type(regularizer).__name__}: {name} must be a finite number >= 0, got {value!r}."
        )
    return number


l1, l2, l1_l2, orthogonal_regularizer = L1, L2, L1L2, OrthogonalRegularizer

add_builtins("keras.regularizers", {**own_objects(__name__), "l1l2": L1L2})


@hides_frames
def get(identifier: RegularizerLike | None) -> Structure:
    """Return the regularizer for a name, a config, a class or a function; None stays None.

    Args:
        identifier: a name, config, class, function or object; None gives None.

    Raises:
        ValueError: a name that is not known; the message lists the nearest known ones.

    Example:
        >>> get("l2").l2
        0.01
    """
    return get_by_name(identifier, "keras.regularizers", "regularizer")


def serialize(regularizer: RegularizerLike) -> dict[str, Any]:
    """Return a regularizer's config, as files hold it.

    Args:
        regularizer: a regularizer.

    Example:
        >>> serialize(L2(0.5))["class_name"]
        'L2'
    """
    return serialize_keras_object(regularizer)


@hides_frames
def deserialize(config: Config | str, custom_objects: Mapping[str, Any] | None = None) -> Structure:
    """Return the regularizer that `serialize` was given.

    Args:
        config: what `serialize` returned.
        custom_objects: name -> class or function, for names that are not registered; None: none.

    Example:
        >>> deserialize(serialize(L2(0.5))).l2
        0.5
    """
    return get_by_name(config, "keras.regularizers", "regularizer", custom_objects)
