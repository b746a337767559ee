"""Who is compared: how each peer is found, started and limited in threads."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory


@dataclass(frozen=True)
class Peer:
    """One way to run a workload.

    Args:
        kind: "ours", "keras" (Keras's API on a backend) or "raw" (plain torch or JAX).
        modules: must all be importable, the first is the one whose import is timed.
        runner: module of this package that drives it: "keras", "torch" or "jax".
        environment: variables set in its process.
    """

    name: str
    kind: str
    modules: tuple[str, ...]
    runner: str
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def api(self) -> str:
        """Name of the module that is handed to the workload."""
        return self.modules[0]


ROOT = Path(__file__).resolve().parent.parent
BEFORE = "KERASISH_BENCHMARK_BEFORE"  # names the folder in which the peer "before" looks first

ALL_PEERS = {
    peer.name: peer
    for peer in (
        Peer("kerasish", "ours", ("kerasish",), "keras", {"KERASISH_BACKEND": "static"}),
        # The package of another checkout: see `package_alone`.
        Peer("before", "ours", ("kerasish",), "keras", {"KERASISH_BACKEND": "static"}),
        Peer("kerasish-eager", "ours", ("kerasish",), "keras", {"KERASISH_BACKEND": "eager"}),
        Peer("keras-jax", "keras", ("keras", "jax"), "keras", {"KERAS_BACKEND": "jax"}),
        Peer(
            "keras-tensorflow",
            "keras",
            ("keras", "tensorflow"),
            "keras",
            {"KERAS_BACKEND": "tensorflow"},
        ),
        Peer("keras-torch", "keras", ("keras", "torch"), "keras", {"KERAS_BACKEND": "torch"}),
        Peer("torch", "raw", ("torch",), "torch"),
        Peer("jax", "raw", ("jax",), "jax"),
        # Compared where there is a GPU, or a compiler for its code on a CPU.
        Peer("torch-compile", "raw", ("torch",), "torch", {"KERASISH_BENCHMARK_COMPILE": "1"}),
    )
}

# Those that are compared unless others are named.
PEERS = {name: p for name, p in ALL_PEERS.items() if name != "before"}

# Each library reads its own name for the same thing; NPROC is the one XLA's CPU client obeys.
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "NPROC",
    "PJRT_NPROC",
)


def is_installed(peer: Peer) -> bool:
    """Whether every module of `peer` can be found; none is imported."""
    specs = [importlib.util.find_spec(name) for name in peer.modules]
    return all(spec is not None and spec.origin is not None for spec in specs)


def can_compile() -> bool:
    """Whether there is the C++ compiler that torch.compile needs on a CPU."""
    compiler = os.environ.get("CXX")
    return any(shutil.which(name) for name in ([compiler] if compiler else ("g++", "clang++")))


@contextmanager
def package_alone(checkout: Path) -> Iterator[None]:
    """Let the peer "before" be the package of another checkout, driven by these benchmarks.

    Args:
        checkout: a folder that holds the folder `kerasish`.
    """
    with TemporaryDirectory() as folder:
        (Path(folder) / "kerasish").symlink_to(checkout.resolve() / "kerasish")
        os.environ[BEFORE] = folder
        try:
            yield
        finally:
            del os.environ[BEFORE]


def worker_environment(peer: Peer, threads: int | None, cache: str, gpu: bool) -> dict[str, str]:
    """The environment of `peer`'s process.

    Args:
        peer: whose backend variables are set.
        threads: threads for every library, or None to leave each library's default.
        cache: folder for compiled kernels; an empty one makes a cold start.
        gpu: leave the accelerators visible.
    """
    variables = dict(os.environ)
    variables.update(peer.environment)
    variables.update(KERASISH_CACHE_DIR=cache, TF_CPP_MIN_LOG_LEVEL="3", PYTHONUNBUFFERED="1")
    variables.update(TORCHINDUCTOR_CACHE_DIR=f"{cache}/inductor")
    variables.setdefault("KERASISH_FULL_TRACEBACKS", "1")  # a failure is reported with all frames
    if peer.name == "before":
        # The folder in which a process starts, this checkout, must not come first.
        variables["PYTHONPATH"] = os.pathsep.join((variables[BEFORE], str(ROOT)))
        variables["PYTHONSAFEPATH"] = "1"
    if threads is not None:
        variables.update(dict.fromkeys(_THREAD_VARIABLES, str(threads)))
    if gpu:
        # All round float32 factors to TF32, or none does: JAX and torch's convolutions would.
        tf32 = variables.get("KERASISH_TF32", "0") not in ("", "0")
        precision = "tensorfloat32" if tf32 else "highest"
        variables.update(KERASISH_DEVICE="gpu", JAX_DEFAULT_MATMUL_PRECISION=precision)
    else:
        variables.update(CUDA_VISIBLE_DEVICES="", JAX_PLATFORMS="cpu")
    return variables


def thread_settings() -> dict[str, str]:
    """The thread variables that the user has set, by name."""
    names = (*_THREAD_VARIABLES, "GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_PROC_BIND", "XLA_FLAGS")
    return {name: os.environ[name] for name in names if name in os.environ}
