"""Processes of a pipeline: ordered work by several, as by the threads of `threads.py`.

They start as new processes, not as copies of this one, so that its threads and locks do not matter.
They get the function once, by value: lambdas and functions of a script or a notebook work, and no
`if __name__ == "__main__":` is needed. Each process has its own pipe, and tasks are given in turn:
the results are in order. A process whose pipe is closed ends at once, whatever it is doing.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from typing import Any

from kerasish.data.threads import OfOneProcess

_END_SECONDS = 1.0  # what has not ended by then is killed


class WorkerProcesses(OfOneProcess):
    """Processes that work on tasks; the results are in the order of the tasks.

    Args:
        work: task -> result; is sent to the processes.
        count: the number of processes.
        what: the verb and the function, for errors.

    Raises:
        TypeError: `work` holds what cannot be sent to another process: a lock, an open file.
    """

    def __init__(self, work: Callable[[Any], Any], count: int, what: str) -> None:
        from joblib.externals.loky.backend import get_context
        from joblib.externals.loky.backend.reduction import dumps

        try:
            sent = bytes(dumps(work))
        except Exception as error:
            raise TypeError(
                f"{what}: the function cannot be sent to other processes ({error}). Leave out "
                "processes=True, or make what it holds inside the function."
            ) from error
        self._what = what
        super().__init__()
        self._put = self._taken = 0  # numbers of tasks
        self._pipes: list[Any] = []
        self._workers: list[Any] = []
        self._end = weakref.finalize(self, _end, self._pipes, self._workers)
        context = get_context("loky")
        for number in range(count):
            here, there = context.Pipe()
            self._pipes.append(here)
            worker = context.Process(
                target=_serve,
                args=(there, sent),
                name=f"kerasish-data-map-{number}",
                daemon=True,
                env={"OMP_NUM_THREADS": "1"},  # the processes share the cores
            )
            worker.start()
            self._workers.append(worker)
            there.close()

    @property
    def pending(self) -> int:
        """The number of tasks whose results have not been taken."""
        return self._put - self._taken

    def put(self, task: Any) -> None:
        """Hand a task to a process."""
        self.check_process()
        number = self._put % len(self._pipes)
        try:
            self._pipes[number].send(task)
        except OSError as error:  # an earlier task has ended the process
            raise self._ended(number) from error
        self._put += 1

    def take(self) -> Any:
        """Return the result of the first task whose result was not taken; raise its error.

        The error is that of the function; its cause holds the traceback in the other process.

        Raises:
            RuntimeError: the process ended: it was killed, or ran out of memory.
        """
        self.check_process()
        number = self._taken % len(self._pipes)
        try:
            succeeded, result, text = pickle.loads(self._pipes[number].recv_bytes())
        except (EOFError, OSError) as error:
            raise self._ended(number) from error
        self._taken += 1
        if not succeeded:
            raise result from ProcessTraceback(text)
        return result

    def _ended(self, number: int) -> RuntimeError:
        worker = self._workers[number]
        worker.join(_END_SECONDS)
        return RuntimeError(
            f"{self._what}: a worker process ended before its result, with exit code "
            f"{worker.exitcode}. Below 0 it is that of a signal; -9: killed, often for memory."
        )


class ProcessTraceback(Exception):  # noqa: N818 - the cause of an error, not one
    """The traceback of an error in a worker process, as text."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def _end(pipes: list[Any], workers: list[Any]) -> None:
    for pipe in pipes:
        pipe.close()
    until = time.monotonic() + _END_SECONDS
    for worker in workers:
        worker.join(max(until - time.monotonic(), 0.0))
        if worker.exitcode is None:
            worker.kill()
            worker.join()


# --- in a worker process --------------------------------------------------------------------------


def _serve(pipe: Any, sent: bytes) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C: the first process ends the others
    tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(pipe, tasks), daemon=True).start()
    work = pickle.loads(sent)
    while True:
        task = tasks.get()
        try:
            answer = pickle.dumps((True, work(task), ""), pickle.HIGHEST_PROTOCOL)
        except BaseException as error:  # noqa: BLE001 - raised again where the result is due
            answer = _failure(error)
        del task
        pipe.send_bytes(answer)


def _receive(pipe: Any, tasks: queue.SimpleQueue[Any]) -> None:
    """Read tasks as they arrive, so that the sender never waits; end with the pipe."""
    try:
        while True:
            tasks.put(pipe.recv())
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)  # at once, whatever the function is doing


def _failure(error: BaseException) -> bytes:
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    try:
        answer = pickle.dumps((False, error, text))
        pickle.loads(answer)
    except Exception:  # noqa: BLE001 - an error that cannot be sent gives its text instead
        return pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}"), text))
    return answer
