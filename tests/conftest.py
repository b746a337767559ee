"""What every test gets: seeds, quiet threads, and caches of its own."""

from __future__ import annotations

import gc
import os
import random
import signal
import tempfile
import threading
from collections.abc import Generator, Iterator
from typing import Any

# Before NumPy is imported: each pytest-xdist worker is a process; threads on top would queue.
if "PYTEST_XDIST_WORKER" in os.environ:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
# A shell lets its jobs in the background ignore Ctrl-C, and each process that a test starts would.
if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    and threading.current_thread() is threading.main_thread()
):
    signal.signal(signal.SIGINT, signal.default_int_handler)
# No window opens, and nothing is left in the home directory of the user.
os.environ.setdefault("MPLBACKEND", "Agg")
# The workers of pytest-xdist inherit the folder: what one has compiled is used by the others.
if not os.environ.get("KERASISH_TESTS_CACHE"):
    _cache = tempfile.TemporaryDirectory(prefix="kerasish-tests-", ignore_cleanup_errors=True)
    os.environ["KERASISH_TESTS_CACHE"] = _cache.name
os.environ["XDG_CACHE_HOME"] = os.environ["KERASISH_TESTS_CACHE"]
os.environ["MPLCONFIGDIR"] = os.environ["KERASISH_TESTS_CACHE"]

import hypothesis
import numpy as np
import pytest
from gpu_session import (  # noqa: F401 - hooks of pytest's
    pytest_collection_modifyitems,
    pytest_runtest_logreport,
    pytest_runtest_setup,
)

from kerasish import config
from kerasish.backends.static.engine import SAVED_PLANS

hypothesis.settings.register_profile("steady", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("steady")

# Tests change limits inside passes and lowering, which are no part of the key of a saved plan.
SAVED_PLANS.on = False

# A test that fails shows all frames; tests/test_tracebacks.py checks what users see.
config.disable_traceback_filtering()

# Programs that tests start on several ranks: they train when they are imported.
collect_ignore = ["shared/rank_bits.py", "shared/rank_failures.py"]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Do without garbage collections meanwhile: what is collected stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Leave the tests themselves, millions of objects, out of each later garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def same_start() -> Iterator[None]:
    """Each test starts from the same seeds, and leaves the settings of the process as they were."""
    random.seed(20150327)
    np.random.seed(20150327)
    config.set_seed(20150327)
    before = (config.floatx(), config.epsilon(), config.image_data_format(), config.backend())
    threads = config.threads()
    yield
    config.set_threads(threads)
    config.set_floatx(before[0])
    config.set_epsilon(before[1])
    config.set_image_data_format(before[2])
    config.set_backend(before[3])


@pytest.fixture(params=["static", "eager"])
def engine(request: pytest.FixtureRequest) -> str:
    """The test runs with each of the two engines; `same_start` sets the earlier one again."""
    config.set_backend(request.param)
    return request.param
