"""Distinct rows, and an update that touches only those."""

from __future__ import annotations

import numpy as np
import pytest

from kerasish.backends.static.codegen import arguments, driver, kernels
from kerasish.backends.static.codegen.arguments import Operand
from kerasish.backends.static.codegen.description import KernelBuilder
from kerasish.backends.static.codegen.driver import Program, Record, RecordError
from kerasish.backends.static.lowering import unique_rows


def unique_record(indices, limit, unique, slots, marks, counts=()):
    block, table = unique_rows.unique_rows_block(
        indices=indices.ctypes.data, count=len(indices), limit=limit, marks=marks.ctypes.data,
        unique=unique.ctypes.data, slots=slots.ctypes.data, counts=counts,
    )  # fmt: skip
    address = kernels.compile_one(unique_rows.unique_rows(str(indices.dtype)))
    return Record(address, block, "unique"), table


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_unique_rows(dtype):
    indices = np.array([7, 3, 7, -1, 0, 3, 9], dtype)
    unique, slots = np.zeros(7, np.int32), np.zeros(7, np.int32)
    marks, count = np.full(10, -1, np.int32), np.zeros(2, np.int64)
    record, table = unique_record(indices, 10, unique, slots, marks, [(count, 0), (count, 1)])
    for _ in range(2):
        Program([record]).run()
        assert list(count) == [4, 4]
        np.testing.assert_array_equal(unique[:4], [7, 3, 9, 0])
        np.testing.assert_array_equal(unique[slots], indices % 10)
        assert (marks == -1).all()
    indices[2] = 10
    with pytest.raises(RecordError, match="out of range"):
        Program([record]).run()
    assert (marks == -1).all()
    assert len(table) == 2


@pytest.mark.parametrize("threads", [1, 2])
def test_a_sparse_update_touches_only_its_rows(threads):
    rng = np.random.default_rng(0)
    table = driver.load_runtime().table
    weights = rng.normal(size=(50, 24)).astype(np.float32)
    moments = np.zeros_like(weights)
    indices = rng.integers(0, 50, 12).astype(np.int32)
    gradient = rng.normal(size=(12, 24)).astype(np.float32)
    compact = np.zeros((12, 24), np.float32)
    unique, slots = np.zeros(12, np.int32), np.zeros(12, np.int32)
    marks = np.full(50, -1, np.int32)

    k = KernelBuilder()
    i, g = k.input("int32", level="row"), k.input("float32")
    k.output(g, scatter=i, combine="add")
    adding = k.build()
    operands = [slots.ctypes.data, gradient.ctypes.data,
                Operand(compact.ctypes.data, (24,), limit=12)]  # fmt: skip
    add_block = arguments.pack(adding, operands, table=table, rows=12, columns=24, threads=threads)

    k = KernelBuilder()
    i = k.input("int32", level="row")
    p, m, g = k.input("float32", gather=i), k.input("float32", gather=i), k.input("float32")
    m2 = m * 0.9 + g
    k.output(p - m2 * 0.1, in_place=p, scatter=i)
    k.output(m2, in_place=m, scatter=i)
    update = k.build()
    w, v = (Operand(a.ctypes.data, (24,), limit=50) for a in (weights, moments))
    update_block = arguments.pack(
        update, [unique.ctypes.data, w, v, compact.ctypes.data, w, v], table=table, rows=0,
        columns=24, threads=threads,
    )  # fmt: skip
    first, keep = unique_record(indices, 50, unique, slots, marks, [(update_block, arguments.ROWS)])
    expected, sums = weights.copy(), np.zeros_like(weights)
    np.add.at(sums, indices, gradient)
    expected -= np.float32(0.1) * sums
    add, change = kernels.compile_many([adding, update])
    Program([first, Record(add, add_block), Record(change, update_block)]).run()
    np.testing.assert_allclose(weights, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(moments, sums, rtol=1e-5, atol=1e-6)
    assert len(keep) == 1
