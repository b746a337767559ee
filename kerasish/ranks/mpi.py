"""MpiGroup: processes that were started by an MPI launcher, through mpi4py."""

from __future__ import annotations

import atexit
import ctypes
import glob
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from kerasish.ranks.group import Group, NativeCalls, check_same_call, segments, tree_sum
from kerasish.ranks.nccl import NcclSums, make_sums
from kerasish.typing import Array

_FORWARDING = 0.2  # seconds that a launcher gets to pass a line on
_ENDLESS = 77  # the tag of a message that is never sent
SMALL = 1 << 16  # bytes that every rank may receive at once: one message instead of two
FUNCTIONS = (
    "MPI_Allgather", "MPI_Alltoallv", "MPI_Allgatherv", "MPI_Iallgather", "MPI_Ialltoallv",
    "MPI_Iallgatherv", "MPI_Iallreduce", "MPI_Wait", "MPI_Test",
)  # fmt: skip
_NAMES = {"float32": "FLOAT", "float64": "DOUBLE", "int32": "INT32_T", "int64": "INT64_T",
          "uint32": "UINT32_T"}  # fmt: skip

_WIDER = {"float16": "float32", "bfloat16": "float32", "int8": "int32", "int16": "int32",
          "uint8": "int32", "uint16": "int32"}  # fmt: skip

# Variables by which launchers pass the number of ranks.
LAUNCHERS = {
    "PMI_SIZE": "mpiexec of MPICH or Intel MPI",
    "OMPI_COMM_WORLD_SIZE": "mpiexec of Open MPI",
    "MPI_LOCALNRANKS": "mpiexec of MPICH",
    "SLURM_NTASKS": "srun",
}


def launched() -> tuple[str, int] | None:
    """Return (variable, number of ranks) that a launcher has set; None without a launcher.

    A shell inside a Slurm allocation has SLURM_NTASKS, but no SLURM_PROCID of a job step: only a
    process that srun has started has SLURM_STEP_ID and SLURM_PROCID.
    """
    for name in LAUNCHERS:
        if name == "SLURM_NTASKS" and "SLURM_STEP_ID" not in os.environ:
            continue
        text = os.environ.get(name, "")
        if text.isdigit():
            return name, int(text)
    return None


def import_mpi() -> Any:
    """Return mpi4py's MPI module; importing it starts MPI in this process.

    Raises:
        ImportError: mpi4py, or an MPI library, is not installed.
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise ImportError(
            f"distribution.initialize: mpi4py cannot be used ({error}). Install "
            'pip install "kerasish[mpi]", which has MPICH\'s mpiexec, or '
            'pip install "kerasish[mpi-site]" for the MPI of a cluster.'
        ) from error
    return MPI


class MpiGroup(Group):
    """The processes of an MPI communicator.

    Args:
        mpi: mpi4py's module MPI.

    Attributes:
        before_abort: called by `abort` first: it tells the others who ends the job.
        between_machines: whether ranks are on several machines.
    """

    def __init__(self, mpi: Any) -> None:
        super().__init__()
        self.mpi = mpi
        # A separate one: messages of the user's communication are never mixed with ours.
        self.comm = mpi.COMM_WORLD.Dup()
        self._meetings = self.comm.Dup()  # messages of a missing rank cannot be mixed up
        self.rank, self.size = self.comm.Get_rank(), self.comm.Get_size()
        local = self.comm.Split_type(mpi.COMM_TYPE_SHARED)
        self.local_rank, self.local_size = local.Get_rank(), local.Get_size()
        local.Free()
        self.host = mpi.Get_processor_name()
        self._drop_shared_names()
        self.before_abort: Callable[[], None] | None = None
        self._native: NativeCalls | None = None
        self._looked_up = False
        self.between_machines = self.local_size < self.size
        self._endless: Any = None
        self._nccl: NcclSums | None = None
        self._asked_nccl = False

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Note that this process may wait for others: the watchdog checks how long."""
        self.progress.check_together()
        before = self.progress.since
        self.progress.exchanges += 1
        self.progress.since = before or time.monotonic()
        yield
        self.progress.since = before

    def broadcast(self, value: Any) -> Any:
        """Return the object that rank 0 gives."""
        with self._waiting():
            return self.comm.bcast(value, root=0)

    def gather(self, value: Any) -> list[Any]:
        """Return the objects of all ranks, in their order, on every rank."""
        with self._waiting():
            return list(self.comm.allgather(value))

    def meet(self, what: str) -> None:
        """Wait until all ranks have made the same call; the watchdog ends the job if one cannot."""
        progress = self.progress
        progress.meetings += 1
        with self._waiting():
            progress.meeting = what
            names = self._meetings.allgather(what)
            progress.meeting = ""
        check_same_call(names)

    def sum(self, array: Array) -> Array:
        """Return the sum over ranks in the order of `tree_sum`, the same bits on each."""
        given = np.asarray(array, order="C")
        if self.size == 1 or given.size == 0:
            return given
        with self._waiting():
            return self._sum(given.reshape(-1)).reshape(given.shape)

    def _sum(self, plain: Array) -> Array:
        if plain.dtype.name in _WIDER:  # 16-bit floats are added in float32
            return self._sum(plain.astype(_WIDER[plain.dtype.name])).astype(plain.dtype)
        kind = self._type_of(plain.dtype)
        if plain.nbytes * self.size <= SMALL:
            parts = np.empty((self.size, plain.size), plain.dtype)
            self.comm.Allgather([plain, plain.size, kind], [parts, plain.size, kind])
            return tree_sum(list(parts))
        counts, starts = segments(plain.size, self.size)
        own = counts[self.rank]
        parts = np.empty((self.size, own), plain.dtype)
        every = [own * i for i in range(self.size)]
        self.comm.Alltoallv(
            [plain, (counts, starts), kind], [parts, ([own] * self.size, every), kind]
        )
        total = np.ascontiguousarray(tree_sum(list(parts)))
        out = np.empty_like(plain)
        self.comm.Allgatherv([total, own, kind], [out, (counts, starts), kind])
        return out

    def _drop_shared_names(self) -> None:
        """Remove the names of shared memory that MPICH's processes have opened by now.

        The memory lives as long as the processes. With its name it would stay after a kill.
        """
        self.comm.Barrier()
        if self.local_rank == 0:
            for path in shared_files():
                os.unlink(path)
        self.comm.Barrier()

    def collect(self, segment: Array, size: int) -> Array:
        """Return the array that the ranks' segments make together."""
        given, places, kind = self._in_bytes(segment, size)
        out = np.empty(size, given.dtype)
        with self._waiting():
            self.comm.Allgatherv([given, given.nbytes, kind], [out, places, kind])
        return out

    def collect_first(self, segment: Array, size: int) -> Array | None:
        """Return what `collect` returns on rank 0; None on the others, which receive nothing."""
        given, places, kind = self._in_bytes(segment, size)
        out = np.empty(size, given.dtype) if self.rank == 0 else None
        with self._waiting():
            self.comm.Gatherv(
                [given, given.nbytes, kind], None if out is None else [out, places, kind], root=0
            )
        return out

    def _in_bytes(self, segment: Array, size: int) -> tuple[Array, Any, Any]:
        """Return (a segment, where the ranks' segments are in the whole array, MPI's bytes)."""
        given = np.ascontiguousarray(segment).reshape(-1)
        counts, starts = segments(size, self.size)
        places = tuple([n * given.itemsize for n in numbers] for numbers in (counts, starts))
        return given, places, self.mpi.BYTE

    def _type_of(self, dtype: Any) -> Any:
        name = _NAMES.get(np.dtype(dtype).name)
        if name is None:
            raise TypeError(
                f"all_sum: expected one of {sorted(_NAMES)}, got {np.dtype(dtype).name}: cast it."
            )
        return getattr(self.mpi, name)

    def abort(self, reason: str) -> None:
        """End all processes after one line on stderr."""
        text = f"kerasish: rank {self.rank} of {self.size} on {self.host}: {reason}"
        sys.stdout.flush()
        if self.before_abort is not None:
            self.before_abort()
        print(text, file=sys.stderr, flush=True)
        # The line is enough; MPI would print a report of the abort below it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        # The launcher forwards the line; once a job is aborted, it drops what it has not read yet.
        time.sleep(_FORWARDING)
        self.mpi.COMM_WORLD.Abort(1)
        os._exit(1)  # a launcher that has lost its connection ends with this process

    def native_calls(self) -> NativeCalls | None:
        """Return the addresses and handles of this MPI library."""
        if not self._looked_up:
            self._native, self._looked_up = self._find_native(), True
        return self._native

    def endless_request(self) -> int:
        """Return the address of a receipt that no message ends; 0 on one machine.

        Within one machine memory is copied when both ranks are in MPI: a test has no effect.
        """
        if not self.between_machines or self.mpi.Query_thread() < self.mpi.THREAD_MULTIPLE:
            return 0
        if self._endless is None:
            self._endless = self._meetings.irecv(bytearray(8), source=self.rank, tag=_ENDLESS)
            atexit.register(self._end_request)
        return int(self.mpi._addressof(self._endless))

    def _end_request(self) -> None:
        self._endless.Cancel()
        self._endless.Wait()

    def device_sum(self, array: Array) -> Array | None:
        """Return the sum of arrays on GPUs by NCCL; None where a rank has none."""
        if not self._asked_nccl:
            self._nccl, self._asked_nccl = make_sums(self), True
        return None if self._nccl is None else self._nccl.sum(array)

    def _find_native(self) -> NativeCalls | None:
        # mpi4py's extension module is linked with the MPI library: its symbols are found there.
        library = ctypes.CDLL(self.mpi.__file__)
        if not all(hasattr(library, name) for name in FUNCTIONS):
            return None
        addresses = {name: _address(library, name) for name in FUNCTIONS}
        pointers = hasattr(library, "ompi_mpi_comm_world")

        def handle(thing: Any, convert: str) -> int:
            number = int(thing.py2f())
            if not pointers:
                return number  # MPICH's handles are those of Fortran
            function = getattr(library, convert)
            function.restype, function.argtypes = ctypes.c_void_p, [ctypes.c_int]
            return int(function(number) or 0)

        kinds = {"bytes": handle(self.mpi.BYTE, "MPI_Type_f2c")}
        kinds |= {k: handle(getattr(self.mpi, v), "MPI_Type_f2c") for k, v in _NAMES.items()}
        return NativeCalls(
            addresses,
            handles="p" if pointers else "i",
            communicator=handle(self.comm, "MPI_Comm_f2c"),
            addition=handle(self.mpi.SUM, "MPI_Op_f2c"),
            no_status=0 if pointers else 1,
            in_place=int(self.mpi.IN_PLACE),
            sleep=_address(ctypes.CDLL(None), "usleep") if os.name == "posix" else 0,
            dtypes=kinds,
        )


def _address(library: Any, name: str) -> int:
    function = getattr(library, name, None)
    return 0 if function is None else ctypes.cast(function, ctypes.c_void_p).value or 0


def shared_files() -> list[str]:
    """Return the named files of MPICH's shared memory that this process has mapped."""
    try:
        with open("/proc/self/maps", encoding="utf-8") as file:
            mapped = {line.split()[-1] for line in file}
    except OSError:
        return []
    return [path for path in glob.glob("/dev/shm/mpich_shm_*") if path in mapped]
