"""`python -m benchmarks --gpu`, as far as possible without a GPU. No test checks a time."""

from __future__ import annotations

import importlib
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import fake_cupy
import numpy as np
import pytest
from cuda_on_cpu import COMPILER, NO_COMPILER

import kerasish

CUDA = "kerasish.backends.eager.cuda"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def cupy(monkeypatch):
    if COMPILER is None:
        pytest.skip(NO_COMPILER)
    with fake_cupy.installed(monkeypatch) as module:
        yield module


def _count(model):
    return sum(math.prod(v.shape) for v in model.trainable_variables)


def test_without_a_gpu_one_line_and_status_2(load, capsys, monkeypatch):
    monkeypatch.setattr(load("gpu"), "count_gpus", lambda: 0)
    assert load("__main__").main(["--gpu"]) == 2
    reported = capsys.readouterr()
    assert reported.out == ""
    assert reported.err.count("\n") == 1
    assert "offers no device here" in reported.err


def test_without_cupy_the_line_names_the_extra(load, capsys, monkeypatch):
    monkeypatch.setattr(load("gpu"), "count_gpus", lambda: 1)
    monkeypatch.setattr(load("gpu").importlib.util, "find_spec", lambda name: None)
    assert load("gpu").main([]) == 2
    assert "gpu13 or gpu12" in capsys.readouterr().err


def test_unknown_names_are_refused(load, capsys, monkeypatch):
    monkeypatch.setattr(load("gpu"), "why_not", lambda: "")
    with pytest.raises(SystemExit) as stop:
        load("gpu").main(["--workloads", "resnet"])
    assert stop.value.code == 2
    assert "unknown name 'resnet'; known: mlp" in capsys.readouterr().err


def test_a_small_resnet_of_that_build(load):
    build = load("gpu_workloads").build_resnet50
    model = build(kerasish, side=32, classes=5, depths=(1, 2, 1, 1), width=4)
    x = np.random.default_rng(0).normal(size=(2, 32, 32, 3)).astype("float32")
    assert model(x).shape == (2, 5)
    torch_runner = pytest.importorskip("torch", reason="torch is not installed: extra bench") and (
        load("torch_runner")
    )
    other = torch_runner.make_resnet50(5, (1, 2, 1, 1), 4)
    assert sum(p.numel() for p in other.parameters()) == _count(model)


def test_larger_transformers_are_counted_as_they_are_built(load):
    sizes = {"length": 8, "width": 16, "heads": 2, "hidden": 32, "blocks": 3}
    model = load("workloads").build_transformer(kerasish, **sizes)
    work = load("counts")._transformer(4, **sizes)
    assert sum(part.parameters for part in work) == _count(model)


def test_work_of_resnet50(load):
    work = load("counts").count_step("resnet50", 1, (224, 224, 3))
    assert work.parameters == 25_557_032  # as published
    # 4.09 G multiply-adds forward, three times that with both gradients, and Adam.
    assert 6 * 4.0e9 < work.flops < 6 * 4.2e9 + 13 * work.parameters


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet50", "transformer512-bf16"])
def test_the_large_workloads_are_the_models_that_are_counted(load, name):
    workload = load("gpu_workloads").GPU_WORKLOADS[name]
    counted = load("counts").count_step(name, workload.batch, workload.shape)
    assert _count(workload.build(kerasish)) == counted.parameters


def _resident(load, policy="mixed_bfloat16"):
    workloads = load("workloads")
    return workloads.Workload(
        "tiny", 4, (20,), 2, 5, workloads.build_tiny, "", policy=policy, resident=True
    )


def test_two_batches_serve_all_steps_of_a_resident_workload(load):
    workload = _resident(load)
    assert workload.samples(100) == 8
    assert load("workloads").WORKLOADS["tiny"].samples(100) == 3200
    policy = kerasish.config.dtype_policy()
    runner = load("keras_runner").KerasRunner("kerasish", "cpu")
    try:
        runner.build(workload, *load("workloads").make_data(workload, 8))
        result = runner.run(5)
    finally:
        kerasish.config.set_dtype_policy(policy)
    assert math.isfinite(result["loss"])
    assert runner.model.layers[0].compute_dtype == "bfloat16"
    assert len(runner.parts) == 2
    assert type(runner.parts[0][0]) is kerasish.Tensor


def test_resident_batches_lie_on_the_gpu(load, cupy):
    with kerasish.device("gpu"):
        kerasish.config.set_backend("eager")
        workload = _resident(load, "float32")
        runner = load("keras_runner").KerasRunner("kerasish", "gpu")
        runner.build(workload, *load("workloads").make_data(workload, 8))
        runner.run(2)
        assert {x.device for part in runner.parts for x in part} == {"gpu:0"}
        fake_cupy.counts.clear()
        assert math.isfinite(runner.run(3)["loss"])
        assert runner.model.trainable_variables[0].value.device == "gpu:0"
        assert fake_cupy.counts["to device"] == 0


def test_each_kernel_is_measured(load, cupy):
    with kerasish.device("gpu"):
        rows = load("gpu_roof").measure_kernels(cupy, 1e9, (1 << 14,), 0.0)
    assert len(rows) == 32
    assert {row["dtype"] for row in rows} == {"float32", "bfloat16"}
    assert all(row["share"] == row["rate"] / 1e9 and row["rate"] > 0 for row in rows)
    launched = set(fake_cupy.launches)
    assert {"softmax", "dropout", "adam_update", "normalize_gradient", "pool_largest"} <= launched
    text = load("gpu").show_kernels(rows)
    assert text.count("\n") == 33
    assert "layer norm, back" in text


def test_the_roof_is_measured(load, cupy):
    roof = load("gpu_roof")
    assert roof.measure_copy(cupy, 1 << 12, 0.0) > 0
    assert set(roof.measure_products(cupy, 8, 0.0)) == {"float32", "bfloat16"}
    waits = fake_cupy.counts["synchronizations"]
    roof.time_calls(cupy, lambda: None, 0.0, rounds=2)
    assert fake_cupy.counts["synchronizations"] == waits + 8  # before and after each of 4 rounds


GPU = {
    "name": "NVIDIA H0 80GB", "processors": 100, "memory": 80 << 30, "runtime": 13000,
    "driver": 13010, "cupy": "14.2",
}  # fmt: skip


def _facts():
    return {
        "gpu": GPU, "versions": {"numpy": "2"}, "settings": {"tf32": False, "rounds": 2},
        "copy": 4e12, "products": {"float32": 5e13, "bfloat16": 8e14}, "workloads": {},
        "kernels": [], "failures": [],
    }  # fmt: skip


def test_tables(load):
    gpu, rounds = load("gpu"), load("rounds")
    facts = _facts()
    assert "4,000 GB/s" in gpu.show_gpu(facts)
    assert "bfloat16 800.0 TFLOP/s (no TF32)" in gpu.show_gpu(facts)
    workload = load("workloads").WORKLOADS["mlp"]
    result = {
        "kerasish-eager": rounds.Measured(step=[2e-3, 1e-3], start={"parameters": 3}),
        "torch": rounds.Measured(step=[2e-3, 4e-3], start={"parameters": 3}),
        "keras-jax": rounds.Measured(failure="died", detail="of that"),
    }
    entry = gpu.workload_entry(workload, result, facts)
    flops = load("counts").count_step("mlp", 128, (784,)).flops
    assert entry["kerasish-eager"]["share_of_products"] == pytest.approx(flops / 5e13 / 1e-3)
    text = gpu.show_entry(workload, entry)
    assert "128,000" in text
    assert "0.50" in next(line for line in text.splitlines() if line.startswith("torch"))
    assert text.endswith("FAILED keras-jax: died")


def test_results_are_named_after_the_gpu(load, tmp_path, monkeypatch):
    gpu = load("gpu")
    assert gpu.result_path(_facts(), tmp_path / "x.json") == tmp_path / "x.json"
    monkeypatch.setattr(gpu, "_RESULTS", tmp_path / "results")
    path = gpu.result_path(_facts(), Path())
    assert path.name.startswith("gpu-nvidia-h0-80gb-2")
    gpu._write(_facts(), path)
    assert json.loads(path.read_text())["gpu"] == GPU


def test_a_kernel_that_fails_leaves_the_others_their_numbers(load, cupy, monkeypatch):
    def broken(*args):
        raise RuntimeError("cudaErrorIllegalAddress")

    monkeypatch.setattr(importlib.import_module(f"{CUDA}.random"), "dropout", broken)
    with kerasish.device("gpu"):
        rows = load("gpu_roof").measure_kernels(cupy, None, (1 << 12,), 0.0)
    failed = [r for r in rows if "failure" in r]
    assert len(rows) == 32
    assert {r["kernel"] for r in failed} == {"dropout"}
    text = load("gpu").show_kernels(rows)
    assert "FAILED dropout, float32, 0 MiB: RuntimeError: cudaErrorIllegalAddress" in text
    assert load("gpu").has_failures(_facts() | {"kernels": rows})
    assert not load("gpu").has_failures(_facts())


def test_what_the_chip_does_not_tell_is_left_out(load, cupy, monkeypatch):
    gpu = load("gpu")

    def broken(*args):
        raise RuntimeError("no space")

    monkeypatch.setattr(load("gpu_roof"), "measure_copy", broken)
    facts = gpu.describe_run(gpu.make_parser().parse_args(["--sizes", "0.001"]))
    assert facts["failures"] == ["copy: RuntimeError: no space"]
    assert facts["products"]["float32"] > 0
    assert "FAILED copy: RuntimeError: no space" in gpu.show_gpu(facts)
    result = {"kerasish-eager": load("rounds").Measured(step=[1e-3], start={"parameters": 3})}
    workload = load("workloads").WORKLOADS["tiny"]
    assert gpu.workload_entry(workload, result, facts)["kerasish-eager"]["share_of_copy"] is None


def test_the_time_that_is_left_is_shared_among_workloads(load):
    gpu = load("gpu")
    options = gpu.make_parser().parse_args([])
    early = gpu.plan_of(options, time.monotonic() + 900, 9, 4)
    assert 99 < early.until - time.monotonic() <= 100
    assert early.longest == pytest.approx(100 / 2 / 4 / 6, rel=0.01)
    assert early.timeout <= 100
    late = gpu.plan_of(options, time.monotonic() - 5, 2, 4)
    assert (late.longest, late.timeout) == (0.1, 20.0)
    result = load("rounds").compare(
        load("workloads").WORKLOADS["tiny"],
        [load("peers").ALL_PEERS["kerasish-eager"]],
        late,
        lambda text: None,
    )
    # The time was up before the workload's turn came.
    assert late.until <= time.monotonic()
    assert result["kerasish-eager"].failure == "not started: the time was up"


@pytest.mark.slow
def test_the_whole_command_on_the_fake_gpu(tmp_path):
    if COMPILER is None:
        pytest.skip(NO_COMPILER)
    path = tmp_path / "found.json"
    words = "--workloads tiny --peers kerasish-eager --rounds 1 --seconds 60 --sizes 0.001 --json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--gpu", *words.split(), str(path)],
        cwd=ROOT, env={**os.environ, "KERASISH_GPU": "fake"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(path.read_text())
    assert result["gpu"]["name"] == "fake"
    assert len(result["kernels"]) == 32
    assert result["workloads"]["tiny"]["kerasish-eager"]["step"]["best"] > 0
    assert f"written: {path}" in done.stdout


def test_all_round_to_tf32_or_none(load, monkeypatch):
    peers = load("peers")
    for value, precision in (("0", "highest"), ("1", "tensorfloat32")):
        monkeypatch.setenv("KERASISH_TF32", value)
        created = peers.worker_environment(peers.ALL_PEERS["torch-compile"], None, "", True)
        assert created["JAX_DEFAULT_MATMUL_PRECISION"] == precision
        assert created["KERASISH_TF32"] == value
        assert created["KERASISH_DEVICE"] == "gpu"
        assert created["KERASISH_BENCHMARK_COMPILE"] == "1"
