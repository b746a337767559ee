"""The native libraries of both engines: loading, addresses of functions, threads.

    available() -> str              "" if oneDNN can be used, else why not and what to install
    library() -> ctypes.CDLL        libdnnl; raises NativeError with that reason
    openmp_available() -> str       the same for the OpenMP runtime only
    symbol(name) -> int             address of a function ("GOMP_parallel") there, or 0
    get_threads() / set_threads(n)  the number of threads that the engine may use
    threads_for(work, grain)        the number of threads that `work` should use
    processors() -> int             the number of processors that this process may use
    use_threads(n)                  context: OpenMP regions of this thread have n threads
    forked() -> bool                this process is a fork of one that had loaded the libraries

oneDNN and our loops use one OpenMP runtime and one thread pool. Its workers spin for a bounded
time before they sleep (measured: as fast as spinning forever, and not slowed down by other busy
processes), unless `GOMP_SPINCOUNT` or `OMP_WAIT_POLICY` is set.

Threads and `fork`: a forked child has OpenMP's records of a thread pool but not its threads, and
would wait for them forever. Therefore `get_threads()` is 1 in such a child, and code that holds
work for more threads checks `forked()` before running it.

Environment: `KERASISH_ONEDNN` is the path of a libdnnl.so.3, or "off".
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import glob
import importlib.util
import math
import os
import site
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from kerasish import config
from kerasish.backends.onednn.renamed_library import load_renamed
from kerasish.backends.wheels import files_of

_SPIN = "10000"
_RUNTIME_SEQUENTIAL, _RUNTIME_OPENMP = 1, 2


def fork_safe_lock(namespace: dict[str, Any], name: str) -> Any:
    """Return a re-entrant lock for a module's variable; a forked child binds it to a new one.

    A thread that does not exist in the child may hold the old one.

    Args:
        namespace: the module's `globals()`.
        name: the variable.
    """

    def renew() -> None:
        namespace[name] = threading.RLock()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=renew)
    return threading.RLock()


_lock = fork_safe_lock(globals(), "_lock")


class NativeError(RuntimeError):
    """A native library is missing or cannot be used; the message names what to install."""


class _State:
    openmp: ctypes.CDLL | None = None
    openmp_reason: str | None = None  # None: not tried yet, "": loaded
    onednn: ctypes.CDLL | None = None
    onednn_reason: str | None = None
    baseline = 1  # OpenMP's number of threads when it was loaded
    limited: tuple[Any, ...] = ()  # libraries that threadpoolctl limited at that time
    limited_in = 0  # the Python thread that detected this
    process = 0  # the process that loaded it


# ------------------------------------------------------------------------------------------ loading


def openmp_available() -> str:
    """Load an OpenMP runtime, unless it is loaded; return "" or the reason for a failure."""
    with _lock:
        if _State.openmp_reason is None:
            _State.limited, _State.limited_in = _find_limited(), threading.get_ident()
            _State.openmp, _State.openmp_reason = _load_openmp()
            if _State.openmp is not None:
                _remember(_State.openmp)
        return _State.openmp_reason


def available() -> str:
    """Load oneDNN, unless it is loaded; return "", or the reason and what to install."""
    if _State.onednn_reason is not None:
        return _State.onednn_reason
    with _lock:
        if _State.onednn_reason is None:
            openmp_available()
            _State.onednn, _State.onednn_reason = _load_onednn()
            if _State.onednn is not None:
                _remember(_State.onednn)
        return _State.onednn_reason


def library() -> ctypes.CDLL:
    """Return libdnnl.

    Raises:
        NativeError: it cannot be used here; the message is that of `available()`.
    """
    reason = available()
    if reason or _State.onednn is None:
        raise NativeError(reason)
    return _State.onednn


@functools.cache
def symbol(name: str) -> int:
    """Return the address of the C function `name` of OpenMP or oneDNN; 0 if there is none.

    The libraries that oneDNN is linked to have priority, so that there is one thread pool.
    """
    available()
    for loaded in (_State.onednn, _State.openmp):
        if loaded is not None and hasattr(loaded, name):
            return ctypes.cast(getattr(loaded, name), ctypes.c_void_p).value or 0
    return 0


def _load_openmp() -> tuple[ctypes.CDLL | None, str]:
    if not sys.platform.startswith("linux"):
        return None, f"no OpenMP run time is looked for on {sys.platform}."
    # Never RTLD_GLOBAL: libraries with their own copy of OpenMP would then use our pool.
    with _bounded_spin():
        for name in ("libgomp.so.1", *_nearby("libgomp.so.1")):
            with contextlib.suppress(OSError):
                return ctypes.CDLL(name), ""
        # Systems without libgomp: scikit-learn's wheel contains one under another name.
        for path in _bundled_openmp():
            with contextlib.suppress(OSError, ValueError):
                return load_renamed(path, "libgomp.so.1"), ""
    return None, (
        "libgomp.so.1, the OpenMP run time, was not found. Install it (Debian, Ubuntu: "
        "`apt-get install libgomp1`; Alpine: `apk add libgomp`; conda: `conda install libgomp`)."
    )


def _load_onednn() -> tuple[ctypes.CDLL | None, str]:
    wish = os.environ.get("KERASISH_ONEDNN", "")
    if wish.lower() in ("off", "0", "no"):
        return None, f"oneDNN is switched off by KERASISH_ONEDNN={wish}."
    failures = []
    with _bounded_spin():
        for path in [wish] if wish else _onednn_candidates():
            try:
                loaded = ctypes.CDLL(path)
            except OSError as error:
                failures.append(str(error))
                continue
            reason = _refuse(loaded)
            if not reason:
                return loaded, ""
            failures.append(f"{path}: {reason}")
    if _State.openmp_reason:
        failures.append(_State.openmp_reason)
    return None, (
        "oneDNN (libdnnl.so.3) cannot be used; install it with `pip install onednn-cpu-gomp` or "
        f"point KERASISH_ONEDNN to it. Tried: {'; '.join(failures) or 'nothing found'}"
    )


def _onednn_candidates() -> list[str]:
    return [
        *files_of("onednn_cpu_gomp", "libdnnl.so.3"),
        *_nearby("libdnnl.so.3"),
        "libdnnl.so.3",
    ]


def _nearby(name: str) -> list[str]:
    """Return the paths where pip's data files and conda install libraries."""
    roots = [sys.prefix, sys.base_prefix, site.getuserbase(), os.environ.get("CONDA_PREFIX", "")]
    paths = [os.path.join(root, "lib", name) for root in dict.fromkeys(roots) if root]
    return [path for path in paths if os.path.exists(path)]


def _bundled_openmp() -> list[str]:
    spec = importlib.util.find_spec("sklearn")  # does not import it
    if spec is None or not spec.origin:
        return []
    folder = os.path.dirname(os.path.dirname(spec.origin))
    return sorted(glob.glob(os.path.join(glob.escape(folder), "scikit_learn.libs", "libgomp*.so*")))


class _Version(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
        ("patch", ctypes.c_int),
        ("hash", ctypes.c_char_p),
        ("cpu_runtime", ctypes.c_uint),
        ("gpu_runtime", ctypes.c_uint),
    ]


def _refuse(loaded: ctypes.CDLL) -> str:
    """Return the reason why a libdnnl cannot be used; "" if it can."""
    if not hasattr(loaded, "dnnl_version"):
        return "it has no dnnl_version, so it is not oneDNN"
    loaded.dnnl_version.restype = ctypes.POINTER(_Version)
    version = loaded.dnnl_version().contents
    if version.major != 3:
        return f"it is version {version.major}.{version.minor}, 3.x is needed"
    if version.cpu_runtime not in (_RUNTIME_SEQUENTIAL, _RUNTIME_OPENMP):
        return "it was built for other threads than OpenMP's (take onednn-cpu-gomp)"
    return ""


def version() -> str:
    """Return oneDNN's version, such as "3.2.0"."""
    result = library().dnnl_version().contents
    return f"{result.major}.{result.minor}.{result.patch}"


@contextlib.contextmanager
def _bounded_spin() -> Iterator[None]:
    """Make libgomp, which reads the environment when it is loaded, spin for a bounded time.

    The variable is restored, so that other OpenMP runtimes and child processes are not affected.
    """
    if "GOMP_SPINCOUNT" in os.environ or "OMP_WAIT_POLICY" in os.environ:
        yield
        return
    os.environ["GOMP_SPINCOUNT"] = _SPIN
    try:
        yield
    finally:
        os.environ.pop("GOMP_SPINCOUNT", None)


# ------------------------------------------------------------------------------------------ threads


@functools.cache
def _threads_functions() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """Return OpenMP's getter and setter of the thread count, as calls that hold Python's lock."""
    get, put = symbol("omp_get_max_threads"), symbol("omp_set_num_threads")
    if not get or not put:
        return None
    return ctypes.PYFUNCTYPE(ctypes.c_int)(get), ctypes.PYFUNCTYPE(None, ctypes.c_int)(put)


def openmp_threads() -> int:
    """Return OpenMP's current number of threads for a region of the calling thread."""
    functions = _threads_functions()
    return 1 if functions is None else max(1, int(functions[0]()))


def set_threads(threads: int | None) -> None:
    """Set the engine's number of threads (None: OMP_NUM_THREADS, or the machine's processors)."""
    config.set_threads(threads)


def get_threads() -> int:
    """Return the number of threads that the engine may use from the calling thread.

    That is the number of `set_threads`, else OMP_NUM_THREADS, else the processors this process may
    use (affinity and cgroup quota); fewer where threadpoolctl limits OpenMP; 1 in a forked child.
    """
    functions = _threads_functions()
    now = 1 if functions is None else functions[0]()
    if forked():
        return 1
    if _State.limited:
        now = min(now, _earlier_limit())
    chosen = config.threads() or min(_State.baseline, _quota())
    return min(chosen, now) if now < _State.baseline else chosen


def _earlier_limit() -> int:
    """Return the limit that threadpoolctl had set before our libraries were loaded.

    It cannot limit libraries loaded later. The limits of other libraries show when the limit ends.
    """
    limits = [own.num_threads for own in _State.limited if own.num_threads < _natural(own)]
    if not limits and threading.get_ident() == _State.limited_in:
        _State.limited = ()
    return min(limits, default=sys.maxsize)


def _find_limited() -> tuple[Any, ...]:
    """Return threadpoolctl's controllers of libraries that are limited to fewer threads.

    OpenMP's where there are any, else BLAS's.
    """
    threadpoolctl = sys.modules.get("threadpoolctl")
    if threadpoolctl is None:  # no limit can be set without it
        return ()
    controllers = threadpoolctl.ThreadpoolController().lib_controllers
    openmp = [own for own in controllers if own.user_api == "openmp"]
    return tuple(own for own in openmp or controllers if own.num_threads < _natural(own))


_OPENBLAS_MOST = 64  # threads, in the builds of NumPy and SciPy


def _natural(library: Any) -> int:
    """Return the number of threads that a library uses without a limit."""
    names = ["OMP_NUM_THREADS"]
    if library.user_api == "blas":
        own = {"mkl": ["MKL_NUM_THREADS"]}
        names = [
            *own.get(library.internal_api, ["OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS"]), *names
        ]  # fmt: skip
    chosen = [os.environ[name].split(",")[0].strip() for name in names if os.environ.get(name)]
    wanted = int(chosen[0]) if chosen and chosen[0].isdigit() else 0
    affinity = hasattr(os, "sched_getaffinity")
    processors = len(os.sched_getaffinity(0)) if affinity else os.cpu_count() or 1
    if library.user_api == "blas":
        return min(wanted or processors, processors, _OPENBLAS_MOST)
    return wanted or processors


def threads_for(work: float, grain: float) -> int:
    """Return the number of threads for `work` such that each has at least `grain` of it."""
    return max(1, min(get_threads(), int(work // grain)))


@contextlib.contextmanager
def use_threads(threads: int) -> Iterator[None]:
    """Set OpenMP's number of threads for regions of the calling thread; restore it afterwards."""
    functions = _threads_functions()
    before = openmp_threads()
    if functions is None or before == threads:
        yield
        return
    functions[1](threads)
    try:
        yield
    finally:
        functions[1](before)


@functools.cache
def _quota() -> int:
    """Return the number of processors; no limit if the user has set a number of threads.

    OpenMP reads the environment once, when it is loaded, and so does this function.
    """
    return sys.maxsize if "OMP_NUM_THREADS" in os.environ else processors()


@functools.cache
def processors() -> int:
    """Return the number of processors of this process, by affinity and cgroup quota."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    for quota, period in _cgroup_shares():
        if quota > 0 and period > 0:
            count = min(count or 1, math.ceil(quota / period))
    return max(1, count or 1)


def _cgroup_shares() -> Iterator[tuple[int, int]]:
    """Yield (quota, period) in microseconds, from version 2 or 1 of cgroups."""
    one = "/sys/fs/cgroup/cpu/cpu.cfs_"
    for paths in (["/sys/fs/cgroup/cpu.max"], [f"{one}quota_us", f"{one}period_us"]):
        words: list[str] = []
        for path in paths:
            if os.path.exists(path):
                with open(path, encoding="ascii") as file:
                    words += file.read().split()
        if len(words) == 2 and all(word.lstrip("-").isdigit() for word in words):
            yield int(words[0]), int(words[1])


# --------------------------------------------------------------------------------------------- fork


def _remember(loaded: ctypes.CDLL) -> None:
    """Record the process and OpenMP's number of threads before limits apply."""
    _State.process = _State.process or os.getpid()
    if hasattr(loaded, "omp_get_max_threads"):
        _State.baseline = max(1, int(loaded.omp_get_max_threads()))


def forked() -> bool:
    """Return whether this process was forked from one that had loaded the libraries."""
    return bool(_State.process) and _State.process != os.getpid()
