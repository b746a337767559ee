"""oneDNN takes its fast implementations for the shapes of layers, those with one channel included.

Its reference code is 50 to 100 times slower; a stride that its layouts do not have leads there.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kerasish import backends, ops
from kerasish.autodiff import grad
from kerasish.backends import onednn
from kerasish.backends.onednn import native

pytestmark = pytest.mark.skipif(
    bool(native.available()), reason=f"no oneDNN here: {native.available()}"
)


@pytest.mark.parametrize(("m", "k", "n"), list(itertools.product((1, 64), (1, 300), (1, 10))))
def test_products(m, k, n):
    assert not onednn.matmul((m, k), (k, n)).is_reference


@pytest.mark.parametrize("batch", [1, 16])
@pytest.mark.parametrize("channels", [1, 3, 32])
@pytest.mark.parametrize("filters", [1, 16])
def test_convolutions_and_their_gradients(batch, channels, filters):
    def loss(x, kernel):
        return ops.sum(ops.square(ops.conv(x, kernel, padding="same")))

    step = backends.get("static").compile(lambda x, kernel: grad(loss, (0, 1))(x, kernel))
    step(
        np.ones((batch, 28, 28, channels), "float32"),
        np.ones((3, 3, channels, filters), "float32"),
    )
    units = step.executables()[0].units
    slow = [u.name for u in units if getattr(getattr(u, "primitive", None), "is_reference", False)]
    names = [u.name for u in units if u.name.startswith("convolution")]
    assert len(names) == 3
    assert slow == []
