"""What `with` blocks do: override an attribute, close an object, pause the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self


class override(AbstractContextManager[None]):  # noqa: N801 (used as a function)
    """Set an attribute inside the `with` block; it has its earlier value again after the block.

    Args:
        holder: the object, such as a `threading.local`.
        name: the attribute; it exists.
        value: what it is inside.

    Example:
        >>> import types
        >>> settings = types.SimpleNamespace(strict=False)
        >>> with override(settings, "strict", True):
        ...     settings.strict
        True
        >>> settings.strict
        False
    """

    # A class, not a generator: entered several times per op, it takes a third of the time.
    __slots__ = ("_before", "_holder", "_name", "_value")

    def __init__(self, holder: object, name: str, value: Any) -> None:
        self._holder, self._name, self._value = holder, name, value

    def __enter__(self) -> None:
        self._before = getattr(self._holder, self._name)
        setattr(self._holder, self._name, self._value)

    def __exit__(self, *error: object) -> None:
        setattr(self._holder, self._name, self._before)


class Closing:
    """An object that a `with` block closes at its end."""

    def close(self) -> None:
        """Release what the object holds. Closing twice does no harm."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it is closed.")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@contextmanager
def no_collections(lasting: bool = False) -> Iterator[None]:
    """Pause the garbage collector, for work that makes many objects and no garbage.

    An import or a trace makes tens of thousands of objects; the collector would look through all
    objects of the process again and again while they are made.

    Args:
        lasting: whether nearly all of them stay as long as the process. The collector then treats
            the present objects as old ones, so that it does not look through them after the work
            either; garbage among them is found by the next full collection. Not for work that is
            repeated: it would delay full collections.

    Example:
        >>> import gc
        >>> with no_collections():
        ...     gc.isenabled()
        False
        >>> gc.isenabled()
        True
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            if lasting and not gc.get_freeze_count():  # what the user has frozen stays frozen
                gc.freeze()
                gc.unfreeze()
            gc.enable()
