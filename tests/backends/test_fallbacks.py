"""Without oneDNN or llvmlite the static engine still trains, says so once, and gives the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

TRAIN = """
import json, sys, warnings
import numpy as np
if "no-llvmlite" in sys.argv:
    sys.modules["llvmlite"] = None
import kerasish
from kerasish import layers
warnings.simplefilter("always")
kerasish.config.set_backend("eager" if "eager" in sys.argv else "static")
kerasish.utils.set_random_seed(1)
model = kerasish.Sequential([
    layers.Input((8, 8, 1)), layers.Conv2D(4, 3, activation="relu"), layers.MaxPooling2D(),
    layers.Flatten(), layers.Dropout(0.2), layers.Dense(32, activation="relu"), layers.Dense(3),
])
model.compile("adam", "mse")
rng = np.random.default_rng(0)
x, y = rng.normal(size=(70, 8, 8, 1)), rng.normal(size=(70, 3))
with warnings.catch_warnings(record=True) as caught:
    history = model.fit(x, y, epochs=2, verbose=0)
print(json.dumps([history.history["loss"], [str(w.message) for w in caught]]))
"""


def train(*flags, **environment):
    done = subprocess.run(
        [sys.executable, "-c", TRAIN, *flags],
        capture_output=True, text=True, check=True, timeout=120,
        env={**os.environ, **environment},
    )  # fmt: skip
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.fixture(scope="module")
def expected():
    return train("eager")[0]


def test_without_onednn(expected):
    losses, warned = train(KERASISH_ONEDNN="off")
    assert losses == pytest.approx(expected, rel=1e-5)
    assert sum("oneDNN" in w for w in warned) == 1


def test_without_llvmlite(expected):
    losses, warned = train("no-llvmlite", KERASISH_CACHE_DIR="")
    assert losses == pytest.approx(expected, rel=1e-5)
    assert sum("llvmlite" in w for w in warned) == 1


INTERRUPT = """
import sys
import numpy as np
import kerasish
from kerasish import layers
kerasish.config.set_backend("static")
model = kerasish.Sequential([layers.Input((6,)), layers.Dense(8), layers.Dense(2)])
model.compile("adam", "mse")
x, y = np.ones((640, 6)), np.ones((640, 2))
model.fit(x, y, verbose=0)
print("ready", flush=True)
try:
    model.fit(x, y, epochs=10_000_000, verbose=0)
except KeyboardInterrupt:
    before = int(model.optimizer.iterations.numpy())
    model.fit(x, y, verbose=0)
    print("usable", int(model.optimizer.iterations.numpy()) - before, flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="signals are POSIX's here")
def test_ctrl_c_in_a_native_loop_leaves_a_usable_model():
    child = subprocess.Popen([sys.executable, "-c", INTERRUPT], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline().strip() == "ready"
        time.sleep(0.5)
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=60)
    finally:
        child.kill()
    assert out.strip() == "usable 20"


FORK = """
import os, sys
import numpy as np
import kerasish
from kerasish import layers
kerasish.config.set_backend("static")
model = kerasish.Sequential([layers.Input((6,)), layers.Dense(8), layers.Dense(2)])
model.compile("adam", "mse")
x, y = np.ones((64, 6)), np.ones((64, 2))
model.fit(x, y, verbose=0)
child = os.fork()
if child == 0:
    try:
        model.fit(x, y, verbose=0)
        os._exit(0)
    except Exception as error:
        print(error, file=sys.stderr)
        os._exit(7)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_fork_after_fit_works_or_says_why():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.strip() in ("0", "7")
    if done.stdout.strip() == "7":
        assert "fork" in done.stderr
