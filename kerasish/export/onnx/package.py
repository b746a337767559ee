"""The package `onnx` and `onnxruntime`, imported when first needed."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any


def need_onnx(who: str) -> Any:
    """Return the package `onnx`.

    Args:
        who: the function that needs it, for the message.

    Raises:
        ImportError: it is not installed.
    """
    try:
        importlib.import_module("onnx.helper")
        return importlib.import_module("onnx")
    except ImportError as error:
        raise ImportError(
            f"{who}: the package onnx is not installed: pip install 'kerasish[onnx]'."
        ) from error


def find_runtime() -> Any:
    """Return the package `onnxruntime`, or None where it is not installed."""
    if importlib.util.find_spec("onnxruntime") is None:
        return None
    return importlib.import_module("onnxruntime")
