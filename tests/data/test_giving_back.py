"""`prefetch` without its thread: where reading takes little time and all cores compute."""

from __future__ import annotations

import threading
import time
import types

import pytest

from kerasish.data import Dataset, reading_ahead
from kerasish.data import threads as data_threads
from kerasish.data.reading_ahead import PrefetchCursor

WAIT = 60.0  # seconds; a test that waits as long has failed


class Clock:
    """A clock that runs for each thread by itself: by a millionth of a second at each reading."""

    def __init__(self):
        self._own = threading.local()

    def perf_counter(self):
        self.pass_by(1e-6)
        return self._own.now

    def pass_by(self, seconds):
        self._own.now = getattr(self._own, "now", 0.0) + seconds


@pytest.fixture
def clock(monkeypatch):
    """All cores compute, and times are those of a clock that no other process slows."""
    monkeypatch.setattr(reading_ahead, "all_cores_compute", lambda: True)
    result = Clock()
    fake = types.SimpleNamespace(perf_counter=result.perf_counter, monotonic=time.monotonic)
    for module in (reading_ahead, data_threads):
        monkeypatch.setattr(module, "time", fake)
    return result


def reading_threads() -> set[threading.Thread]:
    return {t for t in threading.enumerate() if t.name == "kerasish-data-prefetch"}


@pytest.fixture
def no_thread_is_left():
    """Return a function that waits for the threads that this test has started."""
    before = reading_threads()

    def check():
        until = time.monotonic() + WAIT
        while reading_threads() - before and time.monotonic() < until:
            time.sleep(0.001)
        return not reading_threads() - before

    return check


class Numbers:
    """Numbers that are read ahead; `apart` says for each whether a thread apart has read it."""

    def __init__(self, clock, count, seconds=lambda n: 0.0, fails=None):
        self.clock = clock
        self.apart = apart = []  # `read` holds it, not the object: that ends the threads with it
        main = threading.current_thread()

        def read(n):
            apart.append(threading.current_thread() is not main)
            clock.pass_by(seconds(int(n)))
            if fails is not None and n == fails:
                raise ValueError("a bad element")
            return n

        self.data = Dataset.range(count).map(read).prefetch(2)
        self.iterator = iter(self.data)

    def take(self, count):
        """Return elements; each is worked on for a millisecond."""
        elements = []
        for _ in range(count):
            elements.append(int(next(self.iterator)))
            self.clock.pass_by(0.001)
        return elements


def test_the_thread_ends_and_no_element_is_lost(clock, no_thread_is_left):
    numbers = Numbers(clock, 120)
    assert numbers.take(100) == list(range(100))
    assert no_thread_is_left()
    first = numbers.apart.index(False)
    assert 16 <= first < 25 and numbers.apart == [n < first for n in range(100)]
    assert [int(n) for n in numbers.iterator] == list(range(100, 120))
    assert next(numbers.iterator, None) is None


def test_with_an_idle_core_the_thread_stays(clock, monkeypatch):
    monkeypatch.setattr(reading_ahead, "all_cores_compute", lambda: False)
    numbers = Numbers(clock, 120)
    numbers.take(60)
    assert len(numbers.apart) >= 60 and all(numbers.apart)


def test_reads_that_take_long_keep_the_thread(clock):
    numbers = Numbers(clock, 120, lambda n: 0.002)
    numbers.take(60)
    assert len(numbers.apart) >= 60 and all(numbers.apart)


def test_a_read_that_takes_long_brings_the_thread_back(clock):
    numbers = Numbers(clock, 400, lambda n: 0.25 * (n == 90))
    assert numbers.take(93) == list(range(93))
    assert numbers.apart[89:93] == [False, False, True, True]


def test_threads_do_not_come_and_go_without_end(clock, monkeypatch):
    monkeypatch.setattr(reading_ahead, "_SLOW_SECONDS", 0.0)  # each read restores it
    started = []
    ahead = reading_ahead.Ahead
    monkeypatch.setattr(
        reading_ahead, "Ahead", lambda *given: (started.append(given[2]), ahead(*given))[1]
    )
    assert Numbers(clock, 300).take(300) == list(range(300))
    assert started == [True, True, True, False]


def test_a_place_is_the_same_with_and_without_the_thread(clock, no_thread_is_left):
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
        clock.pass_by(0.001)
    assert no_thread_is_left()
    cursor.close()


def test_errors_come_in_their_turn_and_end_it(clock, no_thread_is_left):
    numbers = Numbers(clock, 200, fails=90)
    assert numbers.take(90) == list(range(90)) and not numbers.apart[-1]
    with pytest.raises(ValueError, match="a bad element"):
        next(numbers.iterator)
    assert no_thread_is_left()


class Source:
    """A cursor that counts its reads, and says when it was closed."""

    def __init__(self):
        self.reads, self.closed = 0, 0
        self.many = threading.Event()  # 60 were read

    def read(self):
        self.reads += 1
        if self.reads == 60:
            self.many.set()
        return 1

    def state(self):
        return None

    def close(self):
        self.closed += 1


def test_a_cursor_that_was_given_back_is_closed(clock, no_thread_is_left):
    source = Source()
    cursor = PrefetchCursor(source, 2)
    for _ in range(40):
        cursor.read()
        clock.pass_by(0.001)
    assert cursor._ahead is None and not source.closed
    cursor.close()
    assert source.closed == 1
    source = Source()
    cursor = PrefetchCursor(source, 60)
    cursor.read()
    assert source.many.wait(WAIT)
    for _ in range(29):  # the thread gives the cursor back behind the elements that it has read
        cursor.read()
        clock.pass_by(0.001)
    assert no_thread_is_left()
    assert cursor._ahead is not None and not source.closed
    cursor.close()
    assert source.closed == 1
