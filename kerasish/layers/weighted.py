"""What layers share whose weights are described by kind: kernel, bias, gamma, ..."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kerasish import constraints, initializers, regularizers
from kerasish.engine.layer.layer import Layer
from kerasish.errors import ShapeError
from kerasish.tensor import Variable
from kerasish.typing import Shape

_GET: dict[str, Callable[[Any], Any]] = {
    "initializer": initializers.get,
    "regularizer": regularizers.get,
    "constraint": constraints.get,
}


class WeightedLayer(Layer):
    """A layer with an initializer, a regularizer and a constraint for each kind of weight.

    They are the attributes `kernel_initializer`, `kernel_regularizer` and so on.

    Args:
        options: these, by name, and what every layer takes.
    """

    weight_kinds: tuple[str, ...]

    def __init__(self, **options: Any) -> None:
        given = {
            f"{kind}_{what}": get(options.pop(f"{kind}_{what}"))
            for kind in self.weight_kinds
            for what, get in _GET.items()
        }
        super().__init__(**options)
        for name, value in given.items():
            setattr(self, name, value)

    def add_weight_of(
        self, kind: str, shape: tuple[Any, ...], name: str | None = None, **changes: Any
    ) -> Variable:
        """Return a new weight with the initializer, regularizer and constraint of its kind.

        Args:
            kind: one of `weight_kinds`.
            shape: its shape, sizes all known.
            name: the last part of its path; None: the kind.
            changes: further arguments of `add_weight`, or other values for these.
        """
        own = {what: getattr(self, f"{kind}_{what}") for what in _GET}
        return self.add_weight(name=name or kind, shape=shape, **{**own, **changes})


class KernelLayer(WeightedLayer):
    """A layer with a kernel and a bias."""

    weight_kinds: tuple[str, ...] = ("kernel", "bias")
    kernel_initializer: Any
    kernel_regularizer: Any
    kernel_constraint: Any
    bias_initializer: Any
    bias_regularizer: Any
    bias_constraint: Any

    def _last_size(self, input_shape: Shape) -> int:
        """Return the last size of the input's shape.

        Raises:
            ShapeError: it is not known.
        """
        size = input_shape[-1]
        if size is None:
            raise ShapeError(
                f"{self.display_name()}: the input's last size must be known, got {input_shape}."
            )
        return size
