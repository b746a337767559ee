"""The static engine: what is compiled anew, and what is said of it."""

import numpy as np
import pytest

import kerasish
from kerasish.errors import TraceError


def test_python_values_that_always_change_are_an_error():
    scaled = kerasish.function(lambda x, n: x * n)
    x = np.ones(2, "float32")
    for n in range(32):
        scaled(x, n)
    with pytest.raises(TraceError, match=r"compiled 32 times.*32 instead of 0.*np\.asarray"):
        scaled(x, 32)
    scaled(x, 3)  # what is compiled stays so
    for n in range(40):
        assert scaled(x, np.float32(n)).tolist() == [n, n]


def test_compilations_are_explained(capsys):
    kerasish.config.explain_compiles()
    try:
        scaled = kerasish.function(lambda x, n: x * n)
        scaled(np.ones(2, "float32"), 2.0)
        scaled(np.ones(3, "float32"), 2.0)
        scaled(np.ones(3, "float32"), 5.0)
    finally:
        kerasish.config.explain_compiles(False)
    first, second, third = capsys.readouterr().err.splitlines()
    assert "first call" in first
    assert "float32[3] instead of float32[2]" in second
    assert "5.0 instead of 2.0" in third
