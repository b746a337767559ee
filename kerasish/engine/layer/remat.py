"""Layers whose inner values are computed again in the backward pass: `remat`, `RematScope`."""

from __future__ import annotations

import contextlib
import functools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kerasish import scopes, tree
from kerasish.engine.layer.call_context import NOWHERE, context
from kerasish.errors import UnknownNameError
from kerasish.overriding import override
from kerasish.recomputing import recompute
from kerasish.reprs import arguments_repr

if TYPE_CHECKING:
    from kerasish.engine.layer.layer import Layer
    from kerasish.tensor import Tensor

MODES = ("full", "activations", "larger_than", "list_of_layers")


class RematMode(NamedTuple):
    """What a `RematScope` says."""

    mode: str
    output_size_threshold: int
    layer_names: tuple[str, ...]


class _Scopes(threading.local):
    def __init__(self) -> None:
        self.stack: list[RematMode | None] = []


_scopes = _Scopes()


class RematScope:
    """A `with` block: layers made in it keep less memory for the backward pass.

    Args:
        mode: "full": what each layer computes inside is not kept but computed again; "activations":
            only their activation functions; "larger_than": layers whose results have more than
            `output_size_threshold` elements; "list_of_layers": those of `layer_names`; None: none.
        output_size_threshold: a number of elements, those of the whole batch.
        layer_names: names of layers; None: none.

    Example:
        >>> from kerasish import layers
        >>> with RematScope("larger_than", output_size_threshold=4096):
        ...     dense = layers.Dense(64, activation="gelu")
    """

    def __init__(
        self,
        mode: str | None = "full",
        output_size_threshold: int = 1024,
        layer_names: Sequence[str] | None = None,
    ) -> None:
        if mode is not None and mode not in MODES:
            raise UnknownNameError.of("mode of RematScope", mode, MODES)
        self.mode, self.output_size_threshold = mode, output_size_threshold
        self.layer_names = list(layer_names or ())

    def __enter__(self) -> RematScope:
        result = None
        if self.mode is not None:
            result = RematMode(self.mode, self.output_size_threshold, tuple(self.layer_names))
        _scopes.stack.append(result)
        return self

    def __exit__(self, *error: object) -> None:
        _scopes.stack.pop()

    __repr__ = arguments_repr


def current_remat() -> RematMode | None:
    """Return what the innermost scope of this thread says, or None."""
    return _scopes.stack[-1] if _scopes.stack else None


def remat(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return `f` with inner values that are not kept for gradients but computed again.

    Memory is needed only for the arguments and results, and time for one more forward pass. The
    gradients are the same bit for bit, random numbers included, but for the order in which those
    of a value that is used inside and outside (a residual, a loss added inside) are added up; on
    the static engine what is fused into one loop may differ, and with it the last bit.

    Args:
        f: a function of structures of tensors, or a layer. It may read and assign variables; what
            else it does in Python is done twice.

    Source: Chen et al., "Training deep nets with sublinear memory cost", 2016.

    Example:
        >>> import kerasish
        >>> cube = remat(lambda x: x * x * x)
        >>> float(kerasish.grad(cube)(2.0))
        12.0
    """
    return _remat(f, None)


def _remat(f: Callable[..., Any], condition: Callable[[Any], bool] | None) -> Callable[..., Any]:
    @functools.wraps(f, updated=())
    def again(*args: Any, **kwargs: Any) -> Tensor:
        return recompute(f, args, kwargs, _here(), condition)

    return again


def _here() -> Callable[[], contextlib.AbstractContextManager[Any]]:
    """Return what restores the settings in force now: training, autocast."""
    training, dtype = context.training, scopes.autocast_dtype()

    @contextlib.contextmanager
    def back() -> Iterator[None]:
        with (
            override(context, "training", training), override(context, "root", NOWHERE),
            scopes.autocast(dtype),
        ):  # fmt: skip
            yield

    return back


def call_again(operation: Any, mode: RematMode, call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a layer's `call` as its mode wants it."""
    if hasattr(operation, "reset_dropout_masks"):  # a cell: one draw for a whole sequence
        return call
    if mode.mode == "activations":
        return _with_activation(operation, call)
    if mode.mode == "list_of_layers" and operation.name not in mode.layer_names:
        return call
    condition = None
    if mode.mode == "larger_than":

        def condition(result: Tensor) -> bool:
            sizes = [math.prod(t.shape) for t in tree.flatten(result) if hasattr(t, "shape")]
            return sum(sizes) > mode.output_size_threshold

    return _remat(call, condition)


def _with_activation(operation: Layer, call: Callable[..., Any]) -> Callable[..., Any]:
    own = operation.__dict__.get("activation")  # that of a recurrent layer is its cell's
    if own is None:
        return call

    @functools.wraps(call)
    def swapped(*args: Any, **kwargs: Any) -> Tensor:
        operation.activation = remat(own)
        try:
            return call(*args, **kwargs)
        finally:
            operation.activation = own

    return swapped
