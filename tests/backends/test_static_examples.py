"""The shared examples, compiled: equal to what the eager engine gives."""

from __future__ import annotations

import numpy as np
import pytest
from graph_examples import EXAMPLES

from kerasish import backends


@pytest.mark.parametrize("name", EXAMPLES)
def test_compiled_equals_eager(name):
    function, arguments = EXAMPLES[name]
    expected = function(*arguments)
    got = backends.get("static").compile(function)(*arguments)
    many = expected if isinstance(expected, tuple) else (expected,)
    for a, b in zip(got if isinstance(got, tuple) else (got,), many, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)
