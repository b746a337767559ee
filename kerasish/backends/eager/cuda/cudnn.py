"""cuDNN by its frontend: graphs are described, planned, kept in memory and on disk, and run.

A request is a named tuple that describes a computation with its sizes and dtypes; it builds its
graph. Planning takes up to seconds and depends only on the request, so plans are kept under `cudnn`
in the cache folder (see `backends.disk`), separately for each version and kind of GPU. Plans sum in
float32 and return the same bits every time; they use TF32 only if the request allows it.

If anything fails here, the caller uses another way: `planned` returns None if cuDNN is missing,
switched off (`KERASISH_CUDNN=0`) or refuses, and warns at most once.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import threading
import warnings
from typing import Any, NamedTuple, Protocol

import numpy as np

from kerasish.backends import disk, trust
from kerasish.backends.eager.cuda import blas
from kerasish.backends.eager.cuda.arrays import cupy, empty
from kerasish.environment import switch

OLDEST = 91100  # 9.11: the requirement of the extras
MARK = b"kerasish cudnn plan 1\n"
MOST_WORKSPACE = 1 << 30
TYPES = {"float32": "FLOAT", "float16": "HALF", "bfloat16": "BFLOAT16"}
# Not allowed in plans: results that differ between runs, sums in 16 bits, float32 as TF32.
NEVER = ("NONDETERMINISTIC", "REDUCED_PRECISION_REDUCTION")
COARSE = ("TENSOR_CORE", "DOWN_CONVERT_INPUTS", "FFT", "WINOGRAD_TILE_6x6", "WINOGRAD_TILE_13x13")


class Request(Protocol):
    """The key of a plan."""

    @property
    def dtype(self) -> str:
        """The dtype of the numbers."""

    @property
    def tf32(self) -> bool:
        """Whether float32 may be rounded to TF32 before it is multiplied."""

    def draw(self, lib: Any, graph: Any) -> None:
        """Put the tensors and operations into the frontend's graph."""

    def __hash__(self) -> int:
        """Plans are looked up by their request."""


class LibraryError(RuntimeError):
    """cuDNN fails to run what it planned."""


class GraphPlan(NamedTuple):
    """A graph ready to run, the library and handle that run it, and its workspace in bytes."""

    request: Request
    lib: Any
    handle: Any
    graph: Any
    workspace: int


# --- the library ----------------------------------------------------------------------------------


@functools.cache
def library(version: int) -> Any:
    """Return cuDNN's frontend for a major version of CUDA, or None where it cannot be used."""
    # cuDNN ends the process if it cannot load cuBLASLt, so that is loaded first.
    if blas.library(version) is None or importlib.util.find_spec("cudnn") is None:
        return None
    try:
        import cudnn

        result = cudnn.backend_version()
    except (ImportError, OSError, RuntimeError) as error:
        _warn(f"cuDNN cannot be loaded: {error}")
        return None
    if result < OLDEST:
        _warn(f"cuDNN {result} is older than {OLDEST} (9.11).")
        return None
    return cudnn


def usable() -> Any:
    """Return the frontend for CuPy's CUDA, or None."""
    if not switch("KERASISH_CUDNN", default=True):
        return None
    return library(cupy().cuda.runtime.runtimeGetVersion() // 1000)


class _Said:
    """Whether the warning was given: one is enough."""

    yet = False


def _warn(message: str) -> None:
    if not _Said.yet:
        _Said.yet = True
        warnings.warn(f"{message} The package's kernels are used instead.", stacklevel=2)


@functools.cache
def _handle(lib: Any, device: int) -> tuple[Any, ...]:
    with cupy().cuda.Device(device):
        return lib.create_handle()


@functools.cache
def _kind_of(device: int) -> str:
    """Return the properties of a GPU that plans depend on: name, generation, processors."""
    known = cupy().cuda.runtime.getDeviceProperties(device)
    name = known["name"]
    name = name.decode() if isinstance(name, bytes) else name
    return f"{name} {known['major']}.{known['minor']} {known['multiProcessorCount']}"


# --- plans ----------------------------------------------------------------------------------------

_running = threading.RLock()  # one thread at a time may use a handle
_failed: set[Request] = set()  # requests that could be planned but not run


def planned(request: Request, device: int) -> GraphPlan | None:
    """Return the plan of a request on a GPU; None where cuDNN does not do it."""
    lib = usable()
    return None if lib is None or request in _failed else _plan(lib, device, request)


@functools.lru_cache(maxsize=2048)
def _plan(lib: Any, device: int, request: Request) -> GraphPlan | None:
    with _running:
        try:
            handle = _handle(lib, device)
            graph = _kept(lib, device, request, handle)
            return GraphPlan(request, lib, handle, graph, int(graph.get_workspace_size()))
        except lib.cudnnGraphNotSupportedError:
            return None  # expected: cuDNN does not support everything
        except (RuntimeError, ValueError) as error:
            _warn(f"cuDNN fails to plan {request}: {error}")
            return None


def _kept(lib: Any, device: int, request: Request, handle: tuple[Any, ...]) -> Any:
    """Return the planned graph from the disk, or plan it and store it there."""
    folder = disk.cache_folder("cudnn")
    facts = (MARK, lib.__version__, lib.backend_version(), _kind_of(device), repr(request))
    path = folder and folder / hashlib.sha256(repr(facts).encode()).hexdigest()[:40]
    if path is not None:
        result = read(lib, path, {"handle": handle})
        if result is not None:
            return result
    graph = build(lib, request, {"handle": handle})
    if path is not None and graph.selected_engine is None:  # else: no plan of the library's
        _write(path, bytes(graph.serialize()))
    return graph


def build(lib: Any, request: Request, where: dict[str, Any]) -> Any:
    """Return the request's graph, planned.

    Args:
        where: the target: `handle`, or the description of a GPU that is not present.

    Raises:
        cudnnGraphNotSupportedError: the library does not support this.
        RuntimeError, ValueError: the graph is wrong, or the library fails.
    """
    kinds, modes, notes = lib.data_type, lib.heur_mode, lib.numerical_note
    graph = lib.pygraph(
        name=type(request).__name__, io_data_type=getattr(kinds, TYPES[request.dtype]),
        intermediate_data_type=kinds.FLOAT, compute_data_type=kinds.FLOAT, **where,
    )  # fmt: skip
    request.draw(lib, graph)
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([modes.A, modes.FALLBACK])
    exact = request.dtype == "float32" and not request.tf32
    graph.deselect_numeric_notes([getattr(notes, n) for n in NEVER + (COARSE if exact else ())])
    graph.deselect_workspace_greater_than(MOST_WORKSPACE)
    graph.check_support()
    graph.build_plans()
    return graph


def read(lib: Any, path: Any, where: dict[str, Any]) -> Any:
    """Return the planned graph of a file; None if there is none, or it is damaged."""
    try:
        with trust.open_folder(path.parent) as folder:
            data = disk.unseal(MARK, folder.read(path.name))
        graph = lib.pygraph(**where)
        graph.deserialize(list(data))
    except trust.UntrustedError as error:
        trust.warn_untrusted(path.parent, "cuDNN plans", error)
        return None
    except (OSError, ValueError, RuntimeError, lib.cudnnGraphNotSupportedError):
        return None
    return graph


def _write(path: Any, data: bytes) -> None:
    try:
        trust.make_folder(path.parent)
        trust.open_folder(path.parent).close()  # else the file would never be read
        disk.replace(path, disk.seal(MARK, data))
    except trust.UntrustedError as error:
        trust.warn_untrusted(path.parent, "cuDNN plans", error)
    except OSError:
        return  # no disk, no permission, no space: only the plan in memory is used


# --- running --------------------------------------------------------------------------------------


def run(plan: GraphPlan, arrays: dict[int, Any]) -> None:
    """Run a plan on the current stream; its workspace is from CuPy's pool.

    Args:
        arrays: number of a tensor -> the array, in the layout of the request.

    Raises:
        LibraryError: the library fails; it is not used for this again.
    """
    workspace = empty((plan.workspace,), np.uint8)
    addresses = {number: int(array.data.ptr) for number, array in arrays.items()}
    with _running:
        try:
            plan.lib.set_stream(plan.handle, int(cupy().cuda.get_current_stream().ptr))
            plan.graph.execute(addresses, int(workspace.data.ptr), plan.handle)
        except RuntimeError as error:
            _failed.add(plan.request)
            raise LibraryError(
                f"cuDNN fails to run {plan.request}: {error} KERASISH_CUDNN=0 does without it."
            ) from error


def ran(plan: GraphPlan, arrays: dict[int, Any]) -> bool:
    """Run a plan; return whether it succeeded: a call without given memory has an alternative.

    Raises:
        LibraryError: the library fails, and the memory of the call was given.
    """
    try:
        run(plan, arrays)
    except LibraryError as error:
        _warn(str(error))
        return False
    return True
