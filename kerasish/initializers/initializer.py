"""What every initializer is: a function (shape, dtype) with a config."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerasish.signatures import Configured, any_arguments
from kerasish.tracebacks import ShortInitTracebacks
from kerasish.typing import DTypeLike, Shape

if TYPE_CHECKING:
    pass


class Initializer(Configured, ShortInitTracebacks):
    """A function (shape, dtype) -> first value of a variable; subclasses write `__call__`.

    Example:
        >>> class Halves(Initializer):
        ...     def __call__(self, shape, dtype=None):
        ...         return [0.5] * shape[0]
        >>> Halves()((2,))
        [0.5, 0.5]
    """

    @property
    def repeats(self) -> bool:
        """Whether one object gives the same values, bit for bit, whenever it is called.

        A model that still has such first values need not keep them while it is loaded. Subclasses
        of which that is true say so.
        """
        return False

    @any_arguments
    def __call__(self, shape: Shape, dtype: DTypeLike | None = None) -> Any:
        """Return an array or tensor of this shape."""
        raise NotImplementedError(f"{type(self).__name__} must write __call__(shape, dtype).")

    def clone(self) -> Initializer:
        """Return a new initializer of the same config."""
        return self.from_config(self.get_config())

    def __repr__(self) -> str:
        inner = ", ".join(f"{k}={v!r}" for k, v in self.get_config().items())
        return f"{type(self).__name__}({inner})"
