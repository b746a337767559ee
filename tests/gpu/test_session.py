"""How `pytest -m gpu` keeps to its time, and what it does when the GPU is lost."""

from __future__ import annotations

import types

import gpu_session
import pytest


def _item(name, marked=True):
    return types.SimpleNamespace(
        name=name, get_closest_marker=lambda mark: True if marked and mark == "gpu" else None
    )


def test_the_most_telling_tests_come_first():
    names = ["test_ops[tanh-0-float64]", "test_layers[Dense-bf]", "test_ops[tanh-0-float32]"]
    names += ["test_layers[None-Dense]", "test_transfers", "test_losses_of_20_steps[mlp]"]
    items = [*(_item(n) for n in names), _item("test_of_the_cpu", marked=False)]
    gpu_session.sort_items(items)
    assert [i.name for i in items] == [
        "test_of_the_cpu", "test_transfers", "test_losses_of_20_steps[mlp]",
        "test_layers[None-Dense]", "test_ops[tanh-0-float32]", "test_layers[Dense-bf]",
        "test_ops[tanh-0-float64]",
    ]  # fmt: skip


def test_when_the_time_is_up_tests_are_skipped(monkeypatch):
    gpu_session.pytest_runtest_setup(_item("test_transfers"))
    monkeypatch.setenv("KERASISH_GPU_SECONDS", "0.001")
    with pytest.raises(pytest.skip.Exception, match=r"the 0\.001 s of KERASISH_GPU_SECONDS"):
        gpu_session.pytest_runtest_setup(_item("test_transfers"))
    gpu_session.pytest_runtest_setup(_item("test_of_the_cpu", marked=False))


def _cupy(broken):
    def synchronize():
        if broken:
            raise RuntimeError("cudaErrorIllegalAddress")

    runtime = types.SimpleNamespace(deviceSynchronize=synchronize)
    return types.SimpleNamespace(cuda=types.SimpleNamespace(runtime=runtime))


def test_a_gpu_that_is_lost_is_named(monkeypatch):
    monkeypatch.setattr(gpu_session, "_lost", [])
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    gpu_session.look_after("test_a", _cupy(broken=False))
    gpu_session.look_after("test_b", None)
    gpu_session.skip_if_over()
    gpu_session.look_after("test_c", _cupy(broken=True))
    gpu_session.look_after("test_d", _cupy(broken=True))
    with pytest.raises(pytest.skip.Exception, match=r"since test_c \(cudaErrorIllegalAddress\)"):
        gpu_session.skip_if_over()


def test_a_worker_that_lost_its_gpu_ends(monkeypatch, capsys):
    ended = []
    monkeypatch.setattr(gpu_session, "_lost", [])
    monkeypatch.setattr(gpu_session.os, "_exit", ended.append)
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw3")
    report = types.SimpleNamespace(failed=True, keywords={"gpu": 1}, nodeid="test_e")
    monkeypatch.setitem(gpu_session.sys.modules, "cupy", _cupy(broken=True))
    gpu_session.pytest_runtest_logreport(report)
    assert ended == [3]
    assert "test_e (cudaErrorIllegalAddress)" in capsys.readouterr().err
