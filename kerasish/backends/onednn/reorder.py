"""Reorder: copies an array from one layout into another, converting the dtype."""

from __future__ import annotations

from kerasish.backends.onednn import library as lib
from kerasish.backends.onednn.layout import Layout
from kerasish.backends.onednn.primitive import (
    PostOps,
    Primitive,
    choose_threads,
    drop_attributes,
    make,
    make_attributes,
    post_operations,
)

GRAIN = 128 * 1024  # bytes read and written per thread


def reorder(
    source: Layout, destination: Layout, *, accumulate: bool = False, threads: int | None = None
) -> Primitive:
    """Return the primitive destination = source (or += with `accumulate`), element-wise.

    Arguments of the primitive: "source", "destination" (and "scratchpad" where it has bytes).

    Args:
        source: layout read; `primitive.required[...]` or `strided(dims, strides, dtype)`.
        destination: layout written, of the same dims; padding of blocks is filled with zeros.
        accumulate: add to the content of the destination.
        threads: None chooses by the bytes moved.

    Raises:
        ValueError: dims differ, or a layout is still open.
        Unsupported: oneDNN cannot convert these layouts or dtypes.
    """
    about = f"reorder {source} -> {destination}"
    if source.dims != destination.dims:
        raise ValueError(f"{about}: expected equal dims.")
    if not source.nbytes or not destination.nbytes:
        raise ValueError(f"{about}: a layout that is left open cannot be copied.")
    count = choose_threads(threads, source.nbytes + destination.nbytes, GRAIN)
    post: PostOps = (("sum", 1.0),) if accumulate else ()
    axes = tuple(range(len(source.dims)))
    operations = post_operations(post, source.dims, axes, about)

    def create() -> Primitive:
        attributes = make_attributes(operations, "strict", about)
        try:
            descriptor = lib.create(
                "reorder_primitive_desc_create",
                source.handle,
                lib.engine(),
                destination.handle,
                lib.engine(),
                attributes,
                about=about,
            )
        finally:
            drop_attributes(attributes)
        return Primitive(
            about,
            descriptor,
            {"source": (lib.ARG_SRC, source), "destination": (lib.ARG_DST, destination)},
            count,
        )

    return make(("reorder", source.key, destination.key, accumulate), count, create)
