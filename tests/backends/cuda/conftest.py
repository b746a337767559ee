"""The stand-in for CuPy, in charge for one test."""

from __future__ import annotations

import ctypes
import pathlib
import subprocess
import sys

import cuda_on_cpu
import fake_cupy
import pytest
from cuda_on_cpu import COMPILER, NO_COMPILER, Function, StandIn

from kerasish.backends.eager import engine_of
from kerasish.devices import Device


@pytest.fixture
def cuda(monkeypatch):
    """CuPy's stand-in: kernels run on the CPU."""
    if COMPILER is None:
        pytest.skip(NO_COMPILER)
    stand_in = StandIn()
    monkeypatch.setitem(sys.modules, "cupy", stand_in)
    yield stand_in
    Function.seed = Function.most = Function.grid = 0


@pytest.fixture
def gpu(monkeypatch):
    """The engine of a GPU for which CuPy's stand-in stands."""
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
