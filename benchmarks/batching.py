"""vectorized_map over 1,000 small products compared with a loop: python -m benchmarks.batching."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from kerasish import ops


def main(rounds: int = 7) -> None:
    """Print how many times faster than a loop, best and median of alternating rounds."""
    a, b = np.random.default_rng(0).normal(size=(2, 1000, 8, 8)).astype("float32")

    def loop() -> None:
        ops.stack([ops.matmul(x, y) for x, y in zip(a, b)])

    def mapped() -> None:
        ops.vectorized_map(lambda pair: ops.matmul(*pair), (a, b))

    times: dict[Callable[[], None], list[float]] = {loop: [], mapped: []}
    for _ in range(rounds + 1):
        for function, spent in times.items():
            start = time.perf_counter()
            function()
            spent.append(time.perf_counter() - start)
    slow, fast = (spent[1:] for spent in times.values())
    ratio = statistics.median(slow) / statistics.median(fast)
    print(f"loop / vectorized_map: best {min(slow) / min(fast):.0f}, median {ratio:.0f}")


if __name__ == "__main__":
    main()
