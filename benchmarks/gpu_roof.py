"""What a GPU can do at most, measured: copies, products; and how near our kernels come to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

_ROW = 1024  # elements of a row of what the kernels are measured on
_CHANNELS = 64  # of images
MIB = 1 << 20


def time_calls(xp: Any, call: Callable[[], Any], seconds: float = 0.05, rounds: int = 5) -> float:
    """Seconds of one call: the best of `rounds` rounds, each of as many calls as fit `seconds`."""
    wait = xp.cuda.get_current_stream().synchronize

    def spent(count: int) -> float:
        wait()
        start = time.perf_counter()
        for _ in range(count):
            call()
        wait()
        return time.perf_counter() - start

    spent(2)
    count = max(1, int(seconds / max(spent(3) / 3, 1e-7)))
    return min(spent(count) for _ in range(rounds)) / count


def measure_copy(xp: Any, size: int = 1024 * MIB, seconds: float = 0.05) -> float:
    """Bytes read plus bytes written a second by a copy of `size` bytes on the device."""
    source, target = xp.zeros(size, xp.uint8), xp.zeros(size, xp.uint8)

    def copy() -> None:
        target[...] = source

    return 2 * size / time_calls(xp, copy, seconds)


def measure_products(xp: Any, side: int = 8192, seconds: float = 0.05) -> dict[str, float]:
    """FLOP/s of a product of square matrices by our engine, for each dtype; needs kerasish."""
    import kerasish

    rates = {}
    for dtype in ("float32", "bfloat16"):
        # Zeros would let the chip save power, and run faster than with numbers.
        numbers = np.random.default_rng(0).standard_normal((side, side), dtype=np.float32)
        with kerasish.device("gpu"):
            x = kerasish.ops.cast(kerasish.Tensor(numbers), dtype)
            seconds_each = time_calls(xp, lambda: kerasish.ops.matmul(x, x), seconds)  # noqa: B023
        rates[dtype] = 2 * side**3 / seconds_each
    return rates


def kernel_calls(xp: Any, size: int, dtype: str) -> Iterator[tuple[str, Callable[[], Any], int]]:
    """Yield (name, call, bytes that it must read and write) of memory-bound kernels.

    Args:
        size: bytes of the main array.
    """
    from kerasish.backends.eager.cuda import KERNELS, activation, norm, random, softmax, update
    from kerasish.ops import dtypes

    kind = np.dtype(dtypes.array_dtype(dtype))
    rows = max(size // kind.itemsize // _ROW, 1)
    x, g = (xp.ones((rows, _ROW), kind) for _ in range(2))
    size, factor = x.nbytes, xp.ones(_ROW, kind)
    classes, state = xp.zeros(rows, xp.int32), xp.ones(2, xp.uint32)
    rate, steps = xp.ones((), xp.float32), xp.ones((), xp.int32)
    mean, scale = xp.zeros(rows, xp.float32), xp.ones(rows, xp.float32)
    average, variance, spread = (xp.ones(_ROW, xp.float32) for _ in range(3))
    side = max(int((x.size // _CHANNELS) ** 0.5) // 2 * 2, 2)
    images = xp.ones((1, side, side, _CHANNELS), kind)
    pooling: dict[str, Any] = {"size": (2, 2), "strides": (2, 2), "padding": ((0, 0), (0, 0))}
    places = xp.asarray(np.random.default_rng(0).permutation(rows).astype(np.int32))
    yield "softmax", lambda: softmax.softmax(x), 2 * size
    yield "softmax, back", lambda: softmax.softmax_gradient(g, x), 3 * size
    yield "cross-entropy", lambda: softmax.class_loss(classes, x), size
    yield "layer norm", lambda: norm.layer_norm(x, factor, factor), 2 * size
    # The gradients by x, and by gamma and beta in a separate pass.
    yield (
        "layer norm, back",
        lambda: norm.layer_norm_gradient(g, x, factor, mean, scale),
        5 * size,
    )
    yield "batch statistics", lambda: norm.column_moments(x), size
    yield "batch norm", lambda: norm.batch_norm(x, average, variance, factor, factor), 2 * size
    yield (
        "batch norm, back",
        lambda: norm.batch_norm_gradient(g, x, average, spread, factor),
        5 * size,
    )
    yield "bias + gelu", lambda: activation.bias_activation(x, factor, "gelu"), 2 * size
    yield "gelu, back", lambda: activation.bias_activation_gradient(g, x, None, "gelu"), 3 * size
    yield "dropout", lambda: random.dropout(state, x, 0.5), 2 * size
    yield "rows of a table", lambda: KERNELS["take_rows"](x, places, axis=0), 2 * size
    yield "max pooling 2x2", lambda: KERNELS["pool_max"](images, **pooling), images.nbytes * 5 // 4
    sgd, adam = _formula("SGD", momentum=0.9), _formula("Adam")
    one_slot, two_slots = [[x], [g], [x]], [[x], [g], [x], [x]]
    yield "SGD, momentum", lambda: update.update_tensors(sgd, one_slot, [rate]), 5 * size
    yield "Adam", lambda: update.update_tensors(adam, two_slots, [rate, steps]), 7 * size
    yield "global norm", lambda: update.global_norm([x], 1.0), size


def _formula(name: str, **settings: Any) -> Any:
    """Return the CUDA code of an optimizer's formula."""
    import kerasish
    from kerasish.backends.eager.cuda import update
    from kerasish.optimizers.fused_update import formula_of

    optimizer, variable = getattr(kerasish.optimizers, name)(**settings), kerasish.Variable([0.0])
    optimizer.build([variable])
    count = 2 + len(optimizer.slots_of(variable))
    rate = np.zeros((), np.float32)
    return update.compiled(formula_of(optimizer), count, [rate, None], False)


def measure_kernels(
    xp: Any, copy: float | None, sizes: tuple[int, ...] = (64 * MIB, 256 * MIB),
    seconds: float = 0.03,
) -> list[dict[str, Any]]:  # fmt: skip
    """Bytes a second of each memory-bound kernel, and its share of the copy's, or its failure."""
    rows = []
    for dtype in ("float32", "bfloat16"):
        for size in sizes:
            for name, call, moved in kernel_calls(xp, size, dtype):
                row: dict[str, Any] = {"kernel": name, "dtype": dtype, "bytes": size}
                try:
                    rate = moved / time_calls(xp, call, seconds, 3)
                    row |= {"rate": rate, "share": rate / copy if copy else None}
                except Exception as error:  # the others are worth having all the same
                    row["failure"] = f"{type(error).__name__}: {error}"
                rows.append(row)
    return rows


def describe_gpu(xp: Any) -> dict[str, Any]:
    """Name, memory and CUDA versions of the first GPU."""
    runtime = xp.cuda.runtime
    properties = runtime.getDeviceProperties(0)
    name = properties["name"]
    return {
        "name": name.decode() if isinstance(name, bytes) else str(name),
        "processors": properties["multiProcessorCount"],
        "memory": properties["totalGlobalMem"],
        "runtime": runtime.runtimeGetVersion(),
        "driver": runtime.driverGetVersion(),
        "cupy": xp.__version__,
    }
