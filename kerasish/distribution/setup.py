"""Joining the processes of a job: `initialize`, and the devices that they have together."""

from __future__ import annotations

import os
import random
import warnings

import numpy as np

from kerasish import config
from kerasish.devices import current, set_device
from kerasish.ranks import Group, current_group, set_group
from kerasish.ranks.failures import RankWatch, processor
from kerasish.ranks.mpi import LAUNCHERS, MpiGroup, import_mpi, launched

_VARIABLES = {
    "KERAS_DISTRIBUTION_NUM_PROCESSES": "num_processes",
    "KERAS_DISTRIBUTION_PROCESS_ID": "process_id",
}


class _Joined:
    watch: RankWatch | None = None
    done = False


def initialize(
    job_addresses: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    timeout: float = 300.0,
) -> None:
    """Join the processes that a launcher has started; call it once, before models are made.

    The launcher is `mpiexec`, `srun`, or `python -m kerasish.launch`. It says how many processes
    there are and which one this is; the arguments are checked against that. Without a launcher
    this is one process, and nothing happens: mpi4py is not imported.

    The processes get rank 0's random seed and random states, share the cores of a machine among
    those that run on it, and end together: an exception, an exit or a kill of one of them ends the
    job, with one line that names the rank, the machine, the step and the error.

    Args:
        job_addresses: accepted as in Keras; the launcher has the addresses.
        num_processes: how many processes there are; None: what the launcher says.
        process_id: the number of this one; None: what the launcher says.
        timeout: seconds that a step may wait for other ranks before the job ends, > 0. The first
            step of a model is compiled: that time counts, too.

    Raises:
        RuntimeError: called twice; or the launcher and the MPI library do not belong together.
        ValueError: the arguments differ from what the launcher says.
        ImportError: mpi4py or an MPI library is missing.

    Example:
        >>> import kerasish
        >>> kerasish.distribution.initialize()     # outside of a launcher: one process
        >>> kerasish.distribution.get_device_count()
        1
    """
    if not timeout > 0:
        raise ValueError(
            f"initialize: timeout must be a positive number of seconds, got {timeout}."
        )
    if _Joined.watch is not None:
        raise RuntimeError("initialize: this process has joined its group already; call it once.")
    requested = _checked(num_processes, process_id)
    launcher = launched()
    if launcher is None:
        if requested[0] not in (None, 1):
            raise ValueError(
                f"initialize: num_processes={requested[0]}, but no launcher has started this "
                f"process. Run: mpiexec -n {requested[0]} python PROGRAM, or "
                f"python -m kerasish.launch -n {requested[0]} PROGRAM."
            )
        return
    variable, size = launcher
    mpi = import_mpi()
    if mpi.COMM_WORLD.Get_size() != size:
        library = mpi.Get_library_version().splitlines()[0].strip("\0 ")
        raise RuntimeError(
            f"initialize: {LAUNCHERS[variable]} has started {size} processes ({variable}={size}), "
            f"but MPI sees {mpi.COMM_WORLD.Get_size()}: the launcher and the library "
            f"({library}) belong to different MPIs. Use the mpiexec of that library, or "
            "python -m kerasish.launch; with srun choose its --mpi plug-in (srun --mpi=list)."
        )
    group = MpiGroup(mpi)
    _compare(requested, group)
    _share_cores(group)
    _choose_gpu(group)
    _join(group, timeout)


def _join(group: MpiGroup, timeout: float) -> None:
    set_group(group)
    _Joined.watch = watch = RankWatch(group, timeout)
    watch.start()
    _check_alike(group)
    seed = config.seed()
    states = group.broadcast(
        (
            config.next_seed() if seed is None else None,
            np.random.get_state(),  # noqa: NPY002 (what users draw from)
            random.getstate(),
        )
    )
    if seed is None and states[0] is not None:
        config.set_seed(states[0])
    np.random.set_state(states[1])  # noqa: NPY002
    random.setstate(states[2])


def _checked(num_processes: int | None, process_id: int | None) -> tuple[int | None, int | None]:
    """Return the arguments, or Keras's environment variables where they are None."""
    given = {"num_processes": num_processes, "process_id": process_id}
    for variable, name in _VARIABLES.items():
        text = os.environ.get(variable)
        if given[name] is None and text:
            if not text.isdigit():
                raise ValueError(f"{variable}: expected a number, got {text!r}.")
            given[name] = int(text)
    return given["num_processes"], given["process_id"]


def _compare(requested: tuple[int | None, int | None], group: Group) -> None:
    for name, asked, real in zip(
        ("num_processes", "process_id"), requested, (group.size, group.rank), strict=True
    ):
        if asked is not None and asked != real:
            raise ValueError(
                f"initialize: {name}={asked}, but the launcher has made it {real}. Leave the "
                f"argument out, or start the job by mpiexec -n {requested[0] or group.size}."
            )


def _share_cores(group: MpiGroup) -> None:
    """Divide the cores of a machine among its ranks, unless the user has set them already."""
    if config.threads() is not None or os.environ.get("OMP_NUM_THREADS"):
        return
    affinity = getattr(os, "sched_getaffinity", lambda process: range(os.cpu_count() or 1))
    cores = frozenset(affinity(0))
    there = [c for host, c in group.gather((group.host, cores)) if host == group.host]
    sharing = sum(c == cores for c in there)
    if sharing > 1:
        import joblib

        config.set_threads(max(1, min(len(cores), joblib.cpu_count()) // sharing))


def _choose_gpu(group: MpiGroup) -> None:
    """Give each rank of a machine its own GPU, unless the user has set them already."""
    if current().kind == "cpu" or os.environ.get("KERASISH_DEVICE", "auto") != "auto":
        return
    import cupy

    count = cupy.cuda.runtime.getDeviceCount()
    if count > 1:
        number = group.local_rank % count
        cupy.cuda.Device(number).use()
        set_device(f"gpu:{number}")


def _check_alike(group: MpiGroup) -> None:
    """Warn where ranks would compute other bits than each other."""
    facts = group.gather((processor(), config.threads()))
    kinds = sorted({kind for kind, _ in facts})
    if len(kinds) > 1 and group.rank == 0:
        warnings.warn(
            f"initialize: the ranks have different processors ({'; '.join(kinds)}). Their sums "
            "round differently: all ranks agree with each other, but results do not repeat on "
            "other machines bit for bit. KERASISH_CPU and ONEDNN_MAX_CPU_ISA choose one level.",
            stacklevel=4,
        )


def list_devices(device_type: str | None = None) -> list[str]:
    """Return the names of the devices of all processes, one each: "cpu:0", "cpu:1", ...

    Args:
        device_type: "cpu" or "gpu"; None: that of this process's current device. "tpu" gives none.

    Returns:
        A name per process.

    Example:
        >>> list_devices("cpu")
        ['cpu:0']
    """
    kind = current().kind if device_type is None else device_type.lower()
    kind = {"cuda": "gpu"}.get(kind, kind)
    if kind not in ("cpu", "gpu", "tpu"):
        raise ValueError(
            f'list_devices: device_type is "cpu", "gpu", "tpu" or None, got {device_type!r}.'
        )
    own = {"cuda": "gpu"}.get(current().kind, current().kind)
    if kind == "tpu" or (kind == "gpu" and own != "gpu"):
        return []
    return [f"{kind}:{i}" for i in range(current_group().size)]


def get_device_count(device_type: str | None = None) -> int:
    """Return the number of devices of all processes; see `list_devices`.

    Args:
        device_type: "cpu", "gpu", "tpu" or None.

    Returns:
        How many there are.

    Example:
        >>> get_device_count("cpu")
        1
    """
    return len(list_devices(device_type))
