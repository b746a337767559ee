"""How many threads a training uses: what the user's settings say, counted by the system."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

FOLDER = "/proc/self/task"
PROGRAM = """
import collections, contextlib, os, sys, threading
import numpy as np
import kerasish
from kerasish import layers

threads, limit, loaded = (int(s) for s in sys.argv[1:])
kerasish.config.set_backend("static")
if threads:
    kerasish.config.set_threads(threads)
x, y = np.ones((512, 300), "float32"), np.ones((512, 30), "float32")
pictures, labels = np.ones((16, 16, 16, 8), "float32"), np.ones((16, 4), "float32")
rows, words = np.ones((32, 6, 20), "float32"), np.ones((32, 64), "float32")
dense = kerasish.Sequential([layers.Dense(500, "tanh"), layers.Dense(30, "softmax")])
convolution = kerasish.Sequential([layers.Conv2D(32, 3), layers.MaxPooling2D(), layers.Flatten(),
                                   layers.Dense(4)])
recurrent = kerasish.Sequential([layers.LSTM(64)])
if loaded:
    from kerasish.backends.static.machine import native
    native.available()
if limit:
    import threadpoolctl
    block = threadpoolctl.threadpool_limits(limit)
else:
    block = contextlib.nullcontext()
most, done = 0, threading.Event()


def others():
    # The threads of the system that are none of Python's, and how many may still turn out to be.
    ids = {int(name) for name in os.listdir("/proc/self/task")}
    alive = threading.enumerate()
    of_python.update(t.native_id for t in alive)
    return ids - of_python, sum(t.native_id is None for t in alive)


def watch():
    global most
    seen = collections.deque(maxlen=20)
    while not done.wait(0.0005):
        now, starting = others()
        seen.append(now)
        if len(seen) == seen.maxlen:  # seen 20 times in a row: not one that is just ending
            most = max(most, len(set.intersection(*seen)) - starting)


of_python = set()
before = len(others()[0])
watcher = threading.Thread(target=watch)
watcher.start()
with block:
    for model, data in ((dense, (x, y)), (convolution, (pictures, labels)),
                        (recurrent, (rows, words))):
        model.compile("adam", "mse")
        model.fit(*data, batch_size=len(data[0]), epochs=20, verbose=0)
        model.predict(data[0], verbose=0)
done.set()
watcher.join()
print(most - before)
"""


def new_threads(threads=0, limit=0, loaded=0, **environment):
    """Return how many threads of the system the training of three models takes at most."""
    clean = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("OMP_", "GOMP_", "OPENBLAS_", "MKL_"))
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, *map(str, (threads, limit, loaded))],
        env={**clean, **environment},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir(FOLDER), reason=f"there is no {FOLDER} here")
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"OMP_NUM_THREADS": "3"}, 2),
        ({"OMP_NUM_THREADS": "1"}, 0),
        ({"OMP_NUM_THREADS": "3", "threads": 1}, 0),
        ({"OMP_NUM_THREADS": "3", "threads": 2}, 1),
        ({"OMP_NUM_THREADS": "1", "threads": 3}, 2),
        ({"OMP_NUM_THREADS": "3", "limit": 1}, 0),
        ({"OMP_NUM_THREADS": "4", "threads": 4, "limit": 1}, 0),
        ({"OMP_NUM_THREADS": "4", "limit": 2, "loaded": 1}, 1),
        ({"OMP_NUM_THREADS": "4", "threads": 4, "limit": 2, "loaded": 1}, 1),
    ],
    ids=str,
)
def test_a_training_takes_no_more_threads_than_it_may(settings, expected):
    if settings.get("limit") and "loaded" not in settings and len(os.sched_getaffinity(0)) < 2:
        pytest.skip("NumPy's BLAS has one thread here: its limit cannot be seen")
    assert new_threads(**settings) == expected
