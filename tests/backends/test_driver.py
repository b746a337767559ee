"""The native driver: records, many steps in one call, interrupts, errors, library calls."""

from __future__ import annotations

import ctypes
import os
import threading
import time

import numpy as np
import pytest

from kerasish.backends.static.codegen import arguments, driver, kernels
from kerasish.backends.static.codegen.arguments import Operand
from kerasish.backends.static.codegen.description import KernelBuilder
from kerasish.backends.static.codegen.driver import Program, Record, RecordError, Steps


def add_one():
    k = KernelBuilder()
    x = k.input("float32")
    k.output(x + 1.0, in_place=x)
    return k.build()


def record(kernel, operands, name="", **sizes):
    table = driver.load_runtime().table
    block = arguments.pack(kernel, operands, table=table, **sizes)
    return Record(kernels.compile_one(kernel), block, name)


def counting(n=10, threads=1):
    x = np.zeros(n, np.float32)
    one = record(add_one(), [x.ctypes.data] * 2, columns=n, threads=threads)
    return x, one


def gather(data, indices, batch):
    """A record that gathers a batch of rows; its index pointer is the word to advance."""
    k = KernelBuilder()
    i = k.input(str(indices.dtype), level="row")
    k.output(k.input(str(data.dtype), gather=i))
    kernel = k.build()
    columns = data.shape[1]
    out = np.zeros((batch, columns), data.dtype)
    operands = [
        indices.ctypes.data, Operand(data.ctypes.data, (columns,), limit=len(data)),
        out.ctypes.data,
    ]  # fmt: skip
    one = record(kernel, operands, "gather", rows=batch, columns=columns)
    return out, one, arguments.operand_word(kernel, 0)


def test_records_run_in_order():
    x, one = counting()
    Program([one, one, one]).run()
    np.testing.assert_array_equal(x, 3)


def test_many_steps_in_one_call():
    x, one = counting()
    steps = Steps(Program([one]))
    assert steps.run(1000) == 1000
    assert steps.run(0) == 0
    assert steps.done == 1000
    np.testing.assert_array_equal(x, 1000)


def test_batches_are_gathered_natively():
    data = np.arange(40, dtype=np.float32).reshape(20, 2)
    order = np.random.default_rng(0).permutation(20).astype(np.int64)
    batch, gathering, word = gather(data, order, 4)
    total = np.zeros(2, np.float32)
    k = KernelBuilder()
    x, t = k.input("float32"), k.input("float32", level="column")
    k.output(t + k.op("column_sum", x), in_place=t)
    kernel = k.build()
    owner, scratch = driver.aligned(arguments.scratch_size(kernel, 2))
    operands = [batch.ctypes.data, total.ctypes.data, total.ctypes.data]
    adding = record(kernel, operands, rows=4, columns=2, scratch=scratch)
    steps = Steps(Program([gathering, adding]), [(gathering.block, word, 4 * 8)])
    assert steps.run(2) == 2
    np.testing.assert_array_equal(batch, data[order[4:8]])
    assert steps.run(3) == 3
    np.testing.assert_array_equal(batch, data[order[16:]])
    np.testing.assert_allclose(total, data.sum(0))
    assert len(owner)


def test_a_failing_record_is_named_and_stops_the_steps():
    data = np.zeros((5, 3), np.float32)
    order = np.array([0, 1, 7, 2], np.int32)
    _, gathering, word = gather(data, order, 1)
    x, one = counting()
    steps = Steps(Program([one, gathering]), [(gathering.block, word, 4)])
    with pytest.raises(RecordError, match=r"record 1 \(gather\): an index is out of range"):
        steps.run(4)
    assert steps.done == 2
    np.testing.assert_array_equal(x, 3)
    with pytest.raises(RecordError, match="gather"):
        Program([gathering]).run()


def test_an_interrupt_ends_the_run_between_steps():
    x, one = counting()
    steps = Steps(Program([one]))

    def interrupt():
        until = time.monotonic() + 60
        while not x[0] and time.monotonic() < until:
            time.sleep(0.001)
        steps.interrupt()

    thread = threading.Thread(target=interrupt)
    thread.start()
    done = steps.run(10**12)  # hours
    thread.join()
    assert 0 < done < 10**12
    assert x[0] > 0
    assert steps.run(3) == 3


def test_a_run_ends_in_time():
    x, one = counting()
    steps = Steps(Program([one]))
    most = 0
    for _ in range(20):  # where this process is paused meanwhile, a run ends after one step
        before, started = x[0], time.perf_counter()
        done = steps.run(10**12, seconds=0.05)  # not hours
        assert time.perf_counter() - started > 0.04
        assert done == x[0] - before >= 1
        most = max(most, done)
        if most > 1:
            break
    assert most > 1
    assert steps.run(10, seconds=0) == 1
    assert steps.run(10, seconds=100) == 10


def test_two_threads_run_two_programs():
    pairs = [counting() for _ in range(2)]
    steps = [Steps(Program([one])) for _, one in pairs]
    threads = [threading.Thread(target=s.run, args=(20000,)) for s in steps]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for x, _ in pairs:
        np.testing.assert_array_equal(x, 20000)


@pytest.mark.parametrize("threads", [2, 3, 5])
def test_shares_cover_everything(threads):
    x, one = counting(1000, threads)
    Program([one]).run()
    np.testing.assert_array_equal(x, 1)


def test_without_openmp_one_thread_runs_all_shares():
    runtime = driver.load_runtime()
    words = np.array(runtime.words)
    words[driver.TABLE_OPENMP :] = 0
    x = np.zeros(1000, np.float32)
    block = arguments.pack(
        add_one(), [x.ctypes.data] * 2, table=words.ctypes.data, columns=1000, threads=3
    )
    Program([Record(kernels.compile_one(add_one()), block)]).run()
    np.testing.assert_array_equal(x, 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_still_computes():
    x, one = counting(5000, 2)
    program = Program([one])
    program.run()
    child = os.fork()
    if child == 0:
        program.run()
        os._exit(0 if (x == 2).all() else 1)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        finished, status = os.waitpid(child, os.WNOHANG)
        if finished:
            assert status == 0
            return
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    pytest.fail("the forked child hangs")


def test_library_calls():
    runtime = driver.load_runtime()
    source, to = np.arange(5.0), np.zeros(5)
    block = np.array([runtime.memmove, to.ctypes.data, source.ctypes.data, 40], np.int64)
    Program([Record(runtime.call_copy, block)]).run()
    np.testing.assert_array_equal(source, to)

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    def execute(primitive, stream, count, args):
        seen.append((primitive, stream, count, args))
        return 3 if count == 9 else 0

    seen = []
    address = ctypes.cast(execute, ctypes.c_void_p).value
    Program([Record(runtime.call_dnnl, np.array([address, 1, 2, 4, 5], np.int64))]).run()
    assert seen == [(1, 2, 4, 5)]
    failing = Record(runtime.call_dnnl, np.array([address, 1, 2, 9, 5], np.int64), "dense")
    with pytest.raises(RecordError, match=r"record 0 \(dense\): oneDNN.s status 3"):
        Program([failing]).run()


def test_scipy_blas_through_pointers():
    from scipy.linalg import cython_blas

    capsule = cython_blas.__pyx_capi__["sgemm"]
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    sgemm = pointer(capsule, name(capsule))
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(4, 3)).astype("f"), rng.normal(size=(3, 5)).astype("f")
    c = np.zeros((4, 5), np.float32)
    no = ctypes.create_string_buffer(b"N")
    sizes = np.array([5, 4, 3, 5, 3, 5], np.int32)  # column-major: c.T = b.T @ a.T
    scale = np.array([1, 0], np.float32)
    at = [sizes.ctypes.data + 4 * i for i in range(6)]
    n = ctypes.addressof(no)
    words = [sgemm, n, n, *at[:3], scale.ctypes.data, b.ctypes.data, at[3], a.ctypes.data, at[4],
             scale.ctypes.data + 4, c.ctypes.data, at[5]]  # fmt: skip
    Program([Record(driver.load_runtime().call_blas, np.array(words, np.int64))]).run()
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)
