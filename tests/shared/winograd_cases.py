"""3x3 convolutions with strides 1, for the tests of Winograd's method."""

from __future__ import annotations

from typing import NamedTuple

SAME, VALID = ((1, 1), (1, 1)), ((0, 0), (0, 0))


class Case(NamedTuple):
    """The data of a convolution; a data gradient computes its first argument's shape.

    Attributes:
        x: samples, height, width, channels.
    """

    x: tuple[int, int, int, int]
    filters: int
    padding: tuple[tuple[int, int], tuple[int, int]] = SAME

    @property
    def y(self):
        sizes = (n + sum(pad) - 2 for n, pad in zip(self.x[1:3], self.padding))
        return (self.x[0], *sizes, self.filters)

    @property
    def kernel(self):
        return (3, 3, self.x[3], self.filters)
