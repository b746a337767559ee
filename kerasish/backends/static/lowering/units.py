"""Units: the pieces of a program. A unit makes records for given addresses, or runs NumPy."""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from kerasish.backends.onednn.primitive import threads_block
from kerasish.backends.static.codegen.driver import (
    Record,
    aligned,
    callback_record,
    load_runtime,
)
from kerasish.backends.static.machine import guard_pages
from kerasish.graph.ir import Graph, Node, Value
from kerasish.graph.plan import Lifetime, Plan, plan_memory, round_up
from kerasish.ops import dtypes
from kerasish.typing import Array


def nbytes_of(value: Value) -> int:
    """Return the size of a C-ordered value in bytes."""
    return value.size * int(dtypes.array_dtype(value.dtype).itemsize)


class Place(NamedTuple):
    """Memory of a program: an address and the number of bytes."""

    address: int
    nbytes: int


Locate = Callable[[Any], Place]


def place_of(array: Array) -> Place:
    """Return the address and size of an array."""
    return Place(array.ctypes.data, array.nbytes)


class Unit:
    """One piece of a program.

    Attributes:
        name: for messages and profiles.
        reads, writes: the input and output values.
        scratch: bytes of memory that only this unit uses; its key is ("scratch", unit).
        workspace_key: the key of memory that one unit fills and later units read (the chosen
            places of a maximum pooling); None for most.
        workspace_bytes: the size of that memory.
        fills_workspace: whether this unit fills it.
        flops: the number of operations, for reports.
        threads: the most threads that one of its records takes; 0: not known.
        movable: whether it may run at any time after the units that it reads from and before its
            readers; False where Python or another process can observe the order.
        unchecked: values that are written, or read, in parts: the strict memory mode checks their
            places, not their elements.
        kept_value: a value whose content the unit keeps in a special layout between runs; None for
            most.
        kept_bytes: the size of that memory; its key is ("kept", unit). The number at ("stale",
            unit) is not 0 if the value has changed since.
        safe: whether it can never end the run; see `may_fail`.
        communicates: whether it exchanges data with other ranks.
        checks_first: whether it ends the run, if it does, before it writes anything.
    """

    native = True
    movable = True
    safe = False
    communicates = False
    checks_first = False
    flops = 0.0
    threads = 0
    workspace_key: Any = None
    workspace_bytes = 0
    fills_workspace = False
    unchecked: frozenset[Value] = frozenset()
    kept_value: Value | None = None
    kept_bytes = 0

    def __init__(self, name: str, reads: Sequence[Value], writes: Sequence[Value]) -> None:
        self.name = name
        self.reads, self.writes = tuple(reads), tuple(writes)
        self.scratch = 0

    def may_fail(self) -> bool:
        """Return whether the unit may end the run, as by an index out of range."""
        return not self.safe

    def indices(self) -> Sequence[tuple[Value, int]]:
        """Return (indices, rows) pairs if the unit fails only where an index is out of range.

        Empty: it may fail for other reasons, or not at all.
        """
        return ()

    def may_share(self, written: Value, read: Value) -> bool:
        """Return whether `written` may use the memory of `read`, whose last reader is this unit."""
        return False

    def in_place_of(self, written: Value) -> Value | None:
        """Return the value whose memory `written` uses, as set by `share`; None for most."""
        return None

    def records(self, locate: Locate) -> list[Record]:
        """Return the native records; `locate(value)` returns the place of a value."""
        raise NotImplementedError(f"{type(self).__name__} creates no records.")

    @property
    def keepable(self) -> Value | None:
        """The weights that `keep_weights` can keep in a special layout; None for most units."""
        return None

    def keep_weights(self, root: Value) -> None:
        """Keep `keepable` from run to run in a special layout, if there is one.

        Args:
            root: the value in whose memory they are; it does not change in a run.
        """

    def kernels(self) -> list[Any]:
        """Return the kernels that must be compiled; a program compiles all of them together."""
        return []


class RecreatedUnit(Unit):
    """A unit of the library's primitives, which belong to this process.

    In a saved plan it is the arguments of its constructor, and what other parts of the plan were
    computed from. It is created again when the plan is read.

    Attributes:
        made_of: the arguments of the constructor.
    """

    made_of: tuple[Any, ...] = ()

    def planned(self) -> tuple[Any, ...]:
        """Return what a plan was computed from."""
        return (
            self.name, self.reads, self.writes, self.scratch, self.kept_bytes, self.threads,
            self.flops,
        )  # fmt: skip

    def __reduce__(self) -> tuple[Any, ...]:
        return _created_again, (type(self), self.made_of, self.kept_value, self.planned())


def _created_again(
    kind: type[RecreatedUnit], made_of: tuple[Any, ...], kept: Value | None, planned: object
) -> RecreatedUnit:
    """Return the unit of a saved plan.

    Raises:
        ValueError: the plan does not fit it: the library has chosen differently.
    """
    unit = kind(*made_of)
    if kept is not None:
        unit.keep_weights(kept)
    if unit.planned() != planned:
        raise ValueError(f"{unit.name}: the library has changed since the plan was saved")
    return unit


def aligned_array(shape: tuple[int, ...], dtype: str) -> Array:
    """Return an array aligned to 64 bytes: zeros, or NaNs in strict mode (`driver.aligned`)."""
    kind = dtypes.array_dtype(dtype)
    nbytes = math.prod(shape) * kind.itemsize
    if not nbytes:
        return np.zeros(shape, kind)
    owner, address = aligned(nbytes)
    shift = address - owner.ctypes.data
    return owner[shift : shift + nbytes].view(kind).reshape(shape)


def filled_array(shape: tuple[int, ...], dtype: str, number: float) -> Array:
    """Return an aligned array filled with one number."""
    array = aligned_array(shape, dtype)
    array[...] = number
    return array


def view_of(place: Place, value: Value) -> Array:
    """Return a NumPy array on a program's memory."""
    dtype = dtypes.array_dtype(value.dtype)
    if not value.size:
        return np.zeros(value.shape, dtype)
    buffer = (ctypes.c_char * nbytes_of(value)).from_address(place.address)
    return np.frombuffer(buffer, dtype).reshape(value.shape)


class PythonUnit(Unit):
    """An op without native code: its NumPy kernel runs between native stretches."""

    native = False
    movable = False

    def __init__(self, node: Node, kernel: Callable[..., Any]) -> None:
        super().__init__(node.op.name, node.inputs, node.outputs)
        self.node, self.kernel = node, kernel

    def make_call(self, locate: Locate) -> Callable[[], None]:
        """Return a function without arguments that reads, computes and writes."""
        inputs = [view_of(locate(v), v) for v in self.reads]
        for view in inputs:
            view.flags.writeable = False
        outputs = [view_of(locate(v), v) for v in self.writes]
        kernel, attrs = self.kernel, self.node.attrs

        def call() -> None:
            with np.errstate(all="ignore"):
                matches = kernel(*inputs, **attrs)
                results = (matches,) if len(outputs) == 1 else matches
                for view, result in zip(outputs, results):
                    np.copyto(view, result)

        return call


class EffectUnit(Unit):
    """An op that runs for its effect: a record of the native program calls its kernel."""

    movable = False

    def __init__(self, node: Node, kernel: Callable[..., Any]) -> None:
        super().__init__(node.op.name, node.inputs, ())
        self.node, self.kernel = node, kernel

    def records(self, locate: Locate) -> list[Record]:
        """Return the record that calls Python."""
        views = [view_of(locate(v), v) for v in self.reads]
        for view in views:
            view.flags.writeable = False
        call = functools.partial(self.kernel, *views, **self.node.attrs)
        return [callback_record(call, self.name)]


class EmptyUnit(Unit):
    """Results without elements: there is nothing to compute."""

    safe = True
    threads = 1

    def records(self, locate: Locate) -> list[Record]:
        """Return no record."""
        return []


class CopyUnit(Unit):
    """A copy of one value to another of the same size."""

    safe = True
    threads = 1

    def __init__(self, source: Value, target: Value) -> None:
        super().__init__("copy", [source], [target])

    def records(self, locate: Locate) -> list[Record]:
        """Return one memmove."""
        return [copy_record(locate(self.reads[0]), locate(self.writes[0]), self.name)]


def copy_record(source: Place, target: Place, name: str = "copy") -> Record:
    """Return the record that copies `source` to `target`."""
    runtime = load_runtime()
    words = [runtime.memmove, target.address, source.address, min(source.nbytes, target.nbytes)]
    return Record(runtime.call_copy, np.array(words, np.int64), name)


# The zeros that all records copy, per mode of guard pages. Those of the first mode belong to no
# program: they are allocated on import.
_ZEROS = {guard_pages.mode(): filled_array((1 << 16,), "uint8", 0)}


def zero_records(place: Place) -> list[Record]:
    """Return the records that set memory to 0."""
    mode = guard_pages.mode()
    if mode not in _ZEROS:
        _ZEROS[mode] = filled_array((1 << 16,), "uint8", 0)
    zeros = _ZEROS[mode]
    results = []
    for first in range(0, place.nbytes, zeros.nbytes):
        part = Place(place.address + first, min(zeros.nbytes, place.nbytes - first))
        copy = copy_record(Place(zeros.ctypes.data, part.nbytes), part, "zeros")
        results.append(Record(copy.function, copy.block, copy.name, zeros))
    return results


def threads_records(count: int) -> list[Record]:
    """Return the record that sets OpenMP's number of threads, if there is an OpenMP."""
    block = threads_block(count)
    call = load_runtime().call_threads
    return [Record(call, block, "threads")] if len(block) else []


class UnitGroup(NamedTuple):
    """Adjacent units of a program, in lists that run at the same time.

    Attributes:
        first: the number of the first unit of the first list.
        counts: the number of units of each list.
    """

    first: int
    counts: tuple[int, ...]

    @property
    def stop(self) -> int:
        """The number of the first unit after the group."""
        return self.first + sum(self.counts)

    @property
    def lanes(self) -> list[range]:
        """The numbers of the units of each list."""
        ends = list(itertools.accumulate(self.counts, initial=self.first))
        return [range(*pair) for pair in zip(ends, ends[1:])]


def plan_units(
    graph: Graph, units: Sequence[Unit], root: Callable[[Value], Value], fixed: Container[Any],
    copies: Iterable[Value] = (), groups: Sequence[UnitGroup] = (),
) -> tuple[Plan, dict[Any, int]]:  # fmt: skip
    """Return the offsets of values, scratch memory and workspaces in the arena, and their sizes.

    Args:
        graph: its inputs live from before the first unit, its outputs until after the last.
        units: in the order in which they run.
        root: value -> the value whose memory it uses.
        fixed: the values that have memory elsewhere.
        copies: values that are read after the last unit, too.
        groups: units that run at the same time. What several of their lists use, or units outside
            the group, keeps its memory while the group runs; what only one list uses is in memory
            of that list.
    """
    lane_of = {n: (g, lane) for g in groups for lane in g.lanes for n in lane}
    spans = {n: (g.first, g.stop - 1) for g in groups for n in range(g.first, g.stop)}
    uses: dict[Any, list[int]] = {}
    sizes: dict[Any, int] = {}

    def use(key: Any, step: int, nbytes: int) -> None:
        if key not in fixed:
            uses.setdefault(key, []).append(step)
            sizes[key] = max(sizes.get(key, 0), nbytes)

    for v in graph.inputs:
        use(v, -1, nbytes_of(v))
    for step, unit in enumerate(units):
        for v in (*unit.reads, *unit.writes):
            use(root(v), step, nbytes_of(v))
        if unit.scratch:
            use(("scratch", unit), step, unit.scratch)
        if unit.workspace_key is not None:
            use(unit.workspace_key, step, unit.workspace_bytes)
    for v in (*map(root, graph.outputs), *copies):
        use(v, len(units), nbytes_of(v))
    inside: dict[Any, dict[Any, Lifetime]] = {}  # lane -> what only it uses
    others: dict[Any, Lifetime] = {}
    for key, steps in uses.items():
        lanes = {lane_of.get(step) for step in steps}
        lane = lanes.pop()
        if lane is not None and not lanes:
            inside.setdefault(lane, {})[key] = Lifetime(steps[0], steps[-1], sizes[key])
        else:
            ends = [end for step in steps for end in spans.get(step, (step,))]
            others[key] = Lifetime(min(ends), max(ends), sizes[key])
    plans = {lane: plan_memory(lives) for lane, lives in inside.items()}
    blocks = {
        lane: Lifetime(lane[0].first, lane[0].stop - 1, plan.nbytes) for lane, plan in plans.items()
    }
    plan = plan_memory({**others, **blocks})
    offsets = {key: plan.offsets[key] for key in others}
    for lane, own in plans.items():
        offsets.update({key: plan.offsets[lane] + at for key, at in own.offsets.items()})
    return Plan(offsets, plan.nbytes, sum(map(round_up, sizes.values()))), sizes
