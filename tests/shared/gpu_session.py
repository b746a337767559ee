"""`pytest -m gpu` on a machine that is lent for minutes: what matters first, and an end in time.

`KERASISH_GPU_SECONDS=480`: tests that have not begun by then are skipped, and say so. A GPU that an
illegal access has broken is lost to its process: the tests after it say so, too, and do not fail
one by one. With pytest-xdist the worker is replaced, and they run.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import pytest

_started = time.monotonic()
# Parts of names, the most telling tests first; all others of the mark `gpu` come after these.
ORDER = (
    "transfers", "losses_of_20_steps", "same_bits_twice", "memory_stays_flat", "gives_what_the_cpu",
    "conformance", "test_layers[None", "test_optimizers", "float32", "test_layers", "bfloat16",
)  # fmt: skip
_lost: list[str] = []


def rank(name: str) -> int:
    """Return the place of a test's name in ORDER."""
    return next((i for i, part in enumerate(ORDER) if part in name), len(ORDER))


def sort_items(items: list[pytest.Item]) -> None:
    """Put the tests of GPUs, which come last, into the order in which they tell most."""
    items.sort(key=lambda i: -1 if i.get_closest_marker("gpu") is None else rank(i.name))


def skip_if_over() -> None:
    """Skip a test of GPUs where the time is up, or the GPU is lost."""
    seconds = float(os.environ.get("KERASISH_GPU_SECONDS", "inf"))
    if time.monotonic() - _started > seconds:
        pytest.skip(f"the {seconds:g} s of KERASISH_GPU_SECONDS are over")
    if _lost:
        pytest.skip(f"the GPU is lost to this process since {_lost[0]}")


def look_after(name: str, cupy: Any) -> None:
    """Find out whether the GPU still works after a test that failed.

    Args:
        cupy: the module, or None where it was never imported.
    """
    if cupy is None or _lost:
        return
    try:
        cupy.cuda.runtime.deviceSynchronize()
    except RuntimeError as error:  # CuPy's errors of CUDA are some
        _lost.append(f"{name} ({error})")
        if "PYTEST_XDIST_WORKER" in os.environ:
            sys.stderr.write(f"{_lost[0]}: the GPU is lost to this worker, which ends\n")
            os._exit(3)  # xdist names the test, and starts another worker for the others


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Pytest's hook."""
    sort_items(items)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Pytest's hook."""
    if item.get_closest_marker("gpu") is not None:
        skip_if_over()


def pytest_runtest_logreport(report: Any) -> None:
    """Pytest's hook: in the process that ran the test, right after it."""
    if report.failed and "gpu" in report.keywords:
        look_after(report.nodeid, sys.modules.get("cupy"))
