"""Sums over ranks while the step computes: started early, waited for where they are read.

A nonblocking call of MPI makes progress only inside other calls of MPI. So between its start and
its end, short calls follow the units that take long. Between machines a thread also makes such
calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from kerasish.backends.static.codegen.driver import Record
from kerasish.backends.static.lowering.exchange import Exchange, ExchangeUnit
from kerasish.backends.static.lowering.loops import LoopUnit
from kerasish.backends.static.lowering.pieces import ProductPiece
from kerasish.backends.static.lowering.progress import ProgressThread, progress_thread
from kerasish.backends.static.lowering.segments import SegmentsUnit
from kerasish.backends.static.lowering.units import Locate, Unit, nbytes_of
from kerasish.backends.static.machine import guard_pages
from kerasish.graph.ir import Value

LONG_FLOPS, LONG_BYTES = 1e6, 1 << 18  # a unit that computes, or writes, this much is long
PART_BYTES = 1 << 20  # of the updates that wait for the same sums


class _PhaseUnit(Unit):
    """A part of an exchange. Its memory is shared by all parts."""

    movable = False
    communicates = True

    def __init__(
        self, exchange: Exchange, requests: Any, what: str,
        reads: Sequence[Value] = (), writes: Sequence[Value] = (), parts: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(f"{exchange.name} ({what})", reads, writes)
        self.exchange, self.requests = exchange, requests
        if parts and exchange.memory:
            self.workspace_key = ("exchange", exchange)
            self.workspace_bytes = exchange.memory

    def parts(self, locate: Locate) -> int:
        """Return the address of the summands."""
        return 0 if self.workspace_key is None else locate(self.workspace_key).address


class StartUnit(_PhaseUnit):
    """Sends this rank's summands; for two ranks, starts the whole sum."""

    fills_workspace = True

    def __init__(self, unit: ExchangeUnit, requests: Any, first: int, exchange: Exchange) -> None:
        self.pair = exchange.group.size == 2
        writes = unit.writes if self.pair else ()
        super().__init__(exchange, requests, "start", unit.reads, writes, not self.pair)
        self.x, self.y = unit.reads[0], unit.writes[0]
        self.in_place = unit.in_place
        self.skipped = first * exchange.width

    def records(self, locate: Locate) -> list[Record]:
        """Return the call that starts."""
        x = locate(self.x).address + self.skipped
        if self.pair:
            y = locate(self.y).address + self.skipped
            return [self.exchange.pair(x, y, self.requests[0])]
        return self.exchange.sending(x, self.parts(locate), self.requests[0])


class AddUnit(_PhaseUnit):
    """Waits for the summands, adds them, and starts to send the sums back."""

    def __init__(self, start: StartUnit) -> None:
        super().__init__(start.exchange, start.requests, "add", (start.x,), (start.y,))
        self.y, self.skipped = start.y, start.skipped

    def kernels(self) -> list[Any]:
        """Return the loops that add up the summands."""
        return self.exchange.kernels()

    def records(self, locate: Locate) -> list[Record]:
        """Return the wait, the loops, and the call that starts to send."""
        y = locate(self.y).address + self.skipped
        parts, exchange = self.parts(locate), self.exchange
        return [
            exchange.wait(self.requests[0]),
            *exchange.adding(parts, y),
            *exchange.back(parts, y, self.requests[1]),
        ]


class FinishUnit(_PhaseUnit):
    """Waits until the sum is complete."""

    def __init__(self, start: StartUnit) -> None:
        # Until here MPI may read the summands: their memory must not be reused before.
        number = 0 if start.pair else 1
        reads = (start.y,) if start.in_place else (start.x, start.y)
        super().__init__(start.exchange, start.requests, "wait", reads, (), not start.pair)
        self._request = start.requests[number]

    def records(self, locate: Locate) -> list[Record]:
        """Return the wait."""
        return [self.exchange.wait(self._request)]


class PokeUnit(_PhaseUnit):
    """Lets MPI make progress with an exchange that has been started."""

    def __init__(self, start: StartUnit, number: int) -> None:
        super().__init__(start.exchange, start.requests, "progress", parts=False)
        self._number = number

    def records(self, locate: Locate) -> list[Record]:
        """Return the call."""
        return [self.exchange.poke(self.requests[self._number])]


class SwitchUnit(Unit):
    """Switches on or off the thread that lets MPI make progress while units run."""

    movable = False
    communicates = True

    def __init__(self, thread: ProgressThread, on: bool) -> None:
        super().__init__("progress thread", (), ())
        self._record = thread.switch(on)

    def records(self, locate: Locate) -> list[Record]:
        """Return the record."""
        return [self._record]


class _Open:
    """An exchange, or a piece of it, that has been started.

    Attributes:
        start: the unit that starts it.
        added: whether the unit that adds has run, or there is none.
        stop: the number of elements of the sum up to the last of this piece.
    """

    def __init__(self, unit: ExchangeUnit, first: int, exchange: Exchange) -> None:
        requests = np.zeros(1, np.int64), np.zeros(1, np.int64)
        self.start = StartUnit(unit, requests, first, exchange)
        self.added = self.start.pair
        self.stop = first + exchange.count

    def add(self) -> list[Unit]:
        """Return the unit that adds, if it has not run yet."""
        units = [] if self.added else [AddUnit(self.start)]
        self.added = True
        return list(units)

    def finish(self) -> list[Unit]:
        """Return the units that end the exchange."""
        return [*self.add(), *self._wait()]

    def _wait(self) -> list[Unit]:
        return [] if self.start.exchange.small and not self.start.pair else [FinishUnit(self.start)]

    def poke(self) -> Unit:
        """Return a unit that lets MPI make progress."""
        return PokeUnit(self.start, 0 if self.start.pair or not self.added else 1)


def overlapped(units: Sequence[Unit], root: Callable[[Value], Value]) -> list[Unit]:
    """Return the units with exchanges that run while others compute.

    Args:
        units: in execution order.
        root: value -> the value whose memory it uses.
    """
    if guard_pages.mode() or not any(isinstance(u, ExchangeUnit) for u in units):
        return list(units)  # strict memory checks results after the unit that wrote them
    schedule = _Schedule(root)
    for unit in first_sums_first(units, root):
        schedule.add(unit)
    return _switched(schedule.finish())


class _Schedule:
    """The units with the phases of exchanges between them.

    Args:
        root: value -> the value whose memory it uses.
    """

    def __init__(self, root: Callable[[Value], Value]) -> None:
        self._root = root
        self._units: list[Unit] = []
        self._started: dict[Value, list[_Open]] = {}
        self._pieces: list[ProductPiece] = []  # of one product, waiting for the next unit

    def add(self, unit: Unit) -> None:
        """Append a unit, after the waits that it needs."""
        if isinstance(unit, ProductPiece):
            if self._pieces and unit.writes != self._pieces[0].writes:
                self._run_pieces()
            self._pieces.append(unit)
            return
        sent = isinstance(unit, ExchangeUnit) and self._is_sent(unit)
        if not sent:
            self._run_pieces()
        self._wait(unit)
        if isinstance(unit, ExchangeUnit):
            self._exchange(unit)
        else:
            self._run(unit)

    def finish(self) -> list[Unit]:
        """Return all units, with those that end the exchanges."""
        self._run_pieces()
        for pieces in self._started.values():
            self._units += [u for piece in pieces for u in piece.finish()]
        return self._units

    def _is_sent(self, unit: ExchangeUnit) -> bool:
        """Return whether an exchange sends what the pieces compute."""
        written = {self._root(v) for piece in self._pieces for v in piece.writes}
        return written == {self._root(unit.reads[0])}

    def _exchange(self, unit: ExchangeUnit) -> None:
        """Start the pieces of an exchange, each after the pieces of the product that it sends."""
        started = self._started[self._root(unit.writes[0])] = []
        for first, exchange in unit.exchanges():
            piece = _Open(unit, first, exchange)
            while self._pieces and self._pieces[0].start < piece.stop:
                self._run_piece()
            self._units.append(piece.start)
            # The sums of the one before are sent back while this one's summands arrive.
            others = [p for pieces in self._started.values() for p in pieces]
            self._units += [u for before in others for u in before.add()]
            started.append(piece)

    def _run_pieces(self) -> None:
        while self._pieces:
            self._run_piece()

    def _run_piece(self) -> None:
        unit = self._pieces.pop(0)
        self._wait(unit)
        self._run(unit)

    def _wait(self, unit: Unit) -> None:
        """End the exchanges whose sums a unit reads."""
        for v in dict.fromkeys(map(self._root, unit.reads)):
            self._units += [u for piece in self._started.pop(v, ()) for u in piece.finish()]

    def _run(self, unit: Unit) -> None:
        self._units.append(unit)
        under_way = [pieces for pieces in self._started.values() if pieces]
        if under_way and _is_long(unit):
            self._units.append(under_way[0][0].poke())


def first_sums_first(units: Sequence[Unit], root: Callable[[Value], Value]) -> list[Unit]:
    """Return the units; those after the last exchange in the order of the sums they wait for.

    Updates of variables are divided, so that those whose sums are complete run while other sums
    arrive.

    Args:
        units: in execution order.
        root: value -> the value whose memory it uses.
    """
    last = max(i for i, unit in enumerate(units) if isinstance(unit, ExchangeUnit))
    numbers: dict[Value, int] = {}  # value -> the last exchange that it waits for
    count = effects = 0

    def number_of(unit: Unit) -> int:
        return max((numbers.get(root(v), 0) for v in unit.reads), default=0)

    behind: list[tuple[int, Unit]] = []
    for i, unit in enumerate(units):
        number = number_of(unit)
        if isinstance(unit, ExchangeUnit):
            number = count = count + 1
        elif not unit.movable:
            number = effects = max(effects, number)  # such units keep their order
        numbers.update((root(v), number) for v in unit.writes)
        if i > last:
            parts = _divided(unit, number_of) if isinstance(unit, SegmentsUnit) else [unit]
            behind += [(number_of(p) if p.movable else number, p) for p in parts]
    behind.sort(key=lambda pair: pair[0])
    return [*units[: last + 1], *(unit for _, unit in behind)]


def _divided(unit: SegmentsUnit, number_of: Callable[[Unit], int]) -> list[SegmentsUnit]:
    """Return units of the parts that wait for the same sums, of `PART_BYTES` and more."""
    groups: list[list[LoopUnit]] = []
    number, nbytes = -1, PART_BYTES
    for part in sorted(unit.parts, key=number_of):
        if number_of(part) != number and nbytes >= PART_BYTES:
            groups.append([])
            nbytes = 0
        groups[-1].append(part)
        number, nbytes = number_of(part), nbytes + sum(map(nbytes_of, part.reads))
    return [SegmentsUnit(parts) for parts in groups]


def _switched(units: list[Unit]) -> list[Unit]:
    """Return the units with the thread on while sums are under way, where sums need a thread."""
    phases = [i for i, unit in enumerate(units) if isinstance(unit, _PhaseUnit)]
    exchange = cast(_PhaseUnit, units[phases[0]]).exchange
    thread = progress_thread(exchange.group, exchange.calls)
    if thread is None:
        return units
    first, last = phases[0], phases[-1] + 1
    on, off = SwitchUnit(thread, True), SwitchUnit(thread, False)
    return [*units[:first], on, *units[first:last], off, *units[last:]]


def _is_long(unit: Unit) -> bool:
    return unit.flops >= LONG_FLOPS or sum(map(nbytes_of, unit.writes)) >= LONG_BYTES
