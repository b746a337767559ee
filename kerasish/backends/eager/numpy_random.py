"""NumPy kernels of random numbers: Philox in chunks that stay in the cache, and erfinv."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kerasish.ops.op import REGISTRY
from kerasish.ops.random import KEY_STEPS, MASK, MULTIPLIERS, ROUNDS
from kerasish.typing import Array, Shape

# Blocks of four words per chunk: the working arrays take 300 KB.
CHUNK = 1 << 13
_A, _B = (np.uint64(m) for m in MULTIPLIERS)
_MASK, _HALF = np.uint64(MASK), np.uint64(32)


def _keys(seed: int) -> list[tuple[Any, Any]]:
    """Return the two key words of each round."""
    return [
        (np.uint64((seed + i * KEY_STEPS[0]) & MASK), np.uint64(i * KEY_STEPS[1] & MASK))
        for i in range(ROUNDS)
    ]


def _fill(out: Array, start: int, draw: int, keys: list[tuple[Any, Any]], scratch: Array) -> None:
    """Write the blocks from `start` on into out (blocks, 4); `scratch` is scratch (6, blocks)."""
    count = len(out)
    first, second, c0, c1, c2, c3 = (row[:count] for row in scratch)
    np.add(np.arange(count, dtype=np.uint64), np.uint64(start), out=c0)
    np.right_shift(c0, _HALF, out=c1)
    np.bitwise_and(c0, _MASK, out=c0)
    c2.fill(draw)
    c3.fill(0)
    for k0, k1 in keys:
        # c1 and c3 are only combined by xor: their high halves vanish when the result is masked.
        np.multiply(c0, _A, out=first)
        np.multiply(c2, _B, out=second)
        np.right_shift(second, _HALF, out=c0)
        np.bitwise_xor(c0, c1, out=c0)
        np.bitwise_xor(c0, k0, out=c0)
        np.bitwise_and(c0, _MASK, out=c0)
        np.right_shift(first, _HALF, out=c2)
        np.bitwise_xor(c2, c3, out=c2)
        np.bitwise_xor(c2, k1, out=c2)
        np.bitwise_and(c2, _MASK, out=c2)
        c1, second = second, c1
        c3, first = first, c3
    for word, c in enumerate((c0, c1, c2, c3)):
        out[:, word] = c  # the cast keeps the low half


def random_bits(state: Array, *, shape: Shape) -> Array:
    """Return the words that `kerasish.ops.random.random_bits` defines."""
    seed, draw = (int(word) for word in state)
    count = math.prod(shape)
    blocks = (count + 3) // 4
    out = np.empty((blocks, 4), np.uint32)
    scratch = np.empty((6, min(blocks, CHUNK)), np.uint64)
    keys = _keys(seed)
    for start in range(0, blocks, CHUNK):
        _fill(out[start : start + CHUNK], start, draw, keys, scratch)
    return out.reshape(-1)[:count].reshape(shape)


# Giles's polynomials in w = -log(1 - x * x), for w < 5 and beyond.
_NEAR = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
         -0.00125372503, -0.00417768164, 0.246640727, 1.50140941)  # fmt: skip
_FAR = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
        -0.0076224613, 0.00943887047, 1.00167406, 2.83297682)  # fmt: skip


def _horner(coefficients: tuple[float, ...], x: Array) -> Array:
    y = np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        np.multiply(y, x, out=y)
        np.add(y, np.float32(c), out=y)
    return y


def erfinv(x: Array) -> Array:
    """Return erfinv; in single precision by Giles's polynomials (4e-7 relative).

    Source: Giles, Approximating the erfinv function, GPU Computing Gems 2011.
    """
    if x.dtype != np.float32:
        return REGISTRY["erfinv"].kernel(np, x)
    flat = np.ascontiguousarray(x).reshape(-1)
    y = np.empty_like(flat)
    for start in range(0, flat.size, CHUNK):
        part = flat[start : start + CHUNK]
        w = np.negative(np.log((1 - part) * (1 + part)))
        result = _horner(_NEAR, w - np.float32(2.5))
        far = ~(w < 5)
        if far.any():
            result[far] = _horner(_FAR, np.sqrt(w[far]) - np.float32(3))
            result[np.absolute(part) == 1] = np.inf
        np.multiply(result, part, out=y[start : start + CHUNK])
    return y.reshape(x.shape)


KERNELS: dict[str, Any] = {"random_bits": random_bits, "erfinv": erfinv}
