"""The eager engine's compiled loops and products for arrays of any size, not only large ones."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from kerasish.backends.eager import (
    loop_attention,
    loop_elements,
    loop_random,
    loop_recurrent,
    loop_rows,
    loop_update,
    native_loops,
    numpy_kernels,
    onednn_pool,
    onednn_product,
)

LIMITS = (
    (native_loops, "LEAST"),
    (native_loops, "FEW"),
    (numpy_kernels, "LEAST"),
    (loop_attention, "LEAST"),
    (loop_elements, "LEAST"),
    (loop_random, "LEAST"),
    (loop_recurrent, "LEAST"),
    (loop_rows, "LEAST"),
    (loop_update, "LEAST"),
    (loop_update, "LARGE"),
    (onednn_pool, "LEAST"),
    (onednn_product, "LEAST"),
    (onednn_product, "LEAST_WORK"),
    (onednn_product, "LEAST_WORK_OF_ONE"),
    (onednn_product, "FEWEST_ROWS"),
)


@contextlib.contextmanager
def loops_of_any_size() -> Iterator[None]:
    """Compute arrays of any size by loops and by oneDNN in this block."""
    before = [getattr(module, name) for module, name in LIMITS]
    onednn_product.plan_of.cache_clear()
    try:
        for module, name in LIMITS:
            setattr(module, name, 2)  # results of one element may be NumPy's scalars
        yield
    finally:
        for (module, name), limit in zip(LIMITS, before):
            setattr(module, name, limit)
        onednn_product.plan_of.cache_clear()
