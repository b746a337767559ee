"""Element-wise operators, activations, matrix products, conversions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kerasish import ops
from kerasish.export.onnx.reading.registry import (
    OnnxNode,
    axis_of,
    dtype_of,
    rank_of,
    read_by,
    reads,
    tensor,
)
from kerasish.ops import dtypes
from kerasish.typing import Structure

# ONNX's numbers of dtypes.
DTYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64",
    9: "bool", 10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 16: "bfloat16",
}  # fmt: skip


def dtype_named(code: int) -> str:
    """Return the dtype of ONNX's number.

    Raises:
        ValueError: such tensors are not read.
    """
    if code not in DTYPES:
        raise ValueError(f"tensors of dtype {code} are not read")
    return DTYPES[code]


def is_integral(x: Any) -> bool:
    """Return whether a value holds whole numbers."""
    return dtypes.is_integer(dtype_of(x))


def _several(kind: str, f: Callable[[Any, Any], Any]) -> None:
    reads(kind)(lambda n: functools.reduce(f, [tensor(x) for x in n.inputs]))


def _each(count: int, f: Callable[..., Any]) -> Callable[[OnnxNode], Any]:
    """Return the reader of an operator that is an op of its first inputs."""
    return lambda n: f(*(tensor(n.need(i)) for i in range(count)))


_ONE: dict[str, Callable[[Any], Any]] = {
    "Abs": ops.absolute, "Ceil": ops.ceil, "Floor": ops.floor, "Exp": ops.exp, "Log": ops.log,
    "Sqrt": ops.sqrt, "Erf": ops.erf, "Sin": ops.sin, "Cos": ops.cos, "Tan": ops.tan,
    "Asin": ops.arcsin, "Acos": ops.arccos, "Atan": ops.arctan, "Sinh": ops.sinh,
    "Cosh": ops.cosh, "Asinh": ops.arcsinh, "Acosh": ops.arccosh, "Atanh": ops.arctanh,
    "Tanh": ops.tanh, "Sigmoid": ops.sigmoid, "Relu": ops.relu, "Neg": ops.negative,
    "Reciprocal": ops.reciprocal, "Sign": ops.sign, "Not": ops.logical_not,
    "BitwiseNot": ops.bitwise_not, "IsNaN": ops.isnan, "Round": ops.round,
    "Softplus": ops.softplus, "Softsign": ops.nn.softsign, "Mish": lambda x: x * ops.tanh(
        ops.softplus(x)
    ),
    "HardSwish": ops.nn.hard_silu, "Det": ops.det,
}  # fmt: skip
for _kind, _f in _ONE.items():
    reads(_kind)(_each(1, _f))

for _kind, _of_two in {
    "Add": ops.add, "Sub": ops.subtract, "Mul": ops.multiply, "Equal": ops.equal,
    "Greater": ops.greater, "GreaterOrEqual": ops.greater_equal, "Less": ops.less,
    "LessOrEqual": ops.less_equal, "And": ops.logical_and, "Or": ops.logical_or,
    "Xor": ops.logical_xor, "BitwiseAnd": ops.bitwise_and, "BitwiseOr": ops.bitwise_or,
    "BitwiseXor": ops.bitwise_xor, "MatMul": ops.matmul,
}.items():  # fmt: skip
    reads(_kind)(_each(2, _of_two))

read_by(_each(3, ops.where), "Where")


@reads("Div")
def _div(n: OnnxNode) -> Structure:
    a, b = tensor(n.x), tensor(n.need(1))
    if not is_integral(a):
        return ops.divide(a, b)
    if a.dtype.startswith("u"):
        return ops.floor_divide(a, b)
    # Towards 0.
    quotient = ops.floor_divide(ops.absolute(a), ops.absolute(b))
    return ops.multiply(quotient, ops.multiply(ops.sign(a), ops.sign(b)))


@reads("Mod")
def _mod(n: OnnxNode) -> Structure:
    a, b = tensor(n.x), tensor(n.need(1))
    return ops.fmod(a, b) if n.attr("fmod", 0) else ops.mod(a, b)


@reads("Pow")
def _pow(n: OnnxNode) -> Structure:
    x, y = tensor(n.x), tensor(n.need(1))
    if x.dtype == y.dtype:
        return ops.power(x, y)
    if dtypes.is_float(x.dtype):
        return ops.power(x, ops.cast(y, x.dtype))
    return ops.cast(ops.power(ops.cast(x, "float64"), ops.cast(y, "float64")), x.dtype)


@reads("BitShift")
def _bit_shift(n: OnnxNode) -> Structure:
    f = ops.left_shift if n.attr("direction") == "LEFT" else ops.right_shift
    x, by = tensor(n.x), tensor(n.need(1))
    bits = np.dtype(x.dtype).itemsize * 8
    beyond = ops.zeros_like(x)
    if n.attr("direction") != "LEFT" and not x.dtype.startswith("u"):
        beyond = f(x, bits - 1)  # the sign fills the bits
    return ops.where(ops.less(by, bits), f(x, ops.minimum(by, bits - 1)), beyond)


_several("Max", ops.maximum)
_several("Min", ops.minimum)
_several("Sum", ops.add)


@reads("Mean")
def _mean(n: OnnxNode) -> Structure:
    total = functools.reduce(ops.add, [tensor(x) for x in n.inputs])
    return ops.divide(total, ops.cast(len(n.inputs), total.dtype))


@reads("Clip")
def _clip(n: OnnxNode) -> Structure:
    x = tensor(n.x)
    low = n.get(1) if n.opset >= 11 else n.attr("min")
    high = n.get(2) if n.opset >= 11 else n.attr("max")
    if low is not None:
        x = ops.maximum(x, ops.cast(low, x.dtype))
    return x if high is None else ops.minimum(x, ops.cast(high, x.dtype))


@reads("IsInf")
def _isinf(n: OnnxNode) -> Structure:
    x = tensor(n.x)
    positive, negative = n.attr("detect_positive", 1), n.attr("detect_negative", 1)
    infinite = ops.isinf(x)
    if not positive:
        infinite = ops.logical_and(infinite, ops.less(x, 0))
    return infinite if negative else ops.logical_and(infinite, ops.greater(x, 0))


# --- activations --------------------------------------------------------------------------------


Activation = Callable[[Any], Any]


def activation(name: str, alpha: float | None, beta: float | None) -> Activation:
    """Return an activation by ONNX's name.

    Raises:
        ValueError: there is none of this name.
    """
    a = {"LeakyRelu": 0.01, "HardSigmoid": 0.2}.get(name, 1.0) if alpha is None else alpha
    b = 0.5 if beta is None else beta
    table: dict[str, Activation] = {
        "Relu": ops.relu,
        "Tanh": ops.tanh,
        "Sigmoid": ops.sigmoid,
        "Affine": lambda x: ops.add(ops.multiply(x, a), b),
        "LeakyRelu": lambda x: ops.nn.leaky_relu(x, a),
        "ThresholdedRelu": lambda x: ops.where(ops.greater(x, a), x, ops.zeros_like(x)),
        "ScaledTanh": lambda x: ops.multiply(ops.tanh(ops.multiply(x, b)), a),
        "HardSigmoid": lambda x: ops.clip(ops.add(ops.multiply(x, a), b), 0, 1),
        "Elu": lambda x: ops.nn.elu(x, a),
        "Softsign": ops.nn.softsign,
        "Softplus": ops.softplus,
    }
    function = {key.lower(): f for key, f in table.items()}.get(name.lower())
    if function is None:
        raise ValueError(f"there is no activation {name!r}")
    return function


read_by(
    lambda n: activation(n.kind, n.attr("alpha"), n.attr("beta"))(tensor(n.x)),
    "Elu", "HardSigmoid", "LeakyRelu", "ThresholdedRelu",
)  # fmt: skip
read_by(lambda n: ops.nn.celu(tensor(n.x), n.attr("alpha", 1.0)), "Celu")
read_by(lambda n: ops.nn.gelu(tensor(n.x), n.attr("approximate", "none") == "tanh"), "Gelu")


@reads("PRelu")
def _prelu(n: OnnxNode) -> Structure:
    x, slope = tensor(n.x), tensor(n.need(1))
    return ops.where(ops.greater_equal(x, 0), x, ops.multiply(x, slope))


@reads("Selu")
def _selu(n: OnnxNode) -> Structure:
    alpha = n.attr("alpha", 1.67326319217681884765625)
    return ops.multiply(ops.nn.elu(tensor(n.x), alpha), n.attr("gamma", 1.05070102214813232421875))


@reads("Shrink")
def _shrink(n: OnnxNode) -> Structure:
    x, lambd, bias = tensor(n.x), n.attr("lambd", 0.5), n.attr("bias", 0.0)
    zero = ops.zeros_like(x)
    y = ops.where(ops.less(x, -lambd), ops.cast(ops.add(x, bias), x.dtype), zero)
    return ops.where(ops.greater(x, lambd), ops.cast(ops.subtract(x, bias), x.dtype), y)


@reads("Swish")
def _swish(n: OnnxNode) -> Structure:
    x = tensor(n.x)
    return ops.multiply(x, ops.sigmoid(ops.multiply(x, n.attr("alpha", 1.0))))


def _over(f: Callable[[Any, int], Any]) -> Callable[[OnnxNode], Any]:
    """Return a reader of an operator over an axis: before opset 13 over all axes from it on."""

    def read(n: OnnxNode) -> Structure:
        x = tensor(n.x)
        if n.opset >= 13:
            return f(x, axis_of(n.attr("axis", -1), rank_of(x)))
        axis = axis_of(n.attr("axis", 1), rank_of(x))
        flat = ops.reshape(x, (math.prod(x.shape[:axis]), -1))
        return ops.reshape(f(flat, 1), x.shape)

    return read


def _hardmax(x: Any, axis: int) -> Any:
    places = ops.argmax(x, axis=axis)
    return ops.cast(ops.one_hot(places, x.shape[axis], axis=axis), x.dtype)


read_by(_over(lambda x, axis: ops.softmax(x, axis=axis)), "Softmax")
read_by(_over(lambda x, axis: ops.log_softmax(x, axis=axis)), "LogSoftmax")
read_by(_over(_hardmax), "Hardmax")


# --- products -----------------------------------------------------------------------------------


@reads("Gemm")
def _gemm(n: OnnxNode) -> Structure:
    a, b = tensor(n.x), tensor(n.need(1))
    a = ops.transpose(a) if n.attr("transA", 0) else a
    b = ops.transpose(b) if n.attr("transB", 0) else b
    y = ops.matmul(a, b)
    if n.attr("alpha", 1.0) != 1.0:
        y = ops.cast(ops.multiply(y, n.attr("alpha")), a.dtype)
    c = n.get(2)
    if c is None or n.attr("beta", 1.0) == 0.0:
        return y
    if n.attr("beta", 1.0) != 1.0:
        c = ops.cast(ops.multiply(tensor(c), n.attr("beta")), a.dtype)
    return ops.add(y, tensor(c))


read_by(lambda n: ops.einsum(n.attr("equation"), *(tensor(x) for x in n.inputs)), "Einsum")


# --- conversions --------------------------------------------------------------------------------


def converted(x: Any, dtype: str) -> Any:
    """Return x in another dtype."""
    return x if x.dtype == dtype else ops.cast(x, dtype)


read_by(lambda n: converted(tensor(n.x), dtype_named(n.attr("to"))), "Cast")
read_by(lambda n: converted(tensor(n.x), dtype_of(n.need(1))), "CastLike")
read_by(lambda n: n.x, "Identity", "OptionalGetElement")


@reads("BitCast")
def _bit_cast(n: OnnxNode) -> Structure:
    x, dtype = tensor(n.x), dtype_named(n.attr("to"))
    if x.dtype == dtype:
        return x
    if np.dtype(dtypes.array_dtype(dtype)).itemsize != dtypes.array_dtype(x.dtype).itemsize:
        raise ValueError(f"{x.dtype} and {dtype} are not of one size")
    return ops.reshape(ops.view(ops.reshape(x, (-1,)), dtype), x.shape)


@reads("Dropout", constants=(1, 2))
def _dropout(n: OnnxNode) -> Structure:
    """Return the input: models that are read compute inference."""
    training = n.known(2)
    ratio = n.known(1)
    if training is not None and bool(training) and (ratio is None or float(ratio) > 0):
        raise ValueError("dropout in training mode draws random numbers; export for inference")
    x = n.x
    return [x, ops.ones(x.shape, "bool")] if n.count > 1 else x
