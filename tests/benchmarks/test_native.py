"""`python -m benchmarks native`: what is compared computes the same; no clock is read."""

from __future__ import annotations

import importlib.util
import shutil

import numpy as np
import pytest

linked = pytest.mark.skipif(
    shutil.which("cc") is None or importlib.util.find_spec("onnxruntime") is None,
    reason="there is no C compiler cc, or no onnxruntime",
)


@linked
def test_library_runtime_and_reading(load, tmp_path):
    native, workload = load("native"), load("workloads").WORKLOADS["tiny"]
    calls, nbytes = native.make_calls(workload, str(tmp_path))
    assert set(calls) == {"native", native.READING, "onnxruntime"}
    results = {way: call() for way, call in calls.items()}
    np.testing.assert_allclose(results["native"], results["onnxruntime"], rtol=1e-4, atol=1e-5)
    (stored,) = tmp_path.glob("*.weights")
    weights = native.aligned_bytes(str(stored))
    assert weights.ctypes.data % 64 == 0 and len(weights) == nbytes == stored.stat().st_size
    total = float(np.sum(weights.view("float32"), dtype="float64"))
    np.testing.assert_allclose(results[native.READING], total, rtol=1e-4)


@linked
def test_the_table(load, capsys):
    main = load("__main__").main
    assert main(["native", "--workloads", "tiny", "--rounds", "1", "--seconds", "0"]) == 0
    out = capsys.readouterr().out
    assert "GB/s" in out and "onnxruntime" in out and out.count("tiny") == 1


def test_unknown_workloads_list_the_known(load, capsys):
    with pytest.raises(SystemExit) as stop:
        load("native").main(["--workloads", "mpl"])
    assert stop.value.code == 2
    assert "unknown workload 'mpl'; known: mlp, tiny" in capsys.readouterr().err
