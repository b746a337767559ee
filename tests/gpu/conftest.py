"""The GPU that the tests of this folder need; skipped, with the reason, where there is none."""

from __future__ import annotations

import os

import fake_cupy
import pytest
from cuda_on_cpu import COMPILER, NO_COMPILER

import kerasish
from kerasish.backends.eager import engine_of
from kerasish.devices import Device
from kerasish.errors import DeviceError


@pytest.fixture(scope="session")
def no_gpu():
    """Why there is no GPU; None where there is one."""
    try:
        engine_of(Device("gpu"))
    except DeviceError as error:
        return str(error)
    return None


@pytest.fixture
def gpu(request, monkeypatch):
    """The engine of the first GPU; KERASISH_GPU=fake: of the fake."""
    if os.environ.get("KERASISH_GPU") == "fake":
        yield request.getfixturevalue("fake_gpu")
        return
    reason = request.getfixturevalue("no_gpu")
    if reason is not None:
        pytest.skip(f"no GPU: {reason}")
    with kerasish.device("gpu") as device:
        yield engine_of(device)


@pytest.fixture
def fake_gpu(monkeypatch):
    """The engine of the fake CuPy, whose CUDA kernels run on the CPU."""
    if COMPILER is None:
        pytest.skip(NO_COMPILER)
    with fake_cupy.installed(monkeypatch):
        yield engine_of(Device("gpu"))
