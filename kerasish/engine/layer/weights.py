"""What a layer does with its weights: add, count, get and set, hand to files."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import numpy as np

from kerasish import constraints, initializers, regularizers
from kerasish.errors import ShapeError
from kerasish.ops import dtypes
from kerasish.overriding import override
from kerasish.tensor import Variable, to_numpy
from kerasish.typing import ConstraintLike, InitializerLike, RegularizerLike, Shape, ShapeLike


class _Allowance(threading.local):
    left: int | None = None


_allowance = _Allowance()


def limited_weights(elements: int) -> AbstractContextManager[None]:
    """Let `add_weight` make at most this many elements inside the block.

    A model read from a file needs no more than the file holds; a config that asks for more is
    refused before memory is taken.
    """
    return override(_allowance, "left", elements)


def _spend(shape: tuple[int, ...], who: str) -> None:
    if _allowance.left is not None:
        _allowance.left -= math.prod(shape)
        if _allowance.left < 0:
            raise ValueError(
                f"{who}: a weight of shape {shape} is more than the file holds numbers for."
            )


Method = TypeVar("Method", bound=Callable[..., Any])


def loaded_by_number(unless: str) -> Callable[[Method], Method]:
    """Return a decorator of a `load_own_variables` that does as `Layer`'s, with one exception.

    Weight files then compare all shapes before they assign, as they do for other layers.

    Args:
        unless: the attribute that is true where the layer loads its variables in its own way.
    """

    def mark(method: Method) -> Method:
        method.__dict__["special_where"] = unless
        return method

    return mark


class WeightsMixin:
    """The part of a layer that owns weights; mixed into `Layer`."""

    def add_weight(
        self: Any,
        *args: Any,
        shape: ShapeLike | None = None,
        initializer: InitializerLike | None = None,
        dtype: str | None = None,
        trainable: bool = True,
        autocast: bool = True,
        regularizer: RegularizerLike | None = None,
        constraint: ConstraintLike | None = None,
        aggregation: str = "none",
        overwrite_with_gradient: bool = False,
        name: str | None = None,
    ) -> Variable:
        """Return a new variable of this layer.

        Args:
            args: shape, initializer and dtype, where they are given without their names.
            shape: its shape, sizes all known; None: ().
            initializer: name, config, object or function (shape, dtype); None: Glorot uniform for
                floats, zeros for the rest.
            dtype: None: the layer's variable dtype.
            trainable: whether training changes it.
            autocast: whether it is read in the compute dtype.
            regularizer: a penalty added to the losses.
            constraint: what is applied after each update.
            name: the last part of its path.
        """
        if args:
            shape, initializer, dtype = _by_place(
                args, (shape, initializer, dtype), self.display_name()
            )
        if self._complete and not self._building:
            raise ValueError(
                f"{self.display_name()}: it is built, so weight {name!r} would be missed by models "
                "and files that know it already. Call add_weight in __init__ or in build."
            )
        shape = () if shape is None else tuple(shape) if not isinstance(shape, int) else (shape,)
        if any(s is None for s in shape):
            raise ShapeError(
                f"{self.display_name()}: weight {name!r} needs a known shape, got {shape}. Give "
                "the input all sizes but the batch's."
            )
        dtype = dtypes.name_of(dtype or self.variable_dtype)
        if initializer is None:
            initializer = "glorot_uniform" if dtypes.is_float(dtype) else "zeros"
        number = len(self._weights)
        _spend(shape, self.display_name())
        result = Variable(
            initializers.get(initializer),
            shape=tuple(int(s) for s in shape),
            dtype=dtype,
            trainable=trainable,
            autocast=autocast,
            aggregation=aggregation,
            name=name or (f"variable_{number}" if number else "variable"),
        )
        result.path = f"{self._path}/{result.name}" if not self._building else result.path
        result.regularizer = regularizers.get(regularizer)
        result.constraint = constraints.get(constraint)
        result.overwrite_with_gradient = overwrite_with_gradient
        if not self._trainable:
            result.trainable = False
        self._weights.append(result)
        return result

    def adding_weights(self: Any) -> AbstractContextManager[None]:
        """Let `add_weight` add weights to a layer that is built, inside the block."""
        return override(self, "_complete", False)

    def add_variable(
        self: Any, shape: Shape, initializer: InitializerLike, **options: Any
    ) -> Variable:
        """Return a new variable of this layer; see `add_weight`."""
        return self.add_weight(shape=shape, initializer=initializer, **options)

    def count_params(self: Any) -> int:
        """Return the number of elements of all weights.

        Raises:
            ValueError: it is not built, so that some weights may not be there yet.
        """
        if not self.built:
            raise ValueError(
                f"{self.display_name()}: count_params() of a layer that is not built. "
                "Call it on data, or build(input_shape), first."
            )
        return sum(int(np.prod(v.shape)) for v in self.weights)

    def get_weights(self: Any) -> list[Any]:
        """Return the weights as NumPy arrays, in the order of `weights`."""
        return [np.array(to_numpy(v)) for v in self.weights]

    def set_weights(self: Any, weights: Sequence[Any]) -> None:
        """Set the weights from arrays in the order of `weights`; all or none."""
        own, arrays = self.weights, list(weights)
        if len(own) != len(arrays):
            raise ValueError(
                f"{self.display_name()}: has {len(own)} weights, set_weights got {len(arrays)} "
                "arrays."
            )
        for v, a in zip(own, arrays):
            if tuple(np.shape(a)) != v.shape:
                raise ShapeError(
                    f"{self.display_name()}: weight {v.path!r} has shape {v.shape}, the array "
                    f"given {tuple(np.shape(a))}."
                )
        for v, a in zip(own, arrays):
            v.assign(a)

    def stored_variables(self: Any) -> list[Variable]:
        """Return the layer's own variables in the order in which files hold them."""
        return self.own_variables()

    def save_own_variables(self: Any, store: dict[Any, Any]) -> None:
        """Put the layer's own variables into the dict-like `store` under "0", "1" and so on."""
        for i, v in enumerate(self.stored_variables()):
            store[str(i)] = to_numpy(v)

    def load_own_variables(self: Any, store: Mapping[str, Any]) -> None:
        """Set the layer's own variables from what `save_own_variables` put into `store`."""
        self.load_in_order(self.stored_variables(), store)

    def load_in_order(self: Any, variables: Sequence[Variable], store: Mapping[str, Any]) -> None:
        """Set variables from the arrays "0", "1", ... of a store.

        Args:
            variables: one for each array of the store.
            store: what a file holds for this layer.
        """
        if len(store.keys()) != len(variables):
            raise ValueError(
                f"{self.display_name()}: expected {len(variables)} variables, got "
                f"{len(store.keys())}."
            )
        for i, v in enumerate(variables):
            v.assign(store[str(i)])


def _by_place(args: tuple[Any, ...], named: tuple[Any, ...], who: str) -> tuple[Any, ...]:
    """Return shape, initializer and dtype of a weight, some of them given without their names."""
    names = ("shape", "initializer", "dtype")
    if isinstance(args[0], str):
        raise ValueError(
            f"{who}: the first argument of add_weight is the shape, got {args[0]!r}; give the "
            "name as a keyword argument, add_weight(shape=..., name=...)."
        )
    if len(args) > len(names):
        raise TypeError(f"{who}: add_weight takes at most {names} by place, got {args}.")
    twice = [name for name, _, value in zip(names, args, named) if value is not None]
    if twice:
        raise ValueError(f"{who}: add_weight is given {twice} by place and by name.")
    return (*args, *named[len(args) :])
