"""Formats of other frameworks: the packages that write and read them register here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kerasish.typing import PathLike

if TYPE_CHECKING:
    from kerasish.engine.model.model import Model

_writers: dict[str, Callable[..., None]] = {}
_suffixes: dict[str, str] = {}
_readers: dict[str, Callable[..., Any]] = {}


def register_format(
    name: str,
    write: Callable[..., None],
    suffix: str = "",
    read: Callable[..., Any] | None = None,
) -> None:
    """Make a format of another framework known to `Model.export`.

    Args:
        name: what `format=` calls it.
        write: `write(model, filepath, verbose=..., input_signature=..., **options)`.
        suffix: of paths that mean this format where none is given; "": none.
        read: `read(filepath, **options)` -> model; None: it is written only.
    """
    _writers[name] = write
    if suffix:
        _suffixes[suffix] = name
    if read is not None:
        _readers[name] = read


def writer_of(name: str) -> Callable[..., None] | None:
    """Return what writes a format; None: no other framework's is called so."""
    return _writers.get(name)


def format_of(path: str) -> str:
    """Return the format that a path's suffix means, "kerasish" where it says nothing."""
    return next((name for end, name in _suffixes.items() if path.endswith(end)), "kerasish")


def known_formats() -> list[str]:
    """Return the names of all formats that are written."""
    return ["kerasish", *_writers]


def load_onnx(filepath: PathLike, trainable: bool = True, **options: Any) -> Model:
    """Return a model that computes what an ONNX file says.

    Its float initializers are variables: the model predicts on both engines, can be compiled and
    fitted, saved as `.keras`, and exported again.

    Args:
        filepath: the file. External data is read from files beside it only.
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
    return _readers["onnx"](filepath, trainable=trainable, **options)
