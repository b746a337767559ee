"""Sizes that are not known while shapes are inferred: they agree with any, and stay unknown."""

from __future__ import annotations

import numpy as np
import pytest

from kerasish import KerasTensor, Model, ops
from kerasish.ops.shapes import Unknown, agree


def spec(*shape, dtype="float32"):
    return KerasTensor(shape, dtype)


MEETS = {
    "matmul": (lambda a, b: ops.matmul(a, b), (None, 4), (None, 2), (None, 2)),
    "dot": (lambda a, b: ops.dot(a, b), (3, None), (4, 2), (3, 2)),
    "dot of more axes": (lambda a, b: ops.dot(a, b), (2, 3, None), (5, 4, 2), (2, 3, 5, 2)),
    "tensordot": (lambda a, b: ops.tensordot(a, b, 1), (3, None), (4, None), (3, None)),
    "inner": (lambda a, b: ops.inner(a, b), (None, 3), (None,), (None,)),
    "vdot": (lambda a, b: ops.vdot(a, b), (2, None), (6,), ()),
    "einsum": (lambda a, b: ops.einsum("ij,jk->ik", a, b), (None, 4), (None, 2), (None, 2)),
    "einsum by batch": (
        lambda a, b: ops.einsum("bij,bjk->bik", a, b), (None, 3, None), (2, 4, 5), (2, 3, 5),
    ),
    "cross": (lambda a, b: ops.cross(a, b), (None, None), (None, 3), (None, 3)),
    "stack": (lambda a, b: ops.stack([a, b]), (None, 4), (3, None), (2, 3, 4)),
    "concatenate": (lambda a, b: ops.concatenate([a, b], 0), (2, None), (3, 4), (5, 4)),
    "solve": (lambda a, b: ops.solve(a, b), (None, 3), (None, 2), (3, 2)),
    "cdist": (lambda a, b: ops.cdist(a, b), (5, None), (6, 3), (5, 6)),
    "average": (
        lambda a, b: ops.average(a, axis=1, weights=b), (None, 4), (None,), (None,),
    ),
    "sparse_categorical_crossentropy": (
        lambda a, b: ops.sparse_categorical_crossentropy(ops.cast(b, "int32"), a),
        (None, 3), (7,), (7,),
    ),
    "depthwise_conv": (
        lambda a, b: ops.depthwise_conv(a, b), (2, 5, 5, None), (3, 3, 4, 1), (2, 3, 3, 4),
    ),
    "ssim": (lambda a, b: ops.image.ssim(a, b), (None, 16, 16, 3), (2, 16, 16, 3), (2,)),
}  # fmt: skip


@pytest.mark.parametrize("name", MEETS)
def test_an_unknown_size_meets_a_known_one(name):
    function, a, b, expected = MEETS[name]
    assert function(spec(*a), spec(*b)).shape == expected


ALONE = {
    "reshape to known sizes": (lambda x: ops.reshape(x, (5, 12)), (None, 4), (5, 12)),
    "reshape with a batch written out": (lambda x: ops.reshape(x, (8, -1)), (None, 4), (8, None)),
    "reshape a part": (lambda x: ops.reshape(x, (-1, 7)), (None, 3), (None, 7)),
    "slogdet": (lambda x: ops.slogdet(x)[1], (2, None, 3), (2,)),
    "singular values": (lambda x: ops.svd(x, compute_uv=False), (None, 3), (None,)),
    "qr": (lambda x: ops.qr(x)[1], (None, 3), (None, 3)),
    "pivots": (lambda x: ops.lu_factor(x)[1], (None, 3), (None,)),
    "diag": (ops.diag, (None, 4), (None,)),
    "diag below": (lambda x: ops.diag(x, -1), (4, None), (None,)),
    "diagonal": (lambda x: ops.diagonal(x, 0, 1, 2), (2, None, 3), (2, None)),
    "size": (ops.size, (None, 4), ()),
    "squeeze": (lambda x: ops.squeeze(x, 1), (2, None), (2,)),
    "argsort of all": (lambda x: ops.argsort(x, axis=None), (None, 4), (None,)),
    "pad_images": (
        lambda x: ops.image.pad_images(x, 1, 1, target_height=9, target_width=8),
        (2, None, None, 3), (2, 9, 8, 3),
    ),
    "crop_images": (
        lambda x: ops.image.crop_images(x, 1, 1, target_height=3, target_width=2),
        (2, None, None, 3), (2, 3, 2, 3),
    ),
    "windows of one known axis": (
        lambda x: ops.max_pool(x, 2, 2, padding="same"), (2, None, 5, 3), (2, None, 3, 3),
    ),
    "convolution of one known axis": (
        lambda x: ops.conv(x, np.ones((3, 3, 3, 4), "float32"), 3, padding="same"),
        (2, 7, None, 3), (2, 3, None, 4),
    ),
    "slice from computed places": (
        lambda x: ops.slice(x, ops.cast(x[0, :2], "int32"), (2, -1)), (3, 4), (2, None),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ALONE)
def test_shapes_of_unknown_sizes(name):
    function, shape, expected = ALONE[name]
    assert function(spec(*shape)).shape == expected


COUNTED = {
    "nonzero": (ops.nonzero, [((None,), "int32")] * 2),
    "where": (ops.where, [((None,), "int32")] * 2),
    "unique": (ops.unique, [((None,), "float32")]),
    "unique rows": (
        lambda x: ops.unique(x, axis=0, return_inverse=True, return_counts=True),
        [((None, 4), "float32"), ((3,), "int32"), ((None,), "int32")],
    ),
    "unique of a size": (
        lambda x: ops.unique(x, size=5, return_index=True),
        [((5,), "float32"), ((5,), "int32")],
    ),
    "bincount": (lambda x: ops.bincount(ops.cast(x, "int32")), [((3, None), "int32")]),
    "segment_sum": (lambda x: ops.segment_sum(x, [0, 1, 1]), [((None, 4), "float32")]),
    "segment_max": (lambda x: ops.segment_max(x, [0, 1, 1]), [((None, 4), "float32")]),
    "segment_max of a number": (
        lambda x: ops.segment_max(x, [0, 1, 1], 6), [((6, 4), "float32")],
    ),
    "a mask": (lambda x: ops.get_item(x, [True, False, True]), [((2, 4), "float32")]),
    "ctc_decode": (
        lambda x: ops.ctc_decode(
            ops.expand_dims(x, 0), [3], "beam_search", beam_width=2, top_paths=2
        ),
        [((2, 1, 3), "int32"), ((1, 2), "float32")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COUNTED)
def test_shapes_that_depend_on_numbers(name):
    function, expected = COUNTED[name]
    result = function(spec(3, 4))
    result = result if isinstance(result, (tuple, list)) else [result]
    assert [(t.shape, t.dtype) for t in result] == expected


def test_a_model_counts_when_it_runs():
    x = spec(None, 3)
    model = Model(x, ops.nonzero(x)[1])
    assert model(np.array([[0.0, 2.0, 3.0]])).tolist() == [1, 2]


WRONG = {
    "matmul": lambda: ops.matmul(spec(None, 4), spec(3, None)),
    "reshape": lambda: ops.reshape(spec(None, 4), (5,)),
    "reshape keeps the batch": lambda: ops.reshape(spec(2, 4), (3, -1)),
    "einsum": lambda: ops.einsum("ij,jk->ik", spec(None, 4), spec(3, 2)),
    "stack": lambda: ops.stack([spec(None, 4), spec(None, 3)]),
    "average": lambda: ops.average(spec(None, 4), axis=1, weights=spec(3)),
}


@pytest.mark.parametrize("name", WRONG)
def test_known_sizes_that_differ_are_still_refused(name):
    with pytest.raises(ValueError):
        WRONG[name]()


def test_what_is_computed_of_an_unknown_size_is_unknown():
    n = Unknown(120)
    for size in (n + 1, 1 + n, n - 1, 1 - n, n * 2, 2 * n, n // 2, 240 // n, -n):
        assert type(size) is Unknown and agree(size, 7)
    assert {n: 1}.get(120) is None  # kept results of real sizes stay apart
    assert not agree(int(n), 7)
