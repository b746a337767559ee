"""What ends a job when one of its ranks fails: hooks of the interpreter, and a watchdog thread.

A rank that raises or exits leaves the others waiting in a sum forever: MPI does not end a job
when a process ends its work. So a rank that fails says why in one line, and aborts the job. One
that stalls, or has done less than the others, is named by those that wait for it.

The watchdog of each rank is a thread. It runs while compiled code waits inside MPI, because a
native call holds no lock of the interpreter. The watchdogs exchange messages over a separate
communicator.
"""

from __future__ import annotations

import atexit
import os
import platform
import signal
import socket
import sys
import threading
import time
import traceback
from types import FrameType, TracebackType
from typing import Any

from kerasish.ranks.mpi import MpiGroup

INTERVAL = 0.2  # seconds between two checks of the watchdog
GRACE = 2.0  # seconds: for a signal to be answered by Python, and for answers of other ranks
ENDED_GRACE = 1.5  # seconds that a rank may wait for one that has ended
SIGNAL_GRACE = 0.2  # seconds that a terminated rank looks for the one that ends the job
MEETING_GRACE = 0.5  # seconds that a rank waits for a call of all ranks before it asks the others
_TAG = 7
_ASKS, _ANSWERS, _ENDED, _ABORTS = "asks", "answers", "ended", "aborts"
_MEETS, _PLACE = "meets", "place"


def describe(error: BaseException) -> str:
    """Return one line about an error."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class RankWatch:
    """Ends the job of a group when this process fails, or waits for one that does not answer.

    Args:
        group: the processes.
        timeout: seconds that one step, or one run of steps, may take before the ranks that it
            waits for are named and the job ends; > 0.
    """

    def __init__(self, group: MpiGroup, timeout: float) -> None:
        self.group, self.timeout = group, timeout
        self._comm = group.comm.Dup()
        self._stop = threading.Event()
        self._ended: set[int] = set()
        self._answers: dict[int, str] = {}
        self._asked = 0.0
        self._asked_place = 0.0
        self._signalled = 0.0
        self._signal_of = 0
        self._read, self._write = socket.socketpair()
        self._closed = False
        self._sent: list[Any] = []
        self._exit_code: Any = None
        self._aborted = False  # whether another rank ends the job
        self._messages = threading.RLock()  # a signal may arrive while messages are read
        group.before_abort = self._say_abort

    # --- installing -------------------------------------------------------------------------------

    def start(self) -> None:
        """Install the hooks, and start the thread."""
        sys.excepthook = self._on_exception
        threading.excepthook = self._on_thread_exception
        self._real_exit = sys.exit
        sys.exit = self._exit  # type: ignore[assignment]
        self._watch_signals()
        thread = threading.Thread(target=self._run, name="kerasish-watchdog", daemon=True)
        thread.start()
        self._thread = thread
        atexit.register(self._goodbye)

    def _watch_signals(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for socket_end in (self._read, self._write):
            socket_end.setblocking(False)
        # The C handler of Python writes the signal's number here, even while Python cannot run.
        signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
        if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._terminated)

    def _terminated(self, number: int, frame: FrameType | None) -> None:
        # A rank that was stopped finds messages that arrived meanwhile by several checks.
        until = time.monotonic() + SIGNAL_GRACE
        while not self._aborted and time.monotonic() < until:
            self._take_messages()
        self._end_by_signal(number)

    def _end_by_signal(self, number: int) -> None:
        """End this process; a launcher that ends a job after an abort sends signals, too."""
        if self._aborted:
            os._exit(1)  # another rank has reported why
        self.group.abort(f"{self._where()}: ended by signal {signal.Signals(number).name}")

    def _say_abort(self) -> None:
        self._tell_all((_ABORTS, self.group.rank))

    # --- failures of this process -------------------------------------------------------------

    def _where(self) -> str:
        return str(self.group.progress)

    def fail(self, error: BaseException) -> None:
        """Print the traceback, and end the job."""
        traceback.print_exception(type(error), error, error.__traceback__)
        self.group.abort(f"{self._where()}: {describe(error)}. All ranks stop.")

    def _on_exception(
        self, kind: type[BaseException], error: BaseException, at: TracebackType | None
    ) -> None:
        self.fail(error.with_traceback(at))

    def _on_thread_exception(self, args: Any) -> None:
        if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
            self.fail(args.exc_value)

    def _exit(self, status: Any = None) -> None:
        self._exit_code = status
        self._real_exit(status)

    def _goodbye(self) -> None:
        """Leave the job: by agreement after success, at once after an exit with a status."""
        if self._closed:
            return
        self._closed = True
        status = self._exit_code
        if status not in (None, 0):
            self.group.abort(f"{self._where()}: sys.exit({status!r}). All ranks stop.")
        self.group.progress.since = 0.0
        self._tell_all((_ENDED, self.group.rank))
        # Rank by rank all arrive here; a rank that waits in a sum is ended by its own watchdog.
        last = self._comm.Ibarrier()
        while not last.Test():
            time.sleep(0.005)
        self._stop.set()
        self._thread.join(GRACE)
        # Messages of the others are read, so that none is pending when MPI ends.
        until = time.monotonic() + GRACE
        while len(self._ended) < self.group.size - 1 and time.monotonic() < until:
            self._take_messages()
        while self._sent and time.monotonic() < until:
            self._sent = [request for request in self._sent if not request.Test()]
        signal.set_wakeup_fd(-1)

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stop.wait(INTERVAL):
                self._look()
        except BaseException as error:  # noqa: BLE001 (a watchdog that fails must end the job)
            self.fail(error)

    def _look(self) -> None:
        self._take_messages()
        self._look_for_signals()
        since = self.group.progress.since
        if not since:
            self._asked = 0.0
            return
        waited = time.monotonic() - since
        if self._ended and waited > ENDED_GRACE:
            gone = ", ".join(map(str, sorted(self._ended)))
            must = "make this call" if self.group.progress.meeting else "do equally many steps"
            self.group.abort(
                f"{self._where()}: waits for rank {gone}, which has ended. All ranks must {must}."
            )
        if self.group.progress.meeting and waited > MEETING_GRACE:
            self._ask_place()
        if waited > self.timeout:
            self._ask(since, waited)

    def _ask_place(self) -> None:
        """Ask the others how far they are, now and then: one may have gone past this call."""
        now = time.monotonic()
        if now - self._asked_place > MEETING_GRACE:
            self._asked_place = now
            self._tell_all((_MEETS, self.group.rank))

    def _compare_place(self, rank: int, place: tuple[int, int, int, str]) -> None:
        """End the job if another rank does what follows the call that this one waits in.

        Ranks do the same steps and exchanges in the same order. One that has begun a step, or an
        exchange, that this rank reaches after the call, has not made the call.
        """
        progress = self.group.progress
        begun, exchanges, meetings, where = place
        if not progress.meeting or meetings >= progress.meetings:
            return
        if begun > progress.begun or exchanges >= progress.exchanges:
            self.group.abort(
                f"{self._where()}: rank {rank} has not made this call: it is {where}. Make it on "
                "all ranks, not on one only: rank 0 writes the file, and gets the optimizer's "
                "slots from the others (DataParallel(shard_optimizer=True)). A callback that makes "
                "it needs everywhere = True."
            )

    def _place(self) -> tuple[int, int, int, str]:
        progress = self.group.progress
        return progress.begun, progress.exchanges, progress.meetings, self._where()

    def _ask(self, since: float, waited: float) -> None:
        """Ask the other ranks where they are; end the job with what they answer."""
        if self._asked < since:
            self._asked = time.monotonic()
            self._answers.clear()
            self._tell_all((_ASKS, self.group.rank))
        elif time.monotonic() - self._asked > min(GRACE, self.timeout):
            others = [r for r in range(self.group.size) if r != self.group.rank]
            silent = [r for r in others if r not in self._answers]
            answers = "; ".join(
                f"rank {r} {self._answers[r]}" for r in others if r in self._answers
            )
            who = f"no answer from rank {', '.join(map(str, silent))}" if silent else "all answer"
            self.group.abort(
                f"{self._where()}: waited {waited:.0f} s for the other ranks ({who}"
                + (f"; {answers}" if answers else "")
                + "). All ranks stop; initialize(timeout=) sets the limit."
            )

    def _tell_all(self, message: tuple[Any, ...]) -> None:
        self._sent = [request for request in self._sent if not request.Test()]
        for rank in range(self.group.size):
            if rank != self.group.rank:
                self._sent.append(self._comm.isend(message, dest=rank, tag=_TAG))

    def _take_messages(self) -> None:
        with self._messages:
            while self._comm.iprobe(tag=_TAG):
                status = self.group.mpi.Status()
                kind, *rest = self._comm.recv(tag=_TAG, status=status)
                source = status.Get_source()
                if kind == _ENDED:
                    self._ended.add(source)
                elif kind == _ABORTS:
                    self._aborted = True
                elif kind == _ASKS:
                    said = (_ANSWERS, f"is {self._where()} on {self.group.host}")
                    self._sent.append(self._comm.isend(said, dest=source, tag=_TAG))
                elif kind == _MEETS:
                    answer = (_PLACE, self._place())
                    self._sent.append(self._comm.isend(answer, dest=source, tag=_TAG))
                elif kind == _PLACE:
                    self._compare_place(source, rest[0])
                else:
                    self._answers[source] = rest[0]

    def _look_for_signals(self) -> None:
        try:
            numbers = self._read.recv(64)
        except (BlockingIOError, OSError):
            numbers = b""
        now = time.monotonic()
        for number in numbers:
            if number in (signal.SIGINT, signal.SIGTERM) and not self._signalled:
                self._signalled, self._signal_of = now, number
        if self._signalled and now - self._signalled > GRACE and not self._closed:
            # Python has had its time to raise KeyboardInterrupt: it waits inside of MPI.
            self._end_by_signal(self._signal_of)


def processor() -> str:
    """Return what the bits of a computation depend on: the processor's kind and vector units."""
    flags: set[str] = set()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("flags"):
                    flags = set(line.split(":", 1)[1].split())
                    break
    except OSError:
        flags = set()
    units = {"avx", "avx2", "fma", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16"}
    return " ".join([platform.machine(), *sorted(flags & units)])
