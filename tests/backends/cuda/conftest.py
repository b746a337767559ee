"""The fake CuPy, in charge for one test."""

from __future__ import annotations

import ctypes
import pathlib
import subprocess
import sys

import cuda_on_cpu
import fake_cupy
import pytest
from cuda_on_cpu import COMPILER, NO_COMPILER, FakeCupy, Function

from kerasish.backends.eager import engine_of
from kerasish.devices import Device


@pytest.fixture
def cuda(monkeypatch):
    """the fake CuPy: kernels run on the CPU."""
    if COMPILER is None:
        pytest.skip(NO_COMPILER)
    fake_cupy = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy)
    yield fake_cupy
    Function.seed = Function.most = Function.grid = 0


@pytest.fixture
def gpu(monkeypatch):
    """The engine of a GPU of the fake CuPy."""
    if COMPILER is None:
        pytest.skip(NO_COMPILER)
    with fake_cupy.installed(monkeypatch):
        yield engine_of(Device("gpu"))


@pytest.fixture(scope="session")
def cublaslt_on_cpu(tmp_path_factory):
    """cuBLASLt's functions as the CPU computes them, loaded."""
    if COMPILER is None:
        pytest.skip(NO_COMPILER)
    source = pathlib.Path(cuda_on_cpu.__file__).with_name("cublaslt_on_cpu.cpp")
    path = tmp_path_factory.mktemp("blas") / "stub.so"
    command = [COMPILER, "-std=c++17", "-O1", "-shared", "-fPIC", "-o", str(path), str(source)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(path))
