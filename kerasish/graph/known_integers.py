"""Integers that are known while a function is traced: sizes of shapes, with which Python computes.

`ops.cast(ops.shape(x)[0], "int64")` is a tensor, and may be a size of another tensor's shape. So an
op on known single integers is computed during the trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasish.ops import dtypes
from kerasish.ops.op import Op
from kerasish.ops.shapes import Spec
from kerasish.typing import Array


def known_integer(op: Op, numbers: Sequence[Any], attrs: dict[str, Any]) -> Array | None:
    """Return the integer that an op computes from known integers, or None.

    Args:
        op: the op.
        numbers: its inputs: arrays, or something else for inputs that are not known.
        attrs: its attributes.
    """
    if not numbers or not op.elementwise or op.outputs != 1:
        return None
    if not all(isinstance(n, (np.ndarray, np.generic)) and n.size == 1 for n in numbers):
        return None
    if not all(dtypes.is_integer(str(n.dtype)) for n in numbers):
        return None
    spec = op.shape(*(Spec(n.shape, str(n.dtype)) for n in numbers), **attrs)
    if not dtypes.is_integer(spec.dtype):
        return None
    with np.errstate(all="ignore"):
        return np.asarray(op.kernel(np, *numbers, **attrs), spec.dtype).reshape(spec.shape)
