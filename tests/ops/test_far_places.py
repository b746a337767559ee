"""Places in pictures of more elements than 32 bits count."""

import pytest

from kerasish import ops
from kerasish.ops.images.warping import _place_dtype


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((8, 9), "int32"), ((None, 9), "int32"), ((2**15, 2**15), "int32"), ((2**16, 2**15), "int64")],
)
def test_places_are_counted_in_enough_bits(shape, dtype):
    assert _place_dtype(shape) == dtype


def test_both_dtypes_read_the_same(monkeypatch):
    x = [[0.0, 10.0], [20.0, 30.0]]
    near = ops.image.map_coordinates(x, [[0.5, 1.0], [0.5, 0.0]], order=1).tolist()
    monkeypatch.setattr("kerasish.ops.images.warping._place_dtype", lambda shape: "int64")
    assert ops.image.map_coordinates(x, [[0.5, 1.0], [0.5, 0.0]], order=1).tolist() == near
    assert near == [15.0, 20.0]
