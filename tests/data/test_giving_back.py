"""`prefetch` without its thread: where reading takes little time and all cores compute."""

from __future__ import annotations

import threading
import time

import pytest

from kerasish.data import Dataset, reading_ahead
from kerasish.data import threads as data_threads
from kerasish.data.reading_ahead import PrefetchCursor


def reading_threads() -> set[threading.Thread]:
    return {t for t in threading.enumerate() if t.name == "kerasish-data-prefetch"}


@pytest.fixture
def busy(monkeypatch):
    """All cores compute; each read counts as a small part, whatever else this machine does."""
    monkeypatch.setattr(reading_ahead, "all_cores_compute", lambda: True)
    monkeypatch.setattr(data_threads, "_SMALL_SHARE", 1e9)
    monkeypatch.setattr(reading_ahead, "_SLOW_SECONDS", 0.2)


@pytest.fixture
def thread_count():
    """Return a function that counts the threads that this test has started."""
    before = reading_threads()
    return lambda: len(reading_threads() - before)


def numbers(count, wait=lambda n: 0.0, fails=None):
    def read(n):
        time.sleep(wait(int(n)))
        if fails is not None and n == fails:
            raise ValueError("a bad element")
        return n

    return Dataset.range(count).map(read).prefetch(2)


def read_some(iterator, count, thread_count):
    """Read elements, each a bit after the last; return them, and how many threads read at each."""
    elements, threads = [], []
    for _ in range(count):
        elements.append(int(next(iterator)))
        time.sleep(0.001)
        threads.append(thread_count())
    return elements, threads


def test_the_thread_ends_and_no_element_is_lost(busy, thread_count):
    iterator = iter(numbers(120))
    elements, threads = read_some(iterator, 100, thread_count)
    assert elements == list(range(100))
    assert threads[0] == 1 and threads[-1] == 0
    assert [int(n) for n in iterator] == list(range(100, 120))
    assert next(iterator, None) is None


def test_with_an_idle_core_the_thread_stays(busy, thread_count, monkeypatch):
    monkeypatch.setattr(reading_ahead, "all_cores_compute", lambda: False)
    assert set(read_some(iter(numbers(120)), 60, thread_count)[1]) == {1}


def test_reads_that_take_long_keep_the_thread(busy, thread_count, monkeypatch):
    monkeypatch.setattr(data_threads, "_SMALL_SHARE", 0.1)
    assert set(read_some(iter(numbers(120, lambda n: 0.002)), 60, thread_count)[1]) == {1}


def test_a_read_that_takes_long_brings_the_thread_back(busy, thread_count):
    iterator = iter(numbers(400, lambda n: 0.25 * (n == 90)))
    elements, threads = read_some(iterator, 93, thread_count)
    assert elements == list(range(93))
    assert threads[89:] == [0, 0, 1, 1]


def test_threads_do_not_come_and_go_without_end(busy, thread_count, monkeypatch):
    monkeypatch.setattr(reading_ahead, "_SLOW_SECONDS", 0.0)  # each read brings it back
    started = []
    ahead = reading_ahead.Ahead
    monkeypatch.setattr(
        reading_ahead, "Ahead", lambda *given: (started.append(given[2]), ahead(*given))[1]
    )
    assert read_some(iter(numbers(300)), 300, thread_count)[0] == list(range(300))
    assert started == [True, True, True, False]


def test_a_place_is_the_same_with_and_without_the_thread(busy, thread_count):
    node = Dataset.range(200).map(lambda n: n * 3).shuffle(40, 1).prefetch(2)._node
    cursor = node.open(0)
    assert isinstance(cursor, PrefetchCursor)
    plain = node.inputs[0].open(0)
    for number in range(100):
        assert int(cursor.read()) == int(plain.read())
        assert cursor.state() == plain.state(), number
        if number % 9 == 0:
            other = node.open(0)
            other.restore(cursor.state())
            again = node.inputs[0].open(0)
            again.restore(plain.state())
            assert int(other.read()) == int(again.read())
            other.close()
        time.sleep(0.001)
    assert thread_count() == 0
    cursor.close()


def test_errors_come_in_their_turn_and_end_it(busy, thread_count):
    iterator = iter(numbers(200, fails=90))
    elements, threads = read_some(iterator, 90, thread_count)
    assert elements == list(range(90)) and threads[-1] == 0
    with pytest.raises(ValueError, match="a bad element"):
        next(iterator)
    assert thread_count() == 0


def test_a_cursor_that_was_given_back_is_closed(busy):
    closed = []

    class Source:
        def read(self):
            return 1

        def state(self):
            return None

        def close(self):
            closed.append(True)

    def given_back(depth):
        cursor = PrefetchCursor(Source(), depth)
        for _ in range(40):
            cursor.read()
            time.sleep(0.001)
        return cursor

    given_back(2).close()
    assert closed == [True]
    cursor = PrefetchCursor(Source(), 60)
    for _ in range(30):  # the thread gives the cursor back behind the elements that it has read
        cursor.read()
        time.sleep(0.001)
    assert cursor._ahead is not None
    cursor.close()
    deadline = time.monotonic() + 5
    while len(closed) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert closed == [True, True]
