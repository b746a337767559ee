"""The workloads in plain JAX: `init(rng) -> params, state`, `apply(params, state, x, key, train)`.

`apply` gives (logits, new state); `key` is None outside training.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.workloads import VOCABULARY

Tree = Any
Init = Callable[[np.random.Generator], tuple[Tree, Tree]]
Apply = Callable[[Tree, Tree, Any, Any, bool], tuple[Any, Tree]]


def _glorot(rng: np.random.Generator, *shape: int) -> np.ndarray:
    field = int(np.prod(shape[:-2]))
    limit = np.sqrt(6 / (field * (shape[-2] + shape[-1])))
    return rng.uniform(-limit, limit, shape).astype(np.float32)


def _dense_params(rng: np.random.Generator, inputs: int, outputs: int) -> Tree:
    return {"kernel": _glorot(rng, inputs, outputs), "bias": np.zeros(outputs, np.float32)}


def _dense(params: Tree, x: Any) -> Any:
    return x @ params["kernel"] + params["bias"]


def _convolve(kernel: Any, x: Any, stride: int, padding: str) -> Any:
    names = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, kernel, (stride, stride), padding, dimension_numbers=names)


def _max_pool(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def _stack(*sizes: int) -> tuple[Init, Apply]:
    def init(rng: np.random.Generator) -> tuple[Tree, Tree]:
        return [_dense_params(rng, *pair) for pair in pairwise(sizes)], ()

    def apply(params: Tree, state: Tree, x: Any, key: Any, train: bool) -> tuple[Any, Tree]:
        for layer in params[:-1]:
            x = jax.nn.relu(_dense(layer, x))
        return _dense(params[-1], x), state

    return init, apply


def _cnn_init(rng: np.random.Generator) -> tuple[Tree, Tree]:
    convolution = [
        {"kernel": _glorot(rng, 3, 3, i, o), "bias": np.zeros(o, np.float32)}
        for i, o in ((1, 32), (32, 64))
    ]
    return {"convolution": convolution, "head": _dense_params(rng, 1600, 10)}, ()


def _cnn_apply(params: Tree, state: Tree, x: Any, key: Any, train: bool) -> tuple[Any, Tree]:
    for layer in params["convolution"]:
        x = _convolve(layer["kernel"], x, 1, "VALID") + layer["bias"]
        x = _max_pool(jax.nn.relu(x))
    x = x.reshape(x.shape[0], -1)
    if train:
        x = jnp.where(jax.random.bernoulli(key, 0.5, x.shape), x / 0.5, 0.0)
    return _dense(params["head"], x), state


_RESNET_WIDTHS = (16, 16, 16, 16, 32, 32, 32, 64, 64, 64)
_RESNET_BLOCKS = tuple((i, o, 2 if i != o else 1) for i, o in pairwise(_RESNET_WIDTHS))


def _norm_params(rng: np.random.Generator, size: int, i: int, o: int) -> tuple[Tree, Tree]:
    params = {
        "kernel": _glorot(rng, size, size, i, o),
        "scale": np.ones(o, np.float32),
        "shift": np.zeros(o, np.float32),
    }
    return params, {"mean": np.zeros(o, np.float32), "variance": np.ones(o, np.float32)}


def _resnet_init(rng: np.random.Generator) -> tuple[Tree, Tree]:
    pairs = {"stem": _norm_params(rng, 3, 3, 16)}
    for index, (i, o, stride) in enumerate(_RESNET_BLOCKS):
        pairs[f"first{index}"] = _norm_params(rng, 3, i, o)
        pairs[f"second{index}"] = _norm_params(rng, 3, o, o)
        if stride != 1:
            pairs[f"shortcut{index}"] = _norm_params(rng, 1, i, o)
    params: Tree = {name: pair[0] for name, pair in pairs.items()}
    params["head"] = _dense_params(rng, 64, 10)
    return params, {name: pair[1] for name, pair in pairs.items()}


def _resnet_apply(params: Tree, state: Tree, x: Any, key: Any, train: bool) -> tuple[Any, Tree]:
    after = dict(state)

    def convolve_norm(name: str, x: Any, stride: int) -> Any:
        layer, old = params[name], state[name]
        x = _convolve(layer["kernel"], x, stride, "SAME")
        mean, variance = old["mean"], old["variance"]
        if train:
            mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
            after[name] = {
                "mean": 0.99 * old["mean"] + 0.01 * mean,
                "variance": 0.99 * old["variance"] + 0.01 * variance,
            }
        return (x - mean) * (layer["scale"] * lax.rsqrt(variance + 1e-3)) + layer["shift"]

    x = jax.nn.relu(convolve_norm("stem", x, 1))
    for index, (_, _, stride) in enumerate(_RESNET_BLOCKS):
        y = jax.nn.relu(convolve_norm(f"first{index}", x, stride))
        y = convolve_norm(f"second{index}", y, 1)
        if stride != 1:
            x = convolve_norm(f"shortcut{index}", x, stride)
        x = jax.nn.relu(x + y)
    return _dense(params["head"], x.mean((1, 2))), after


def _lstm_init(rng: np.random.Generator) -> tuple[Tree, Tree]:
    return {
        "token": rng.uniform(-0.05, 0.05, (VOCABULARY, 128)).astype(np.float32),
        "inputs": _dense_params(rng, 128, 512),
        "recurrent": _glorot(rng, 128, 512),
        "head": _dense_params(rng, 128, 2),
    }, ()


def _lstm_apply(params: Tree, state: Tree, x: Any, key: Any, train: bool) -> tuple[Any, Tree]:
    gates = _dense(params["inputs"], params["token"][x])

    def step(carry: Tree, gate: Any) -> tuple[Tree, None]:
        hidden, cell = carry
        i, f, g, o = jnp.split(gate + hidden @ params["recurrent"], 4, axis=-1)
        cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
        return (jax.nn.sigmoid(o) * jnp.tanh(cell), cell), None

    zero = jnp.zeros((x.shape[0], 128), jnp.float32)
    (hidden, _), _ = lax.scan(step, (zero, zero), gates.transpose(1, 0, 2))
    return _dense(params["head"], hidden), state


def _transformer_init(rng: np.random.Generator) -> tuple[Tree, Tree]:
    def norm() -> Tree:
        return {"scale": np.ones(128, np.float32), "shift": np.zeros(128, np.float32)}

    def block() -> Tree:
        return {
            "qkv": _dense_params(rng, 128, 384),
            "out": _dense_params(rng, 128, 128),
            "wide": _dense_params(rng, 128, 512),
            "narrow": _dense_params(rng, 512, 128),
            "norm1": norm(),
            "norm2": norm(),
        }

    return {
        "token": rng.uniform(-0.05, 0.05, (VOCABULARY, 128)).astype(np.float32),
        "position": rng.uniform(-0.05, 0.05, (64, 128)).astype(np.float32),
        "blocks": [block(), block()],
        "head": _dense_params(rng, 128, 2),
    }, ()


def _layer_norm(params: Tree, x: Any) -> Any:
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-6) * params["scale"] + params["shift"]


def _transformer_apply(
    params: Tree, state: Tree, x: Any, key: Any, train: bool
) -> tuple[Any, Tree]:
    x = params["token"][x] + params["position"]
    rows, length, width = x.shape
    for block in params["blocks"]:
        parts = _dense(block["qkv"], x).reshape(rows, length, 3, 4, width // 4)
        q, k, v = (parts[:, :, index] for index in range(3))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(width // 4).astype(np.float32)
        y = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)
        x = _layer_norm(block["norm1"], x + _dense(block["out"], y.reshape(x.shape)))
        y = _dense(block["narrow"], jax.nn.relu(_dense(block["wide"], x)))
        x = _layer_norm(block["norm2"], x + y)
    return _dense(params["head"], x.mean(1)), state


MODELS: dict[str, tuple[Init, Apply]] = {
    "mlp": _stack(784, 512, 512, 10),
    "tiny": _stack(20, 32, 32, 2),
    "cnn": (_cnn_init, _cnn_apply),
    "resnet20": (_resnet_init, _resnet_apply),
    "lstm": (_lstm_init, _lstm_apply),
    "transformer": (_transformer_init, _transformer_apply),
}
