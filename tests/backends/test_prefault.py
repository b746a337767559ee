"""Pages of new memory that a thread takes before a program writes there."""

from __future__ import annotations

import ctypes
import mmap
import sys

import numpy as np
import pytest

import kerasish
from kerasish import config
from kerasish.backends.static import engine
from kerasish.backends.static.machine import guard_pages
from kerasish.backends.static.runtime import prefault as pages

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="madvise is Linux's"),
    pytest.mark.skipif(bool(guard_pages.mode()), reason="memory between guard pages is filled"),
]
SIZE = pages.LEAST + 4 * mmap.PAGESIZE


@pytest.fixture(autouse=True)
def two_threads():
    with config.using_threads(2):
        yield


def new_memory():
    """An array of memory that nothing has touched, and the mapping that holds it."""
    area = mmap.mmap(-1, SIZE)
    return area, np.frombuffer(area, np.uint8)


def resident(array):
    """The share of the pages of an array that lie in memory."""
    count = array.nbytes // mmap.PAGESIZE
    flags = (ctypes.c_ubyte * count)()
    library = ctypes.CDLL(None, use_errno=True)
    where = ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes)
    assert library.mincore(*where, flags) == 0
    return sum(flag & 1 for flag in flags) / count


def test_the_pages_are_there_when_the_thread_ends():
    _, array = new_memory()
    assert resident(array) == 0
    thread = pages.prefault([array[100:]])
    thread.join()
    if resident(array) == 0:
        pytest.skip("this Linux takes no pages ahead")
    assert resident(array[mmap.PAGESIZE : -mmap.PAGESIZE]) == 1
    assert not array.any()


def test_numbers_written_before_stay():
    array = np.arange(SIZE // 8)
    pages.prefault([array]).join()
    np.testing.assert_array_equal(array, np.arange(SIZE // 8))


def test_small_memory_and_one_thread_take_none():
    _, array = new_memory()
    assert pages.prefault([array[: pages.LEAST - 1]]) is None
    with config.using_threads(1):
        assert pages.prefault([array]) is None
    assert resident(array) == 0


def test_a_system_that_refuses_is_asked_once(monkeypatch):
    asked = []
    monkeypatch.setattr(pages, "_madvise", lambda: lambda *given: asked.append(given) or -1)
    pages.prefault([new_memory()[1], new_memory()[1]]).join()
    assert len(asked) == 1


@pytest.fixture
def taken(monkeypatch):
    """The sizes of all arrays whose pages are asked for."""
    results = []
    monkeypatch.setattr(engine, "prefault", lambda arrays: results.extend(a.nbytes for a in arrays))
    return results


def test_buffers_of_new_variables_are_taken_but_those_of_tables(taken, monkeypatch):
    monkeypatch.setattr(engine, "MOST", 1024)
    small, table = kerasish.Variable(np.ones(16, "float32")), kerasish.Variable(np.ones((99, 9)))

    def step(x):
        small.assign(small + x)
        table.assign(table + x)

    compiled = kerasish.backends.get("static").compile(step)
    compiled(np.float32(1))
    assert taken == [64]
    compiled(np.ones(1, "float32"))  # another signature of the same variables
    assert taken == [64]
