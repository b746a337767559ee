"""Parts of the ranks of a job, so that one start of processes covers several numbers of ranks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import rank_models as models

import kerasish as keras
from kerasish.ranks import Alone, Group, current_group, set_group, set_sharding
from kerasish.ranks.mpi import MpiGroup, import_mpi

T = TypeVar("T")


class _World:
    """mpi4py's module MPI, in which the world is some of the processes."""

    def __init__(self, comm: Any) -> None:
        self._mpi, self.COMM_WORLD = import_mpi(), comm

    def __getattr__(self, name: str) -> Any:
        return getattr(self._mpi, name)


class _Patient:
    """A communicator whose blocking calls sleep until all ranks have come.

    A rank that waits inside MPI keeps a core busy, which here those have to share that compute.
    """

    CALLS = ("bcast", "allgather", "Allgather", "Alltoallv", "Allgatherv", "Gatherv")

    def __init__(self, comm: Any) -> None:
        self._comm = comm
        self._meetings = comm.Dup()  # compiled code may have sums under way on the other

    def sleep_until_all_come(self) -> None:
        request, pause = self._meetings.Ibarrier(), 0.0
        while not request.Test():
            time.sleep(pause)
            pause = min(pause + 5e-5, 5e-3)

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._comm, name)
        if name not in self.CALLS:
            return function

        def call(*arguments: Any, **options: Any) -> Any:
            self.sleep_until_all_come()
            return function(*arguments, **options)

        return call


def join(timeout: float) -> Group:
    """Join the ranks of the job, whose calls wait patiently; return their group."""
    keras.distribution.initialize(timeout=timeout)
    group = current_group()
    assert isinstance(group, MpiGroup)
    group.comm = _Patient(group.comm)
    return group


@contextmanager
def in_parts(*sizes: int) -> Iterator[Group | None]:
    """A block in which the first ranks form groups of these sizes; None on the ranks left over."""
    world = current_group()
    assert sum(sizes) <= world.size
    part, left = 0, world.rank
    while part < len(sizes) and left >= sizes[part]:
        left -= sizes[part]
        part += 1
    comm = world.comm.Split(part, world.rank)
    if part == len(sizes):
        yield None
    else:
        group: Any = MpiGroup(_World(comm)) if sizes[part] > 1 else Alone()
        if group.size > 1:
            group.comm = _Patient(group.comm)
        set_group(group)
        set_sharding(None)
        try:
            yield group
        finally:
            set_group(world)
            set_sharding(None)
    rest()


@contextmanager
def alone() -> Iterator[None]:
    """A block in which this rank works by itself."""
    group = current_group()
    set_group(Alone())
    set_sharding(None)
    try:
        yield
    finally:
        set_group(group)
        models.use_shards(group.size)


def on_first_rank(work: Callable[[], T]) -> T:
    """Return what rank 0 computes by itself while the others rest."""
    group = current_group()
    result = None
    if group.rank == 0:
        with alone():
            result = work()
    keras.utils.clear_session()  # rank 0 has given names
    models.use_shards(group.size)  # which remembers what the ranks have agreed on
    rest()
    return group.broadcast(result)


def rest() -> None:
    """Wait for all ranks."""
    group = current_group()
    if isinstance(group, MpiGroup):
        group.comm.sleep_until_all_come()
