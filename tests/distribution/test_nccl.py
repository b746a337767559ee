"""Sums on GPUs through NCCL, whose communicator is faked: two ranks in threads."""

from __future__ import annotations

import ctypes
import sys
import threading
import types

import numpy as np
import pytest

from kerasish.ranks import Alone
from kerasish.ranks.nccl import make_sums


class Meeting:
    """What two ranks have handed in; each waits for the other."""

    def __init__(self):
        self.barrier = threading.Barrier(2, timeout=20)
        self.values = [None, None]

    def gather(self, rank, value):
        self.values[rank] = value
        self.barrier.wait()
        result = list(self.values)
        self.barrier.wait()
        return result


class FakeGroup(Alone):
    def __init__(self, rank, meeting, host="a"):
        super().__init__()
        self.rank, self.size, self.meeting, self.host = rank, 2, meeting, host

    def gather(self, value):
        return self.meeting.gather(self.rank, value)

    def broadcast(self, value):
        return self.gather(value)[0]


class Memory:
    def __init__(self, array):
        self.ptr = array.ctypes.data


class DeviceArray(np.ndarray):
    data = property(Memory)


def fake_modules(monkeypatch, meeting, calls, gpus=(0, 1)):
    """Install a CuPy whose NCCL adds up what two threads hand in."""
    here = threading.local()

    class Communicator:
        def __init__(self, size, identity, rank):
            here.rank = rank
            calls.append((size, identity, rank))

        def allReduce(self, source, target, count, dtype, operation, stream):  # noqa: N802
            assert (operation, stream) == ("sum", 77) and count > 0
            both = meeting.gather(here.rank, (source, dtype, count))
            assert both[0][1:] == both[1][1:]
            arrays = [view(address, count, dtype) for address, _, _ in both]
            total = arrays[0] + arrays[1]
            meeting.barrier.wait()
            view(target, count, dtype)[:] = total

    nccl = types.ModuleType("cupy.cuda.nccl")
    nccl.NcclCommunicator, nccl.get_unique_id = Communicator, lambda: ("identity",)
    nccl.NCCL_SUM, nccl.NCCL_FLOAT32, nccl.NCCL_INT32 = "sum", "float32", "int32"
    cupy = types.ModuleType("cupy")
    cupy.ascontiguousarray = lambda x: np.ascontiguousarray(x).view(DeviceArray)
    cupy.empty_like = lambda x: np.empty_like(x).view(DeviceArray)
    runtime = types.SimpleNamespace(getDevice=lambda: gpus[threading.current_thread().number])
    stream = types.SimpleNamespace(ptr=77)
    cupy.cuda = types.SimpleNamespace(runtime=runtime, get_current_stream=lambda: stream, nccl=nccl)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "cupy.cuda", cupy.cuda)
    monkeypatch.setitem(sys.modules, "cupy.cuda.nccl", nccl)


def view(address, count, dtype):
    buffer = (ctypes.c_char * (count * 4)).from_address(address)
    return np.frombuffer(buffer, dtype)


def on_two_ranks(work):
    """Return what `work(rank)` gives on two threads."""
    results, errors = [None, None], []

    def run(rank):
        try:
            results[rank] = work(rank)
        except BaseException as error:  # noqa: BLE001 (raised below)
            errors.append(error)

    threads = [threading.Thread(target=run, args=(r,)) for r in range(2)]
    for number, thread in enumerate(threads):
        thread.number = number
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def test_sums_of_two_gpus(monkeypatch):
    meeting, calls = Meeting(), []
    fake_modules(monkeypatch, meeting, calls)

    def work(rank):
        sums = make_sums(FakeGroup(rank, meeting))
        x = np.arange(6, dtype="float32").reshape(2, 3) * (rank + 1)
        empty = np.zeros((0, 2), "int32")
        return sums.sum(x), sums.sum(empty).shape, sums.sum(x.astype(bool))

    for total, shape, other in on_two_ranks(work):
        np.testing.assert_array_equal(total, 3 * np.arange(6).reshape(2, 3))
        assert shape == (0, 2) and other is None
    assert sorted(calls) == [(2, ("identity",), 0), (2, ("identity",), 1)]


@pytest.mark.parametrize("why", ["one GPU", "no CuPy"])
def test_where_a_rank_has_no_gpu_of_its_own_none_uses_nccl(why, monkeypatch):
    meeting, calls = Meeting(), []
    if why == "one GPU":
        fake_modules(monkeypatch, meeting, calls, gpus=(0, 0))
    else:
        monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.warns(RuntimeWarning, match="memory of the host: rank 0"):
        results = on_two_ranks(lambda rank: make_sums(FakeGroup(rank, meeting)))
    assert results == [None, None] and not calls
