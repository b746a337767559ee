"""Linear algebra against NumPy and SciPy, with first and second derivatives."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.linalg
from scipy.spatial.distance import cdist

from kerasish import Input, ops
from kerasish.autodiff import grad
from kerasish.errors import ShapeError
from kerasish.ops import linalg
from kerasish.ops.op import REGISTRY
from kerasish.ops.shapes import Spec
from kerasish.testing import gradient_check

rng = np.random.default_rng(0)
SQUARE = rng.normal(size=(2, 3, 3)) + 2 * np.eye(3)
POSITIVE = SQUARE @ SQUARE.swapaxes(-1, -2)
TALL = rng.normal(size=(2, 4, 2))
WIDE = TALL.swapaxes(-1, -2)


def close(found, expected, rtol=1e-9):
    np.testing.assert_allclose(np.asarray(found), expected, rtol=rtol, atol=1e-10)


# --- against NumPy and SciPy ------------------------------------------------------------------


@pytest.mark.parametrize("upper", [False, True])
def test_cholesky(upper):
    lower = np.linalg.cholesky(POSITIVE)
    factor = lower.swapaxes(-1, -2) if upper else lower
    close(ops.cholesky(POSITIVE, upper), factor)
    close(ops.cholesky_inverse(factor, upper), np.linalg.inv(POSITIVE), 1e-7)
    gradient_check(lambda x: ops.cholesky(x, upper), [POSITIVE[0]])
    gradient_check(lambda x: ops.cholesky_inverse(x, upper), [factor[0]], rtol=1e-3)
    with pytest.raises(np.linalg.LinAlgError):
        ops.cholesky(-POSITIVE)


def test_inverse_and_determinant():
    close(ops.inv(SQUARE), np.linalg.inv(SQUARE))
    close(ops.det(SQUARE), np.linalg.det(SQUARE))
    sign, size = ops.slogdet(-SQUARE)
    close(sign, -np.sign(np.linalg.det(SQUARE)))
    close(size, np.log(np.abs(np.linalg.det(SQUARE))))
    close(ops.logdet(POSITIVE), np.log(np.linalg.det(POSITIVE)))
    assert np.isnan(ops.logdet(np.diag([-1.0, 1.0])).numpy())
    gradient_check(ops.logdet, [POSITIVE])


@pytest.mark.parametrize("columns", [None, 1, 2])
def test_solve(columns):
    b = rng.normal(size=(2, 3) if columns is None else (2, 3, columns))
    expected = [np.linalg.solve(a, c) for a, c in zip(SQUARE, b)]
    close(ops.solve(SQUARE, b), expected)
    gradient_check(ops.solve, [SQUARE, b])
    for lower in (False, True):
        expected = [scipy.linalg.solve_triangular(a, c, lower=lower) for a, c in zip(SQUARE, b)]
        close(ops.solve_triangular(SQUARE, b, lower), expected)
        gradient_check(lambda a, c: ops.solve_triangular(a, c, lower), [SQUARE[0], b[0]])  # noqa: B023
    close(ops.solve(SQUARE[0], b[0]), np.linalg.solve(SQUARE[0], b[0]))


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4), (3, 5, 2)], ids=str)
def test_lu(shape):
    x = rng.normal(size=shape)
    both, pivots = ops.lu_factor(x)
    assert pivots.dtype == "int32"
    flat = x.reshape(-1, *shape[-2:])
    result = zip(both.numpy().reshape(flat.shape), pivots.numpy().reshape(len(flat), -1))
    for one, (lu, p) in zip(flat, result):
        m, n = one.shape
        k = min(m, n)
        lower, upper = np.tril(lu, -1)[:, :k] + np.eye(m, k), np.triu(lu)[:k]
        swapped = one.copy()
        for i, j in enumerate(p):
            swapped[[i, j]] = swapped[[j, i]]
        close(lower @ upper, swapped)
        if m >= n:
            expected = scipy.linalg.lu_factor(one)
            if m == n:
                close(lu, expected[0])
                np.testing.assert_array_equal(p, expected[1])


def test_lu_solves_and_has_a_gradient_for_squares_only():
    gradient_check(lambda x: ops.lu_factor(x)[0] ** 2, [SQUARE[0][::-1].copy()])
    with pytest.raises(ValueError, match="square"):
        grad(lambda x: ops.sum(ops.lu_factor(x)[0]))(TALL[0])


@pytest.mark.parametrize("x", [SQUARE, TALL, WIDE], ids=["square", "tall", "wide"])
@pytest.mark.parametrize("mode", ["reduced", "complete"])
def test_qr(x, mode):
    q, r = ops.qr(x, mode)
    for one, expected in zip(x, range(len(x))):
        a, b = np.linalg.qr(one, mode)
        close(q[expected], a)
        close(r[expected], b)
    close(q @ r, x)
    if mode == "reduced":
        gradient_check(lambda x: ops.qr(x, mode), [x], rtol=1e-3)


def test_qr_errors():
    with pytest.raises(ValueError, match="'reduced' or 'complete'"):
        ops.qr(TALL, "full")
    with pytest.raises(ValueError, match="no gradient for more rows"):
        grad(lambda x: ops.sum(ops.qr(x, "complete")[0]))(TALL)


@pytest.mark.parametrize("x", [SQUARE, TALL, WIDE], ids=["square", "tall", "wide"])
@pytest.mark.parametrize("full", [False, True])
def test_svd(x, full):
    expected = np.linalg.svd(x, full_matrices=full)
    for a, b in zip(ops.svd(x, full), expected):
        close(a, b)
    close(ops.svd(x, full, compute_uv=False), expected[1])

    def product(x):
        u, s, vh = ops.svd(x, full)
        k = s.shape[-1]
        return (u[..., :k] * s[..., None, :] ** 2) @ vh[..., :k, :]

    gradient_check(product, [x], rtol=1e-3)
    gradient_check(lambda x: ops.svd(x, compute_uv=False), [x], rtol=1e-3)


def test_eigenvalues():
    values, vectors = np.linalg.eigh(POSITIVE)
    w, v = ops.eigh(POSITIVE)
    close(w, values)
    close(np.abs(v.numpy()), np.abs(vectors))
    gradient_check(lambda x: ops.eigh(x)[0] ** 2, [POSITIVE], rtol=1e-3)
    w, v = ops.eig(SQUARE)
    assert (w.dtype, v.dtype) == ("complex128", "complex128")
    close(SQUARE @ v.numpy(), v.numpy() * w.numpy()[:, None, :])
    assert ops.eig(SQUARE.astype("float32"))[0].dtype == "complex64"
    turning = ops.eig([[0.0, -1.0], [1.0, 0.0]])[0].numpy()
    close(np.sort(turning.imag), [-1, 1], 1e-6)


@pytest.mark.parametrize("x", [SQUARE, TALL, WIDE], ids=["square", "tall", "wide"])
def test_pseudo_inverse_and_least_squares(x):
    close(ops.pinv(x), np.linalg.pinv(x))
    b = rng.normal(size=(*x.shape[:-1], 3))
    close(ops.lstsq(x, b), [np.linalg.lstsq(a, c, rcond=None)[0] for a, c in zip(x, b)])
    vector = ops.lstsq(x[0], b[0, :, 0])
    close(vector, np.linalg.lstsq(x[0], b[0, :, 0], rcond=None)[0])
    gradient_check(ops.lstsq, [x, b], rtol=1e-3)


def test_rank_deficient():
    x = np.outer([1.0, 2.0, 3.0], [1.0, -1.0])
    close(ops.pinv(x), np.linalg.pinv(x))
    assert int(ops.matrix_rank(x)) == 1
    assert ops.matrix_rank(np.stack([x, x * 0])).tolist() == [1, 0]
    assert ops.matrix_rank(SQUARE).dtype == "int32"
    assert ops.matrix_rank(np.diag([3.0, 1.0, 0.1]), tol=0.5).tolist() == 2
    assert [int(ops.matrix_rank(np.zeros(3))), int(ops.matrix_rank(np.ones(3)))] == [0, 1]
    close(ops.pinv(np.diag([1.0, 1e-3]), rcond=0.01), np.diag([1.0, 0.0]))


# --- norms and distances ----------------------------------------------------------------------

X = rng.normal(size=(3, 4, 2))
NORMS = [
    (None, None), (None, 1), (None, (0, 2)), (2, 0), (1, -1), (3, 1), (0.5, 1), (0, 1),
    (math.inf, 1), (-math.inf, 0), ("fro", (0, 1)), ("nuc", (1, 0)), (1, (0, 1)), (-1, (0, 1)),
    (2, (1, 2)), (-2, (0, 2)), (math.inf, (2, 0)), (-math.inf, (-1, -2)),
]  # fmt: skip


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize(("ord", "axis"), NORMS)
def test_norm(ord, axis, keepdims):
    expected = np.linalg.norm(X, ord, axis, keepdims)
    result = ops.norm(X, ord, axis, keepdims)
    assert result.shape == np.shape(expected)
    close(result, expected)
    if ord not in (0,):
        gradient_check(lambda x: ops.norm(x, ord, axis), [X], order=1, rtol=1e-3)


def test_norm_of_whole_numbers_and_errors():
    assert ops.norm([3, 4]).dtype == "float32"
    assert float(ops.norm(np.eye(3, dtype="float32"), ord=2)) == 1
    with pytest.raises(ShapeError, match="say which axis"):
        ops.norm(X, ord=2)
    with pytest.raises(ValueError, match="for matrices"):
        ops.norm(X, "fro", 0)
    with pytest.raises(ValueError, match="'nuc'"):
        ops.norm(X, 3, (0, 1))


def test_distances():
    a, b = rng.normal(size=(5, 3)), rng.normal(size=(4, 3))
    close(ops.cdist(a, b), cdist(a, b))
    close(ops.cdist(np.stack([a, a + 1]), b)[1], cdist(a + 1, b))
    gradient_check(ops.cdist, [a, b])
    slope = grad(lambda x: ops.sum(ops.cdist(x, x)))(a)
    assert np.isfinite(slope.numpy()).all()
    with pytest.raises(ShapeError, match="one length"):
        ops.cdist(a, b[:, :2])


# --- contractions -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "axes"),
    [
        ((2, 3), (2, 3), 2),
        ((2, 3), (3, 4), 1),
        ((2,), (3,), 0),
        ((2, 3, 4), (4, 3, 5), ([1, 2], [1, 0])),
        ((2, 3), (4, 2), (0, -1)),
        ((3, 2, 2), (2, 3), ([0], [1])),
        ((0, 3), (3, 2), 1),
    ],
)
def test_tensordot(first, second, axes):
    a, b = rng.normal(size=first), rng.normal(size=second)
    close(ops.tensordot(a, b, axes), np.tensordot(a, b, axes))
    if a.size:
        gradient_check(lambda x, y: ops.tensordot(x, y, axes), [a, b])


SHAPES = [
    ((), (3,)),
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((2, 3), (3, 4)),
    ((2, 1, 3), (4, 3, 2)),
    ((2, 4, 3), (3,)),
]


@pytest.mark.parametrize(("first", "second"), SHAPES)
def test_dot_and_inner(first, second):
    a, b = rng.normal(size=first), rng.normal(size=second)
    close(ops.dot(a, b), np.dot(a, b))
    turned = np.moveaxis(b, -2, -1) if b.ndim > 1 else b
    close(ops.inner(a, turned), np.inner(a, turned))
    gradient_check(ops.dot, [a, b])
    close(ops.vdot(b, b), np.vdot(b, b))


VECTORS = [
    ((3,), (3,)),
    ((4, 3), (3,)),
    ((2, 1, 3), (5, 3)),
    ((2,), (4, 3)),
    ((4, 3), (2,)),
    ((4, 2), (2,)),
]


def in_space(vectors):
    """Return vectors of a plane as vectors of space; NumPy 2.5 crosses no others."""
    return np.concatenate([vectors, np.zeros((*vectors.shape[:-1], 3 - vectors.shape[-1]))], -1)


@pytest.mark.parametrize(("first", "second"), VECTORS)
def test_cross(first, second):
    a, b = rng.normal(size=first), rng.normal(size=second)
    expected = np.cross(in_space(a), in_space(b))
    plane = first[-1] == second[-1] == 2
    close(ops.cross(a, b), expected[..., 2] if plane else expected)
    gradient_check(ops.cross, [a, b])


def test_cross_axes_and_contraction_errors():
    a, b = rng.normal(size=(3, 4)), rng.normal(size=(4, 3))
    close(ops.cross(a, b, 0, 1, 0), np.cross(a, b, 0, 1, 0))
    close(ops.cross(a, a + 1, axis=0), np.cross(a, a + 1, axis=0))
    with pytest.raises(ShapeError, match="2 or 3 elements"):
        ops.cross(a, a)
    with pytest.raises(ShapeError, match="same sizes"):
        ops.tensordot(a, a, 1)
    with pytest.raises(ShapeError, match="3 axes of tensors"):
        ops.tensordot(a, a, 3)


# --- what is true of all ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cholesky_lower", "inv", "det", "eigh", "eig", "slogdet"])
def test_squares_only(name):
    with pytest.raises(ShapeError, match=r"equal, got shape \(2, 3\)"):
        REGISTRY[name].shape(Spec((2, 3), "float32"))
    with pytest.raises(ShapeError, match="a matrix"):
        REGISTRY[name].shape(Spec((2,), "float32"))
    with pytest.raises(ShapeError):
        REGISTRY[name](np.ones((2, 3), "float32"))


def test_unknown_sizes():
    def rule(name, shape, **attrs):
        created = REGISTRY[name].shape(Spec(shape, "float32"), **attrs)
        return [s.shape for s in created]

    assert rule("qr", (None, 4, 3), mode="reduced") == [(None, 4, 3), (None, 3, 3)]
    u, s, vh = rule("svd_reduced", (None, None, 3))
    assert (u, s, vh) == ((None, None, None), (None, None), (None, None, 3))
    assert rule("eigh", (None, 3, 3)) == [(None, 3), (None, 3, 3)]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_goes_through_single(dtype):
    x = ops.cast(POSITIVE, dtype)
    for created in (ops.cholesky(x), ops.inv(x), ops.det(x), ops.solve(x, x), ops.svd(x)[1]):
        assert created.dtype == dtype
    close(ops.cast(ops.cholesky(x), "float64"), np.linalg.cholesky(POSITIVE), 0.05)


def test_tensordot_of_an_unknown_batch():
    x = Input((4, 3))
    assert ops.tensordot(x, np.ones((3, 5), "float32"), 1).shape == (None, 4, 5)
    assert ops.einsum("bij,jk->bik", x, np.ones((3, 5), "float32")).shape == (None, 4, 5)


def test_public_names():
    for name in ("cholesky", "inv", "solve", "qr", "svd", "eigh", "norm", "lstsq", "jvp"):
        assert getattr(linalg, name) is getattr(ops, name)


@pytest.mark.parametrize("axis", [1, -2, (0, 1)])
def test_norms_along_axes_that_are_not_there(axis):
    with pytest.raises(ValueError, match="norm: axis"):
        ops.norm([3.0, 4.0], axis=axis)


def test_norms_of_matrices_keep_the_order_of_their_axes():
    x = np.array([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]], "float32")
    close(ops.norm(x, ord=1, axis=(1, 0)), np.linalg.norm(x, 1, (1, 0)))
    close(ops.norm(x, ord=1, axis=(0, 1)), np.linalg.norm(x, 1, (0, 1)))
