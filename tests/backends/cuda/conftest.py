"""The stand-in for CuPy, in charge for one test."""

from __future__ import annotations

import sys

import pytest
from cuda_on_cpu import COMPILER, NO_COMPILER, Function, StandIn


@pytest.fixture
def cuda(monkeypatch):
    """CuPy's stand-in: kernels run on the CPU."""
    if COMPILER is None:
        pytest.skip(NO_COMPILER)
    stand_in = StandIn()
    monkeypatch.setitem(sys.modules, "cupy", stand_in)
    yield stand_in
    Function.seed = Function.most = 0
