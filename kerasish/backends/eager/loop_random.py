"""Random words and dropout by compiled loops: the same words as `numpy_random`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kerasish.backends.eager import numpy_random
from kerasish.backends.eager.memory import empty
from kerasish.backends.eager.native_loops import FLOAT, LEAST, CompiledLoop, fits
from kerasish.backends.loops import LoopBuilder
from kerasish.typing import Array, Shape

_WORD = np.dtype("uint32")


def _draw(k: LoopBuilder, seed: Any, draw: Any) -> Any:
    zero = k.constant(0, "uint32")
    return k.op("random_bits", seed, zero, draw, zero, aligned=True)


def _words(k: LoopBuilder) -> None:
    seed, draw = k.input("uint32", "scalar"), k.input("uint32", "scalar")
    k.output(_draw(k, seed, draw))


def _dropout(k: LoopBuilder) -> None:
    x, scale = k.input("float32"), k.input("float32", "scalar")
    seed, draw, threshold = (k.input("uint32", "scalar") for _ in range(3))
    k.output(k.op("select", _draw(k, seed, draw) < threshold, 0.0, x * scale))


_WORDS, _DROPOUT = CompiledLoop(_words), CompiledLoop(_dropout)


def _scalars(state: Array, *more: int) -> list[Array]:
    """Return arrays of one word each."""
    return list(np.array([*(int(word) for word in state), *more], _WORD).reshape(-1, 1))


def random_bits(state: Array, *, shape: Shape) -> Array:
    """Return the words that `kerasish.ops.random.random_bits` defines."""
    loop = _WORDS.find() if math.prod(shape) >= LEAST else None
    if loop is None:
        return numpy_random.random_bits(state, shape=shape)
    result = empty(tuple(shape), _WORD)
    loop((*_scalars(state), result), 1, result.size)
    return result


def dropout(state: Array, x: Array, rate: float) -> Array:
    """Return x / (1 - rate), 0 where a random word is below round(rate * 2**32).

    Its gradient is the same function of the incoming gradient.

    Args:
        state: uint32 [seed, draw].
        x: float32.
        rate: 0 < rate < 1.
    """
    threshold, scale = round(rate * 2.0**32), np.full(1, 1 / (1 - rate), x.dtype)
    loop = _DROPOUT.find() if fits(x) and threshold < 1 << 32 else None
    if loop is None:
        bits = numpy_random.random_bits(state, shape=x.shape)
        return np.where(bits < threshold, x.dtype.type(0), x * scale)
    seed, draw, limit = _scalars(state, threshold)
    y = empty(x.shape, FLOAT)
    loop((x, scale, seed, draw, limit, y), 1, x.size)
    return y


KERNELS: dict[str, Any] = {"random_bits": random_bits}
