"""Formats of other frameworks: the packages that write and read them register here."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kerasish.typing import PathLike

if TYPE_CHECKING:
    from kerasish.engine.model.model import Model

EXPORT = "kerasish.export"  # the package that registers the formats

_writers: dict[str, Callable[..., None] | str] = {}
_suffixes: dict[str, str] = {}
_readers: dict[str, Callable[..., Any] | str] = {}


def register_format(
    name: str,
    write: Callable[..., None] | str,
    suffix: str = "",
    read: Callable[..., Any] | str | None = None,
) -> None:
    """Make a format of another framework known to `Model.export`.

    Args:
        name: what `format=` calls it.
        write: `write(model, filepath, verbose=..., input_signature=..., **options)`, or where that
            is found, "module:function": the module is imported when it is first needed.
        suffix: of paths that mean this format where none is given; "": none.
        read: `read(filepath, **options)` -> model, or where that is found; None: it is written
            only.
    """
    _writers[name] = write
    if suffix:
        _suffixes[suffix] = name
    if read is not None:
        _readers[name] = read


def writer_of(name: str) -> Callable[..., None] | None:
    """Return what writes a format; None: no other framework's is called so."""
    importlib.import_module(EXPORT)
    write = _writers.get(name)
    return None if write is None else _imported(write)


def _imported(function: Callable[..., Any] | str) -> Callable[..., Any]:
    """Return a function that may be given as "module:function"."""
    if not isinstance(function, str):
        return function
    module, _, name = function.partition(":")
    result: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return result


def format_of(path: str) -> str:
    """Return the format that a path's suffix means, "kerasish" where it says nothing."""
    importlib.import_module(EXPORT)
    return next((name for end, name in _suffixes.items() if path.endswith(end)), "kerasish")


def known_formats() -> list[str]:
    """Return the names of all formats that are written."""
    importlib.import_module(EXPORT)
    return ["kerasish", *_writers]


def load_onnx(filepath: PathLike, trainable: bool = True, **options: Any) -> Model:
    """Return a model that computes what an ONNX file says.

    Its float initializers are variables: the model predicts on both engines, can be compiled and
    fitted, saved as `.keras`, and exported again.

    Args:
        filepath: the file. External data is read only from files next to it.
        trainable: whether float initializers that products, convolutions, norms and recurrent
            operators read are trainable weights; False: all are fixed.
        options: `constants={name: array}` gives fixed values to inputs of the file, such as sizes
            that decide shapes.

    Raises:
        ValueError: the file is damaged, too large for what it says, or uses an operator that is
            not known; the message names the node.
        ImportError: the package onnx is not installed.
        OSError: it cannot be read.

    Example:
        >>> model = load_onnx("scores.onnx")  # doctest: +SKIP
        >>> model.predict(x)  # doctest: +SKIP
    """
    importlib.import_module(EXPORT)
    read = _imported(_readers["onnx"])
    model: Model = read(filepath, trainable=trainable, **options)
    return model
