"""Reorder: copies an array from one layout into another, converting the dtype."""

from __future__ import annotations

from kerasish.backends.onednn import library as lib
from kerasish.backends.onednn.layout import Layout
from kerasish.backends.onednn.primitive import Primitive, choose_threads, make

GRAIN = 128 * 1024  # bytes read and written per thread


def reorder(source: Layout, destination: Layout) -> Primitive:
    """Return the primitive destination = source, element-wise.

    Arguments of the primitive: "source", "destination" (and "scratchpad" where it has bytes).

    Args:
        source: layout read; `primitive.required[...]` or `strided(dims, strides, dtype)`.
        destination: layout written, of the same dims; padding of blocks is filled with zeros.

    Raises:
        ValueError: dims differ, or a layout is still open.
        Unsupported: oneDNN cannot convert these layouts or dtypes.
    """
    about = f"reorder {source} -> {destination}"
    if source.dims != destination.dims:
        raise ValueError(f"{about}: expected equal dims.")
    if not source.nbytes or not destination.nbytes:
        raise ValueError(f"{about}: a layout that is left open cannot be copied.")
    count = choose_threads(None, source.nbytes + destination.nbytes, GRAIN)

    def describe(attributes: int) -> int:
        ends = (source.handle, lib.engine(), destination.handle, lib.engine())
        return lib.create("reorder_primitive_desc_create", *ends, attributes, about=about)

    arguments = {"source": (lib.ARG_SRC, source), "destination": (lib.ARG_DST, destination)}
    return make(("reorder",), about, count, arguments, describe)
