"""What every test gets: seeds, quiet threads, and caches of its own."""

from __future__ import annotations

import os
import tempfile

# Before NumPy is imported: each pytest-xdist worker is a process; threads on top would queue.
if "PYTEST_XDIST_WORKER" in os.environ:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
# No window opens, and nothing is left in the home directory of whoever runs the tests.
os.environ.setdefault("MPLBACKEND", "Agg")
_cache = tempfile.TemporaryDirectory(prefix="kerasish-tests-", ignore_cleanup_errors=True)
os.environ["XDG_CACHE_HOME"] = _cache.name
os.environ["MPLCONFIGDIR"] = _cache.name

import hypothesis  # noqa: E402 (the environment above comes first)
import pytest  # noqa: E402

import kerasish  # noqa: E402

hypothesis.settings.register_profile("steady", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("steady")


@pytest.fixture(autouse=True)
def fixed_seeds() -> None:
    """Python's, NumPy's and kerasish's random numbers start anew in every test."""
    kerasish.utils.set_random_seed(20150327)
