"""cuDNN by its frontend: graphs are described, planned, kept in memory and on disk, and run.

A request is a named tuple that says what is computed, of which sizes and dtypes; it draws its
graph. Planning one takes up to seconds and reads nothing but the request, so that plans are kept
under `cudnn` in the cache folder (see `backends.disk`), apart for each version and kind of GPU.
Plans sum in float32 and give the same bits every time; TF32 only where the request allows it.

Whatever fails here, the caller goes its own way: `planned` gives None where cuDNN is missing,
switched off (`KERASISH_CUDNN=0`) or refuses, and says why at most once.
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

OLDEST = 91100  # 9.11: what the extras ask for
MARK = b"kerasish cudnn plan 1\n"
MOST_WORKSPACE = 1 << 30
TYPES = {"float32": "FLOAT", "float16": "HALF", "bfloat16": "BFLOAT16"}
# What plans may not do: differ from run to run, sum in 16 bits; and what float32 may not suffer.
NEVER = ("NONDETERMINISTIC", "REDUCED_PRECISION_REDUCTION")
COARSE = ("TENSOR_CORE", "DOWN_CONVERT_INPUTS", "FFT", "WINOGRAD_TILE_6x6", "WINOGRAD_TILE_13x13")


class Request(Protocol):
    """What a plan is made for."""

    @property
    def dtype(self) -> str:
        """The dtype of the numbers."""

    @property
    def tf32(self) -> bool:
        """Whether float32 may be rounded to TF32 before it is multiplied."""

    def draw(self, lib: Any, graph: Any) -> None:
        """Put the tensors and operations into the frontend's graph."""

    def __hash__(self) -> int:
        """Plans are found by their request."""


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


def _switched_on() -> bool:
    return switch("KERASISH_CUDNN", default=True)


@functools.cache
def library(version: int) -> Any:
    """Return cuDNN's frontend for a major version of CUDA, or None where it cannot be used."""
    # cuDNN ends the process where it does not find cuBLASLt: loaded before, it is found.
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
    """Return the frontend for the CUDA that CuPy runs on, or None."""
    if not _switched_on():
        return None
    return library(cupy().cuda.runtime.runtimeGetVersion() // 1000)


class _Said:
    """Whether the warning was given: one is enough."""

    yet = False


def _warn(message: str) -> None:
    if not _Said.yet:
        _Said.yet = True
        warnings.warn(f"{message} Kernels of our own do its work.", stacklevel=2)


@functools.cache
def _handle(lib: Any, device: int) -> tuple[Any, ...]:
    with cupy().cuda.Device(device):
        return lib.create_handle()


@functools.cache
def _kind_of(device: int) -> str:
    """Return what plans depend on of a GPU: its name, generation and count of processors."""
    known = cupy().cuda.runtime.getDeviceProperties(device)
    name = known["name"]
    name = name.decode() if isinstance(name, bytes) else name
    return f"{name} {known['major']}.{known['minor']} {known['multiProcessorCount']}"


# --- plans ----------------------------------------------------------------------------------------

_running = threading.RLock()  # a handle serves one thread at a time
_failed: set[Request] = set()  # what could be planned, and not run


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
            return None  # no news: cuDNN does not do everything
        except (RuntimeError, ValueError) as error:
            _warn(f"cuDNN fails to plan {request}: {error}")
            return None


def _kept(lib: Any, device: int, request: Request, handle: tuple[Any, ...]) -> Any:
    """Return the planned graph from the disk, or made and put there."""
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
        where: for what: `handle`, or the description of a GPU that is not there.

    Raises:
        cudnnGraphNotSupportedError: of the library: it does not do this.
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
    """Return the planned graph that a file holds; None where there is none, or it is damaged."""
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
        return  # no disk, no permission, no space: the plan in memory serves


# --- running --------------------------------------------------------------------------------------


def run(plan: GraphPlan, arrays: dict[int, Any]) -> None:
    """Run a plan on the current stream; its workspace comes from CuPy's pool.

    Args:
        arrays: number of a tensor -> the array, lying as the request said.

    Raises:
        LibraryError: the library fails; it is not asked for this again.
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
    """Run a plan; return whether the library did: a call in memory of its own has another way.

    Raises:
        LibraryError: the library fails, and the call was given its memory.
    """
    try:
        run(plan, arrays)
    except LibraryError as error:
        _warn(str(error))
        return False
    return True
