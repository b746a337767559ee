"""How far rounding may move a program's numbers: the eager engine with jittered last bits.

Stochastic arithmetic: each result of an op that rounds is multiplied by 1 + e with a random e of
the size of a rounding error. Where such runs differ much, the program is badly conditioned there,
or a comparison hangs on a last bit; where they agree, engines must agree as well.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from kerasish import backends
from kerasish.backends.eager import Eager

# Kinds whose results are exact: they pass numbers on, compare them or choose.
EXACT = {"movement", "comparison", "logic", "bits", "indexing", "creation", "random"}
EXACT_OPS = {
    "relu", "maximum", "minimum", "reduce_max", "reduce_min", "select", "sign", "floor", "ceil",
    "rint", "trunc", "absolute", "negative", "alias", "stop_gradient", "argmax", "argmin",
    "argsort", "pool_max", "pool_max_gradient", "pool_max_select", "reduce_all", "reduce_any",
}  # fmt: skip
EPSILONS = {"float32": 1.2e-7, "float64": 2.3e-16, "float16": 1e-3, "bfloat16": 8e-3}


@contextlib.contextmanager
def jittered(seed: int, least: float = 0.0) -> Iterator[None]:
    """Let the eager engine round at random in this block, by a share of `least` or more."""
    rng = np.random.default_rng(seed)
    plain = Eager.kernel

    def kernel(self: Eager, op: Any) -> Any:
        exact = plain(self, op)
        if op.kind in EXACT or op.name in EXACT_OPS:
            return exact

        def rounded(*values: Any, **attrs: Any) -> Any:
            out = exact(*values, **attrs)
            if op.outputs > 1:
                return tuple(_jitter(o, rng, least) for o in out)
            return _jitter(out, rng, least)

        self._kernels[op] = rounded
        return rounded

    result = _engines()
    kept = [dict(e._kernels) for e in result]
    for e in result:
        e._kernels.clear()
    Eager.kernel = kernel  # type: ignore[method-assign]
    try:
        yield
    finally:
        Eager.kernel = plain  # type: ignore[method-assign]
        for e, kernels in zip(result, kept):
            e._kernels.clear()
            e._kernels.update(kernels)


def _engines() -> list[Eager]:
    return [backends.get("eager"), backends.get("static").eager]  # type: ignore[list-item]


def _jitter(value: Any, rng: np.random.Generator, least: float) -> Any:
    name = str(getattr(value, "dtype", ""))
    epsilon = EPSILONS.get(name)
    if epsilon is None:
        return value
    with np.errstate(all="ignore"):
        factor = 1 + max(epsilon, least) * rng.uniform(-1, 1, np.shape(value))
        return (np.asarray(value, "float64") * factor).astype(value.dtype)
