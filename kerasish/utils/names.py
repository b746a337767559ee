"""Names of dtypes, numbers for unique names, and the inputs of a symbolic tensor."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from kerasish import tree
from kerasish.engine import KerasTensor
from kerasish.ops import dtypes
from kerasish.tensor import Tensor
from kerasish.typing import DTypeLike

_counts: Counter[str] = Counter()
_guard = threading.Lock()


def standardize_dtype(dtype: DTypeLike | None) -> str:
    """Return the name of a dtype given as a name, a NumPy dtype, a Python type or None.

    Args:
        dtype: a dtype; None: the default float.

    Example:
        >>> standardize_dtype("int"), standardize_dtype(None)
        ('int32', 'float32')
    """
    return dtypes.name_of(dtype)


def get_uid(prefix: str = "") -> int:
    """Return 1, 2, 3 ... for each call with the same prefix.

    Example:
        >>> get_uid("example"), get_uid("example")
        (1, 2)
    """
    with _guard:
        _counts[prefix] += 1
        return _counts[prefix]


def reset_uids() -> None:
    """Make `get_uid` count from 1 again."""
    with _guard:
        _counts.clear()


def get_source_inputs(tensor: Tensor) -> list[Any]:
    """Return the symbolic inputs that a symbolic tensor was computed from.

    Args:
        tensor: a symbolic tensor.

    Example:
        >>> from kerasish import Input, ops
        >>> x = Input((3,))
        >>> get_source_inputs(ops.square(x)) == [x]
        True
    """
    results: dict[int, Any] = {}
    waiting = [t for t in tree.flatten(tensor) if isinstance(t, KerasTensor)]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop(0)
        history = one.history
        if id(one) in seen or history is None:
            continue
        seen.add(id(one))
        operation, index, _ = history
        node = operation.inbound_nodes[index]
        parents = [t for t in tree.flatten((node.args, node.kwargs)) if isinstance(t, KerasTensor)]
        if not parents:
            results[id(one)] = one
        waiting.extend(parents)
    return list(results.values())
