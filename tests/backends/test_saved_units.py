"""Saved plans of every kind of unit, and of processes and threads that share a folder."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from plans_on_disk import X, counted, empty_folder, mixed, only_file, run, same

import kerasish
from kerasish import backends, config, layers, ops
from kerasish.backends.onednn import native
from kerasish.backends.static import engine
from kerasish.backends.static.lowering import saved_plans
from kerasish.backends.static.lowering.convolutions import ConvolutionUnit, PoolUnit
from kerasish.backends.static.lowering.few_pixels import FewPixelsUnit
from kerasish.backends.static.lowering.kernel_gradients import KernelGradientUnit
from kerasish.backends.static.lowering.library import MatmulUnit
from kerasish.backends.static.lowering.saved_plans import SavedPlans
from kerasish.backends.static.lowering.thin import ThinUnit
from kerasish.backends.static.lowering.winograd import WinogradUnit
from kerasish.backends.static.lowering.winograd_gradients import WinogradGradientUnit
from kerasish.backends.static.machine.machine_code import host_target
from kerasish.ops.op import REGISTRY

V, W = (kerasish.Variable(np.ones(3, "float32")) for _ in range(2))


@pytest.fixture(name="folder", autouse=True)
def _folder(tmp_path, monkeypatch):
    yield from empty_folder(tmp_path, monkeypatch)


RNG = np.random.default_rng(1)


def normal(*shape):
    return RNG.normal(size=shape).astype("float32")


def attend(q, k, v):
    return ops.matmul(ops.softmax(ops.matmul(q, ops.transpose(k, (0, 1, 3, 2)))), v)


def swap(x):
    old = ops.convert_to_tensor(V)
    V.assign(W)
    W.assign(old)
    return V.shape[0] * x


def kernel_gradient(side):
    settings = {"strides": (1, 1), "dilation": (1, 1), "groups": 1}
    settings |= {"padding": ((side // 2, side // 2),) * 2, "size": (side, side)}
    return lambda x, dy: REGISTRY["convolution_kernel_gradient"](x, dy, **settings)


def convolve(x, kernel):
    return ops.conv(x, kernel, padding="same")


def fitted(build, x, classes=5, optimizer="sgd"):
    """Train and predict; the weights are the results."""

    def function():
        kerasish.utils.set_random_seed(1)
        model = kerasish.Sequential([kerasish.Input(x.shape[1:]), *build()])
        model.compile(optimizer, kerasish.losses.SparseCategoricalCrossentropy(from_logits=True))
        model.fit(x, np.arange(len(x)) % classes, batch_size=32, verbose=0)
        return [model.predict(x[:n], verbose=0) for n in (1, len(x))] + model.get_weights()

    return function


def dense():
    return [layers.Dense(64, activation="relu"), layers.Dense(5)]


def convolved():
    return [
        layers.Conv2D(16, 3, padding="same"), layers.BatchNormalization(), layers.ReLU(),
        layers.MaxPooling2D(2), layers.Conv2D(16, 3, strides=2), layers.AveragePooling2D(2),
        layers.Flatten(), layers.Dense(5),
    ]  # fmt: skip


def embedded():
    return [layers.Embedding(1000, 32), layers.GlobalAveragePooling1D(), layers.Dense(5)]


KEPT = kerasish.Variable(normal(1600, 1600))
IMAGES, TOKENS = normal(64, 20, 20, 3), RNG.integers(0, 700, (64, 12)).astype("float32")
INDEX = RNG.integers(0, 40, 300).astype("int32")
PROGRAMS = {
    "attention": (attend, *(normal(2, 4, 32, 16) for _ in range(3))),
    "empty": (lambda x: (ops.exp(x[:0]), ops.exp(x)), X),
    "moves": (lambda x: ops.concatenate([ops.transpose(x), ops.transpose(x) * 2.0], axis=1), X),
    "swapped variables": (swap, np.ones(3, "float32")),
    "thin": (ops.matmul, normal(512, 256), normal(256, 6)),
    "kept weights": (lambda x: ops.matmul(x, KEPT), normal(64, 1600)),
    "small product": (ops.matmul, normal(8, 12), normal(12, 6)),
    "kernel gradient": (kernel_gradient(5), normal(8, 24, 24, 32), normal(8, 24, 24, 32)),
    "3x3 kernel gradient": (kernel_gradient(3), normal(8, 24, 24, 32), normal(8, 24, 24, 32)),
    "3x3 convolution": (convolve, normal(8, 24, 24, 32), normal(3, 3, 32, 32)),
    "few pixels": (convolve, normal(16, 1, 1, 512), normal(3, 3, 512, 512)),
    "rows by index": (lambda x, i: ops.take(x, i, axis=0), X, INDEX),
    "sums by index": (lambda x, i: ops.segment_sum(x, i, 40), normal(300, 6), INDEX),
    "scaled rows": (
        lambda i, p, f, t: REGISTRY["add_scaled_rows"](i, p, f, t, size=40),
        INDEX, INDEX[::-1].copy(), normal(300), normal(40, 16),
    ),
    "dense": (fitted(dense, X),),
    "dense, large": (fitted(lambda: [layers.Dense(512), layers.Dense(512), layers.Dense(5)], X),),
    "convolved": (fitted(convolved, IMAGES),),
    "embedded": (fitted(embedded, TOKENS),),
    "embedded, Adam": (fitted(embedded, TOKENS, optimizer="adam"),),
}  # fmt: skip


def units_of(name, monkeypatch):
    """Compile, then read again; check the results, and return the kinds of the saved units."""
    function, *args = PROGRAMS[name]
    kinds = set()

    def checked(plan, own=saved_plans.can_save):
        kinds.update(type(unit) for unit in plan.units if own(plan))
        return own(plan)

    monkeypatch.setattr(saved_plans, "can_save", checked)
    results = []
    for _ in range(2):
        V.assign(np.arange(3, dtype="float32"))
        W.assign(np.arange(3, dtype="float32") * 5.0)
        found, counts = run(function, *args) if args else counted(function)
        results.append(([*found, V.numpy(), W.numpy()], counts))
    (first, (read, saved)), (second, again) = results
    assert saved and again == (read + saved, 0)  # programs may share a step
    assert same(first, second)
    return kinds


def test_every_kind_of_unit_is_saved_and_read(monkeypatch):
    config.set_threads(2)
    kinds = set()
    for name in PROGRAMS:
        with monkeypatch.context() as patch:
            kinds |= units_of(name, patch)
    missing = saved_plans._UNITS - kinds
    if host_target().lanes < 16 or native.available():
        missing -= {KernelGradientUnit, ThinUnit, ConvolutionUnit, PoolUnit, MatmulUnit}
        missing -= {FewPixelsUnit, WinogradGradientUnit, WinogradUnit}
    assert not missing


# --- processes and threads ------------------------------------------------------------------------

SCRIPT = """
import hashlib, json, sys
import numpy as np
import kerasish
from kerasish import layers, ops
from kerasish.backends.static.engine import SAVED_PLANS

rng = np.random.default_rng(0)

def dense():
    return [layers.Dense(64, activation="relu"), layers.Dropout(0.3), layers.Dense(5)], (20,)

def convolved():
    return [
        layers.Conv2D(16, 3, padding="same"), layers.BatchNormalization(), layers.ReLU(),
        layers.MaxPooling2D(2), layers.Conv2D(16, 3, strides=2), layers.AveragePooling2D(2),
        layers.Flatten(), layers.Dense(5),
    ], (20, 20, 3)

def tokens():
    return [layers.Embedding(1000, 32), layers.GlobalAveragePooling1D(), layers.Dense(5)], (12,)

class Attending(layers.Layer):
    def __init__(self):
        super().__init__()
        self.heads = layers.MultiHeadAttention(2, 16)
    def call(self, x):
        return self.heads(x, x)

def attending():
    return [layers.Dense(32), Attending(), layers.LayerNormalization(), layers.Flatten(),
            layers.Dense(5)], (16, 8)

results = {}
for make in (dense, convolved, tokens, attending):
    for optimizer in ("adam", "sgd"):
        kerasish.utils.set_random_seed(1)
        given, shape = make()
        model = kerasish.Sequential([kerasish.Input(shape), *given])
        loss = kerasish.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer, loss, metrics=["accuracy"])
        x = rng.integers(0, 700, (80, *shape)) if make is tokens else rng.normal(size=(80, *shape))
        x, y = x.astype("float32"), rng.integers(0, 5, 80)
        log = model.fit(x, y, batch_size=32, epochs=2, verbose=0).history
        parts = [model.predict(x[:n], verbose=0) for n in (1, 80)]
        parts += [*model.get_weights(), np.array(model.evaluate(x, y, verbose=0))]
        found = hashlib.sha256(b"".join(p.tobytes() for p in parts)).hexdigest()
        results[f"{make.__name__} {optimizer}"] = found, repr(log)
SAVED_PLANS.wait()
print(json.dumps([results, SAVED_PLANS.read, SAVED_PLANS.saved]))
"""


def processes(count, folder, threads="2"):
    """Run the script in processes at the same time; return what each prints."""
    variables = {**os.environ, "KERASISH_CACHE_DIR": str(folder), "OMP_NUM_THREADS": threads}

    def run_one(_):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], env=variables, capture_output=True, text=True,
            timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run_one, range(count)))


def test_a_second_process_compiles_nothing(tmp_path):
    (first, read, saved), = processes(1, tmp_path)  # fmt: skip
    assert read == 0 and saved > 15
    (second, read, written), = processes(1, tmp_path)  # fmt: skip
    assert second == first and (read, written) == (saved, 0)


def test_processes_at_the_same_time_share_a_folder(tmp_path):
    results = processes(3, tmp_path)
    assert all(found == results[0][0] for found, _, _ in results)
    files = list((tmp_path / "plans").iterdir())
    (found, read, saved), = processes(1, tmp_path)  # fmt: skip
    assert found == results[0][0] and (read, saved) == (len(files), 0)


def test_threads_read_and_save_at_the_same_time(folder):
    want, _ = run()
    only_file(folder).unlink()
    for _ in range(4):
        plans = engine.SAVED_PLANS = SavedPlans()
        results: list = []

        def compiled(results=results):
            engine.COMPILED_PLANS.clear()
            result = backends.get("static").compile(mixed)(X)
            results.append([np.array(r) for r in kerasish.tree.flatten(result)])

        threads = [threading.Thread(target=compiled) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        plans.wait()
        assert len(results) == 6 and all(same(result, want) for result in results)
        assert plans.read + plans.saved >= 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_while_a_plan_is_waiting_to_be_saved(monkeypatch, folder):
    monkeypatch.setattr(saved_plans, "DELAY", 0.3)
    plans = engine.SAVED_PLANS = SavedPlans()
    engine.COMPILED_PLANS.clear()
    want = [np.array(r) for r in kerasish.tree.flatten(backends.get("static").compile(mixed)(X))]
    child = os.fork()
    if not child:
        status = 1
        with contextlib.suppress(BaseException):
            plans.wait()
            result, _ = run()
            close = all(np.allclose(a, b, rtol=1e-5) for a, b in zip(result, want))
            status = 0 if close else 2
        os._exit(status)
    _, status = os.waitpid(child, 0)
    plans.wait()
    assert status == 0 and plans.saved == 1


def test_saving_does_not_hold_up_the_step(monkeypatch):
    """A plan is written by a thread, later."""
    begun = threading.Event()

    def slow(plan):
        begun.set()
        time.sleep(0.5)
        return own(plan)

    own = saved_plans.packed
    monkeypatch.setattr(saved_plans, "packed", slow)
    plans = engine.SAVED_PLANS = SavedPlans()
    backends.get("static").compile(mixed)(X)
    assert plans.saved == 0
    plans.wait()
    assert begun.is_set() and plans.saved == 1
