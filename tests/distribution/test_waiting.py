"""How compiled code waits for other ranks: short tests first, then pauses that grow."""

from __future__ import annotations

import ctypes
import time

import numpy as np
import pytest

from kerasish.backends.static.codegen.driver_code import (
    FIRST_PAUSE,
    IDLE_TESTS,
    LONGER,
    LONGEST_PAUSE,
    WAIT_RESTING,
)
from kerasish.backends.static.codegen.kernels import compile_one
from kerasish.backends.static.lowering.progress import ProgressThread

TEST = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
SLEEP = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint)
WAIT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


def wait(answer):
    """Return (status, tests, pauses) of a wait in which `answer(n)` gives (status, done)."""
    pauses, count = [], [0]

    def test(request, flag, ignored):
        assert (request, ignored) == (11, 13)
        status, done = answer(count[0])
        count[0] += 1
        ctypes.cast(flag, ctypes.POINTER(ctypes.c_int))[0] = done
        return status

    calls = TEST(test), SLEEP(lambda microseconds: pauses.append(microseconds) or 0)
    flag = np.zeros(1, np.int64)
    addresses = [ctypes.cast(f, ctypes.c_void_p).value for f in calls]
    block = np.array([addresses[0], 11, flag.ctypes.data, 13, addresses[1]], np.int64)
    status = WAIT(compile_one(WAIT_RESTING))(block.ctypes.data)
    return status, count[0], pauses


def test_what_is_there_soon_is_awaited_without_a_pause():
    assert wait(lambda n: (0, n == 5)) == (0, 6, [])


def test_an_error_ends_the_wait():
    assert wait(lambda n: (7 if n == 3 else 0, False)) == (7, 4, [])


def test_pauses_grow_up_to_a_limit():
    status, tests, pauses = wait(lambda n: (0, n == IDLE_TESTS * 4))
    assert status == 0 and tests == IDLE_TESTS * 4 + 1
    # Python's own pauses may look like tests that move data, after which it starts over.
    assert 1 <= len(pauses) <= 3 * IDLE_TESTS
    assert pauses[0] == FIRST_PAUSE and max(pauses) <= LONGEST_PAUSE
    steps = np.diff(pauses)
    assert {*steps[steps > 0].tolist()} <= {LONGER, *range(1, LONGER)}


@pytest.mark.parametrize("every", [1, 20])
def test_tests_that_move_data_are_followed_by_no_pause(every):
    def answer(n):
        if n and n % every == 0 or every == 1 and n:
            time.sleep(0.0005)
        return 0, n == IDLE_TESTS + 50

    assert wait(answer) == (0, IDLE_TESTS + 51, [])


def test_a_thread_tests_while_it_is_switched_on():
    calls = []

    def noting(request, flag, ignored):
        calls.append((request, ignored))
        return 0

    functions = TEST(noting), SLEEP(lambda microseconds: time.sleep(microseconds * 1e-6) or 0)
    addresses = [ctypes.cast(f, ctypes.c_void_p).value for f in functions]
    thread = ProgressThread(addresses[0], 11, 13, addresses[1])
    on, off = thread.switch(True), thread.switch(False)
    thread.start()
    time.sleep(0.01)
    assert not calls
    for expected in (on, off):
        assert WAIT(expected.function)(expected.block.ctypes.data) == 0
        wanted, end = len(calls) + 5, time.monotonic() + 60.0
        while expected is on and len(calls) < wanted and time.monotonic() < end:
            time.sleep(0.001)
    before = len(calls)
    assert before >= 5 and set(calls) == {(11, 13)}
    time.sleep(0.02)
    assert len(calls) <= before + 1  # it may have looked at the switch before that was off
    thread.stop()
    assert not thread.is_alive()


def test_an_error_ends_the_thread():
    functions = TEST(lambda *given: 7), SLEEP(lambda microseconds: 0)
    addresses = [ctypes.cast(f, ctypes.c_void_p).value for f in functions]
    thread = ProgressThread(addresses[0], 11, 13, addresses[1])
    thread.active[0] = 1
    thread.start()
    thread.join(60.0)
    assert not thread.is_alive()
