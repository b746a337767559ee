"""Products as oneDNN primitives (or BLAS, or small loops).

Matrices are multiplied by oneDNN, or by generated loops (`codegen/matmul.py`) below `SMALL_FLOPS`,
where a library call costs more, or by BLAS for float64 and where oneDNN cannot load.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kerasish.backends import onednn
from kerasish.backends.onednn import native
from kerasish.backends.onednn.primitive import Buffer, Primitive
from kerasish.backends.static.codegen import matmul as small
from kerasish.backends.static.codegen.description import Kernel, KernelBuilder
from kerasish.backends.static.codegen.driver import Record, load_runtime
from kerasish.backends.static.codegen.kernels import compile_one
from kerasish.backends.static.codegen.nested_records import choice_record
from kerasish.backends.static.lowering import blas
from kerasish.backends.static.lowering.shared_products import library_threads, make_shared
from kerasish.backends.static.lowering.thin import make_thin
from kerasish.backends.static.lowering.units import (
    Locate,
    Place,
    RecreatedUnit,
    Unit,
    copy_record,
    place_of,
)
from kerasish.graph.ir import Value

ADDING = (("sum", 1.0),)  # oneDNN: out = out + product
MIN_ROWS = 32  # matrices of fewer rows that are not adjacent are packed before a product
NARROW = 48  # columns; a product with no more fills the vectors of a processor badly
NARROW_DEPTH = 256  # terms of each sum from which the transposed product pays
SMALL_FLOPS = 100_000.0  # smaller products are faster in a generated loop than in a library call


class View(NamedTuple):
    """A value as a strided view of another: products read transposed inputs without a copy."""

    root: Value
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides, in elements, of a C-ordered array."""
    steps, step = [], 1
    for size in reversed(shape):
        steps.append(step)
        step *= max(size, 1)
    return tuple(reversed(steps))


def plain_view(value: Value) -> View:
    """Return the view of a C-ordered value on itself."""
    return View(value, value.shape, contiguous(value.shape))


def buffer(place: Place) -> Buffer:
    """Return a program's memory as an oneDNN buffer."""
    return Buffer(place.address, place.nbytes)


_ZERO = np.zeros(1, np.float32)
_FRESH = place_of(_ZERO)


def if_stale(stale: Place, records: Sequence[Record], name: str) -> Record:
    """Return the record that renews kept weights if they have changed.

    Once per run: the flag is cleared, for a run may be many batches.

    Args:
        stale: the place of the flag.
        records: what fills the kept memory.
    """
    return choice_record(stale.address, 1, [*records, copy_record(_FRESH, stale, name)], [], name)


class LibraryUnit(RecreatedUnit):
    """One or more oneDNN primitives, with the reorders of weights around them.

    Subclasses name their primitive and the value of each argument; some of these are reordered.

    Attributes:
        weights: the argument that may be kept in the primitive's layout; "" for none.
    """

    primitive: Any
    weights = ""
    safe = True

    def __init__(self, name: str, reads: Sequence[Value], writes: Sequence[Value]) -> None:
        super().__init__(name, reads, writes)
        self.arguments: dict[str, Value] = {}
        self.plain: dict[str, Any] = {}  # argument -> its plain layout, if another was chosen
        self.results: tuple[str, ...] = ()

    @property
    def keepable(self) -> Value | None:
        """The weights that the primitive may want in another layout."""
        return self.arguments.get(self.weights)

    def keep_weights(self, root: Value) -> None:
        """Reorder the weights only after they have changed."""
        with contextlib.suppress(onednn.OneDnnError, ValueError):
            self._choose_layout()
        if self.weights in self.plain:
            self.kept_value = root
            self.kept_bytes = self.primitive.arguments[self.weights].nbytes
            self._finish()

    @property
    def _kept(self) -> str:
        """The argument that is kept from run to run, or ""."""
        return "" if self.kept_value is None else self.weights

    def _choose_layout(self) -> None:
        """Let the primitive choose the layout of its weights if it has not done so."""

    def _finish(self) -> None:
        own = self.primitive.scratchpad_bytes
        for name in list(self.plain):
            if self.primitive.arguments[name] == self.plain[name]:
                del self.plain[name]
        inside = [n for n in self.plain if n != self._kept]
        total = _round(own) + sum(_round(self.primitive.arguments[n].nbytes) for n in inside)
        self._reorders = {}
        for name, plain in self.plain.items():
            chosen = self.primitive.arguments[name]
            ends = (chosen, plain) if name in self.results else (plain, chosen)
            self._reorders[name] = onednn.reorder(*ends)
            total += _round(self._reorders[name].scratchpad_bytes)
        self.scratch = total
        self.flops = self.primitive.flops
        self.threads = max(p.threads for p in (self.primitive, *self._reorders.values()))

    def records(self, locate: Locate) -> list[Record]:
        """Return the reorders in, the primitive, and the reorders out."""
        at = locate(("scratch", self)).address if self.scratch else 0
        buffers: dict[str, Buffer] = {}
        before: list[Record] = []
        after: list[Record] = []
        if self.primitive.scratchpad_bytes:
            buffers["scratchpad"] = Buffer(at, self.primitive.scratchpad_bytes)
            at += _round(self.primitive.scratchpad_bytes)
        for name, value in self.arguments.items():
            place = buffer(locate(value))
            if name not in self.plain:
                buffers[name] = place
                continue
            size = self.primitive.arguments[name].nbytes
            if name == self._kept:
                buffers[name] = Buffer(locate(("kept", self)).address, size)
            else:
                buffers[name] = Buffer(at, size)
                at += _round(size)
            turn = self._reorders[name]
            out = name in self.results
            ends = {"source": buffers[name] if out else place,
                    "destination": place if out else buffers[name]}  # fmt: skip
            if turn.scratchpad_bytes:
                ends["scratchpad"] = Buffer(at, turn.scratchpad_bytes)
                at += _round(turn.scratchpad_bytes)
            record = _record(turn, ends)
            if name == self._kept:
                record = if_stale(locate(("stale", self)), [record], record.name)
            (after if out else before).append(record)
        return [*before, _record(self.primitive, buffers), *after]


def _round(nbytes: int) -> int:
    return -(-nbytes // 64) * 64


def _record(primitive: Primitive, buffers: dict[str, Buffer]) -> Record:
    binding = primitive.bind(buffers)
    return Record(load_runtime().call_dnnl, binding.block, primitive.name, binding)


# --- products -------------------------------------------------------------------------------


def _unturned(steps: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of the axes before a transpose, given those after it."""
    return tuple(steps[axes.index(i)] for i in range(len(axes)))


def _transposed(a: View) -> View:
    """Return the view of a matrix with its axes swapped."""
    return View(a.root, a.shape[::-1], a.strides[::-1])


def _is_narrow_sum(a: View, b: View) -> bool:
    """Return whether a^T b, transposed, is computed faster as b^T a.

    This is the gradient of a weight with few columns: a sum over the rows of a batch. The rows of
    `a`, as stored in memory, then fill the vectors.
    """
    if len(a.shape) != 2 or len(b.shape) != 2:
        return False
    (rows, depth), columns = a.shape, b.shape[1]
    return a.strides[0] == 1 and columns <= NARROW and rows >= 4 * columns and depth >= NARROW_DEPTH


class MatmulUnit(LibraryUnit):
    """A (batched) product of views, which may be transposed; a bias follows.

    Args:
        added: what `out` holds before; the product is added to it.
        axes: the order in which `out` has the product's axes; None: their own.

    Attributes:
        plain_product: (a, b, bias), if the result depends only on these and `added`; else
            None.
        added: the same.
    """

    def __init__(
        self, a: View, b: View, out: Value, bias: Value | None = None, added: Value | None = None,
        axes: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        super().__init__("matmul", [v for v in (a.root, b.root, bias, added) if v], [out])
        self.made_of = a, b, out, bias, added, axes
        self.plain_product = (a, b, bias) if axes is None else None
        self.added = added
        steps = None if axes is None else _unturned(contiguous(out.shape), axes)
        turned = bias is None and added is None and axes is None and _is_narrow_sum(a, b)
        if turned:
            a, b = _transposed(b), _transposed(a)
            rows, columns = a.shape[0], b.shape[1]
            self.plain["out"] = onednn.strided((rows, columns), (1, rows), out.dtype)
            self.results = ("out",)
        self._make = functools.partial(
            onednn.matmul, a.shape, b.shape, a_strides=a.strides, b_strides=b.strides,
            dtype=out.dtype, bias=None if bias is None else bias.dtype,
            post=() if added is None else ADDING, out_strides=steps,
            threads=library_threads(2.0 * out.size * a.shape[-1]),
        )  # fmt: skip
        self.primitive = self._make()
        self.weights = "b" if len(b.shape) == 2 and not turned else ""
        self.arguments = {"a": a.root, "b": b.root, "out": out}
        if bias is not None:
            self.arguments["bias"] = bias
        self._finish()

    def _choose_layout(self) -> None:
        own = self._make(b_layout="any")
        self.plain["b"] = self.primitive.arguments["b"]
        self.primitive = own
        self._finish()


def epilogue_kernel(bias: Value | None, activation: str, added: bool = False) -> Kernel:
    """Return the epilogue that is applied to each element of a product.

    Args:
        bias: added to each row, or None.
        activation: "relu" or "".
        added: whether the elements of another matrix are added first.
    """
    k = KernelBuilder()
    x = k.input("float32")
    terms = [] if bias is None else [k.input("float32", level="column")]
    terms += [k.input("float32")] if added else []
    for term in terms:
        x = x + term
    if activation:
        x = k.op(activation, x)
    elif not terms:
        x = k.op("stop_gradient", x)
    k.output(x)
    return k.build()


class SmallMatmulUnit(Unit):
    """A small product of two matrices in a generated loop, with bias and activation."""

    threads = 1
    safe = True

    def __init__(
        self, a: View, b: View, out: Value, bias: Value | None = None, activation: str = ""
    ) -> None:
        reads = [a.root, b.root, *([bias] if bias is not None else [])]
        super().__init__("small matmul", reads, [out])
        self.a, self.b, self.out, self.bias = a, b, out, bias
        self.transposed = b.strides[1] != 1
        epilogue, lanes = epilogue_kernel(bias, activation), small.few_lanes(b.shape[1])
        self.matmul = small.Matmul(epilogue, self.transposed, lanes)
        self.sizes = (a.shape[0], b.shape[1], a.shape[1])
        self.scratch = small.scratch_size(self.matmul, b.shape[1], a.shape[1])
        self.flops = 2.0 * math.prod(self.sizes)

    def kernels(self) -> list[Any]:
        """Return the one kernel."""
        return [self.matmul]

    def records(self, locate: Locate) -> list[Record]:
        """Return the one record."""
        operands = [] if self.bias is None else [(locate(self.bias).address, 0)]
        operands.append((locate(self.out).address, self.sizes[1]))
        b_row = self.b.strides[1] if self.transposed else self.b.strides[0]
        block = small.pack(
            self.matmul,
            table=load_runtime().table,
            sizes=self.sizes,
            a=(locate(self.a.root).address, self.a.strides[0], self.a.strides[1]),
            b=(locate(self.b.root).address, b_row),
            operands=operands,
            scratch=locate(("scratch", self)).address if self.scratch else 0,
        )
        return [Record(compile_one(self.matmul), block, self.name)]


class BlasUnit(Unit):
    """A product by BLAS, without oneDNN."""

    def __init__(self, a: View, b: View, out: Value) -> None:
        super().__init__("gemm", [a.root, b.root], [out])
        self.a, self.b, self.out = a, b, out
        self.gemm = blas.gemm(
            a.shape, b.shape, a_strides=a.strides, b_strides=b.strides, dtype=out.dtype
        )

    def records(self, locate: Locate) -> list[Record]:
        """Return one record for each matrix."""
        binding = self.gemm.bind(
            {"a": buffer(locate(self.a.root)), "b": buffer(locate(self.b.root)),
             "out": buffer(locate(self.out))}
        )  # fmt: skip
        runtime = load_runtime()
        results: list[Record] = []
        for block in binding.blocks:
            results.append(Record(runtime.call_blas, block, self.name, binding))
        return results


def _flattened(a: View, b: View) -> View:
    """Return a batch of matrices a as one matrix, if all are multiplied by the same matrix b."""
    if len(b.shape) != 2 or len(a.shape) == 2:
        return a
    rows = contiguous(a.shape[:-1])
    if any(s > 1 and own != row * a.strides[-2] for s, own, row in zip(a.shape, a.strides, rows)):
        return a
    return View(a.root, (math.prod(a.shape[:-1]), a.shape[-1]), a.strides[-2:])


def is_scattered(a: View, b: View) -> bool:
    """Return whether `a` is many small matrices, not adjacent, all multiplied by one matrix b.

    The library multiplies them one by one: a copy of `a`, then one product, takes a fraction of the
    time.
    """
    if len(b.shape) != 2 or len(a.shape) < 3 or a.shape[-2] >= MIN_ROWS:
        return False
    return len(_flattened(a, b).shape) > 2


def make_matmul(
    a: View, b: View, out: Value, bias: Value | None = None, activation: str = "",
    added: Value | None = None, axes: Sequence[int] | None = None,
) -> Unit | None:  # fmt: skip
    """Return the unit for a product of views, or None where there is none.

    Args:
        added: what `out` holds before, if the product is added to it.
        axes: the order in which `out` has the product's axes; None: their own.
    """
    if len(a.shape) < 2 or len(b.shape) < 2 or 0 in (*a.shape, *b.shape):
        return None
    if out.dtype not in ("float32", "bfloat16", "float64"):
        return None
    a = _flattened(a, b)
    flops = 2.0 * out.size * a.shape[-1]
    plain = len(a.shape) == len(b.shape) == 2 and out.dtype == "float32"
    if plain and flops <= SMALL_FLOPS and 1 in b.strides and added is None:
        return SmallMatmulUnit(a, b, out, bias, activation)
    if bias is None and added is None and axes is None and not activation:
        unit: Unit | None = make_thin(a, b, out)
        if unit is not None:
            return unit
    if activation:
        return None  # oneDNN's relu turns NaN into 0, which would hide a broken step
    if out.dtype != "float64" and not native.available():
        # BLAS below may compute what oneDNN refuses on this processor.
        with contextlib.suppress(onednn.OneDnnError, ValueError):
            shared = None if _is_narrow_sum(a, b) else make_shared(a, b, out, bias, added, axes)
            return shared or MatmulUnit(a, b, out, bias, added, axes)
    if bias is None and added is None and axes is None and out.dtype in ("float32", "float64"):
        try:
            return BlasUnit(a, b, out)
        except (ValueError, RuntimeError):
            return None
    return None
