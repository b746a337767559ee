"""Attention heads, and sums of rows by place, on arrays: see `kerasish.backends.loops`."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

import numpy as np

from kerasish.backends.loops import address_of
from kerasish.backends.onednn import native
from kerasish.backends.static.array_loops import scratch_address
from kerasish.backends.static.codegen import attention, row_sums
from kerasish.backends.static.codegen.attention import Heads, HeadsOperand, Sizes
from kerasish.backends.static.codegen.driver import load_runtime
from kerasish.backends.static.codegen.kernels import compile_one
from kerasish.backends.static.codegen.row_sums import RowSums as RowSumsKernel
from kerasish.typing import Array

# FLOPs per thread, about 40 us. Python runs between two calls, so threads must be woken up.
GRAIN = 4e6
LOW = -1e9  # the logits that a mask excludes


class ArrayHeads:
    """Attention heads on arrays; see `kerasish.backends.loops.AttentionHeads`.

    Args:
        kernel: what is computed.
    """

    def __init__(self, kernel: Heads) -> None:
        self._kernel = kernel
        self._run = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(compile_one(kernel))

    def __call__(self, arrays: Sequence[Array], scale: float) -> None:
        """Compute all heads; see `AttentionHeads`."""
        q, k, v = arrays[:3]
        sizes = Sizes(q.shape[:2], q.shape[2], k.shape[2], q.shape[3], v.shape[3])
        threads = min(math.prod(sizes.batch), native.threads_for(self._flops(sizes), GRAIN))
        scratch = threads * attention.scratch_size(self._kernel, sizes)
        operands = [
            HeadsOperand(address_of(a), tuple(np.array(a.strides) // a.itemsize)) for a in arrays
        ]
        block = attention.pack(
            self._kernel, table=load_runtime().table, threads=threads, sizes=sizes,
            scratch=scratch_address(scratch), low=LOW, operands=operands, scale=scale,
        )  # fmt: skip
        status = self._run(block.ctypes.data)
        if status:
            raise RuntimeError(f"attention heads ended with status {status}")

    def _flops(self, sizes: Sizes) -> float:
        by_keys, by_values = attention.PRODUCTS[self._kernel.backward]
        terms = by_keys * sizes.size + by_values * sizes.values
        return 2.0 * math.prod(sizes.batch) * sizes.targets * sizes.sources * terms


def compile_heads(backward: bool, masked: bool) -> ArrayHeads | None:
    """Return attention heads; None where no loop can be compiled.

    Args:
        backward: whether their gradients are computed.
        masked: whether a mask selects the sources that count for a target.
    """
    try:
        return ArrayHeads(Heads(backward, masked, masked, scaled=True))
    except (ImportError, OSError):
        return None


class RowSums:
    """Sums of rows by place; see `kerasish.backends.loops.RowSums`."""

    def __init__(self) -> None:
        function = compile_one(RowSumsKernel())
        self._run = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(function)

    def __call__(self, places: Array, rows: Array, y: Array) -> None:
        """Compute the sums; see `kerasish.backends.loops.RowSums`."""
        (count, columns), size = rows.shape, len(y)
        block = row_sums.pack(
            table=load_runtime().table, count=count, size=size, columns=columns,
            threads=row_sums.choose_threads(count, size, columns, native.get_threads()),
            addresses=(address_of(places), address_of(rows), address_of(y)),
        )  # fmt: skip
        status = self._run(block.ctypes.data)
        if status:
            raise RuntimeError(f"sums of rows ended with status {status}")


def compile_row_sums() -> RowSums | None:
    """Return sums of rows by place; None where no loop can be compiled."""
    try:
        return RowSums()
    except (ImportError, OSError):
        return None
