"""Functions composed of ops that ONNX has as one operator: softmax, norms, activations, resizing.

Where the arguments do not fit the operator, the rule returns None, and the ops are written one by
one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kerasish.export.onnx.ops.elementwise import unary
from kerasish.export.onnx.ops.window import channels_last, channels_second
from kerasish.export.onnx.registry import Call, Parts, composed, translate_by, translates
from kerasish.export.onnx.writer import Item, OnnxWriter
from kerasish.ops.basic import activation
from kerasish.ops.basic.conversion import as_tensor, cast
from kerasish.ops.images import resizing
from kerasish.ops.networks import normalization
from kerasish.ops.shapes import Spec, normalize_axes, normalize_axis
from kerasish.typing import Axis, TensorLike


def _same(x: Spec, *_: Spec, **__: Any) -> Spec:
    return x


# --- over one axis ------------------------------------------------------------------------------


def _over_axis(x: TensorLike, axis: Axis | None = -1) -> Parts | None:
    x = activation.as_float(x)
    axes = normalize_axes(axis, len(x.shape), "softmax")
    return ([x], {"axis": axes[0]}) if len(axes) == 1 else None


def _distribution(kind: str) -> Callable[[OnnxWriter, Call], Item]:
    def translate(w: OnnxWriter, call: Call) -> Item:
        axis = call.attrs["axis"]
        if call.x.turned is None:
            return w.op(kind, [call.x], axis=axis)
        source, axes = call.x.turned
        y = w.op(kind, [source], axis=axes[axis])
        return w.transpose(y, axes)

    return translate


for _function, _kind in ((activation.softmax, "Softmax"), (activation.log_softmax, "LogSoftmax")):
    translates(composed(_function, _same)(_over_axis))(_distribution(_kind))


# --- activations --------------------------------------------------------------------------------


def _activation(function: Any, kind: str, rule: Callable[..., Parts | None]) -> None:
    """Register an activation that is one operator.

    Args:
        function: the composed function.
        kind: the operator.
        rule: (inputs, the operator's attributes) for the function's arguments.
    """
    op = composed(function, _same)(rule)

    @translates(op)
    def translate(w: OnnxWriter, call: Call) -> Item:
        return unary(w, call.x, lambda x: w.op(kind, [x], **call.attrs))


def _of(**attrs: Any) -> Callable[..., Parts]:
    return lambda x: ([activation.as_float(x)], attrs)


def _alpha(x: TensorLike, alpha: float = 1.0) -> Parts | None:
    plain = type(alpha) in (int, float)
    return ([activation.as_float(x)], {"alpha": float(alpha)}) if plain else None


def _leaky(x: TensorLike, negative_slope: float = 0.2) -> Parts | None:
    return _alpha(x, negative_slope)


_activation(activation.leaky_relu, "LeakyRelu", _leaky)
_activation(activation.elu, "Elu", _alpha)
_activation(activation.celu, "Celu", _alpha)
_activation(
    activation.selu,
    "Selu",
    _of(alpha=activation.SELU_ALPHA, gamma=activation.SELU_SCALE),
)
_activation(activation.softsign, "Softsign", _of())
_activation(activation.hard_sigmoid, "HardSigmoid", _of(alpha=1 / 6, beta=0.5))
_activation(activation.hard_silu, "HardSwish", _of())
_activation(activation.mish, "Mish", _of())


@composed(activation.gelu, _same)
def GELU(x: TensorLike, approximate: bool = True) -> Parts | None:  # noqa: N802
    """Return the inputs and attributes of `Gelu`."""
    return [activation.as_float(x)], {"approximate": "tanh" if approximate else "none"}


@translates(GELU)
def _gelu(w: OnnxWriter, call: Call) -> Item:
    return unary(w, call.x, lambda x: _gelu_of(w, x, call.attrs["approximate"]))


def _gelu_of(w: OnnxWriter, x: Item, approximate: str) -> Item:
    if w.opset >= 20:
        return w.op("Gelu", [x], approximate=approximate)

    def number(value: float) -> Item:
        return w.like(value, x.dtype)

    if approximate == "tanh":
        square = w.op("Mul", [x, x])
        cubic = w.op("Add", [w.op("Mul", [square, number(0.044715)]), number(1)])
        product = w.op("Mul", [w.op("Mul", [x, cubic]), number(np.sqrt(2 / np.pi))])
        inner = w.op("Tanh", [product])
    else:
        # In the form that runtimes recognize: x / sqrt(2), erf, + 1, * x, * 0.5.
        inner = w.op("Erf", [w.op("Div", [x, number(np.sqrt(2.0))])])
    whole = w.op("Mul", [x, w.op("Add", [inner, number(1)])])
    return w.op("Mul", [whole, number(0.5)])


# --- norms --------------------------------------------------------------------------------------


@composed(normalization.layer_normalization, _same)
def LAYER_NORM(  # noqa: N802
    x: TensorLike, gamma: Any = None, beta: Any = None, axis: Axis = -1,
    epsilon: float | None = None, **kwargs: Any,
) -> Parts | None:  # fmt: skip
    """Return the inputs and attributes of `LayerNormalization`."""
    x = activation.as_float(x)
    axes = normalize_axes(axis, len(x.shape), "layer_normalization")
    trailing = tuple(range(len(x.shape) - len(axes), len(x.shape)))
    if kwargs or epsilon is None or not axes or tuple(sorted(axes)) != trailing:
        return None
    if any(type(x.shape[a]) is not int for a in axes):
        return None
    shape = tuple(x.shape[a] for a in trailing)
    if gamma is None:
        gamma = np.ones(shape, "float32")
    parts = [cast(as_tensor(v), x.dtype) for v in (gamma, beta) if v is not None]
    if any(tuple(v.shape) != shape for v in parts):
        return None
    return [x, *parts], {"axis": -len(axes), "epsilon": float(epsilon)}


translate_by(lambda w, call: w.op("LayerNormalization", call.inputs, **call.attrs), LAYER_NORM)


@composed(normalization.rms_normalization, _same)
def RMS_NORM(  # noqa: N802
    x: TensorLike, scale: Any = None, axis: Axis = -1, epsilon: float | None = None
) -> Parts | None:
    """Return the inputs and attributes of `RMSNormalization`."""
    x = activation.as_float(x)
    axes = normalize_axes(axis, len(x.shape), "rms_normalization")
    trailing = tuple(range(len(x.shape) - len(axes), len(x.shape)))
    if epsilon is None or not axes or tuple(sorted(axes)) != trailing or x.dtype == "float64":
        return None
    shape = tuple(x.shape[a] for a in trailing)
    scale = np.ones(shape, "float32") if scale is None else scale
    scale = cast(as_tensor(scale), x.dtype)
    if tuple(scale.shape) != shape:
        return None
    return [x, scale], {"axis": -len(axes), "epsilon": float(epsilon)}


@translates(RMS_NORM)
def _rms_norm(w: OnnxWriter, call: Call) -> Item:
    x, scale = call.inputs
    if w.opset >= 23:
        return w.op("RMSNormalization", [x, scale], **call.attrs)
    wide = w.cast(x, "float32")
    axes = list(range(call.attrs["axis"], 0))
    shape = (*x.shape[: call.attrs["axis"]], *[1] * len(axes))
    square = w.op("Mul", [wide, wide])
    mean = w.op("ReduceMean", [square, w.numbers(axes)], shape=shape, keepdims=1)
    root = w.op("Sqrt", [w.op("Add", [mean, w.like(call.attrs["epsilon"], "float32")])])
    y = w.op("Div", [wide, root])
    return w.cast(w.op("Mul", [y, w.cast(scale, "float32")]), x.dtype)


@composed(normalization.standardize, _same)
def STANDARDIZE(  # noqa: N802
    x: TensorLike, mean: Any, variance: Any, gamma: Any = None, beta: Any = None,
    axis: int = -1, epsilon: float = 1e-3,
) -> Parts | None:  # fmt: skip
    """Return the inputs and attributes of `BatchNormalization`."""
    x = as_tensor(x)
    axis = normalize_axis(axis, len(x.shape), "standardize")
    size = x.shape[axis]
    gamma = np.ones(size, x.dtype) if gamma is None else gamma
    beta = np.zeros(size, x.dtype) if beta is None else beta
    parts = [cast(as_tensor(v), x.dtype) for v in (gamma, beta, mean, variance)]
    if len(x.shape) < 2 or any(tuple(v.shape) != (size,) for v in parts):
        return None
    return [x, *parts], {"axis": axis, "epsilon": float(epsilon)}


@translates(STANDARDIZE)
def _standardize(w: OnnxWriter, call: Call) -> Item:
    x, *parts = call.inputs
    axis, rank = call.attrs["axis"], len(x.shape)
    epsilon = call.attrs["epsilon"]
    if axis == 1:
        return w.op("BatchNormalization", [x, *parts], epsilon=epsilon)
    if axis == rank - 1 and x.turned is not None:
        y = w.op("BatchNormalization", [channels_second(w, x), *parts], epsilon=epsilon)
        return channels_last(w, y, x.shape)
    along = tuple(n if i == axis else 1 for i, n in enumerate(x.shape))
    gamma, beta, mean, variance = (w.reshape(v, along) for v in parts)
    deviation = w.op("Sqrt", [w.op("Add", [variance, w.like(epsilon, x.dtype)])])
    y = w.op("Div", [w.op("Sub", [x, mean]), deviation])
    return w.op("Add", [w.op("Mul", [y, gamma]), beta])


# --- pictures -----------------------------------------------------------------------------------


def _resized(x: Spec, *, axes: Any, sizes: Any, **_: Any) -> Spec:
    shape = list(x.shape)
    for axis, size in zip(axes, sizes):
        shape[axis] = size
    return Spec(tuple(shape), x.dtype)


_MODES = {"nearest": "nearest", "bilinear": "linear", "bicubic": "cubic"}


@composed(resizing.resize, _resized)
def RESIZE(  # noqa: N802
    images: TensorLike, size: Any, interpolation: str = "bilinear", antialias: bool = False,
    crop_to_aspect_ratio: bool = False, pad_to_aspect_ratio: bool = False,
    fill_mode: str = "constant", fill_value: float = 0.0, data_format: str | None = None,
) -> Parts | None:  # fmt: skip
    """Return the inputs and attributes of `Resize`."""
    x = as_tensor(images)
    mode = _MODES.get(interpolation)
    if mode is None or crop_to_aspect_ratio or pad_to_aspect_ratio or x.dtype != "float32":
        return None
    if antialias and mode != "nearest":
        return None  # runtimes and the formula here do not agree at the edges
    axes = resizing.spatial_axes(x, data_format, "resize")
    return [x], {"axes": tuple(axes), "sizes": (int(size[0]), int(size[1])), "mode": mode}


@translates(RESIZE)
def _resize(w: OnnxWriter, call: Call) -> Item:
    x, attrs = call.x, call.attrs
    mode, rank = attrs["mode"], len(x.shape)
    last = attrs["axes"][-1] == rank - 2
    options = {"coordinate_transformation_mode": "half_pixel", "mode": mode}
    if mode == "nearest":
        options["nearest_mode"] = "round_prefer_ceil"
    if mode == "cubic":
        options |= {"cubic_coeff_a": -0.5, "exclude_outside": 1}
    data = x
    if rank == 3:
        data = w.unsqueeze(x, [0])
    if last:
        data = channels_second(w, data)
    shape = (*data.shape[:2], *attrs["sizes"])
    # All sizes, not those of two axes: onnxruntime moves transposes across, and loses the axes.
    y = w.op("Resize", [data, None, None, w.shape(shape)], shape=shape, **options)
    if last:
        y = channels_last(w, y, (shape[0], shape[2], shape[3], shape[1]))
    return w.squeeze(y, [0]) if rank == 3 else y
