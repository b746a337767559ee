"""Activation functions by name: Keras's `activations` module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kerasish import ops
from kerasish.identifiers import get_by_name
from kerasish.ops.basic.activation import celu as celu
from kerasish.ops.basic.activation import elu as elu
from kerasish.ops.basic.activation import glu as glu
from kerasish.ops.basic.activation import hard_shrink as hard_shrink
from kerasish.ops.basic.activation import hard_sigmoid as hard_sigmoid
from kerasish.ops.basic.activation import hard_silu as hard_silu
from kerasish.ops.basic.activation import hard_swish as hard_swish
from kerasish.ops.basic.activation import hard_tanh as hard_tanh
from kerasish.ops.basic.activation import leaky_relu as leaky_relu
from kerasish.ops.basic.activation import log_sigmoid as log_sigmoid
from kerasish.ops.basic.activation import log_softmax as log_softmax
from kerasish.ops.basic.activation import mish as mish
from kerasish.ops.basic.activation import relu6 as relu6
from kerasish.ops.basic.activation import selu as selu
from kerasish.ops.basic.activation import silu as silu
from kerasish.ops.basic.activation import soft_shrink as soft_shrink
from kerasish.ops.basic.activation import softmax as softmax
from kerasish.ops.basic.activation import softsign as softsign
from kerasish.ops.basic.activation import sparse_plus as sparse_plus
from kerasish.ops.basic.activation import sparse_sigmoid as sparse_sigmoid
from kerasish.ops.basic.activation import sparsemax as sparsemax
from kerasish.ops.basic.activation import squareplus as squareplus
from kerasish.ops.basic.activation import swish as swish
from kerasish.ops.basic.activation import tanh_shrink as tanh_shrink
from kerasish.ops.basic.activation import threshold as threshold
from kerasish.ops.op import function
from kerasish.registry import add_builtins, serialize_keras_object
from kerasish.tracebacks import hides_frames
from kerasish.typing import ActivationLike, AnyTensor, Config, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor


def linear(x: TensorLike) -> AnyTensor:
    """Return x.

    Args:
        x: tensor or array.

    Example:
        >>> linear(3.0)
        3.0
    """
    return x


@function
def relu(
    x: TensorLike,
    negative_slope: float = 0.0,
    max_value: float | None = None,
    threshold: float = 0.0,
) -> Tensor:
    """Return x above the threshold, negative_slope * (x - threshold) below, at most max_value.

    Args:
        x: tensor or array.
        negative_slope: slope below the threshold.
        max_value: upper bound of the result; None: none.
        threshold: where the slope changes.

    Example:
        >>> relu([-2.0, 1.0, 9.0], negative_slope=0.5, max_value=6).tolist()
        [-1.0, 1.0, 6.0]
    """
    if threshold:
        below = ops.multiply(ops.subtract(x, threshold), negative_slope)
        y = ops.where(ops.greater(x, threshold), x, below)
    elif negative_slope:
        y = leaky_relu(x, negative_slope)
    else:
        y = ops.relu(x)
    return y if max_value is None else ops.minimum(y, max_value)


def sigmoid(x: TensorLike) -> Tensor:
    """Return 1 / (1 + exp(-x)).

    Args:
        x: tensor or array.

    Example:
        >>> sigmoid([0.5, 1.0]).tolist()
        [0.6224..., 0.7310...]
    """
    return ops.sigmoid(x)


def tanh(x: TensorLike) -> Tensor:
    """Return the hyperbolic tangent of x.

    Args:
        x: tensor or array.

    Example:
        >>> tanh([0.5, 1.0]).tolist()
        [0.4621..., 0.7615...]
    """
    return ops.tanh(x)


def softplus(x: TensorLike) -> Tensor:
    """Return log(1 + exp(x)).

    Args:
        x: tensor or array.

    Example:
        >>> softplus([0.5, 1.0]).tolist()
        [0.9740..., 1.3132...]
    """
    return ops.softplus(x)


def exponential(x: TensorLike) -> Tensor:
    """Return exp(x).

    Args:
        x: tensor or array.

    Example:
        >>> exponential([0.5, 1.0]).tolist()
        [1.6487..., 2.7182...]
    """
    return ops.exp(x)


def gelu(x: TensorLike, approximate: bool = False) -> Tensor:
    """Return x * P(X <= x) for a standard normal X, by erf, or by tanh if approximate.

    Args:
        x: tensor or array.
        approximate: whether tanh is used instead of erf.

    Example:
        >>> gelu([-1.0, 2.0]).tolist()
        [-0.1586..., 1.9544...]
    """
    return ops.gelu(x, approximate)


_FUNCTIONS = (
    relu, leaky_relu, relu6, softmax, celu, elu, selu, softplus, softsign, squareplus, soft_shrink,
    sparse_plus, sparse_sigmoid, silu, gelu, glu, tanh, tanh_shrink, threshold, sigmoid,
    exponential, hard_sigmoid, hard_silu, hard_tanh, hard_shrink, linear, mish, log_softmax,
    log_sigmoid, sparsemax,
)  # fmt: skip
add_builtins("keras.activations", {f.__name__: f for f in _FUNCTIONS})
add_builtins("keras.activations", {"swish": silu, "hard_swish": hard_silu})


@hides_frames
def get(identifier: ActivationLike | None) -> Callable[..., Any]:
    """Return the activation function for a name, a config or a function; None: linear.

    Args:
        identifier: a name, config, class, function or object; None gives None.

    Raises:
        ValueError: a name that is not known; the message lists the nearest known ones.

    Example:
        >>> get("relu") is relu, get(None) is linear
        (True, True)
    """
    if identifier is None:
        return linear
    return get_by_name(identifier, "keras.activations", "activation")


def serialize(activation: Callable[..., Any]) -> str:
    """Return the name of an activation function, or its config, as files hold it.

    Args:
        activation: a function.

    Example:
        >>> serialize(swish)
        'silu'
    """
    return serialize_keras_object(activation)


@hides_frames
def deserialize(
    config: Config | str, custom_objects: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Return the activation function that `serialize` was given.

    Args:
        config: what `serialize` returned.
        custom_objects: name -> class or function, for names that are not registered; None: none.

    Example:
        >>> deserialize("relu") is relu
        True
    """
    return get_by_name(config, "keras.activations", "activation", custom_objects)
