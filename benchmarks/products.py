"""`python -m benchmarks.products`: our packed product against oneDNN's, shape by shape, one thread.

Alternates both in one process and prints GFLOP/s of the fastest call of each (CPU time of the
calling thread, so that neighbours matter less). The rule in `lower_library._is_ours` follows it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from kerasish.backends.static import onednn
from kerasish.backends.static.codegen import gemm
from kerasish.backends.static.codegen.driver import Program, Record, aligned, load_runtime
from kerasish.backends.static.codegen.kernels import compile_one
from kerasish.backends.static.machine.machine_code import host_target
from kerasish.backends.static.onednn.primitive import Buffer

# (m, k, n, a transposed, b transposed): mlp, lstm and transformer, forward and backward.
SHAPES = [
    (128, 784, 512, False, False),
    (784, 128, 512, True, False),
    (128, 512, 512, False, False),
    (512, 128, 512, True, False),
    (128, 512, 512, False, True),
    (2560, 128, 512, False, False),
    (128, 2560, 512, True, False),
    (2560, 512, 128, False, True),
    (2048, 128, 128, False, False),
    (128, 2048, 128, True, False),
    (2048, 128, 512, False, False),
    (128, 2048, 512, True, False),
    (512, 2048, 128, True, False),
    (2048, 512, 128, False, False),
    (2048, 128, 512, False, True),
]


def ours(a: Any, b: Any, c: Any, turned: tuple[bool, bool]) -> Callable[[], None]:
    """Return a call of the packed product."""
    m, n = c.shape
    k = a.size // m
    owner, scratch = aligned(gemm.scratch_size((m, n, k), 1))
    strides = (1, m) if turned[0] else (k, 1)
    block = gemm.pack(
        table=load_runtime().table,
        sizes=(m, n, k),
        a=(a.ctypes.data, *strides),
        b=(b.ctypes.data, k if turned[1] else n),
        c=(c.ctypes.data, n),
        scratch=scratch,
    )
    address = compile_one(gemm.Gemm(turned=turned[1]))
    return Program([Record(address, block, "product", (owner, a, b, c))]).run


def theirs(a: Any, b: Any, c: Any, turned: tuple[bool, bool]) -> Callable[[], None]:
    """Return a call of oneDNN's product."""
    m, n = c.shape
    k = a.size // m
    product = onednn.matmul((m, k), (k, n), transpose_a=turned[0], transpose_b=turned[1], threads=1)
    arrays = {"a": a, "b": b, "out": c}
    buffers = {name: Buffer(x.ctypes.data, x.nbytes) for name, x in arrays.items()}
    if product.scratchpad_bytes:
        arrays["scratchpad"] = np.zeros(product.scratchpad_bytes, np.uint8)
        spare = arrays["scratchpad"]
        buffers["scratchpad"] = Buffer(spare.ctypes.data, spare.nbytes)
    binding = product.bind(buffers)
    return lambda: (binding.execute(), arrays)[0]  # the arrays live as long as the call


def clocked(call: Callable[[], None]) -> int:
    """Return nanoseconds of CPU that a call takes."""
    start = time.thread_time_ns()
    call()
    return time.thread_time_ns() - start


def main(rounds: int = 40) -> None:
    """Print the table."""
    print(f"processor: {host_target().level}\n{'m':>6}{'k':>6}{'n':>6}  layout    ours  oneDNN")
    rng = np.random.default_rng(0)
    for m, k, n, *turned in SHAPES:
        a, b = (rng.standard_normal(size, dtype=np.float32) for size in (m * k, k * n))
        c = np.empty((m, n), np.float32)
        layouts = (turned[0], turned[1])
        calls = [make(a, b, c, layouts) for make in (ours, theirs)]
        times = [[clocked(call) for call in calls] for _ in range(rounds)]
        rates = [2 * m * k * n / min(column) for column in zip(*times, strict=True)]
        name = ("T" if turned[0] else "N") + ("T" if turned[1] else "N")
        print(f"{m:6}{k:6}{n:6}  {name:6}{rates[0]:8.1f}{rates[1]:8.1f}")


if __name__ == "__main__":
    main()
