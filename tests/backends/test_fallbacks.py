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


ZOO = """
import json, sys
import numpy as np
if "no-llvmlite" in sys.argv:
    sys.modules["llvmlite"] = None
import kerasish
from kerasish.layers import *
kerasish.config.set_backend("eager" if "eager" in sys.argv else "static")
kerasish.utils.set_random_seed(0)
sequence = Input((6, 8))
attended = LayerNormalization()(sequence + MultiHeadAttention(2, 4)(sequence, sequence))
makes = {
    "pictures": ((8, 8, 2), lambda: [
        Conv2D(4, 3, strides=2, padding="same"), DepthwiseConv2D(3), BatchNormalization(), ReLU(),
        GlobalAveragePooling2D()]),
    "transposed": ((5, 5, 2), lambda: [Conv2DTranspose(3, 3, strides=2), AveragePooling2D(2),
        Flatten()]),
    "lstm": ((5, 4), lambda: [LSTM(8)]),
    "gru": ((5, 4), lambda: [GRU(8, return_sequences=True), SimpleRNN(4)]),
    "half": ((9,), lambda: [Dense(40, "relu", dtype="mixed_bfloat16")]),
    "table": ((6,), lambda: [Embedding(900, 8), Flatten()]),
    "attention": ((6, 8), lambda: [kerasish.Model(sequence, GlobalAveragePooling1D()(attended))]),
}
found = {}
for name, (shape, make) in makes.items():
    kerasish.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 900, (32, *shape)) if name == "table" else rng.normal(size=(32, *shape))
    model = kerasish.Sequential([*make(), Dense(3)])
    loss = kerasish.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(kerasish.optimizers.SGD(0.1), loss)
    y = rng.integers(0, 3, 32)
    found[name] = [float(model.train_on_batch(x, y)) for _ in range(4)]
print(json.dumps(found))
"""


def _zoo(*flags, **environment):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ZOO, *flags],
        capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, "KERASISH_CACHE_DIR": "", **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.fixture(scope="module")
def zoo():
    return _zoo("eager")


@pytest.mark.parametrize(
    ("flags", "environment"),
    [
        ((), {"KERASISH_ONEDNN": "off"}),
        (("no-llvmlite",), {}),
        pytest.param(
            ("no-llvmlite",), {"KERASISH_ONEDNN": "off"}, id="neither", marks=pytest.mark.slow
        ),
        pytest.param((), {"KERASISH_CPU": "sse"}, id="an old processor", marks=pytest.mark.slow),
    ],
    ids=["no onednn", "no llvmlite", None, None],
)
def test_every_kind_of_layer_trains_without(zoo, flags, environment):
    losses = _zoo(*flags, **environment)
    for name, expected in zoo.items():
        rough = 1e-2 if name == "half" else 1e-5
        assert losses[name] == pytest.approx(expected, rel=rough), name


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
try:
    print("ready", flush=True)
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
