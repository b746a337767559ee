"""Random words by Philox, and dropout that draws its mask in one pass; bits equal the CPU's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kerasish.backends.eager.cuda.arrays import cast, compact, empty
from kerasish.backends.eager.cuda.kernels import (
    check,
    launch_elements,
    packed,
    product,
)

SOURCE = "random"


def random_bits(state: Any, *, shape: Any) -> Any:
    """Return the words that `kerasish.ops.random.random_bits` defines."""
    words = empty(shape, np.uint32)
    state = compact(cast(state, np.uint32))
    blocks = (math.prod(shape) + 3) // 4
    args = (state, words, product(shape), packed(4, words))
    launch_elements(SOURCE, "random_words", np.dtype("float32"), blocks, *args)
    return words


def dropout(state: Any, x: Any, rate: float) -> Any:
    """Return x / (1 - rate), 0 where a random word is below round(rate * 2**32).

    Its gradient is the same function of the incoming gradient.

    Args:
        state: uint32 [seed, draw], on the device.
        rate: 0 <= rate < 1.
    """
    check("dropout", x)
    if not 0 <= rate < 1:
        raise ValueError(f"dropout: 0 <= rate < 1 expected, got {rate}.")
    x = compact(x)
    y = empty(x.shape, x.dtype)
    # If the threshold is 2**32, the largest number that fits drops all but one in 2**32.
    threshold = np.uint32(min(round(rate * 2.0**32), 2**32 - 1))
    scale = np.float32(x.dtype.type(1 / (1 - rate)))  # as the CPU's: a number of x's dtype
    state = compact(cast(state, np.uint32))
    aligned = np.int32(x.data.ptr % 16 == 0 and y.data.ptr % 16 == 0)
    args = (x, state, y, threshold, scale, product(x.shape), aligned)
    launch_elements(SOURCE, "dropout", x.dtype, (x.size + 3) // 4, *args)
    return y


KERNELS: dict[str, Any] = {"random_bits": random_bits}
