"""Eve against its paper."""

from __future__ import annotations

import numpy as np
import pytest

from kerasish import optimizers
from kerasish.tensor import Variable


def eve(gradients, losses, rate=0.1, b1=0.9, b2=0.999, b3=0.99, c=10.0, epsilon=1e-8):
    """Algorithm 1 of the paper, in NumPy."""
    w, m, v, d = 1.0, 0.0, 0.0, 1.0
    values = []
    for t, (g, f) in enumerate(zip(gradients, losses), 1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        if t > 1:
            r = abs(f - losses[t - 2]) / min(f, losses[t - 2])
            d = b3 * d + (1 - b3) * np.clip(r, 1 / c, c)
        w -= rate / d * (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + epsilon)
        values.append(w)
    return values


def test_eve_is_the_papers_algorithm():
    gradients = [0.5, -0.2, 0.7, 0.1, 0.4, 0.3]
    losses = [2.0, 1.5, 30.0, 1.2, 1.2, 1.1]
    w, created = Variable([1.0]), optimizers.Eve(0.1, beta_3=0.99)
    for g, f, expected in zip(gradients, losses, eve(gradients, losses)):
        created.apply([[g]], [w], loss=f)
        assert float(w[0]) == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ValueError, match="loss"):
        created.apply([[1.0]], [w])
    with pytest.raises(ValueError, match="c must"):
        optimizers.Eve(c=0.5)


def test_eve_inside_a_loss_scale():
    created = optimizers.LossScaleOptimizer(optimizers.Eve(0.1), initial_scale=4.0)
    w, plain = Variable([1.0]), Variable([1.0])
    alone = optimizers.Eve(0.1)
    for f in (2.0, 1.0, 0.0, 0.0):
        created.apply([[4.0 * f]], [w], loss=f)
        alone.apply([[f]], [plain], loss=f)
    assert created.needs_loss and float(w[0]) == pytest.approx(float(plain[0]))
    assert np.isfinite(float(w[0]))
