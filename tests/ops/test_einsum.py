"""einsum against NumPy's, its gradients, symbolic shapes, both engines, errors."""

from __future__ import annotations

import numpy as np
import pytest

from kerasish import backends, layers, ops
from kerasish.errors import ShapeError
from kerasish.testing import gradient_check

SIZES = dict(zip("abcdefijk", (2, 3, 4, 5, 2, 3, 3, 4, 2)))
CASES = [
    "ij,jk->ik", "ij,jk", "ij->ji", "ii->i", "ii", "iij->j", "ij->", "i,j->ij", "i,i", "ij,ij->i",
    "abc,cd->abd", "abx,xhk->abhk", "aecd,abcd->acbe", "acbe,aecd->abcd", "abhv,hvo->abo",
    "...ij,...jk->...ik", "...i,ij->...j", "i...,i->...", "...", "a...,b...->ab...", "ab,b->ab",
    "a,ab,b->", "ij,jk,ki->", "ab,bc,cd->ad", "ab,ab,ab->ab", ",ij->ij", "ab,cd->", "ba",
]  # fmt: skip


def operands(subscripts, dtype="float64"):
    rng = np.random.default_rng(1)
    words = subscripts.replace(" ", "").split("->")[0].split(",")
    return [
        rng.uniform(-1, 1, [SIZES.get(c, 3) for c in w.replace("...", "fe")]).astype(dtype)
        for w in words
    ]


@pytest.mark.parametrize("subscripts", CASES)
def test_values_gradients_and_engines(subscripts):
    given = operands(subscripts)
    expected = np.einsum(subscripts, *given)
    np.testing.assert_allclose(ops.einsum(subscripts, *given), expected, rtol=1e-12, atol=1e-12)
    gradient_check(lambda *xs: ops.einsum(subscripts, *xs), given, order=1)
    compiled = backends.get("static").compile(lambda *xs: ops.einsum(subscripts, *xs))
    small = [x.astype("float32") for x in given]
    np.testing.assert_allclose(compiled(*small), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [
        ("...ij,...jk->...ik", [(5, 1, 2, 3), (4, 3, 2)]),
        ("ij,jk->ik", [(0, 3), (3, 2)]),
        ("ij,jk->ik", [(2, 0), (0, 2)]),
        ("...a,...b->...ab", [(1, 3), (4, 2)]),
        ("a...->...", [(3, 2)]),
    ],
)
def test_sizes_of_one_and_none(subscripts, shapes):
    given = [np.arange(np.prod(s), dtype="float32").reshape(s) for s in shapes]
    expected = np.einsum(subscripts, *given)
    result = ops.einsum(subscripts, *given)
    assert result.shape == expected.shape and result.dtype == "float32"
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_whole_numbers_stay_whole():
    result = ops.einsum("ij,jk->ik", [[1, 2]], [[3], [4]])
    assert result.dtype == "int32" and result.tolist() == [[11]]


def test_symbolic_batches():
    x = layers.Input((4, 3))
    y = ops.einsum("abc,cd->abd", x, np.ones((3, 5), "float32"))
    assert tuple(y.shape) == (None, 4, 5)


@pytest.mark.parametrize(
    ("subscripts", "shapes", "error", "words"),
    [
        ("ij,jk->ik", [(2, 3), (4, 2)], ShapeError, "sizes 3 and 4"),
        ("ij->i", [(2, 3, 4)], ShapeError, "names 2 axes"),
        ("ij,jk->ik", [(2, 3)], ValueError, "names 2 operands"),
        ("ij->k", [(2, 3)], ValueError, "no operand has"),
        ("ij->ii", [(2, 3)], ValueError, "letters once"),
        ("i2->i", [(2, 3)], ValueError, "no row of letters"),
    ],
)
def test_errors(subscripts, shapes, error, words):
    with pytest.raises(error, match=words):
        ops.einsum(subscripts, *map(np.ones, shapes))
