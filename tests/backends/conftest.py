"""Fixtures for the static engine: kernels run on NumPy arrays."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from ml_dtypes import bfloat16

from kerasish.backends.static.codegen import arguments, driver, kernels
from kerasish.backends.static.codegen.description import KernelBuilder
from kerasish.backends.static.machine import guard_pages
from kerasish.ops.op import REGISTRY


def _run_kernel(kernel, arrays, *, rows=1, columns, groups=1, threads=1, target=None, **more):
    """Run `kernel` on arrays (or Operands), outputs included; gives the status."""
    runtime = driver.load_runtime()
    address = kernels.compile_one(kernel, target)
    size = arguments.scratch_size(kernel, columns, groups, threads)
    owner, scratch = driver.aligned(size)
    guarded = _between_guard_pages(arrays)
    operands = [a if isinstance(a, (arguments.Operand, int)) else a.ctypes.data for a in guarded]
    block = arguments.pack(
        kernel, operands, table=runtime.table, rows=rows, columns=columns, groups=groups,
        threads=threads, scratch=scratch, **more,
    )  # fmt: skip
    status = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(address)(block.ctypes.data)
    assert len(owner) >= size
    for array, copy in zip(arrays, guarded):
        if copy is not array and array.flags.writeable:
            np.copyto(array, copy)
    return status


def _between_guard_pages(arrays):
    """The arrays, or with KERASISH_STRICT_MEMORY copies whose ends touch guard pages."""
    if not guard_pages.mode():
        return list(arrays)
    result, copies = [], {}
    for array in arrays:
        plain = isinstance(array, np.ndarray) and array.flags.c_contiguous and array.size
        if plain and id(array) not in copies:
            others = (o for o in arrays if isinstance(o, np.ndarray) and o is not array)
            if not any(np.may_share_memory(array, other) for other in others):
                copies[id(array)] = _guarded_copy(array)
        result.append(copies.get(id(array), array) if plain else array)
    return result


def _guarded_copy(array):
    at_start = guard_pages.mode() == "start"
    blocks = guard_pages.Blocks([array.nbytes], at_start, array.itemsize)
    shift = blocks.addresses[0] - blocks.owner.ctypes.data
    copy = blocks.owner[shift : shift + array.nbytes].view(array.dtype).reshape(array.shape)
    np.copyto(copy, array)
    return copy


def _apply_op(op, arrays, *, out="float32", dtype=None, threads=1, target=None, **attrs):
    """One loop op, or an op that composes some, on flat arrays."""
    k = KernelBuilder()
    symbols = [k.input(str(a.dtype)) for a in arrays]
    native = REGISTRY[op].native if op in REGISTRY else op
    if callable(native):
        k.output(native(k, *symbols, **attrs), out)
    else:
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
