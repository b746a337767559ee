"""Start a program on several processes: `python -m kerasish.launch -n 4 train.py [arguments]`.

It finds the mpiexec that belongs to this Python, which a shell's PATH may not name first, and the
MPI library that mpi4py is going to load. It divides the cores among the processes, sets what MPI
libraries need where there are more processes than cores, and marks each line of output by its rank.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

# Waiting processes spin: with more of them than cores they must give way to those that work.
CROWDED = {
    "MPIR_CVAR_POLLS_BEFORE_YIELD": "1",
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE": "true",
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT": "1",
    "OMPI_MCA_mpi_yield_when_idle": "true",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


class LaunchError(RuntimeError):
    """There is no launcher that belongs to this Python."""


def find_mpiexec() -> str:
    """Return the path of the mpiexec in this Python's environment, else that of the PATH.

    Raises:
        LaunchError: there is none.
    """
    folder = Path(sys.executable).parent
    for name in ("mpiexec", "mpiexec.hydra", "mpiexec.exe"):
        if (folder / name).is_file():
            return str(folder / name)
    launcher = shutil.which("mpiexec") or shutil.which("mpirun")
    if launcher is None:
        raise LaunchError(
            'no mpiexec next to this Python nor on the PATH: pip install "kerasish[mpi]", or load '
            "the MPI module of the cluster."
        )
    return launcher


def flavor(mpiexec: str) -> str:
    """Return "mpich", "openmpi" or "": which launcher a program is.

    Args:
        mpiexec: its path.
    """
    said = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, check=False)
    text = (said.stdout + said.stderr).lower()
    if "open mpi" in text or "open-mpi" in text or "prte" in text:
        return "openmpi"
    return "mpich" if "hydra" in text or "mpich" in text or "intel" in text else ""


def cores() -> int:
    """Return how many cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def environment(
    processes: int, given: Mapping[str, str], here: int, root: bool = False
) -> dict[str, str]:
    """Return the variables that the processes need, without those that are set.

    Args:
        processes: on this machine.
        given: the variables that are set already, which stay.
        here: the cores of this machine.
        root: whether the user is root.
    """
    variables = dict(CROWDED) if processes > here else {}
    if root:
        variables.update(ROOT)
    if "OMP_NUM_THREADS" not in given:
        variables["OMP_NUM_THREADS"] = str(max(1, here // processes))
    return {name: value for name, value in variables.items() if name not in given}


def command(
    mpiexec: str, kind: str, processes: int, program: Sequence[str], hosts: str | None = None
) -> list[str]:
    """Return the command that starts the job.

    Args:
        mpiexec: the launcher.
        kind: "mpich", "openmpi" or "".
        processes: how many.
        program: the program and its arguments, for this Python.
        hosts: names of machines, separated by commas; None: this one.
    """
    marks = {"mpich": ["-l"], "openmpi": ["--tag-output"]}.get(kind, [])
    if kind == "openmpi":
        marks += ["--bind-to", "none"]
    where = []
    if hosts:
        where = ["--host" if kind == "openmpi" else "-hosts", hosts]
    return [mpiexec, *marks, *where, "-n", str(processes), sys.executable, *program]


def main(arguments: Sequence[str] | None = None) -> int:
    """Start the job; return its exit status.

    Args:
        arguments: of the command line; None: those of this process.
    """
    parser = argparse.ArgumentParser(prog="python -m kerasish.launch", description=__doc__)
    parser.add_argument("-n", type=int, default=cores(), help="processes; default: one per core")
    parser.add_argument("--hosts", help="machines, separated by commas; default: this one")
    parser.add_argument("-m", dest="module", action="store_true", help="PROGRAM is a module")
    parser.add_argument("program", help="the program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    given = parser.parse_args(arguments)
    if given.n < 1:
        parser.error(f"-n: expected a number of processes >= 1, got {given.n}")
    program = [*(["-m"] if given.module else []), given.program, *given.arguments]
    try:
        mpiexec = find_mpiexec()
    except LaunchError as error:
        print(f"kerasish.launch: {error}", file=sys.stderr)
        return 2
    here = given.n if not given.hosts else -(-given.n // len(given.hosts.split(",")))
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    more = environment(here, os.environ, cores(), root)
    job = command(mpiexec, flavor(mpiexec), given.n, program, given.hosts)
    with subprocess.Popen(job, env={**os.environ, **more}) as process:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                # The launcher gets Ctrl-C, too, and ends its processes.
                continue


if __name__ == "__main__":
    sys.exit(main())
