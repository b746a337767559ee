"""Printing inside a model: the op that runs for its effect, and what holds its text back."""

from __future__ import annotations

import builtins
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish.ops.basic.comparison import logical_and
from kerasish.ops.basic.conversion import as_tensor
from kerasish.ops.op import current_engine, function, op
from kerasish.ops.shapes import Spec
from kerasish.typing import Array, ArrayModule, Structure

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = ["print"]


class _State(threading.local):
    """The state of prints of this thread.

    Attributes:
        held: texts that are not written yet; None: texts are written at once.
        silent: whether nothing is printed.
        conditions: truth values that must hold for a print to be made.
    """

    held: list[str] | None = None
    silent = False
    conditions: tuple[Tensor, ...] = ()


_state = _State()


def hold() -> None:
    """Hold texts back from now on, until `release` or `forget`."""
    _state.held = []


def release() -> None:
    """Write the texts that were kept back, and write at once from now on."""
    held, _state.held = _state.held, None
    for text in held or ():
        _write(text)


def forget() -> None:
    """Drop the texts that were kept back, and write at once from now on."""
    _state.held = None


def is_silent() -> bool:
    """Return whether nothing is printed in this thread now."""
    return _state.silent


@contextmanager
def silence() -> Iterator[None]:
    """Print nothing inside the block: what runs there runs a second time, or aside."""
    before, _state.silent = _state.silent, True
    try:
        yield
    finally:
        _state.silent = before


@contextmanager
def only_where(condition: Tensor) -> Iterator[None]:
    """Print inside the block only where `condition` holds: what runs there is selected by it."""
    before = _state.conditions
    _state.conditions = (*before, condition)
    try:
        yield
    finally:
        _state.conditions = before


def _write(text: str) -> None:
    builtins.print(text, end="")  # sys.stdout of this moment: notebooks and tests replace it


def _shape(order: Spec, *values: Spec, parts: tuple[Any, ...], conditional: bool) -> Spec:
    return order


@op(
    "effect",
    _shape,
    examples=[
        ((lambda rng: np.zeros((), "int32"), (2, 3)), {"parts": ("x: ", 0, "\n")}),
        (
            (lambda rng: np.zeros((), "int32"), (2,), lambda rng: np.array(False)),
            {"parts": (0, "\n"), "conditional": True},
        ),
    ],
    variadic=True,
    effect=True,
    exact_storage=True,
    flops=lambda inputs, results: 0,
)
def print_values(
    xp: ArrayModule, *values: Any, parts: Sequence[Any], conditional: bool = False
) -> Array:
    """Print a line; the result is the first input, on which the next effect of a trace depends.

    Args:
        values: a number that orders effects, then what is printed; with `conditional` the last
            one says whether to print, or, with axes, for which rows of all others.
        parts: texts, and the numbers of values between them.
        conditional: whether the last value is a condition.
    """
    order, *shown = values
    arrays = [np.asarray(v.get() if hasattr(v, "get") else v) for v in shown]
    if conditional:
        condition = arrays.pop().astype(bool)
        if not condition.any():
            return order
        if condition.ndim:
            arrays = [a[condition] for a in arrays]
    text = ""
    for part in parts:
        if isinstance(part, str):
            text += part
        else:
            line = text[text.rfind("\n") + 1 :]
            text += np.array2string(arrays[part], prefix=line)
    if _state.held is None:
        _write(text)
    else:
        _state.held.append(text)
    return order


@function
def print(*values: Any, sep: str = " ", end: str = "\n") -> Structure:
    """Print values when they are computed, in compiled steps too; return the first of them.

    Python's `print` shows a tensor of a compiled step without numbers, and once per compilation.
    This one prints the numbers each time the step gets there: in `fit`, in branches and loops
    of `ops.cond`, `ops.while_loop` and `ops.scan`, under gradients, inside `vmap` (all examples
    at once). Prints keep the order of the program, also where their values are not used
    otherwise. The rest of the step stays native.

    In a functional model, the result must be used: what no output depends on is not part of the
    model. What runs a second time to save memory (`remat`) is printed once. Exported models
    print nothing.

    Args:
        *values: what is printed: texts as they are; tensors, variables and arrays as NumPy prints
            them, with the options of `np.set_printoptions` (long arrays are shortened); lists,
            tuples and dicts of these; anything else by `str`.
        sep: the text between two values.
        end: what follows the last one.

    Shape: any.

    Returns:
        The first value that is not a text, as it was given; None if there is none. Gradients flow
        through it as if nothing had been printed.

    Source:
        `tf.print` and `jax.debug.print`, which do the same.

    Example:
        >>> import kerasish
        >>> from kerasish import ops
        >>> @kerasish.function
        ... def double(x):
        ...     return 2 * ops.print("x is", x)
        >>> y = double(ops.convert_to_tensor([1.0, 2.5]))
        x is [1.  2.5]
    """
    result = next((v for v in values if not isinstance(v, str)), None)
    if _state.silent:
        return result
    parts: list[Any] = []
    tensors: list[Tensor] = []
    for number, value in enumerate(values):
        if number:
            parts.append(sep)
        _describe(value, parts, tensors, top=True)
    parts.append(end)
    condition = None
    for other in _state.conditions:
        condition = other if condition is None else logical_and(condition, other)
    attrs = {"parts": tuple(parts), "conditional": condition is not None}
    inputs = tensors if condition is None else [*tensors, condition]
    current_engine().run_effect(print_values, inputs, attrs)
    return result


def _describe(value: Any, parts: list[Any], tensors: list[Any], top: bool = False) -> None:
    """Add the texts and tensors of which a printed value consists."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        parts.append(len(tensors))
        tensors.append(as_tensor(value))
    elif type(value) in (list, tuple):
        opening, closing = "[]" if type(value) is list else "()"
        parts.append(opening)
        for number, part in enumerate(value):
            parts.append(", " if number else "")
            _describe(part, parts, tensors)
        parts.append(",)" if type(value) is tuple and len(value) == 1 else closing)
    elif type(value) is dict:
        parts.append("{")
        for number, (name, part) in enumerate(value.items()):
            parts.append(f"{', ' if number else ''}{name!r}: ")
            _describe(part, parts, tensors)
        parts.append("}")
    else:
        parts.append(str(value) if top else repr(value))
