"""What is added to an error inside a layer's `call`: which layer, and what it was given."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kerasish.errors import add_note
from kerasish.tracebacks import hint_keywords
from kerasish.typing import Structure

if TYPE_CHECKING:
    from kerasish.engine.layer.layer import Layer

_BEGINNING = "Exception encountered when calling "
_MOST_PARTS, _LONGEST = 6, 80


def note_layer(
    error: Exception, layer: Layer, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Add to an error the layer whose `call` raised it, unless a layer inside has done so.

    The error stays the object that it is; tracebacks show the note after the message.

    Args:
        error: what `call` raised.
        layer: the layer.
        args, kwargs: what `call` was given.
    """
    if getattr(error, "failing_layer", None) is not None:
        return
    hint_keywords(error, layer.call, kwargs)
    if str(error).startswith(layer.display_name()):  # says all that, and ends with the fix
        with contextlib.suppress(AttributeError):  # a class with slots
            error.failing_layer = layer.path  # type: ignore[attr-defined]
        return
    name = f"{type(layer).__name__}.call()"
    lines = [f"{_BEGINNING}{name} of layer {layer.path!r}.", f"Arguments received by {name}:"]
    given = {**dict(_named(layer, args)), **kwargs}
    lines += [f"  {key}={_shown(value)}" for key, value in given.items()]
    try:
        error.failing_layer = layer.path  # type: ignore[attr-defined]
    except AttributeError:  # a class with slots
        if any(n.startswith(_BEGINNING) for n in getattr(error, "__notes__", ())):
            return
    add_note(error, "\n".join(lines))


def _named(layer: Layer, args: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    names = layer.call_parts.names
    for place, value in enumerate(args):
        yield (names[place] if place < len(names) else f"argument {place}"), value


def _shown(value: Structure, depth: int = 0) -> str:
    """Return a value in a few words, arrays by dtype and shape; no code of the user's runs."""
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        text = repr(value)
        return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
    kind = type(value).__name__
    if type(value) in (list, tuple, dict) and depth < 3:
        pairs = value.items() if type(value) is dict else enumerate(value)
        parts = [(k, _shown(v, depth + 1)) for k, v in list(pairs)[:_MOST_PARTS]]
        if len(value) > _MOST_PARTS:
            parts.append(("", f"... {len(value)} in all"))
        if type(value) is dict:
            return "{" + ", ".join(f"{k!r}: {t}" if t[:3] != "..." else t for k, t in parts) + "}"
        inner = ", ".join(text for _, text in parts)
        return f"[{inner}]" if type(value) is list else f"({inner})"
    if hasattr(type(value), "shape") and hasattr(type(value), "dtype"):
        return f"{kind}(shape={tuple(value.shape)}, dtype={value.dtype})"
    return kind
