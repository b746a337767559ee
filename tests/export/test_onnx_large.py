"""A real ONNX file above 2 GB: one tensor of 2.3 GB, and another one behind it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

DISK, MEMORY = 5e9, 10e9  # bytes

PROGRAM = """
import gc, resource, sys, time

import numpy as np
import onnx
import onnxruntime

import kerasish
from kerasish import layers

SIZE = 24_000
path, start = sys.argv[1], time.perf_counter()


def lap(what):
    global start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"{what}: {time.perf_counter() - start:.1f} s, peak {peak / 1e9:.2f} GB")
    assert peak < float(sys.argv[2]), peak
    start = time.perf_counter()


x = kerasish.Input((SIZE,), name="x")
y = layers.Dense(SIZE, use_bias=False, kernel_initializer="zeros", name="many")(x)
model = kerasish.Model(x, layers.Dense(3, name="few")(y))
rng = np.random.default_rng(0)
a, b = (rng.uniform(-1, 1, SIZE).astype("float32") for _ in range(2))
model.layers[1].kernel.assign(np.multiply.outer(a, b))
rows = rng.uniform(-1, 1, (2, SIZE)).astype("float32")
expected = model.predict(rows, verbose=0)
scale = np.abs(expected).max()
lap("built")
model.export(path, verbose=False)
lap("exported and verified")
del model
gc.collect()
onnx.checker.check_model(path, full_check=True)
stored = {t.name: t for t in onnx.load(path, load_external_data=False).graph.initializer}
place = {e.key: int(e.value) for e in stored["few/kernel"].external_data if e.key != "location"}
assert place["offset"] > 2**31, place
session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
(result,) = session.run(None, {"x": rows})
assert np.abs(result - expected).max() <= 1e-5 * scale
lap("checked and run by onnxruntime")
del session
gc.collect()
again = kerasish.saving.load_onnx(path)
assert np.abs(again.predict(rows, verbose=0) - expected).max() <= 1e-5 * scale
lap("read and run")
"""


def free_memory() -> int:
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured as Linux says it")
def test_a_file_above_2_gb(tmp_path: Path) -> None:
    if shutil.disk_usage(tmp_path).free < DISK or free_memory() < MEMORY:
        pytest.skip(f"less than {DISK:.0e} bytes of disk or {MEMORY:.0e} bytes of memory are free")
    arguments = [sys.executable, "-c", PROGRAM, str(tmp_path / "m.onnx"), str(MEMORY)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=550, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "m.onnx.data").stat().st_size > 2**31
    (tmp_path / "m.onnx.data").unlink()
