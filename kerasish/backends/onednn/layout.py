"""Layout: the arrangement of an array in memory, by strides or as chosen by a primitive."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence

from kerasish.backends.onednn import library as lib

Ints = tuple[int, ...]


class Layout:
    """Sizes in oneDNN's order, dtype, and the position of each element.

    Two layouts with equal `key` are the same bytes: no reorder is needed from one to the other.

    Attributes:
        dims: sizes in oneDNN's order of axes (n, c, h, w for images; g, o, i, h, w for weights).
        dtype: "float32", "bfloat16", ...
        strides: elements from one index to the next, per axis; None where blocked or left open.
        nbytes: bytes the array spans, padding of blocks included; 0 where left open ("any").
        key: a hashable description.
        handle: the address of oneDNN's descriptor, alive as long as this object.
    """

    def __init__(self, handle: int) -> None:
        self.handle = handle
        lib.free_with(self, "memory_desc_destroy", handle)
        rank = _query_int(handle, lib.QUERY_NDIMS)
        self.dims = _query_sizes(handle, lib.QUERY_DIMS, rank)
        code = _query_int(handle, lib.QUERY_DATA_TYPE)
        self.dtype = next((name for name, of in lib.DTYPES.items() if of == code), "bytes")
        self.nbytes = _size(handle)
        self.strides: Ints | None = None
        self.key: tuple[object, ...] = (self.dims, code, "open")
        if _query_int(handle, lib.QUERY_FORMAT_KIND) == lib.FORMAT_BLOCKED:
            self._describe_blocks(rank, code)

    def _describe_blocks(self, rank: int, code: int) -> None:
        strides = _query_sizes(self.handle, lib.QUERY_STRIDES, rank)
        padded = _query_sizes(self.handle, lib.QUERY_PADDED_DIMS, rank)
        count = _query_int(self.handle, lib.QUERY_BLOCK_COUNT)
        blocks = _query_sizes(self.handle, lib.QUERY_BLOCKS, count)
        axes = _query_sizes(self.handle, lib.QUERY_BLOCK_AXES, count)
        if not count:
            self.strides = strides
            # oneDNN would include the gap after the last row, which a slice of an array lacks.
            reach = sum((size - 1) * step for size, step in zip(self.dims, strides, strict=True))
            self.nbytes = (1 + reach) * lib.ITEM_BYTES.get(self.dtype, 1)
        # The stride of an axis of one element has no effect, so the key omits it.
        telling = tuple(
            0 if size == 1 else step for size, step in zip(padded, strides, strict=True)
        )
        self.key = (self.dims, code, padded, telling, blocks, axes)

    @property
    def is_plain(self) -> bool:
        """Whether strides describe the layout."""
        return self.strides is not None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        how = f"strides={self.strides}" if self.is_plain else f"key={self.key[2:]}"
        return f"Layout({self.dims}, {self.dtype!r}, {how}, nbytes={self.nbytes})"


def _query_int(handle: int, what: int) -> int:
    value = ctypes.c_int(0)
    lib.call("memory_desc_query", handle, what, ctypes.byref(value), about="a layout")
    return value.value


def _query_sizes(handle: int, what: int, count: int) -> Ints:
    if not count:
        return ()
    result = ctypes.POINTER(ctypes.c_int64)()
    lib.call("memory_desc_query", handle, what, ctypes.byref(result), about="a layout")
    return tuple(result[index] for index in range(count))


def _size(handle: int) -> int:
    function = lib.native.library().dnnl_memory_desc_get_size
    function.argtypes, function.restype = (ctypes.c_void_p,), ctypes.c_size_t
    size = int(function(handle))
    return 0 if size >= 1 << 62 else size  # "left open" counts as the largest number


def contiguous_strides(shape: Sequence[int]) -> Ints:
    """Return the strides, in elements, of a C-ordered array.

    Example:
        >>> contiguous_strides((2, 3, 4))
        (12, 4, 1)
    """
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)


def check_dtype(dtype: str, where: str) -> None:
    """Raise ValueError for a dtype that oneDNN does not compute with."""
    if dtype not in lib.DTYPES:
        raise ValueError(f"{where}: expected a dtype of {sorted(lib.DTYPES)}, got {dtype!r}.")


def check_sizes(name: str, values: Sequence[int], where: str, low: int = 1) -> Ints:
    """Return `values` as a tuple of integers of `low` or more, else raise ValueError."""
    try:
        whole = tuple(int(value) for value in values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {name} must be integers, got {values!r}.") from error
    if any(value < low for value in whole) or any(
        value != given for value, given in zip(whole, values, strict=True)
    ):
        raise ValueError(f"{where}: {name} must be integers of {low} or more, got {values!r}.")
    if any(value >= 1 << 40 for value in whole):
        raise ValueError(f"{where}: {name} is too large, got {values!r}.")
    return whole


@functools.lru_cache(maxsize=4096)
def strided(dims: Ints, strides: Ints, dtype: str) -> Layout:
    """Return the layout of `dims` elements at `strides` (in elements) from one to the next."""
    where = f"layout of {dims} at strides {strides}"
    check_dtype(dtype, where)
    check_sizes("sizes", dims, where)
    check_sizes("strides", strides, where, low=0)
    if len(dims) != len(strides) or not 1 <= len(dims) <= lib.MAX_DIMENSIONS:
        raise ValueError(f"{where}: expected as many strides as sizes, 1 to {lib.MAX_DIMENSIONS}.")
    if any(size > 1 and step < 1 for size, step in zip(dims, strides, strict=True)):
        raise ValueError(f"{where}: a stride of 0 needs a size of 1 (broadcasting).")
    steps = [max(1, step) for step in strides]
    handle = lib.create(
        "memory_desc_create_with_strides",
        len(dims),
        lib.sizes(dims),
        lib.DTYPES[dtype],
        lib.sizes(steps),
        about=where,
    )
    return Layout(handle)


@functools.lru_cache(maxsize=4096)
def open_layout(dims: Ints, dtype: str) -> Layout:
    """Return a layout that the primitive chooses ("any" in oneDNN's terms)."""
    where = f"layout of {dims}"
    check_dtype(dtype, where)
    check_sizes("sizes", dims, where)
    format_any = 1
    handle = lib.create(
        "memory_desc_create_with_tag",
        len(dims),
        lib.sizes(dims),
        lib.DTYPES[dtype],
        format_any,
        about=where,
    )
    return Layout(handle)


def chosen_layout(plain: Layout, dtype: str, choice: str, about: str) -> Layout:
    """Return the plain layout, or for the choice "any" one that the primitive chooses.

    Raises:
        ValueError: another choice; `about` names the argument.
    """
    if choice == "any":
        return open_layout(plain.dims, dtype)
    if choice != "plain":
        raise ValueError(f"{about} must be 'plain' or 'any', got {choice!r}.")
    return plain


def channels_last(shape: Sequence[int], dtype: str) -> Layout:
    """Return the layout (n, c, *space) of a C-ordered array of shape (n, *space, c)."""
    shape = tuple(shape)
    steps = contiguous_strides(shape)
    dims = (shape[0], shape[-1], *shape[1:-1])
    return strided(dims, (steps[0], steps[-1], *steps[1:-1]), dtype)


def vector(size: int, dtype: str) -> Layout:
    """Return the layout of `size` elements in a row."""
    return strided((size,), (1,), dtype)
