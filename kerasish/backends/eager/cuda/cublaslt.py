"""cuBLASLt by ctypes: its descriptions, its choice of an algorithm, and products, whose epilogue
adds a bias or another array, applies relu or gelu, or sums a bias's gradient.

cuBLASLt's matrices are stored column by column. A matrix that is stored row by row is its
transpose, so y = a @ b is computed as y^T = b^T @ a^T, and nothing is copied.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import math
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kerasish.backends.eager.cuda.arrays import compact, cupy, empty
from kerasish.errors import UnknownNameError
from kerasish.typing import Array

# cudaDataType, cublasComputeType_t, cublasOperation_t
TYPES = {"float32": 0, "float16": 2, "bfloat16": 14}
FLOAT, COMPUTE_FLOAT, COMPUTE_TF32 = 0, 68, 77
TRANSPOSED = 1
# Attributes of the description of a product, of a matrix, and of preferences for algorithms.
TRANSPOSE_A, TRANSPOSE_B, EPILOGUE, BIAS_POINTER = 3, 4, 7, 8
BATCH_COUNT, BATCH_STRIDE = 5, 6
WORKSPACE_BYTES, REDUCTION_SCHEMES, ALIGNMENTS = 1, 3, (5, 6, 7, 8)
# Products that are split along the summed axis add their parts in float32: the other schemes add
# them in the dtype of the result, 16 bits.
IN_COMPUTE_TYPE = 2
# The op applied to the product before it is written; a bias is one more bit.
EPILOGUES = {None: 0, "relu": 2, "gelu": 32}
PLAIN, WITH_BIAS = 1, 4
# The sums of the right factor's columns are written where a bias would be read (BGRADA: the right
# factor is first).
WITH_SUMS = 256
MOST_WORKSPACE = 32 << 20
MOST_PLANS = 1024


class LibraryError(RuntimeError):
    """cuBLASLt refuses a product."""


class Choice(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t: an algorithm and the workspace that it needs."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


class Matrix(NamedTuple):
    """The layout of a row-by-row matrix, or a stack of them: its transpose for cuBLASLt."""

    rows: int
    columns: int
    leading: int
    stride: int
    transposed: bool


class ProductRequest(NamedTuple):
    """The key of a plan."""

    device: int
    dtype: str
    batch: int
    left: Matrix
    right: Matrix
    result: Matrix
    alignments: tuple[int, ...]
    epilogue: int
    tf32: bool


class ProductPlan(NamedTuple):
    """The descriptions of a product and its matrices, and the algorithm chosen."""

    description: Any
    left: Any
    right: Any
    result: Any
    choice: Choice


@functools.cache
def library(version: int) -> Any:
    """Return cuBLASLt of a major version of CUDA, or None where it is not installed.

    On Windows, where names of libraries differ, it is not searched: CuPy's products are used there,
    and without cuBLASLt cuDNN is not loaded either.
    """
    name = f"libcublasLt.so.{version}"
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(p) for p in spec.submodule_search_locations or ()] if spec else []
    places = [name, *(str(p) for f in folders for p in sorted(f.glob(f"*/lib/{name}")))]
    for place in places:
        with contextlib.suppress(OSError):
            return ctypes.CDLL(place)
    return None


def _checked(what: str, status: int) -> None:
    if status:
        raise LibraryError(f"cuBLASLt: {what} returns status {status}.")


def _set(lib: Any, kind: str, handle: Any, attribute: int, value: Any) -> None:
    setter = getattr(lib, f"cublasLt{kind}SetAttribute")
    given = ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value))
    _checked(f"{kind} attribute {attribute}", setter(handle, attribute, *given))


@functools.cache
def _handle(lib: Any, device: int) -> Any:
    """Return the handle of a device: the library creates it for the current one."""
    handle = ctypes.c_void_p()
    with cupy().cuda.Device(device):
        _checked("cublasLtCreate", lib.cublasLtCreate(ctypes.byref(handle)))
    return handle


def describe(lib: Any, product: ProductRequest) -> tuple[Any, Any, Any, Any]:
    """Return the descriptions of the product, of its two factors and of its result."""
    compute = COMPUTE_TF32 if product.tf32 else COMPUTE_FLOAT
    result = ctypes.c_void_p()
    _checked("MatmulDescCreate", lib.cublasLtMatmulDescCreate(ctypes.byref(result), compute, FLOAT))
    # y^T = b^T a^T: the right factor is first.
    for attribute, matrix in ((TRANSPOSE_A, product.right), (TRANSPOSE_B, product.left)):
        operation = ctypes.c_int32(TRANSPOSED if matrix.transposed else 0)
        _set(lib, "MatmulDesc", result, attribute, operation)
    _set(lib, "MatmulDesc", result, EPILOGUE, ctypes.c_uint32(product.epilogue))
    if product.epilogue & (WITH_BIAS | WITH_SUMS):
        _set(lib, "MatmulDesc", result, BIAS_POINTER, ctypes.c_void_p(256))  # aligned; set per call
    matrices = (product.right, product.left, product.result)
    return (result, *(_layout(lib, product, m) for m in matrices))


def _layout(lib: Any, product: ProductRequest, matrix: Matrix) -> Any:
    result = ctypes.c_void_p()
    sizes = [ctypes.c_uint64(matrix.rows), ctypes.c_uint64(matrix.columns)]
    leading = ctypes.c_int64(matrix.leading)
    create = lib.cublasLtMatrixLayoutCreate
    status = create(ctypes.byref(result), TYPES[product.dtype], *sizes, leading)
    _checked("MatrixLayoutCreate", status)
    if product.batch > 1:
        _set(lib, "MatrixLayout", result, BATCH_COUNT, ctypes.c_int32(product.batch))
        _set(lib, "MatrixLayout", result, BATCH_STRIDE, ctypes.c_int64(matrix.stride))
    return result


def _plan(lib: Any, product: ProductRequest) -> ProductPlan | str:
    """Return the plan of a product, or what is said where there is none."""
    description, right, left, result = describe(lib, product)
    wish = ctypes.c_void_p()
    create = lib.cublasLtMatmulPreferenceCreate
    _checked("MatmulPreferenceCreate", create(ctypes.byref(wish)))
    most = ctypes.c_uint64(MOST_WORKSPACE)
    _set(lib, "MatmulPreference", wish, WORKSPACE_BYTES, most)
    _set(lib, "MatmulPreference", wish, REDUCTION_SCHEMES, ctypes.c_uint32(IN_COMPUTE_TYPE))
    for attribute, bytes_ in zip(ALIGNMENTS, product.alignments):
        _set(lib, "MatmulPreference", wish, attribute, ctypes.c_uint32(bytes_))
    choice, count = Choice(), ctypes.c_int()
    status = lib.cublasLtMatmulAlgoGetHeuristic(
        _handle(lib, product.device), description, right, left, result, result, wish, 1,
        ctypes.byref(choice), ctypes.byref(count),
    )  # fmt: skip
    lib.cublasLtMatmulPreferenceDestroy(wish)
    plan = ProductPlan(description, left, right, result, choice)
    if status or not count.value or choice.state:
        _destroy(lib, plan)
        why = f" (status {status})" if status else ""
        return f"cuBLASLt has no algorithm for {product}{why}."
    return plan


def _destroy(lib: Any, plan: ProductPlan) -> None:
    """Free the library's data of a plan. Products submitted before do not need it."""
    _checked("MatmulDescDestroy", lib.cublasLtMatmulDescDestroy(plan.description))
    for layout in (plan.left, plan.right, plan.result):
        _checked("MatrixLayoutDestroy", lib.cublasLtMatrixLayoutDestroy(layout))


class _Plans:
    """The most recent plans, at most `MOST_PLANS`. The caller of `of` holds `_running`."""

    def __init__(self) -> None:
        self._plans: OrderedDict[tuple[Any, ProductRequest], ProductPlan | str] = OrderedDict()

    def of(self, lib: Any, product: ProductRequest) -> ProductPlan | str:
        """Return the plan of a product, or what is said where there is none."""
        key = (lib, product)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = _plan(lib, product)
            while len(self._plans) > MOST_PLANS:
                self._drop(*self._plans.popitem(last=False))
        else:
            self._plans.move_to_end(key)
        return plan

    def __len__(self) -> int:
        return len(self._plans)

    def clear(self) -> None:
        """Drop all plans."""
        while self._plans:
            self._drop(*self._plans.popitem())

    @staticmethod
    def _drop(key: tuple[Any, ProductRequest], plan: ProductPlan | str) -> None:
        if not isinstance(plan, str):
            _destroy(key[0], plan)


plans = _Plans()


def _lying(x: Array) -> tuple[Any, bool]:
    """Return (x, whether its matrices are stored column by column); a copy if they have gaps."""
    if x.flags.c_contiguous:
        return x, False
    if x.swapaxes(-1, -2).flags.c_contiguous:
        return x, True
    return compact(x), False


def _matrix(x: Array, transposed: bool) -> Matrix:
    rows, columns = x.shape[-2:]
    stride = rows * columns
    if transposed:
        return Matrix(rows, columns, rows, stride, True)
    return Matrix(columns, rows, columns, stride, False)


def _alignment(x: Array) -> int:
    pointer = x.data.ptr
    return min(256, pointer & -pointer)


# The bias is part of a plan, which calls share; a plan that another call drops is destroyed.
_running = threading.Lock()


def multiply(
    lib: bool,
    a: Array,
    b: Array,
    bias: Array = None,
    activation: str | None = None,
    tf32: bool = False,
    onto: Array = None,
) -> Any:
    """Return activation(a @ b + bias), or a @ b + onto.

    Args:
        lib: the result of `library`.
        bias: shape (columns of b,), of the same dtype.
        activation: None, "relu" or "gelu" (by tanh).
        tf32: whether float32 may be rounded to 10 bits before it is multiplied.
        onto: shape and dtype of the result. It is added in float32, before the sum is rounded to
            the dtype of the result. It excludes a bias and an activation.

    Shape: (n, i, k), (n, k, j) -> (n, i, j), or the same without n.

    Raises:
        LibraryError: cuBLASLt refuses.
    """
    if activation not in EPILOGUES:
        known = [k for k in EPILOGUES if k]
        raise UnknownNameError.of("activation of a product", activation, known)
    y = empty((*a.shape[:-1], b.shape[-1]), a.dtype)
    epilogue = EPILOGUES[activation] | (0 if bias is None else WITH_BIAS)
    bias = None if bias is None else compact(bias)
    onto = None if onto is None else compact(onto)
    _run(lib, a, b, y, epilogue or PLAIN, bias, tf32, onto)
    return y


def multiply_and_sum(lib: Any, a: Any, b: Any, tf32: bool = False) -> tuple[Any, Any]:
    """Return (a @ b, the sums of b's columns): the gradients of a Dense's kernel and bias.

    Shape: (i, k), (k, j) -> (i, j), (j,).

    Raises:
        LibraryError: cuBLASLt refuses.
    """
    y, sums = empty((a.shape[0], b.shape[1]), a.dtype), empty(b.shape[1], b.dtype)
    _run(lib, a, b, y, WITH_SUMS, sums, tf32)
    return y, sums


def _run(
    lib: Any,
    a: Array,
    b: Array,
    y: Array,
    epilogue: int,
    bias: Array,
    tf32: bool,
    onto: Array = None,
) -> None:
    """Write the product of a and b into y; the epilogue reads or writes `bias`.

    `onto` has the layout of y and is added to the product; None: nothing is added.
    """
    added = y if onto is None else onto
    (a, a_turned), (b, b_turned) = _lying(a), _lying(b)
    product = ProductRequest(
        y.device.id, a.dtype.name, math.prod(y.shape[:-2]), _matrix(a, a_turned),
        _matrix(b, b_turned), _matrix(y, False),
        (_alignment(b), _alignment(a), _alignment(added), _alignment(y)), epilogue, tf32,
    )  # fmt: skip
    with _running:
        plan = plans.of(lib, product)
        if isinstance(plan, str):
            raise LibraryError(plan)
        size = plan.choice.workspace
        workspace = empty(max(size, 1), np.uint8)
        one, share = ctypes.c_float(1), ctypes.c_float(onto is not None)
        pointers = [ctypes.c_void_p(v.data.ptr) for v in (a, b, added, y, workspace)]
        stream = ctypes.c_void_p(cupy().cuda.get_current_stream().ptr)
        if bias is not None:
            _set(lib, "MatmulDesc", plan.description, BIAS_POINTER, ctypes.c_void_p(bias.data.ptr))
        status = lib.cublasLtMatmul(
            _handle(lib, product.device), plan.description, ctypes.byref(one), pointers[1],
            plan.right, pointers[0], plan.left, ctypes.byref(share), pointers[2], plan.result,
            pointers[3], plan.result, ctypes.byref(plan.choice), pointers[4],
            ctypes.c_size_t(size), stream,
        )  # fmt: skip
    _checked("Matmul", status)
