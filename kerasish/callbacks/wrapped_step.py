"""Compiled training steps that callbacks wrap, to see or time what the loop runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kerasish.backends.backend import CompiledStep


class WrappedStep:
    """A compiled step that does more than the step that it calls.

    Args:
        inner: that step, which several callbacks may have wrapped before.
    """

    def __init__(self, inner: CompiledStep) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name == "inner":  # not set yet, while being unpickled or copied
            raise AttributeError(name)
        return getattr(self.inner, name)


def layers_of(step: Any) -> Iterator[Any]:
    """Yield a step, and what it wraps, from the outside to the compiled step itself."""
    yield step
    while isinstance(step, WrappedStep):
        step = step.inner
        yield step


def innermost(step: Any) -> Any:
    """Return the compiled step itself."""
    return list(layers_of(step))[-1]


def without(step: Any, unwanted: Callable[[Any], bool]) -> Any:
    """Return a step without the wrappers that `unwanted` is true for; the others stay."""
    if isinstance(step, WrappedStep):
        step.inner = without(step.inner, unwanted)
        return step.inner if unwanted(step) else step
    return step
