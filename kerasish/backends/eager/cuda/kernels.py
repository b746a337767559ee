"""The package's CUDA kernels: CuPy compiles their sources on first use; and their launches.

CuPy keeps compiled code on disk (`CUPY_CACHE_DIR`) and, per device, in memory. Launches use the
current stream and never wait for it.
"""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any

import numpy as np

from kerasish.backends.eager.cuda.arrays import compact as compact
from kerasish.backends.eager.cuda.arrays import cupy as cupy
from kerasish.typing import ArrayModule, DTypeLike, Shape

FOLDER = Path(__file__).parent
# Sources that need more than the prelude before them.
PARTS = {
    "pooling": ("window.cuh",), "columns": ("window.cuh",), "gradient_norm": ("table.cuh",),
}  # fmt: skip
SOURCES = (
    "activation", "columns", "embedding", "gradient_norm", "heads", "norm", "pooling", "random",
    "recurrent", "softmax",
)  # fmt: skip
GENERATED: dict[str, str] = {}  # name -> text of sources generated at run time
# The dtypes in which kernels store numbers, and the value of SCALAR for each.
SCALARS = {"float32": 32, "float16": 16, "bfloat16": 17}
# Blocks of a launch over all elements: the stride of a thread is the whole grid.
MOST_BLOCKS = 1 << 16
THREADS = 256
FAR = 2**31  # positions in arrays of this many elements need 64 bits
NOTHING = np.uint64(0)  # an argument that a kernel does not read


def source(name: str) -> str:
    """Return the whole CUDA C text of a source: the prelude, its dependencies, itself."""
    if name in GENERATED:
        return GENERATED[name]
    return text_of("prelude.cuh", *PARTS.get(name, ()), f"{name}.cu")


def text_of(*parts: str) -> str:
    """Return the text of files of this folder, one after the other."""
    return "\n".join((FOLDER / part).read_text() for part in parts)


@functools.cache
def function(xp: ArrayModule, name: str, kernel: str, scalar: int, index: int = 32) -> Any:
    """Return a kernel, compiled by xp for the storage format `scalar` (see SCALARS).

    Args:
        index: the bits of positions in arrays, 32 or 64.
    """
    return _module(xp, name, scalar, index).get_function(kernel)


@functools.cache
def _module(xp: ArrayModule, name: str, scalar: int, index: int) -> Any:
    options = ("--std=c++17", f"-DSCALAR={scalar}", f"-DINDEX={index}")
    return xp.RawModule(code=source(name), options=options)


def fits(*arrays: Any) -> bool:
    """Return whether kernels support these arrays: all of one dtype among SCALARS."""
    dtype = arrays[0].dtype
    return _is_scalar(dtype) and all(a.dtype == dtype for a in arrays)


@functools.cache
def _is_scalar(dtype: Any) -> bool:
    return dtype.name in SCALARS  # NumPy builds the name at each call


def check(what: str, *arrays: Any) -> None:
    """Raise if kernels do not support these arrays.

    Raises:
        TypeError: their dtypes differ, or are none of SCALARS.
    """
    if not fits(*arrays):
        result = ", ".join(a.dtype.name for a in arrays)
        raise TypeError(
            f"{what}: arrays of one dtype among {list(SCALARS)} expected, got {result}."
        )


def packed(n: int, *arrays: Any) -> Any:
    """Return 1 if runs of `n` elements can be read 16 bytes at a time, else 0."""
    width = 16 // min(a.dtype.itemsize for a in arrays)
    aligned = all(a.data.ptr % 16 == 0 for a in arrays)
    return np.int32(n % width == 0 and aligned)


def launch(
    name: str, kernel: str, dtype: Any, blocks: int, threads: tuple[int, ...], *args: Any
) -> None:
    """Launch a kernel on the current stream, with at most 2**31 - 1 blocks.

    Args:
        dtype: the dtype in which numbers are stored.
        args: arrays and NumPy scalars, of exactly the types of the kernel's parameters.
    """
    # CuPy's and NumPy's scalars also have a size.
    index = 64 if any(a.size >= FAR for a in args) else 32
    run = function(cupy(), name, kernel, SCALARS[dtype.name], index)
    run((min(blocks, 2**31 - 1),), threads, args)


def launch_elements(name: str, kernel: str, dtype: DTypeLike, count: int, *args: Any) -> None:
    """Launch a kernel with one thread for each of `count` pieces of work, if there are any."""
    if count:
        blocks = min(-(-count // THREADS), MOST_BLOCKS)
        launch(name, kernel, dtype, blocks, (THREADS,), *args)


def launch_rows(name: str, kernel: str, dtype: str, rows: int, n: int, *args: Any) -> None:
    """Launch a kernel that assigns each of `rows` rows of n elements to a warp or a block."""
    if not rows or not n:
        return
    if n <= 1024:
        launch(name, kernel, dtype, min(-(-rows // 8), MOST_BLOCKS), (32, 8), *args)
        return
    threads = 256 if n <= 8192 else 512
    launch(name, kernel, dtype, min(rows, MOST_BLOCKS), (threads,), *args)


def product(shape: Shape) -> int:
    """Return the number of elements of a shape, as a kernel's argument."""
    return np.int64(math.prod(shape))
