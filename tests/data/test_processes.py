"""`map(processes=True)`: the same elements, in order, at any place; errors, Ctrl-C, clean ends."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import kerasish as keras
from kerasish.data import Dataset

pytestmark = pytest.mark.slow  # starting processes takes seconds


def shout(x):
    return np.array([x, os.getpid()])


def noisy(draw, x):
    return x + draw.normal()


def children():
    """Return the numbers of the worker processes that are alive."""
    return {process.pid for process in multiprocessing.active_children()}


def ended(numbers):
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if not any(_works(number) for number in numbers):
            return True
        time.sleep(0.02)
    return False


def _works(number):
    try:
        with open(f"/proc/{number}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_order_seeds_and_places_are_those_without_processes():
    numbers = Dataset.range(60).shuffle(20, 3)
    here = numbers.random_map(noisy, seed=7).batch(7)
    there = numbers.random_map(noisy, seed=7, num_parallel_calls=2, processes=True).batch(7)
    expected = [batch.tolist() for batch in here.open_pass(1)]
    iterator = there.open_pass(1)
    first = [next(iterator).tolist() for _ in range(3)]
    again = there.open_pass(1)
    again.restore(iterator.state())
    assert first + [batch.tolist() for batch in again] == expected
    assert first + [batch.tolist() for batch in iterator] == expected


def test_processes_work_and_end_with_the_iterator():
    data = Dataset.range(100).map(shout, num_parallel_calls=2, processes=True)
    before = children()
    iterator = iter(data)
    workers = {int(next(iterator)[1]) for _ in range(20)}
    assert os.getpid() not in workers and 1 <= len(workers) <= 2
    assert workers <= children()
    iterator.close()
    assert ended(workers)
    data = Dataset.range(100).map(shout, processes=True)
    iterator = iter(data)
    workers = {int(next(iterator)[1]) for _ in range(20)}
    del iterator
    assert ended(workers)
    assert len(list(data)) == 100
    assert ended(children() - before)


def test_errors_come_with_the_traceback_of_the_process():
    def inverse(x):
        if x == 5:
            raise ZeroDivisionError("x is 5")
        return 1 / (x - 5)

    data = Dataset.range(20).map(inverse, num_parallel_calls=2, processes=True)
    iterator, before = iter(data), children()
    with pytest.raises(ZeroDivisionError, match="x is 5") as caught:
        list(iterator)
    assert "in inverse" in str(caught.value.__cause__)
    if sys.version_info >= (3, 11):
        assert "element 5 of the pass, in inverse" in caught.value.__notes__[0]
    assert ended(children() - before)


def test_an_error_that_cannot_be_sent_gives_its_text():
    class Odd(Exception):
        def __init__(self, one, two):
            super().__init__(f"{one} and {two}")

    def fail(x):
        raise Odd("this", "that")

    with pytest.raises(RuntimeError, match="Odd: this and that"):
        list(Dataset.range(4).map(fail, processes=True))


def test_a_killed_process_is_an_error():
    def end(x):
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(RuntimeError, match=r"map\(.*end\): a worker process ended"):
        list(Dataset.range(4).map(end, processes=True))


def test_what_cannot_be_sent_is_named():
    lock = threading.Lock()
    data = Dataset.range(4).map(lambda x: lock and x, processes=True)
    with pytest.raises(TypeError, match="cannot be sent to other processes"):
        list(data)


def test_fit_resumes_in_the_middle_of_an_epoch(tmp_path):
    def model():
        keras.utils.set_random_seed(1)
        net = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        net.compile("sgd", "mse")
        return net

    def data(processes):
        rows = Dataset.from_tensor_slices(np.arange(48, dtype="float32").reshape(-1, 1) / 48)
        drawn = rows.shuffle(48, 1).random_map(
            lambda draw, x: (x + draw.normal(), x), seed=2, processes=processes
        )
        return drawn.batch(8)

    whole, other = model(), model()
    whole.fit(data(False), epochs=2, verbose=0)
    other.fit(data(True), epochs=2, verbose=0)
    for a, b in zip(whole.get_weights(), other.get_weights()):
        assert a.tobytes() == b.tobytes()


def test_ctrl_c_ends_all_processes(tmp_path):
    script = tmp_path / "reads.py"
    script.write_text(
        textwrap.dedent("""
        import os, time
        import numpy as np
        from kerasish.data import Dataset

        def slow(x):
            time.sleep(0.2)
            return np.array([x, os.getpid()])

        for x in Dataset.range(10**6).map(slow, num_parallel_calls=2, processes=True):
            print(int(x[1]), flush=True)
        """)
    )
    started = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    workers = {int(started.stdout.readline()) for _ in range(4)}
    os.killpg(started.pid, signal.SIGINT)  # as a terminal does
    _, errors = started.communicate(timeout=60)
    assert errors.count("KeyboardInterrupt") == 1, errors
    assert started.returncode != 0
    assert ended(workers)
