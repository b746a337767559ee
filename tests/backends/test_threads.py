"""How many threads a training uses: what the user's settings say, counted by the system."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import numpy as np
import pytest

import kerasish
from kerasish import config
from kerasish.backends.static import engine
from kerasish.backends.static.engine import COMPILED_PLANS
from kerasish.backends.static.lowering import program_threads, recurrent
from kerasish.backends.static.runtime import blocks

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
    from kerasish.backends.onednn import native
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


def _lstm(units, steps=6, rows=8):
    kerasish.utils.set_random_seed(0)
    model = kerasish.Sequential(
        [kerasish.Input((steps, 3)), kerasish.layers.LSTM(units), kerasish.layers.Dense(1)]
    )
    model.compile("sgd", "mse")
    return model, np.random.default_rng(0).normal(size=(rows, steps, 3)).astype("float32")


def _plans(model, kind):
    return [e.compiled_plan for e in model.training_program.step(kind).executables()]


def test_one_thread_runs_a_small_recurrence_and_gives_the_same_bits(monkeypatch):
    """Threads would meet in each time step, and wait there beside busy processes."""
    config.set_backend("static")
    results = {}
    monkeypatch.setattr(program_threads, "SMALL_PROGRAM", 0)
    monkeypatch.setattr(blocks, "SMALL", math.inf)  # nothing runs in blocks of rows
    for limit in (recurrent.STEP_FLOPS, 0):
        monkeypatch.setattr(recurrent, "STEP_FLOPS", limit)
        COMPILED_PLANS.clear()
        with config.using_threads(2):
            model, x = _lstm(32, steps=40, rows=32)
            results[limit] = model.predict_on_batch(x)
            (plan,) = _plans(model, "predict")
            assert plan.threads == (1 if limit else None)
            recurrence = next(u for u in plan.units if u.name == "lstm")
            assert recurrence.one_thread or not limit
            if limit:
                assert max(u.threads for u in plan.units) == 1
    COMPILED_PLANS.clear()
    np.testing.assert_array_equal(*results.values())


def test_the_parts_of_trainings_and_large_steps_choose_by_their_work(monkeypatch):
    config.set_backend("static")
    monkeypatch.setattr(engine, "in_blocks", lambda traced: None)
    monkeypatch.setattr(program_threads, "CALLS_APART", 1)
    with config.using_threads(2):
        model, x = _lstm(32, steps=60)
        model.train_on_batch(x, np.zeros((8, 1), "float32"))
        assert _plans(model, "train")[0].threads is None
        few, x = _lstm(4)
        few.train_on_batch(x, np.zeros((8, 1), "float32"))
        assert _plans(few, "train")[0].threads == 1  # too little work for a second one
        large, x = _lstm(256, steps=2, rows=32)  # 17 MFLOP in each time step
        large.predict_on_batch(x)
        assert _plans(large, "predict")[0].threads is None
        dense = kerasish.Sequential([kerasish.Input((300,)), kerasish.layers.Dense(1000)])
        dense.predict_on_batch(np.ones((200, 300), "float32"))
        assert _plans(dense, "predict")[0].threads is None
