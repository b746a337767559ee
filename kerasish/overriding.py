"""What `with` blocks do for many classes: override an attribute, close an object at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self


@contextmanager
def override(holder: object, name: str, value: Any) -> Iterator[None]:
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
    before = getattr(holder, name)
    setattr(holder, name, value)
    try:
        yield
    finally:
        setattr(holder, name, before)


class Closing:
    """An object that a `with` block closes at its end."""

    def close(self) -> None:
        """Release what the object holds. Closing twice does no harm."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it is closed.")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
