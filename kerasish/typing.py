"""The types in this package's annotations, for editors and type checkers.

Nothing here is imported at run time: the classes are named as texts, so that every package may
use these names, also those below the classes.

Two names are `Any` on purpose, and no other one is: `Array`, since NumPy and CuPy share no type
and kernels work on both; `Structure`, since the shape of nested data is the caller's.

Example:
    >>> from kerasish.typing import TensorLike
    >>> from kerasish import Tensor, ops
    >>> def half(x: TensorLike) -> Tensor:
    ...     return ops.divide(x, 2.0)
    >>> half([1.0, 3.0]).tolist()
    [0.5, 1.5]
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from types import EllipsisType, ModuleType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    import numpy as np

    from kerasish.callbacks.callback import Callback
    from kerasish.constraints import Constraint
    from kerasish.dtype_policies import DTypePolicy
    from kerasish.engine.layer.operation import KerasTensor
    from kerasish.initializers.initializer import Initializer
    from kerasish.losses.loss import Loss
    from kerasish.metrics.metric import Metric
    from kerasish.optimizers.optimizer import Optimizer
    from kerasish.optimizers.schedules import LearningRateSchedule
    from kerasish.random import SeedGenerator
    from kerasish.regularizers import Regularizer
    from kerasish.tensor import Tensor, Variable

T = TypeVar("T")

# --- arrays and tensors ------------------------------------------------------------------------

# An array of NumPy or of CuPy: no type describes both, so that this is Any.
Array: TypeAlias = Any
# The library of such an array: numpy or cupy (`xp` in kernels).
ArrayModule: TypeAlias = ModuleType


class SupportsArray(Protocol):
    """What NumPy turns into an array: data frames and series, tensors of other libraries."""

    def __array__(self) -> Any:
        """Return the numbers as a NumPy array."""


# One number.
Scalar: TypeAlias = bool | int | float | complex
# A tensor, a variable, a symbolic tensor or an array: it has a shape, a dtype and operators.
AnyTensor: TypeAlias = "Tensor | Variable | KerasTensor | np.ndarray[Any, Any]"
# What ops take: the above, one number, nested sequences of all these, and other libraries' arrays.
TensorLike: TypeAlias = "AnyTensor | Scalar | SupportsArray | Sequence[TensorLike]"
# A size, a rate or a bound: a Python number, or a tensor that holds one.
ScalarLike: TypeAlias = "float | Tensor | Variable | KerasTensor"

# --- nested data -------------------------------------------------------------------------------

# Any nested structure of lists, tuples, named tuples and dicts, or one leaf. How it is nested and
# what its leaves are is the caller's choice (see `kerasish.tree`), so that this is Any.
Structure: TypeAlias = Any
# A nested structure whose leaves have a known type.
Nested: TypeAlias = "T | Sequence[Nested[T]] | Mapping[str, Nested[T]]"

# --- shapes, dtypes, axes, sizes ---------------------------------------------------------------

# Sizes as layers and shape rules get them; None, or a number in its place
# (`kerasish.ops.op.Unknown`), where a size is not known yet. Rules compute with them.
Shape: TypeAlias = tuple[Any, ...]
# A shape as users write it; one number means a shape of one axis.
ShapeLike: TypeAlias = int | Sequence[Any]
# The name of a dtype, or what NumPy takes as one.
DTypeLike: TypeAlias = "str | type | np.dtype[Any]"
# A dtype or a dtype policy, or its config.
PolicyLike: TypeAlias = "str | type | np.dtype[Any] | DTypePolicy | Mapping[str, Any]"
# What is in brackets after a tensor: a number, a slice, `...`, None, an array, or several.
_Index: TypeAlias = "TensorLike | slice | EllipsisType | None"
IndexLike: TypeAlias = "_Index | tuple[_Index, ...]"
# One axis or several.
Axis: TypeAlias = int | Sequence[int]
# One number for all spatial axes, or one for each.
IntOrTuple: TypeAlias = int | Sequence[int]
FloatOrTuple: TypeAlias = float | Sequence[float]

# --- ways to give an object: the object, its name, its config, a class, a function ---------------

Config: TypeAlias = dict[str, Any]
InitializerLike: TypeAlias = (
    "str | Config | Initializer | type[Initializer] | Callable[..., Any] | AnyTensor"
)
RegularizerLike: TypeAlias = "str | Config | Regularizer | type[Regularizer] | Callable[..., Any]"
ConstraintLike: TypeAlias = "str | Config | Constraint | type[Constraint] | Callable[..., Any]"
ActivationLike: TypeAlias = str | Config | Callable[..., Any]
LossLike: TypeAlias = "str | Config | Loss | type[Loss] | Callable[..., Any]"
MetricLike: TypeAlias = "str | Config | Metric | type[Metric] | Callable[..., Any]"
OptimizerLike: TypeAlias = "str | Config | Optimizer | type[Optimizer]"
# A seed, a generator of seeds; None: a new seed.
SeedLike: TypeAlias = "int | SeedGenerator"

# A learning rate: a number, a variable, a schedule, or a function without arguments.
LearningRateLike: TypeAlias = (
    "float | Tensor | Variable | LearningRateSchedule | Config | Callable[[], Any]"
)

# --- files -------------------------------------------------------------------------------------

# A file's or folder's path.
PathLike: TypeAlias = "str | os.PathLike[str]"

# --- training ----------------------------------------------------------------------------------

# A callback of any class: an object with some of the methods of `kerasish.callbacks.Callback`.
CallbackLike: TypeAlias = "Callback | object"
# What callbacks get: the metrics by name.
Logs: TypeAlias = dict[str, Any]
