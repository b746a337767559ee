"""Group: the contract of the processes that train together, and the group of one process."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from kerasish.typing import Array


class NativeCalls(NamedTuple):
    """What compiled code needs to exchange numbers without Python.

    Attributes:
        functions: name of the MPI function -> its address.
        handles: how a handle is passed: "i" as a 32-bit int, "p" as a pointer.
        communicator: the handle of the communicator.
        addition: the handle of the operation MPI_SUM.
        no_status: the address of MPI_STATUS_IGNORE.
        in_place: the address of MPI_IN_PLACE.
        sleep: the address of the system's `usleep`; 0 where there is none.
        dtypes: name of a dtype, or "bytes" -> the handle of its MPI type.
    """

    functions: dict[str, int]
    handles: str
    communicator: int
    addition: int
    no_status: int
    in_place: int
    sleep: int
    dtypes: dict[str, int]


@dataclass
class Progress:
    """Where this process is: what error messages and the watchdog report.

    Attributes:
        kind: "train", "test" or "predict".
        epoch: the number of the epoch, from 0; texts count from 1, as progress bars do.
        step: steps done since the epoch began.
        since: when the running step, or run of steps, began (`time.monotonic`); 0.0: none runs.
        steps: steps done since the process joined its group.
        begun: steps on a part of a batch begun since then; those need the other ranks.
        exchanges: exchanges with the other ranks begun since then, without those of native code.
        meetings: calls of all ranks (`Group.meet`) begun since then.
        meeting: the one that this rank waits in; "": none.
        only_here: what runs on this rank but not on the others; "": nothing.
    """

    kind: str = ""
    epoch: int = 0
    step: int = 0
    since: float = 0.0
    steps: int = 0
    begun: int = 0
    exchanges: int = 0
    meetings: int = 0
    meeting: str = ""
    only_here: str = ""

    def check_together(self) -> None:
        """Raise if what runs now runs only on this rank: the others would never answer.

        Raises:
            RuntimeError: it does.
        """
        if self.only_here:
            raise RuntimeError(
                f"{self.only_here} runs only on rank 0 (everywhere = False), and has made a call "
                "that all ranks make together: fit, evaluate, predict, or the saving of an "
                "optimizer whose slots they divide. Set everywhere = True, and let only rank 0 "
                "write or print."
            )

    def __str__(self) -> str:
        if not self.kind:
            where = "outside of any step"
            return f"{where}, in {self.meeting}" if self.meeting else where
        if self.meeting:
            return f"in {self.meeting}, after step {self.step} of epoch {self.epoch + 1}"
        where = f"in step {self.step + 1}" if self.since else f"after step {self.step}"
        return f"{where} of epoch {self.epoch + 1} ({self.kind})"


class Group(ABC):
    """Processes that hold the same model and train it together, each on its share of the rows.

    All methods but `abort` are collective: every process calls them in the same order.

    Attributes:
        rank: the number of this process, from 0.
        size: the number of processes.
        local_rank: its number among those on the same machine.
        local_size: how many there are on the same machine.
        host: the name of the machine.
        progress: where this process is, for error messages.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    host: str = ""

    def __init__(self) -> None:
        self.progress = Progress()

    @abstractmethod
    def broadcast(self, value: Any) -> Any:
        """Return the object that rank 0 gives."""

    @abstractmethod
    def gather(self, value: Any) -> list[Any]:
        """Return the objects of all ranks, in their order, on every rank."""

    @abstractmethod
    def sum(self, array: Array) -> Array:
        """Return the sum over ranks, the same bits on each: `tree_sum` of the ranks' arrays."""

    @abstractmethod
    def collect(self, segment: Array, size: int) -> Array:
        """Return the array of `size` elements of which each rank gives its one of `segments`."""

    def collect_first(self, segment: Array, size: int) -> Array | None:
        """Return what `collect` returns on rank 0; None on the others, which receive nothing."""
        whole = self.collect(segment, size)
        return whole if self.rank == 0 else None

    def meet(self, what: str) -> None:
        """Wait until all ranks have made the same call; end the job where one has not.

        Args:
            what: the call, for messages.

        Raises:
            ValueError: the ranks have made different calls.
        """
        check_same_call(self.gather(what))

    @abstractmethod
    def abort(self, reason: str) -> None:
        """End all processes of the group at once, after one line on stderr; does not return."""

    def native_calls(self) -> NativeCalls | None:
        """Return what compiled code needs to call; None: sums go through `sum`."""
        return None

    def endless_request(self) -> int:
        """Return the address of a request of MPI that is never done; 0: no thread may test it.

        Testing it lets MPI continue all that it has begun. Sums between machines need that while
        this process computes.
        """
        return 0

    def device_sum(self, array: Array) -> Array | None:
        """Return the sum of arrays on GPUs; None: they go through the memory of the host."""
        return None


class Alone(Group):
    """The group of one process."""

    @functools.cached_property
    def host(self) -> str:  # type: ignore[override]
        """The name of the machine."""
        import socket  # it takes longer to import than to ask

        return socket.gethostname()

    def broadcast(self, value: Any) -> Any:
        """Return the object."""
        return value

    def gather(self, value: Any) -> list[Any]:
        """Return a list of only the object."""
        return [value]

    def sum(self, array: Array) -> Array:
        """Return the array."""
        return array

    def collect(self, segment: Array, size: int) -> Array:
        """Return the segment, which is the array."""
        return segment

    def abort(self, reason: str) -> None:
        """Raise SystemExit: there is no other process to end."""
        raise SystemExit(f"kerasish: {reason}")


def check_same_call(names: Sequence[str]) -> None:
    """Raise if the ranks have made different calls; `names` are those of the ranks in turn.

    Raises:
        ValueError: they differ.

    Example:
        >>> check_same_call(["save()", "save()"])
    """
    if len(set(names)) > 1:
        said = ", ".join(f"rank {rank}: {name}" for rank, name in enumerate(names))
        raise ValueError(
            f"All ranks must make this call together, but they have made different ones ({said})."
        )


def tree_sum(parts: Sequence[Any], add: Any = np.add) -> Any:
    """Return the sum of parts in a fixed order: neighbors first, then neighboring sums.

    The order depends only on the number of parts. A power of two of neighbors that starts at a
    multiple of that power is a subtree, so it may be added up elsewhere first.

    Args:
        parts: one or more summands; those of a rank's shards, or of all ranks.
        add: what adds two of them.

    Example:
        >>> tree_sum(["a", "b", "c"], lambda x, y: f"({x}+{y})")
        '((a+b)+c)'
    """
    level = list(parts)
    while len(level) > 1:
        pairs = [add(a, b) for a, b in zip(level[::2], level[1::2])]
        level = pairs + level[len(pairs) * 2 :]
    return level[0]


def segments(size: int, ranks: int) -> tuple[list[int], list[int]]:
    """Return (sizes, starts) of the ranks' segments of an array; sizes differ by one at most.

    Example:
        >>> segments(10, 4)
        ([3, 2, 3, 2], [0, 3, 5, 8])
    """
    edges = [-(-size * rank // ranks) for rank in range(ranks + 1)]
    return [b - a for a, b in zip(edges, edges[1:])], edges[:-1]


class _Current:
    group: Group = Alone()


def current_group() -> Group:
    """Return the group of this process: `Alone`, until `distribution.initialize()` joins one."""
    return _Current.group


def set_group(group: Group) -> None:
    """Make `group` the one of this process."""
    _Current.group = group
