"""JSON texts of bounded depth and size."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kerasish import registry
from kerasish.typing import Structure

if TYPE_CHECKING:
    from kerasish.engine.model.model import Model

_LONGEST = 256 * 2**20  # bytes
_DEEPEST = 900
_MARK = re.compile(r'["\[{\]}]')
_IN_STRING = re.compile(r'"|\\.', re.DOTALL)
_LONGEST_MESSAGE = 4000  # characters


def read_json(text: str | bytes, where: str) -> Structure:
    """Return what a JSON text says.

    Args:
        text: the text, UTF-8 if bytes.
        where: what messages call it.

    Raises:
        ValueError: too long, nested too deeply, or no JSON.
    """
    if len(text) > _LONGEST:
        raise ValueError(f"{where}: {len(text)} bytes of JSON, more than {_LONGEST} are refused.")
    try:
        text = text.decode("utf-8") if isinstance(text, bytes) else text
    except UnicodeDecodeError as error:
        raise ValueError(f"{where}: no UTF-8 text ({error}).") from error
    _check_depth(text, where)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: no JSON ({error}).") from error


def _check_depth(text: str, where: str) -> None:
    # json.loads itself would run into the interpreter's limit, at a depth that is not ours.
    if text.count("[") + text.count("{") <= _DEEPEST:
        return
    depth, at = 0, 0
    while (match := _MARK.search(text, at)) is not None:
        mark, at = match[0], match.end()
        if mark in "[{":
            depth += 1
            if depth > _DEEPEST:
                raise ValueError(f"{where}: nested more than {_DEEPEST} deep.")
        elif mark in "]}":
            depth -= 1
        else:
            at = _end_of_string(text, at)


def _end_of_string(text: str, at: int) -> int:
    while (match := _IN_STRING.search(text, at)) is not None:
        at = match.end()
        if match[0] == '"':
            return at
    return len(text)


def write_json(value: Structure) -> str:
    """Return `value` as JSON."""
    return json.dumps(value)


def described(model: Model) -> dict[str, Any]:
    """Return a model as what JSON can hold.

    Raises:
        ValueError: its layers are nested too deeply.
    """
    try:
        return registry.serialize_keras_object(model)
    except RecursionError:
        raise ValueError(
            f"{model.display_name()}: its layers are nested too deeply to be described in a file: "
            "Python "
            f"calls itself {sys.getrecursionlimit()} times and no more. Put layers after one "
            "another instead of into one another, or raise it by sys.setrecursionlimit."
        ) from None


def restore(build: Callable[[], Any], where: str) -> Any:
    """Return `build()`; errors inside are reported as errors of the file."""
    try:
        return build()
    except (ValueError, OSError) as error:
        if where in str(error) and len(str(error)) <= _LONGEST_MESSAGE:
            raise
        raise ValueError(f"{where}: {shortened(error)}") from error
    except (
        TypeError, KeyError, AttributeError, IndexError, RecursionError, MemoryError,
        OverflowError, ArithmeticError, NotImplementedError, RuntimeError, AssertionError,
    ) as error:  # fmt: skip
        raise ValueError(
            f"{where}: no model can be made from this ({type(error).__name__}: {shortened(error)})."
        ) from error


def restore_object(
    config: Structure, custom_objects: Mapping[str, Any] | None, safe_mode: bool, where: str
) -> Any:
    """Return the layer or model that a file describes; errors are reported as errors of the file.

    Args:
        config: what the file says.
        custom_objects: name -> class or function that is not registered.
        safe_mode: whether code in the file is refused.
        where: the file's name and part, for messages.
    """
    return restore(
        lambda: registry.deserialize_keras_object(
            config, custom_objects, safe_mode=safe_mode, printable_module_name="layer"
        ),
        where,
    )


def shortened(error: Exception) -> str:
    """Return an error's text; what it quotes from a file may be as long as the file."""
    text = str(error)
    if len(text) <= _LONGEST_MESSAGE:
        return text
    half = _LONGEST_MESSAGE // 2
    return f"{text[:half]} ... {text[-half:]}"
