"""Large products as shares of one thread each, which the team runs.

Each share is a separate primitive for one thread: a part of the rows or of the columns, or some
matrices of a batch. If a thread is late, another one takes its shares, and no sum is divided. So
the bits do not depend on which thread runs which share.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kerasish.backends import onednn
from kerasish.backends.onednn import native
from kerasish.backends.onednn.layout import contiguous_strides
from kerasish.backends.onednn.primitive import Buffer, Primitive
from kerasish.backends.static.codegen.driver import Record, load_runtime
from kerasish.backends.static.codegen.team import team_shares, together_record
from kerasish.backends.static.lowering.units import Locate, RecreatedUnit
from kerasish.graph.ir import Value
from kerasish.ops import dtypes

if TYPE_CHECKING:
    from kerasish.backends.static.lowering.library import View

GRAIN = 1e6  # FLOPs per share, about 10 microseconds
OPENMP_FLOPS = 16e6  # of a product that is not divided, from which OpenMP's threads pay
LINE = 16  # columns of a share are a multiple of that, so that threads share no cache line


class _Share(NamedTuple):
    """A primitive, and where its part begins in each argument, in elements."""

    primitive: Any
    offsets: dict[str, int]


def library_threads(flops: float) -> int | None:
    """Return the number of threads of a product that is not divided; None: by its work.

    If the team runs shares, OpenMP's threads pay only for large products.
    """
    return 1 if team_shares() > 1 and flops < OPENMP_FLOPS else None


class Factor(NamedTuple):
    """A factor of a product: its shape, and elements from one index to the next."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]


class SharedProduct:
    """A product in shares of one thread each, for arguments at any place.

    Args:
        a, b: the factors.
        steps: the strides of the result along the product's axes.
        axis: the axis of the product that is divided.
        cuts: where the shares begin, and the end of the last one.
        dtype: of the factors and of the result.
        options: further options of `onednn.matmul`.

    Attributes:
        shares: the parts.
        flops: of all shares.
        scratchpad_bytes: of all shares.
    """

    def __init__(
        self, a: Factor, b: Factor, steps: Sequence[int], axis: int, cuts: Sequence[int],
        dtype: str = "float32", **options: Any,
    ) -> None:  # fmt: skip
        make = functools.partial(
            onednn.matmul, dtype=dtype, a_strides=a.strides, b_strides=b.strides,
            out_strides=tuple(steps), threads=1, **options,
        )  # fmt: skip
        self.shares = [
            _share(make, a, b, steps, axis, first, last) for first, last in zip(cuts, cuts[1:])
        ]
        self._itemsize = dtypes.array_dtype(dtype).itemsize
        self.flops = sum(share.primitive.flops for share in self.shares)
        self._scratch = [-(-s.primitive.scratchpad_bytes // 64) * 64 for s in self.shares]
        self.scratchpad_bytes = sum(self._scratch)

    def record(self, places: Mapping[str, Buffer], scratch: int, name: str = "matmul") -> Record:
        """Return the one record.

        Args:
            places: the places of the arguments of `onednn.matmul`.
            scratch: the address of `scratchpad_bytes` bytes.
            name: for messages.
        """
        lists = []
        for share, nbytes in zip(self.shares, self._scratch):
            buffers = {
                argument: _part(place, share.offsets[argument] * self._itemsize)
                for argument, place in places.items()
            }
            if nbytes:
                buffers["scratchpad"] = Buffer(scratch, nbytes)
                scratch += nbytes
            binding = share.primitive.bind(buffers)
            lists.append([Record(load_runtime().call_dnnl, binding.block, name, binding)])
        return together_record(lists, len(lists) - 1, name)


class SharedProductUnit(RecreatedUnit):
    """A product of views in shares.

    Args:
        a, b: the factors.
        out: the result.
        bias: added to each row, or None.
        added: what `out` holds before; the product is added to it.
        steps: the strides of `out` along the product's axes.
        axis: the axis of the product that is divided.
        cuts: where the shares begin, and the end of the last one.
    """

    safe = True

    def __init__(
        self, a: View, b: View, out: Value, bias: Value | None, added: Value | None,
        steps: Sequence[int], axis: int, cuts: Sequence[int],
    ) -> None:  # fmt: skip
        super().__init__("matmul", [v for v in (a.root, b.root, bias, added) if v], [out])
        self.made_of = a, b, out, bias, added, steps, axis, cuts
        self._arguments = {"a": a.root, "b": b.root, "out": out}
        if bias is not None:
            self._arguments["bias"] = bias
        self.product = SharedProduct(
            Factor(a.shape, a.strides), Factor(b.shape, b.strides), steps, axis, cuts, out.dtype,
            bias=None if bias is None else bias.dtype,
            post=() if added is None else (("sum", 1.0),),
        )  # fmt: skip
        self.shares = self.product.shares
        self.threads, self.flops = len(self.shares), self.product.flops
        self.scratch = self.product.scratchpad_bytes

    def records(self, locate: Locate) -> list[Record]:
        """Return the one record."""
        at = locate(("scratch", self)).address if self.scratch else 0
        places = {name: locate(value) for name, value in self._arguments.items()}
        buffers = {name: Buffer(p.address, p.nbytes) for name, p in places.items()}
        return [self.product.record(buffers, at, self.name)]


def _share(
    make: Any, a: Factor, b: Factor, steps: Sequence[int], axis: int, first: int, last: int
) -> _Share:
    """Return the part of a product from `first` to `last` along an axis of the result."""
    rank = len(steps)
    sizes, offsets = {}, {"out": first * steps[axis], "bias": 0}
    for name, view, fixed in (("a", a, rank - 1), ("b", b, rank - 2)):
        shape, view_axis = list(view.shape), axis - rank + len(view.shape)
        offsets[name] = 0
        if axis != fixed and view_axis >= 0 and shape[view_axis] > 1:
            shape[view_axis], offsets[name] = last - first, first * view.strides[view_axis]
        sizes[name] = tuple(shape)
    if axis == rank - 1:
        offsets["bias"] = first
    return _Share(make(sizes["a"], sizes["b"]), offsets)


def _part(place: Buffer, skipped: int) -> Buffer:
    return Buffer(place.address + skipped, place.nbytes - skipped)


def make_shared(
    a: View, b: View, out: Value, bias: Value | None = None, added: Value | None = None,
    axes: Sequence[int] | None = None,
) -> SharedProductUnit | None:  # fmt: skip
    """Return a product in shares; None where the team does not run it, or one thread is enough.

    Args:
        bias: added to each row, or None.
        added: what `out` holds before, if the product is added to it.
        axes: the order in which `out` has the product's axes; None: their own.
    """
    sizes = [*_batch(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]]
    steps = contiguous_strides(tuple(sizes))
    if axes is not None:
        own = contiguous_strides(out.shape)
        steps = tuple(own[axes.index(n)] for n in range(len(axes)))
    cut = _cut(sizes, a.shape[-1]) if len(steps) == len(sizes) else None
    return None if cut is None else SharedProductUnit(a, b, out, bias, added, steps, *cut)


def transposed_product(
    rows: int, inner: int, columns: int, post: Sequence[Any] = ()
) -> SharedProduct | Primitive:
    """Return the product a.T @ b of two C-ordered float32 matrices: in shares where the team runs.

    Args:
        rows: of the result, the columns of a.
        inner: the rows of both matrices.
        columns: of the result and of b.
        post: see `onednn.matmul`.
    """
    cut = _cut([rows, columns], inner)
    if cut is None:
        return onednn.matmul((rows, inner), (inner, columns), transpose_a=True, post=post)
    a, b = Factor((rows, inner), (1, rows)), Factor((inner, columns), (columns, 1))
    return SharedProduct(a, b, (columns, 1), *cut, post=post)


def _cut(sizes: Sequence[int], terms: int) -> tuple[int, list[int]] | None:
    """Return the axis that is divided, and where the shares begin and end.

    None: the team does not run the product, or one thread is enough.

    Args:
        sizes: of the product's axes.
        terms: of each sum.
    """
    filled = -(-terms // LINE) * -(-sizes[-1] // LINE) * LINE**2  # rounded up to full vectors
    flops = 2.0 * math.prod(sizes[:-1]) * filled
    shares = min(team_shares(), native.threads_for(flops, GRAIN))
    if shares < 2:
        return None
    axis = next((n for n, size in enumerate(sizes[:-2]) if size >= 4 * shares), -1)
    if axis < 0:
        axis = len(sizes) - (2 if sizes[-2] > sizes[-1] else 1)
    grain = 1 if axis < len(sizes) - 2 else LINE
    count = -(-sizes[axis] // grain)
    if count < shares:
        return None
    return axis, [count * n // shares * grain for n in range(shares)] + [sizes[axis]]


def _batch(a: Sequence[int], b: Sequence[int]) -> list[int]:
    """Return the sizes of the axes before the last two of a product."""
    rank = max(len(a), len(b))
    pairs = zip((1,) * (rank - len(a)) + tuple(a), (1,) * (rank - len(b)) + tuple(b))
    return [max(pair) for pair in pairs]
