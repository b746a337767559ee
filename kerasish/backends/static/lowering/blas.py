"""Matrix products by SciPy's BLAS: the fallback where oneDNN cannot be loaded.

    available() -> str                          "" or why not
    gemm(a_shape, b_shape, *, a_strides, b_strides, out_strides, transpose_a, transpose_b, dtype,
         accumulate) -> Gemm                    out = a @ b, or out += a @ b; "a" "b" "out"
    convolution_gemms(geometry, dtype) -> ConvolutionGemms
    gemm.bind({name: Buffer or array}) -> GemmBinding: .blocks, .rebind(name, buffer), .execute()

The interface is that of `onednn`, without bias and post-ops, which generated loops add (a bias may
also be written into `out` first, with `accumulate`). Each of `binding.blocks` is int64[14]
{sgemm, the addresses of its 13 arguments}, for Record(runtime.call_blas, block, gemm.name): one for
each product of a batch. SciPy's BLAS has its own threads; threadpoolctl and OPENBLAS_NUM_THREADS
limit them.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kerasish.backends.onednn.convolution import Geometry
from kerasish.backends.onednn.layout import Ints, check_sizes, contiguous_strides
from kerasish.backends.onednn.matmul import _shapes
from kerasish.backends.onednn.primitive import _buffer
from kerasish.typing import Array

_PREFIX = {"float32": "s", "float64": "d"}
_REAL = {"float32": ctypes.c_float, "float64": ctypes.c_double}
_BYTES = {"float32": 4, "float64": 8}
# Fortran's order of arguments. BLAS is column-major, so its first matrix is our b.
_ORDER = (
    "trans_a", "trans_b", "m", "n", "k", "alpha", "b", "lda", "a", "ldb", "beta", "out", "ldc",
)  # fmt: skip


class _Scalars(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_double) for name in ("alpha", "beta")),
        *((name, ctypes.c_int) for name in ("m", "n", "k", "lda", "ldb", "ldc")),
        *((name, ctypes.c_char) for name in ("trans_a", "trans_b")),
    ]


@functools.cache
def function_address(dtype: str) -> int:
    """Return the address of sgemm ("float32") or dgemm ("float64"), arguments by address.

    Raises:
        ImportError: SciPy is missing, or its BLAS pointers have moved.
    """
    from scipy.linalg import cython_blas

    capsule = cython_blas.__pyx_capi__[f"{_PREFIX[dtype]}gemm"]
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = (
        ctypes.c_char_p,
        [ctypes.py_object],
    )
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    name = api.PyCapsule_GetName(capsule)
    if name.count(b"int *") != 6:
        raise ImportError(f"SciPy's BLAS takes other integers than expected: {name!r}.")
    return int(api.PyCapsule_GetPointer(capsule, name))


@functools.cache
def available() -> str:
    """Return "" if SciPy's BLAS can be called, else the reason."""
    try:
        function_address("float32")
    except (ImportError, AttributeError, KeyError) as error:
        return f"SciPy's BLAS cannot be called: {error}"
    return ""


class MatrixLayout(NamedTuple):
    """The layout of a matrix or batch: sizes, strides in elements, dtype, bytes spanned."""

    dims: Ints
    strides: Ints
    dtype: str
    nbytes: int


class Gemm:
    """out = a @ b (+ out), batched; created by `gemm`.

    Attributes:
        arguments: {"a", "b", "out": MatrixLayout}; each buffer must span `nbytes`.
        required, scratchpad_bytes, workspace: as of onednn's Primitive, always empty.
        flops: multiplications and additions of one execution.
    """

    required: Mapping[str, MatrixLayout] = {}
    scratchpad_bytes = 0
    workspace = None
    implementation = "blas"
    is_reference = False
    threads = 1

    def __init__(
        self, a: MatrixLayout, b: MatrixLayout, out: MatrixLayout, accumulate: bool, name: str
    ) -> None:
        self.name, self.accumulate = name, accumulate
        self.arguments = {"a": a, "b": b, "out": out}
        self.flops = 2.0 * a.dims[-1] * functools.reduce(lambda x, y: x * y, out.dims, 1.0)
        self._trans_a, self._lda = _transposition(a, "a", name)
        self._trans_b, self._ldb = _transposition(b, "b", name)
        trans, self._ldc = _transposition(out, "out", name)
        if trans != b"N":
            raise ValueError(f"{name}: out's last axis must have stride 1, got {out.strides}.")

    def bind(self, buffers: Mapping[str, Any]) -> GemmBinding:
        """Return this product on given memory; as onednn's `Primitive.bind`."""
        return GemmBinding(self, buffers)

    def __repr__(self) -> str:
        return f"Gemm({self.name})"


def gemm(
    a_shape: Sequence[int],
    b_shape: Sequence[int],
    *,
    a_strides: Sequence[int] | None = None,
    b_strides: Sequence[int] | None = None,
    out_strides: Sequence[int] | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    dtype: str = "float32",
    accumulate: bool = False,
) -> Gemm:
    """Return out = a @ b, or out += a @ b with `accumulate`.

    Args:
        a_shape: (*batch, m, k); b_shape: (*batch, k, n); sizes of batch axes are equal or 1.
        a_strides: elements from one index to the next; one of the last two must be 1.
            None: C order.
        b_strides: the same for b; out_strides: for out, whose last stride must be 1.
        transpose_a: a is stored C-ordered as (*batch, k, m); transpose_b: b as (*batch, n, k).
        dtype: "float32" or "float64", of all three.
        accumulate: add to the content of `out`.

    Raises:
        ValueError: sizes or strides do not fit.

    Example:
        >>> import numpy as np
        >>> a, b, out = np.ones((2, 3)), np.ones((3, 4)), np.zeros((2, 4))
        >>> gemm((2, 3), (3, 4), dtype="float64").bind({"a": a, "b": b, "out": out}).execute()
        >>> float(out[1, 3])
        3.0
    """
    name = f"gemm {tuple(a_shape)} @ {tuple(b_shape)} {dtype}"
    if dtype not in _PREFIX:
        raise ValueError(f"{name}: expected a dtype of {sorted(_PREFIX)}.")
    a_dims, b_dims, out_dims = _shapes(a_shape, b_shape, name)
    if max(*a_dims, *b_dims) > 2**31 - 1:
        raise ValueError(f"{name}: BLAS counts to 2**31 - 1 only.")
    return Gemm(
        _operand(a_dims, a_strides, transpose_a, dtype, "a", name),
        _operand(b_dims, b_strides, transpose_b, dtype, "b", name),
        _operand(out_dims, out_strides, False, dtype, "out", name),
        accumulate,
        name,
    )


class ConvolutionGemms(NamedTuple):
    """The products of a convolution by im2col.

    `columns` has shape (n * y's space, groups, kernel elements * c / groups), C-ordered: for each
    output position, each group, each kernel position and each of its channels, the element of x (0
    in the padding). With y seen as (n * y's space, filters) and the weights as Keras has them,

        forward           "a" columns, "b" weights -> "out" y
        weights_gradient  "a" columns, "b" dy      -> "out" dweights
        data_gradient     "a" dy, "b" weights      -> "out" dcolumns, to be added back into dx
    """

    columns: Ints
    forward: Gemm
    weights_gradient: Gemm
    data_gradient: Gemm


def convolution_gemms(geometry: Geometry, dtype: str = "float32") -> ConvolutionGemms:
    """Return the products that compute a convolution and its gradients by im2col.

    Source: Chellapilla, Puri & Simard, High performance convolutional neural networks for document
    processing, 2006.
    """
    rows = 1
    for size in geometry.y_shape[:-1]:
        rows *= size
    *kernel, inputs, filters = geometry.weights_shape
    depth, groups = inputs, geometry.groups
    for size in kernel:
        depth *= size
    each = filters // groups
    columns, weights, y = (groups, rows, depth), (groups, depth, each), (groups, rows, each)
    of_columns, of_weights, of_y = (
        (depth, groups * depth, 1),
        (each, filters, 1),
        (each, filters, 1),
    )
    turned = (depth, 1, groups * depth)
    return ConvolutionGemms(
        (rows, groups, depth),
        gemm(
            columns, weights,
            a_strides=of_columns, b_strides=of_weights, out_strides=of_y, dtype=dtype,
        ),
        gemm(
            (groups, depth, rows), y,
            a_strides=turned, b_strides=of_y, out_strides=of_weights, dtype=dtype,
        ),
        gemm(
            y, (groups, each, depth),
            a_strides=of_y, b_strides=(each, 1, filters), out_strides=of_columns, dtype=dtype,
        ),
    )  # fmt: skip


def _operand(
    dims: Ints, strides: Sequence[int] | None, transposed: bool, dtype: str, which: str, name: str
) -> MatrixLayout:
    if strides is None:
        steps = contiguous_strides((*dims[:-2], dims[-1], dims[-2]) if transposed else dims)
        steps = (*steps[:-2], steps[-1], steps[-2]) if transposed else steps
    elif transposed:
        raise ValueError(f"{name}: give strides of {which} or transpose_{which}, not both.")
    else:
        steps = check_sizes(f"strides of {which}", strides, name, low=0)
        missing = len(dims) - len(steps)
        if missing < 0 or any(size != 1 for size in dims[:missing]):
            raise ValueError(f"{name}: {which} has {len(dims)} sizes, got strides {steps}.")
        steps = (0,) * missing + steps
    span = 1 + sum((size - 1) * step for size, step in zip(dims, steps, strict=True))
    return MatrixLayout(dims, steps, dtype, span * _BYTES[dtype])


def _transposition(operand: MatrixLayout, which: str, name: str) -> tuple[bytes, int]:
    """Return BLAS's transposition letter and leading stride for a matrix in C order."""
    rows, columns = operand.dims[-2:]
    down, across = operand.strides[-2:]
    if (across == 1 or columns == 1) and (down >= columns or rows == 1):
        return b"N", max(down if rows > 1 else columns, 1)
    if (down == 1 or rows == 1) and (across >= rows or columns == 1):
        return b"T", max(across if columns > 1 else rows, 1)
    raise ValueError(
        f"{name}: rows or columns of {which} must have stride 1 without overlap, got strides "
        f"{operand.strides} for sizes {operand.dims}."
    )


class GemmBinding:
    """A Gemm on given addresses.

    Attributes:
        primitive: the Gemm, kept alive.
        blocks: one int64 array per product of the batch, for a driver's records.
    """

    threads = 1

    def __init__(self, product: Gemm, buffers: Mapping[str, Any]) -> None:
        self.primitive = product
        if set(buffers) != set(product.arguments):
            raise ValueError(f"{product.name}: expected buffers a, b, out, got {sorted(buffers)}.")
        a, b, out = product.arguments.values()
        # BLAS is column-major, so it computes out' = b' a'.
        self._scalars = _Scalars(
            m=b.dims[-1], n=a.dims[-2], k=a.dims[-1],
            lda=product._ldb, ldb=product._lda, ldc=product._ldc,
            trans_a=product._trans_b, trans_b=product._trans_a,
        )  # fmt: skip
        start = ctypes.addressof(self._scalars)
        at = {name: start + getattr(_Scalars, name).offset for name, *_ in _Scalars._fields_}
        real = _REAL[a.dtype]
        real.from_address(at["alpha"]).value = 1.0
        real.from_address(at["beta"]).value = 1.0 if product.accumulate else 0.0
        row = [function_address(a.dtype), *(at.get(name, 0) for name in _ORDER)]
        self._offsets = {"b": _offsets(b, out), "a": _offsets(a, out), "out": _offsets(out, out)}
        self._table = np.tile(np.array(row, np.int64), (len(self._offsets["out"]), 1))
        self.blocks = list(self._table)
        self._kept: dict[str, Any] = {}
        for name, buffer in buffers.items():
            self.rebind(name, buffer)

    def rebind(self, name: str, value: Any) -> None:
        """Use other memory for "a", "b" or "out"; checked as in `bind`."""
        about = self.primitive.name
        if name not in self.primitive.arguments:
            raise ValueError(f"{about}: no argument {name!r}, only a, b, out.")
        buffer, owner = _buffer(value, name, about)
        needed = self.primitive.arguments[name].nbytes
        if buffer.address <= 0 or buffer.nbytes < needed:
            raise ValueError(f"{about}: argument {name!r} needs {needed} bytes, got {buffer}.")
        self._table[:, 1 + _ORDER.index(name)] = buffer.address + self._offsets[name]
        self._kept[name] = owner

    def execute(self) -> None:
        """Run it once, from Python."""
        for address, *arguments in self._table.tolist():
            ctypes.CFUNCTYPE(None, *(ctypes.c_void_p,) * len(arguments))(address)(*arguments)

    def check_process(self) -> None:
        """Do nothing: OpenBLAS restarts its threads in a forked child."""


def _offsets(operand: MatrixLayout, out: MatrixLayout) -> Array:
    """Return the offset of `operand` in bytes for each product of the batch."""
    steps = [
        step if size > 1 else 0 for size, step in zip(operand.dims, operand.strides, strict=True)
    ]
    indices = itertools.product(*(range(size) for size in out.dims[:-2]))
    starts = [sum(at * step for at, step in zip(index, steps, strict=False)) for index in indices]
    return np.array(starts, np.int64) * _BYTES[operand.dtype]
