"""Reductions, positions of extremes, sorting, running sums, Fourier transforms."""

from __future__ import annotations

from typing import Any

from kerasish.export.factorize import EXPANSIONS, LARGEST
from kerasish.export.onnx.ops.elementwise import unary
from kerasish.export.onnx.registry import Call, Translation, translate_by, translates, untranslated
from kerasish.export.onnx.writer import Item, OnnxWriter
from kerasish.ops import dtypes
from kerasish.ops.algebra import decomposition, solving
from kerasish.ops.basic import reduce
from kerasish.ops.signals import signal

_LOW = ("float16", "bfloat16")


def _axes(call: Call) -> list[int]:
    axis = call.attrs["axis"]
    if axis is None:
        return list(range(len(call.x.shape)))
    return list(axis) if isinstance(axis, tuple) else [axis]


def reduced(w: OnnxWriter, kind: str, x: Item, axes: list[int], keepdims: bool) -> Item:
    """Return a reduction of x over axes; of a transposed x over the axes before that."""
    if not axes:
        return x
    turned = x.turned
    if turned is not None and keepdims:
        source, order = turned
        y = reduced(w, kind, source, [order[a] for a in axes], True)
        gone = {order[a] for a in axes}
        y.shape = tuple(1 if i in gone else n for i, n in enumerate(source.shape))
        return w.transpose(y, order)
    if turned is not None:
        source, order = turned
        left = [a for i, a in enumerate(order) if i not in axes]
        if left == sorted(left):  # the other axes keep their order: nothing has to be transposed
            return reduced(w, kind, source, [order[a] for a in axes], False)
    inputs: list[Item | None]
    if kind == "ReduceSum" or w.opset >= 18:
        inputs = [x, w.numbers(axes)]
        return w.op(kind, inputs, shape=(), keepdims=int(keepdims))
    return w.op(kind, [x], shape=(), keepdims=int(keepdims), axes=axes)


def _reduction(kind: str) -> Translation:
    def translate(w: OnnxWriter, call: Call) -> Item:
        # Halves are added up in float32, as everywhere.
        wide = dtypes.name_of(dtypes.adding_dtype(call.out.dtype))
        x = unary(w, call.x, lambda x: w.cast(x, wide))
        y = reduced(w, kind, x, _axes(call), call.attrs["keepdims"])
        return w.cast(y, call.out.dtype)

    return translate


translate_by(_reduction("ReduceSum"), reduce.reduce_sum)
translate_by(_reduction("ReduceProd"), reduce.reduce_prod)


def _extreme(kind: str) -> Translation:
    def translate(w: OnnxWriter, call: Call) -> Item:
        x = call.x
        if x.dtype == "bool":
            y = reduced(w, kind, w.cast(x, "int32"), _axes(call), call.attrs["keepdims"])
            return w.cast(y, "bool")
        return reduced(w, kind, x, _axes(call), call.attrs["keepdims"])

    return translate


translate_by(_extreme("ReduceMax"), reduce.reduce_max)
translate_by(_extreme("ReduceMin"), reduce.reduce_min)


def _quantified(kind: str) -> Translation:
    def translate(w: OnnxWriter, call: Call) -> Item:
        x = w.cast(w.cast(call.x, "bool"), "int32")
        return w.cast(reduced(w, kind, x, _axes(call), call.attrs["keepdims"]), "bool")

    return translate


translate_by(_quantified("ReduceMin"), reduce.reduce_all)
translate_by(_quantified("ReduceMax"), reduce.reduce_any)


def _position(kind: str) -> Translation:
    def translate(w: OnnxWriter, call: Call) -> Item:
        x, axis, keepdims = call.x, call.attrs["axis"], call.attrs["keepdims"]
        if x.dtype == "bool":
            x = w.cast(x, "int32")
        if axis is None:
            flat = w.op("Reshape", [x, w.numbers([-1])], shape=(None,))
            place = w.op(kind, [flat], "int64", (), axis=0, keepdims=0)
            if keepdims:
                place = w.reshape(place, (1,) * len(call.x.shape))
        else:
            axis = axis[0] if isinstance(axis, tuple) else axis
            place = w.op(kind, [x], "int64", (), axis=axis, keepdims=int(keepdims))
        return w.cast(place, "int32")

    return translate


translate_by(_position("ArgMax"), reduce.argmax)
translate_by(_position("ArgMin"), reduce.argmin)


@translates(reduce.argsort)
def _argsort(w: OnnxWriter, call: Call) -> Item:
    x, axis = call.x, call.attrs["axis"]
    if axis is None:
        x, axis = w.op("Reshape", [x, w.numbers([-1])], shape=call.out.shape), 0
    if x.dtype == "bool":
        x = w.cast(x, "int32")
    count = w.size(x.shape[axis])
    # TopK gives equal elements in their order.
    results = [(x.dtype, call.out.shape), ("int64", call.out.shape)]
    _, places = w.ops("TopK", [x, count], results, axis=axis, largest=0, sorted=1)
    return w.cast(places, "int32")


@translates(reduce.running_sum)
def _running_sum(w: OnnxWriter, call: Call) -> Item:
    x = w.cast(call.x, call.out.dtype)
    wide = "float32" if x.dtype in _LOW else x.dtype
    axis = w.like(call.attrs["axis"], "int64")
    return w.cast(w.op("CumSum", [w.cast(x, wide), axis]), x.dtype)


@translates(signal.fourier)
def _fourier(w: OnnxWriter, call: Call) -> list[Item]:
    a, b = call.inputs
    inverse = call.attrs["inverse"]
    dtype = a.dtype if a.dtype in ("float32", "float64") else "float32"
    shape = call.out.shape
    last = len(shape)
    parts = [w.unsqueeze(w.cast(x, dtype), [last]) for x in (a, b)]
    z = w.concat(parts, last, 2)
    scale: Item | None = None
    for axis in call.attrs["axes"]:
        # DFT takes no axis that is its last, the pair, and a leading batch axis has to be there.
        z = _transformed(w, z, axis, inverse)
        if inverse:
            size = w.as_scalar(shape[axis], dtype)
            scale = size if scale is None else w.op("Mul", [scale, size])
    if scale is not None:
        z = w.op("Mul", [z, scale])
    y = [w.slice(z, last, i, i + 1, 1) for i in (0, 1)]
    return [w.cast(w.squeeze(part, [last]), a.dtype) for part in y]


def _transformed(w: OnnxWriter, z: Item, axis: int, inverse: bool) -> Item:
    lead = w.unsqueeze(z, [0])
    options: dict[str, Any] = {"inverse": int(inverse), "onesided": 0}
    if w.opset >= 20:
        y = w.op("DFT", [lead, None, w.like(axis + 1, "int64")], shape=lead.shape, **options)
    else:
        y = w.op("DFT", [lead], shape=lead.shape, axis=axis + 1, **options)
    return w.squeeze(y, [0])


@translates(solving.det)
def _det(w: OnnxWriter, call: Call) -> Item:
    return w.op("Det", [call.x], shape=call.out.shape)


_FACTORED = "ONNX has no operator that factorizes or inverts matrices"
untranslated(
    f"{_FACTORED}, and these are not of 1 to {LARGEST} rows and columns",
    *(EXPANSIONS.keys() - {solving.det}),
)
untranslated(
    _FACTORED,
    decomposition.eig,
    decomposition.eigh,
    decomposition.singular_values,
    decomposition.svd_full,
    decomposition.svd_reduced,
    decomposition.swaps,
    solving.pinv,
)
