"""Fixtures for the static engine: kernels run on NumPy arrays."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from ml_dtypes import bfloat16

from kerasish.backends.static import driver, kernels
from kerasish.backends.static.loops import arguments
from kerasish.backends.static.loops.description import KernelBuilder


def _run_kernel(kernel, arrays, *, rows=1, columns, groups=1, threads=1, target=None, **more):
    """Run `kernel` on arrays (or Operands), outputs included; gives the status."""
    runtime = driver.load_runtime()
    address = kernels.compile_one(kernel, target)
    size = arguments.scratch_size(kernel, columns, groups, threads)
    owner, scratch = driver.aligned(size)
    operands = [a if isinstance(a, (arguments.Operand, int)) else a.ctypes.data for a in arrays]
    block = arguments.pack(
        kernel, operands, table=runtime.table, rows=rows, columns=columns, groups=groups,
        threads=threads, scratch=scratch, **more,
    )  # fmt: skip
    status = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(address)(block.ctypes.data)
    assert len(owner) >= size
    return status


def _apply_op(op, arrays, *, out="float32", dtype=None, threads=1, target=None, **attrs):
    """One element-wise op on flat arrays."""
    k = KernelBuilder()
    symbols = [k.input(str(a.dtype)) for a in arrays]
    k.output(k.op(op, *symbols, dtype=dtype, **attrs), out)
    result = np.zeros(arrays[0].size, bfloat16 if out == "bfloat16" else out)
    kernel = k.build()
    status = _run_kernel(
        kernel, [*arrays, result], columns=arrays[0].size, threads=threads, target=target
    )
    assert status == 0
    return result


@pytest.fixture(name="run_kernel", scope="session")
def _run_kernel_fixture():
    return _run_kernel


@pytest.fixture(name="apply_op", scope="session")
def _apply_op_fixture():
    return _apply_op
