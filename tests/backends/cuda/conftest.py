"""The stand-in for CuPy, in charge for one test."""

from __future__ import annotations

import sys

import pytest
from cuda_on_cpu import COMPILER, NO_COMPILER, Function, StandIn

from kerasish.backends.eager.cuda import kernels


def _forget() -> None:
    kernels.function.cache_clear()
    kernels._module.cache_clear()
    Function.seed = Function.most = 0


@pytest.fixture
def cuda(monkeypatch):
    """CuPy's stand-in: kernels run on the CPU."""
    if COMPILER is None:
        pytest.skip(NO_COMPILER)
    stand_in = StandIn()
    monkeypatch.setitem(sys.modules, "cupy", stand_in)
    _forget()
    yield stand_in
    _forget()
