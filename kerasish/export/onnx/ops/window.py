"""Convolution and pooling: ONNX has the channels second, so that data is transposed around them."""

from __future__ import annotations

from typing import Any

from kerasish.export.onnx.ops.movement import pad
from kerasish.export.onnx.registry import Call, Translation, translate_by, translates, untranslated
from kerasish.export.onnx.writer import Item, OnnxWriter
from kerasish.ops import dtypes
from kerasish.ops.basic import convolution, pool

# Dtypes of whole numbers -> floats that hold all of them.
_EXACT = {
    "bool": "float32", "int8": "float32", "uint8": "float32", "int16": "float32",
    "uint16": "float32", "int32": "float64", "uint32": "float64",
}  # fmt: skip
_TRAINING = "it is a gradient, which only training computes"


def channels_second(w: OnnxWriter, x: Item) -> Item:
    """Return (n, *spatial, c) as (n, c, *spatial)."""
    rank = len(x.shape)
    return w.transpose(x, (0, rank - 1, *range(1, rank - 1)))


def channels_last(w: OnnxWriter, y: Item, shape: Any) -> Item:
    """Return (n, c, *spatial) as (n, *spatial, c), of this shape."""
    rank = len(shape)
    y.shape = (shape[0], shape[-1], *shape[1:-1])
    return w.transpose(y, (0, *range(2, rank), 1))


def _pads(padding: Any) -> list[int]:
    if not all(type(n) is int for pair in padding for n in pair):
        raise ValueError("the padding depends on open sizes; say the spatial sizes")
    return [*(a for a, _ in padding), *(b for _, b in padding)]


def convolved(
    w: OnnxWriter, x: Item, kernel: Item, bias: Item | None, attrs: dict[str, Any], shape: Any
) -> Item:
    """Return the convolution of data with its channels last, as a node `Conv`."""
    y = _over_windows(w, "Conv", x, kernel, bias, attrs, attrs["padding"])
    return channels_last(w, y, shape)


def _over_windows(
    w: OnnxWriter, kind: str, x: Item, kernel: Item, bias: Item | None, attrs: dict[str, Any],
    pads: Any,
) -> Item:  # fmt: skip
    """Return the result of a node of data and kernel, with the channels second."""
    rank = len(x.shape)
    weight = w.transpose(kernel, (rank - 1, rank - 2, *range(rank - 2)))  # (o, c / groups, *window)
    return w.op(
        kind,
        [channels_second(w, x), weight, bias],
        kernel_shape=list(kernel.shape[:-2]),
        strides=list(attrs["strides"]),
        dilations=list(attrs["dilation"]),
        pads=_pads(pads),
        group=attrs["groups"],
    )


@translates(convolution.convolution)
def _convolution(w: OnnxWriter, call: Call) -> Item:
    x, kernel = call.inputs
    return convolved(w, x, kernel, None, call.attrs, call.out.shape)


@translates(convolution.convolution_data_gradient)
def _convolution_transpose(w: OnnxWriter, call: Call) -> Item:
    g, kernel = call.inputs
    attrs = call.attrs
    if not all(type(n) is int for n in (*attrs["size"], *g.shape[1:-1])):
        pads, extra = _open_transpose(call)
    else:
        # What no window reaches at the end is output_padding; pads may not be negative there.
        pads, extra = [], []
        for size, count, k, s, d, (before, _) in zip(
            attrs["size"], g.shape[1:-1], kernel.shape, attrs["strides"], attrs["dilation"],
            attrs["padding"],
        ):  # fmt: skip
            full = (count - 1) * s + (k - 1) * d + 1
            after = full - before - size
            pads.append((before, max(after, 0)))
            extra.append(max(-after, 0))
    shape = tuple(
        None if not e else (n - e if type(n) is int else None)
        for n, e in zip(call.out.shape[1:-1], extra)
    )
    y = _over_windows(w, "ConvTranspose", g, kernel, None, attrs, pads)
    if any(extra):
        # ConvTranspose's output_padding is bounded by the strides; zeros at the end are not.
        pairs = [(0, 0), (0, 0), *((0, e) for e in extra)]
        y.shape = (call.out.shape[0], call.out.shape[-1], *shape)
        y = pad(w, y, pairs, 0, (call.out.shape[0], call.out.shape[-1], *call.out.shape[1:-1]))
    return channels_last(w, y, call.out.shape)


def _open_transpose(call: Call) -> tuple[list[tuple[int, int]], list[int]]:
    """Return (pads, extra) where spatial sizes are open: (before, after) as they are traced."""
    pads, extra = [], []
    for before, after in call.attrs["padding"]:
        if type(before) is not int or type(after) is not int:
            raise ValueError("the padding depends on open sizes; say the spatial sizes")
        pads.append((before, max(after, 0)))
        extra.append(max(-after, 0))
    return pads, extra


untranslated(
    _TRAINING,
    convolution.convolution_kernel_gradient,
    pool.pool_average_gradient,
    pool.pool_max_gradient,
    pool.pool_max_select,
)


def _pooling(kind: str, **options: Any) -> Translation:
    def translate(w: OnnxWriter, call: Call) -> Item:
        attrs, x = call.attrs, call.x
        own = x.dtype if dtypes.is_float(x.dtype) else _EXACT.get(x.dtype)
        if own is None:
            raise ValueError(f"ONNX pools no {x.dtype}")
        y = w.op(
            kind,
            [channels_second(w, w.cast(x, own))],
            kernel_shape=list(attrs["size"]),
            strides=list(attrs["strides"]),
            pads=_pads(attrs["padding"]),
            **options,
        )
        return w.cast(channels_last(w, y, call.out.shape), call.out.dtype)

    return translate


translate_by(_pooling("MaxPool"), pool.pool_max)
translate_by(_pooling("AveragePool", count_include_pad=0), pool.pool_average)
