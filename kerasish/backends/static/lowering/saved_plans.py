"""Compiled plans on disk: after a restart, passes, lowering and the memory plan are skipped.

The file of a plan is in `plans/` beside the kernels of the kernel cache (`backends/disk.py`), under
the same rules: it is read only if no other user can have written it, has a checksum, is written
under another name and renamed, and is ignored and written again if anything about it is wrong.

**What a plan depends on.** A wrong hit would compute wrong numbers, so all of this decides whether
a file is used:

- The traced graph (`structure_of`): ops, attributes with their types, shapes, dtypes, edges,
  contents of constants. `digest_of` accepts only what means the same in each process: ops of
  kerasish by name, and plain values. Graphs with ops of the user, Python functions, control flow
  or large constants have no digest.
- What the step does with the graph, and the settings that passes and lowering read: `parts` of
  `SavedPlans.find`, which the engine also uses as the key of plans in memory: numbers of arguments,
  conditions and results, which variable each update belongs to, training or not, level of
  optimization, number of threads, KERASISH_CPU, KERASISH_BFLOAT16, whether the process is a fork,
  whether and why oneDNN is missing.
- The processor (`host_target`), the folder of kerasish and the version of Python.
- `_environment`: the sources of kerasish (names, sizes and times of changes), the kernel
  generator's source and llvmlite's version (`kernel_key`), the versions of NumPy, which folds
  constants, and of oneDNN, and the instructions that oneDNN uses.

Ranks, KERASISH_DEBUG and KERASISH_STRICT_MEMORY change plans in other ways: these are not saved,
nor read. Sources that changed after kerasish was imported may not be what this process runs, so it
then neither reads nor saves plans.

**What is saved.** The plan, pickled; a file that only this user can write is as trusted as machine
code, and the reader accepts classes and functions of kerasish only. Only units in `_UNITS` are
saved, since these hold no addresses, and `records` leaves them as they are. Primitives of oneDNN
are created again; if one needs other memory than the plan provides, the plan is not used. Kernels
come from the kernel cache.
"""

from __future__ import annotations

import functools
import hashlib
import io
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from kerasish import config, environment
from kerasish.backends import disk, trust
from kerasish.backends.onednn import native
from kerasish.backends.onednn.library import instruction_set
from kerasish.backends.static.codegen.kernels import kernel_key
from kerasish.backends.static.codegen.team import using_helpers, using_team
from kerasish.backends.static.lowering.attention import AttentionUnit
from kerasish.backends.static.lowering.compiled_plan import CompiledPlan
from kerasish.backends.static.lowering.convolutions import ConvolutionUnit, PoolUnit
from kerasish.backends.static.lowering.few_pixels import FewPixelsUnit
from kerasish.backends.static.lowering.few_rows import FewRowsUnit
from kerasish.backends.static.lowering.kernel_gradients import KernelGradientUnit
from kerasish.backends.static.lowering.library import MatmulUnit, SmallMatmulUnit
from kerasish.backends.static.lowering.loops import LoopUnit
from kerasish.backends.static.lowering.moves import (
    GatherUnit,
    MoveUnit,
    ScaledRowsUnit,
    ScatterUnit,
)
from kerasish.backends.static.lowering.packed_units import PackedUnit
from kerasish.backends.static.lowering.pool import MaxPoolUnit
from kerasish.backends.static.lowering.program_threads import Threads
from kerasish.backends.static.lowering.rows import RowsUnit
from kerasish.backends.static.lowering.segments import SegmentsUnit
from kerasish.backends.static.lowering.shared_products import SharedProductUnit
from kerasish.backends.static.lowering.thin import ThinUnit
from kerasish.backends.static.lowering.units import CopyUnit, EmptyUnit
from kerasish.backends.static.lowering.winograd import WinogradUnit
from kerasish.backends.static.lowering.winograd_gradients import WinogradGradientUnit
from kerasish.backends.static.machine import guard_pages
from kerasish.backends.static.machine.machine_code import host_target
from kerasish.graph.fused import fused_op
from kerasish.graph.ir import Graph, GraphOp, Node, Value
from kerasish.graph.passes.fuse_attention import FORWARD, GRADIENT
from kerasish.graph.passes.fuse_epilogues import PRODUCT
from kerasish.graph.passes.sparse_update import update_op
from kerasish.graph.structure import digest_of
from kerasish.ops import dtypes
from kerasish.typing import Array

FORMAT = b"kerasish plans 1\n"
WHAT = "compiled plans"
DELAY = 0.02  # seconds until a plan is written: by then its first step runs, without Python

_UNITS = frozenset({
    AttentionUnit, ConvolutionUnit, CopyUnit, EmptyUnit, FewPixelsUnit, FewRowsUnit, GatherUnit,
    KernelGradientUnit, LoopUnit, MatmulUnit, MaxPoolUnit, MoveUnit, PackedUnit, PoolUnit,
    RowsUnit, ScaledRowsUnit, ScatterUnit, SegmentsUnit, SharedProductUnit, SmallMatmulUnit,
    ThinUnit, WinogradGradientUnit, WinogradUnit,
})  # fmt: skip
_OPS = {op.name: op for op in (FORWARD, GRADIENT, PRODUCT)}
_OPS_BY_RESULTS = {"fused": fused_op, "sparse_update": update_op}
_NUMBERS = {
    ("numpy._core.multiarray", "scalar"), ("numpy.core.multiarray", "scalar"), ("numpy", "dtype")
}  # fmt: skip
_ROOT = os.path.dirname(environment.__file__)
_PACKAGES = ("", "graph", "ops", "backends")  # whose sources decide; "" without its packages


class SavedPlans:
    """Reads compiled plans from disk, or lets them be made and saves them.

    Attributes:
        on: whether the disk is used.
        read: the number of plans read so far.
        saved: the number of plans saved so far.
    """

    def __init__(self) -> None:
        self.on = True
        self.read = self.saved = 0
        self._writers: list[threading.Timer] = []

    def find(self, parts: object, make: Callable[[], Any]) -> Any:
        """Return the saved plan of a traced graph; if there is none, save the result of `make`.

        Args:
            parts: the structure of the graph, and the settings that it is compiled with.
            make: compiles it.
        """
        path = self._path(parts)
        if path is None:
            return make()
        plan = _read(path)
        if plan is not None:
            self.read += 1
            return plan
        plan = make()
        if can_save(plan):
            self._save_later(plan, path)
        return plan

    def _path(self, parts: object) -> Path | None:
        folder = disk.cache_folder("plans") if self.on else None
        if folder is None or guard_pages.mode() or _environment() is None:
            return None
        machine = tuple(host_target()), _ROOT, sys.version
        digest = digest_of((parts, machine))
        return folder / f"g{digest[:40]}" if digest else None

    def _save_later(self, plan: CompiledPlan, path: Path) -> None:
        """Let a thread write a plan while its first step runs."""
        writer = threading.Timer(DELAY, self._save, (plan, path))
        writer.name = "kerasish-plan"
        self._writers = [w for w in self._writers if w.is_alive()] + [writer]
        try:
            writer.start()
        except RuntimeError:  # Python ends, and starts no thread
            self._writers.remove(writer)

    def _save(self, plan: CompiledPlan, path: Path) -> None:
        try:
            _write(path, packed(plan))
            self.saved += 1
        except trust.UntrustedError as error:
            trust.warn_untrusted(path.parent, WHAT, error)
        except (OSError, pickle.PicklingError):
            return  # no disk, no permission, no space, or an op that files do not know by name

    def wait(self) -> None:
        """Wait until plans that are being saved are on disk."""
        for writer in self._writers:
            if writer.ident is not None:
                writer.join()


# --- files ----------------------------------------------------------------------------------------


def can_save(plan: object) -> bool:
    """Return whether a file can hold a plan: no unit has a part of this process."""
    return isinstance(plan, CompiledPlan) and all(type(unit) in _UNITS for unit in plan.units)


def packed(plan: CompiledPlan) -> bytes:
    """Return the bytes of the file of a plan.

    Raises:
        pickle.PicklingError: it holds something that only this process knows.
    """
    body = io.BytesIO()
    body.write((_environment() or "").encode())
    writer = _Writer(body, 5)
    writer.dump(tuple(plan.program_threads))
    try:
        writer.dump(plan)
    except (AttributeError, TypeError) as error:  # what pickle says of some objects
        raise pickle.PicklingError(str(error)) from error
    return disk.seal(FORMAT, body.getvalue())


def unpacked(data: bytes) -> CompiledPlan:
    """Return the plan of a file's bytes, with primitives and kernels of this process.

    Raises:
        Exception: the bytes are damaged, or are of another environment or library.
    """
    stream = io.BytesIO(disk.unseal(FORMAT, data))
    expected = (_environment() or "").encode()
    if stream.read(len(expected)) != expected:
        raise ValueError("the plan was saved in another environment")
    reader = _Reader(stream)
    threads = Threads(*reader.load())
    with (
        config.using_threads(threads.parts),
        using_helpers(threads.helpers),
        using_team(threads.team),
    ):
        plan = reader.load()
    if not isinstance(plan, CompiledPlan):
        raise ValueError(f"the file holds a {type(plan).__name__}")
    return plan


def _read(path: Path) -> CompiledPlan | None:
    try:
        with trust.open_folder(path.parent) as folder:
            data = folder.read(path.name)
    except trust.UntrustedError as error:
        trust.warn_untrusted(path.parent, WHAT, error)
        return None
    except OSError:
        return None
    try:
        return unpacked(data)
    except Exception:  # noqa: BLE001 - whatever is wrong with the file: it is compiled, and written, again
        return None


def _write(path: Path, data: bytes) -> None:
    trust.make_folder(path.parent)
    trust.open_folder(path.parent).close()  # else the file would never be read
    disk.replace(path, data)


# --- pickles --------------------------------------------------------------------------------------


def graph_op(name: str, outputs: int) -> GraphOp:
    """Return an op of graphs by its name and number of results."""
    make = _OPS_BY_RESULTS.get(name)
    return _OPS[name] if make is None else make(outputs)


def array_of(dtype: str, shape: tuple[int, ...], data: bytes) -> Array:
    """Return an array that owns its memory."""
    return np.frombuffer(bytearray(data), dtypes.array_dtype(dtype)).reshape(shape)


def _reduced_op(op: GraphOp) -> tuple[Any, ...]:
    if op.name not in (*_OPS, *_OPS_BY_RESULTS) or graph_op(op.name, op.outputs) is not op:
        raise pickle.PicklingError(f"{op!r} is known only in this process")
    return graph_op, (op.name, op.outputs)


def _reduced_array(array: Array) -> tuple[Any, ...]:
    return array_of, (dtypes.name_of(array.dtype), array.shape, array.tobytes())


class _Writer(pickle.Pickler):
    """Writes a plan: values and nodes as calls of their constructors."""

    dispatch_table = {
        Value: lambda v: (Value, (v.shape, v.dtype)),
        Node: lambda n: (Node, (n.op, n.inputs, n.attrs, n.outputs)),
        Graph: lambda g: (Graph, (g.inputs, g.constants, g.nodes, g.outputs)),
        GraphOp: _reduced_op,
        np.ndarray: _reduced_array,
    }


class _Reader(pickle.Unpickler):
    """Reads a plan: it finds only what kerasish defines, and numbers of NumPy."""

    def find_class(self, module: str, name: str) -> Any:
        known = module.startswith("kerasish.") and "." not in name
        if known or (module, name) in _NUMBERS:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"a plan holds no {module}.{name}")


# --- what plans depend on -------------------------------------------------------------------------


@functools.cache
def _environment() -> str | None:
    """Return a hash of the code and the libraries that plans depend on; None: it is not known."""
    sources: list[tuple[str, int, int, int]] = []
    try:
        for name in _PACKAGES:
            sources += _sources(os.path.join(_ROOT, name), bool(name))
    except OSError:  # not files: an archive that Python imports from
        return None
    if max(max(times) for _, _, *times in sources) >= environment.IMPORTED * 1e9:
        return None
    library = None if native.available() else (native.version(), instruction_set())
    parallel = bool(native.symbol("omp_set_num_threads"))
    libraries = kernel_key("plans", host_target()), np.__version__, library, parallel
    return hashlib.sha256(repr((sorted(sources), libraries)).encode()).hexdigest()


def _sources(folder: str, deep: bool) -> Iterator[tuple[str, int, int, int]]:
    """Yield path, size and times of changes of the sources in a folder."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                status = entry.stat()
                times = status.st_mtime_ns, status.st_ctime_ns
                yield entry.path, status.st_size, *times
            elif deep and entry.is_dir() and entry.name != "__pycache__":
                yield from _sources(entry.path, True)
