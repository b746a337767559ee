"""How a kernel is called: plainly, or into memory and on a stream that the caller gives.

An entry is a function of arrays that launches kernels. Called plainly it takes memory from CuPy
and works on the current stream. With `out`, `workspace` and `stream` it allocates nothing, copies
nothing from or to the host and waits for nothing, so that a CUDA graph can capture it:

    needs = softmax.plan(Blank((64, 10), "float32"))   # no GPU asked: shapes and dtypes are enough
    softmax(x, out=y, workspace=memory, stream=stream)  # memory: uint8, needs.workspace of them

One body serves both: it takes memory by `result` and `scratch` only, and launches by `kernels`. A
kernel is compiled, and a library's handle made, by the first call: make one before capturing.
"""

from __future__ import annotations

import functools
import math
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np

from kerasish.errors import DeviceMemoryError, ShapeError
from kerasish.ops.op import REGISTRY

ALIGNMENT = 256  # of every piece of a workspace, as of CuPy's own memory


def cupy() -> Any:
    """Return CuPy."""
    import cupy

    return cupy


class Needs(NamedTuple):
    """What a call needs: (shape, dtype) of each result, and bytes of workspace."""

    results: tuple[tuple[tuple[int, ...], str], ...]
    workspace: int


class NoPlan(Exception):
    """No kernel of ours does this: CuPy does, in memory of its own."""


class Blank:
    """An array without numbers: shape, dtype, and how it would lie.

    Args:
        shape: its sizes.
        dtype: a name, or NumPy's dtype.
    """

    def __init__(self, shape: Any, dtype: Any, lying: Any = None) -> None:
        if lying is None:
            size = np.dtype(dtype).itemsize
            sizes = (shape,) if isinstance(shape, int) else tuple(shape)
            strides = [size * math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
            # One number that nobody reads, seen as if there were as many as the shape says.
            one = np.zeros(1, dtype)
            lying = np.lib.stride_tricks.as_strided(one, sizes, strides, writeable=False)
        self._lying = lying
        self.shape, self.dtype, self.ndim = lying.shape, lying.dtype, lying.ndim
        self.size, self.nbytes, self.flags = lying.size, lying.nbytes, lying.flags
        self.data = types.SimpleNamespace(ptr=ALIGNMENT)
        self.device = types.SimpleNamespace(id=0)

    def __getitem__(self, key: Any) -> Blank:
        return Blank(None, None, np.asarray(self._lying[key]))

    def reshape(self, *shape: Any) -> Blank:
        """Return it with other axes; it lies without gaps."""
        if not self.flags.c_contiguous:
            raise ShapeError(f"reshape: shape {self.shape} with gaps; an array without expected.")
        return Blank(None, None, self._lying.reshape(*shape))

    def transpose(self, *order: Any) -> Blank:
        """Return it with its axes in another order."""
        return Blank(None, None, self._lying.transpose(*order))

    def swapaxes(self, first: int, second: int) -> Blank:
        """Return it with two axes swapped."""
        return Blank(None, None, self._lying.swapaxes(first, second))

    @property
    def T(self) -> Blank:  # noqa: N802 - NumPy's name
        """It with its axes reversed."""
        return Blank(None, None, self._lying.T)


class _Memory:
    """A workspace, handed out from its front; without memory: how much of it would be needed."""

    def __init__(self, memory: Any = None) -> None:
        if memory is not None and memory.data.ptr % ALIGNMENT:
            raise ShapeError(f"A workspace begins at a multiple of {ALIGNMENT} bytes.")
        self.memory, self.used, self.most = memory, 0, 0

    def take(self, shape: Any, dtype: Any) -> Any:
        sizes = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
        dtype = np.dtype(dtype)
        begin = -(-self.used // ALIGNMENT) * ALIGNMENT
        end = self.used = begin + math.prod(sizes) * dtype.itemsize
        self.most = max(self.most, end)
        if self.memory is None:
            return Blank(sizes, dtype)
        if end > self.memory.nbytes:
            raise DeviceMemoryError(
                f"A workspace of {self.memory.nbytes} bytes is too small: {end} needed so far. "
                "Ask the entry's `plan` how many."
            )
        return self.memory[begin:end].view(dtype).reshape(sizes)


class _Frame:
    """What a call was given: where its results go, and its workspace."""

    def __init__(self, outs: list[Any] | None, memory: _Memory | None, nested: bool) -> None:
        self.outs, self.memory, self.nested = outs, memory, nested
        self.made = 0

    @property
    def planning(self) -> bool:
        return self.memory is not None and self.memory.memory is None

    def result(self, shape: Any, dtype: Any) -> Any:
        if self.outs is None:
            return self.scratch(shape, dtype) if self.nested else _allocated(self, shape, dtype)
        if self.made == len(self.outs):
            raise ShapeError(f"out: {len(self.outs)} arrays given, and there are more results.")
        out = self.outs[self.made]
        self.made += 1
        return _as_wanted(out, shape, dtype, f"out[{self.made - 1}]")

    def scratch(self, shape: Any, dtype: Any) -> Any:
        if self.memory is None:
            return cupy().empty(shape, dtype)
        return self.memory.take(shape, dtype)


def _allocated(frame: _Frame, shape: Any, dtype: Any) -> Any:
    return Blank(shape, dtype) if frame.planning else cupy().empty(shape, dtype)


def _as_wanted(out: Any, shape: Any, dtype: Any, name: str) -> Any:
    sizes = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    if out.dtype != dtype or out.size != math.prod(sizes) or not out.flags.c_contiguous:
        gaps = "" if out.flags.c_contiguous else " with gaps"
        raise ShapeError(
            f"{name}: {np.dtype(dtype).name}{list(sizes)} without gaps expected, got "
            f"{out.dtype.name}{list(out.shape)}{gaps}."
        )
    return out.reshape(sizes)


class _Here(threading.local):
    frame: _Frame | None = None


_here = _Here()


def result(shape: Any, dtype: Any) -> Any:
    """Return memory for the call's next result, which nothing has written."""
    frame = _here.frame
    return cupy().empty(shape, dtype) if frame is None else frame.result(shape, dtype)


def scratch(shape: Any, dtype: Any) -> Any:
    """Return memory that the call needs while it works, which nothing has written."""
    frame = _here.frame
    return cupy().empty(shape, dtype) if frame is None else frame.scratch(shape, dtype)


def planning() -> bool:
    """Return whether this call only finds out what it needs: then nothing may be launched."""
    return _here.frame is not None and _here.frame.planning


def confined() -> bool:
    """Return whether this call has to do with the memory it was given."""
    return _here.frame is not None and _here.frame.memory is not None


@contextmanager
def passing() -> Iterator[None]:
    """Give scratch taken inside the block back at its end: launches come one after the other."""
    memory = None if _here.frame is None else _here.frame.memory
    before = 0 if memory is None else memory.used
    yield
    if memory is not None:
        memory.used = before


# --- arrays made ready ----------------------------------------------------------------------------


def copy_into(to: Any, x: Any) -> Any:
    """Write x's numbers into `to`, of any dtype; return it."""
    if not planning():
        to[...] = x
    return to


def filled(array: Any, value: Any) -> Any:
    """Write a number into all places of the array; return it."""
    if not planning():
        array.fill(value)
    return array


def compact(x: Any) -> Any:
    """Return x, in C order without gaps."""
    return x if x.flags.c_contiguous else copy_into(scratch(x.shape, x.dtype), x)


def cast(x: Any, dtype: Any) -> Any:
    """Return x as `dtype`, itself if it is that."""
    return x if x.dtype == dtype else copy_into(scratch(x.shape, dtype), x)


def by_cupy(op: str, *arrays: Any, **attrs: Any) -> Any:
    """Return what the op's reference kernel gives with CuPy, in memory of CuPy's."""
    if planning():
        raise NoPlan(op)
    return REGISTRY[op].kernel(cupy(), *arrays, **attrs)


# --- entries --------------------------------------------------------------------------------------


def flat(found: Any) -> list[Any]:
    """Return the arrays among results, in order; None is left out."""
    if isinstance(found, (list, tuple)):
        return [array for part in found for array in flat(part)]
    return [] if found is None else [found]


def plan(function: Callable[..., Any], *args: Any, **attrs: Any) -> Needs | None:
    """Return what `function(*args, **attrs)` needs; None where CuPy does it in its own memory.

    Args:
        args: arrays or `Blank`s, and lists of them: only how they lie counts.
    """
    memory, outer = _Memory(), _here.frame
    _here.frame = _Frame(None, memory, nested=False)
    try:
        found = function(*(_blank(a) for a in args), **{k: _blank(a) for k, a in attrs.items()})
    except NoPlan:
        return None
    finally:
        _here.frame = outer
    made = flat(found)
    return Needs(tuple((a.shape, a.dtype.name) for a in made), memory.most)


def _blank(x: Any) -> Any:
    if isinstance(x, (list, tuple)):
        return type(x)(_blank(v) for v in x)
    known = isinstance(x, (Blank, np.generic)) or not hasattr(x, "flags")
    if known:
        return x
    made = Blank(x.shape, x.dtype)
    if not x.flags.c_contiguous:
        made._lying = np.lib.stride_tricks.as_strided(made._lying, x.shape, x.strides)
        made = Blank(None, None, made._lying)
    return made


def call(
    function: Callable[..., Any], args: Sequence[Any], attrs: dict[str, Any], out: Any = None,
    workspace: Any = None, stream: Any = None,
) -> Any:  # fmt: skip
    """Return `function(*args, **attrs)`, with its results in `out` where that is given.

    Args:
        function: an entry, an op's kernel or whatever is made of these.
        out: an array, or a list of them, for the results in their order: without gaps, of their
            sizes and dtypes. May be inputs where a kernel reads each number before it writes it.
        workspace: uint8 on the device, at least as many as `plan` says, at a multiple of 256
            bytes; None: scratch comes from CuPy's pool.
        stream: of CuPy's (`cupy.cuda.ExternalStream` of an address); None: the current one.

    Raises:
        ShapeError: `out` does not fit the results.
        DeviceMemoryError: the workspace is too small.
    """
    outer = _here.frame
    memory = _Memory(workspace) if workspace is not None else outer.memory if outer else None
    outs = None if out is None else list(out) if isinstance(out, (list, tuple)) else [out]
    before = memory.used if memory is not None else 0
    _here.frame = _Frame(outs, memory, nested=outer is not None)
    try:
        with stream if stream is not None else nullcontext():
            found = function(*args, **attrs)
            if outs is None:
                return found
            _deliver(flat(found), outs)
            return out
    finally:
        _here.frame = outer
        if memory is not None and outs is not None:
            memory.used = before  # all that is still wanted lies in `out`


def _deliver(made: list[Any], outs: list[Any]) -> None:
    """Copy results that lie elsewhere into the arrays that they are wanted in."""
    if len(made) != len(outs):
        raise ShapeError(f"out: {len(made)} arrays expected, got {len(outs)}.")
    for i, (array, out) in enumerate(zip(made, outs)):
        if array.data.ptr != out.data.ptr or array.nbytes != out.nbytes:
            copy_into(_as_wanted(out, array.shape, array.dtype, f"out[{i}]"), array)


ENTRIES: dict[str, Entry] = {}


class Entry:
    """A function that launches kernels, with the three arguments more that `call` explains.

    Args:
        function: takes memory by `result` and `scratch`.
    """

    __name__: str

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        ENTRIES[function.__name__] = self

    def __call__(
        self, *args: Any, out: Any = None, workspace: Any = None, stream: Any = None, **attrs: Any
    ) -> Any:
        if _here.frame is None and out is None and workspace is None and stream is None:
            return self.function(*args, **attrs)
        return call(self.function, args, attrs, out, workspace, stream)

    def plan(self, *args: Any, **attrs: Any) -> Needs | None:
        """Return what a call needs: see the function `plan` of this room."""
        return plan(self.function, *args, **attrs)
