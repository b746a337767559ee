"""Shapes inferred where some sizes are unknown."""

import pytest

from kerasish import ops
from kerasish.graph.abstract import infer
from kerasish.ops.shapes import Spec


def test_unknown_sizes_meet_known_ones():
    def add(x, y):
        return ops.add(x, y)

    unknown, known = Spec((None, None, 8), "float32"), Spec((10, 8), "float32")
    assert infer(add, (unknown, known)).shape == (None, 10, 8)
    assert infer(add, (known, unknown)).shape == (None, 10, 8)
    assert infer(add, (Spec((None, 3), "float32"), Spec((2, None), "float32"))).shape == (2, 3)
    with pytest.raises(ValueError, match=r"\(None, 9, 8\).*9 and 10"):
        infer(add, (Spec((None, 9, 8), "float32"), known))


def test_unknown_sizes_are_regrouped():
    def halves(x):
        return ops.reshape(x, (-1, x.shape[-1] * 2))

    assert infer(halves, (Spec((None, None, 8), "float32"),)).shape == (None, 16)
