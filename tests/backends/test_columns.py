"""Convolutions by columns and BLAS: what oneDNN does not do, or is not there to do."""

from __future__ import annotations

import numpy as np
import pytest
from ml_dtypes import bfloat16

from kerasish import autodiff, backends, config, ops
from kerasish.backends.onednn import library as onednn_library
from kerasish.backends.onednn import native
from kerasish.backends.static import engine
from kerasish.backends.static.codegen import cost
from kerasish.backends.static.lowering import build
from kerasish.backends.static.lowering import columns as lower_columns

CASES = {
    "plain": ((2, 7, 6, 3), (3, 2, 3, 5), {}),
    "strides and same": ((2, 7, 6, 3), (3, 3, 3, 4), {"strides": (2, 1), "padding": "same"}),
    "one by one": ((2, 5, 4, 3), (1, 1, 3, 4), {}),
    "strides beyond the kernel": ((2, 9, 9, 2), (2, 2, 2, 3), {"strides": 4}),
    "dilation and groups": ((2, 8, 8, 4), (3, 3, 2, 6), {"dilation_rate": 2}),
    "depthwise": ((2, 6, 6, 5), (3, 3, 1, 10), {"padding": "same"}),
    "one axis": ((3, 9, 2), (3, 2, 4), {"padding": "same", "dilation_rate": 3}),
    "three axes": ((1, 4, 5, 6, 2), (2, 2, 3, 2, 3), {"padding": "same"}),
    "a kernel larger than the data": ((2, 3, 2, 2), (7, 5, 2, 3), {"padding": "same"}),
    "one place": ((1, 1, 1, 1), (1, 1, 1, 1), {}),
}


@pytest.fixture(name="without_onednn")
def _without_onednn(monkeypatch):
    monkeypatch.setattr(native, "available", lambda: "switched off by this test")


def step(x, w, **settings):
    """A convolution and both its gradients."""
    y = ops.conv(x, w, **settings)
    slope = ops.cos(y)
    gradients = autodiff.grad(lambda x, w: ops.sum(ops.conv(x, w, **settings) * slope), (0, 1))
    return (y, *gradients(x, w))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore:The static engine multiplies and convolves")
def test_columns_give_what_the_reference_gives(name, dtype, threads, without_onednn, monkeypatch):
    monkeypatch.setattr(cost, "GRAIN", 1e-6)
    x_shape, w_shape, settings = CASES[name]
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=x_shape).astype(dtype), rng.normal(size=w_shape).astype(dtype)
    compiled = backends.get("static").compile(lambda x, w: step(x, w, **settings))
    with config.using_threads(threads):
        for _ in range(2):  # the columns are used again
            got = compiled(x, w)
    for a, b in zip(got, step(x, w, **settings), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)
    assert all(unit.native for unit in compiled.executables()[0].units)


def test_float64_goes_this_way_beside_onednn():
    x, w = np.ones((2, 5, 5, 3)), np.ones((3, 3, 3, 2))
    compiled = backends.get("static").compile(lambda x, w: ops.conv(x, w))
    assert compiled(x, w).tolist() == np.full((2, 3, 3, 2), 27.0).tolist()
    assert [type(u) for u in compiled.executables()[0].units] == [lower_columns.ColumnsUnit]


@pytest.mark.filterwarnings("ignore:The static engine multiplies and convolves")
@pytest.mark.parametrize("has_instructions", [False, True])
@pytest.mark.parametrize("chosen", ["", "native", "float32"])
def test_halves_go_this_way_too(has_instructions, chosen, without_onednn, monkeypatch):
    """On every processor: without oneDNN no kernel multiplies halves by their instructions."""
    monkeypatch.setenv("KERASISH_BFLOAT16", chosen)
    monkeypatch.setattr(onednn_library, "_has_bfloat16_instructions", lambda: has_instructions)
    check_convolution_of_halves()


@pytest.mark.parametrize("has_instructions", [False, True])
def test_halves_are_native_with_onednn_on_every_processor(has_instructions, monkeypatch):
    monkeypatch.setattr(onednn_library, "_has_bfloat16_instructions", lambda: has_instructions)
    check_convolution_of_halves()


def test_halves_that_onednn_refuses_are_computed_in_float32(monkeypatch):
    """A processor with bfloat16, and a convolution that oneDNN has no code for."""
    monkeypatch.setenv("KERASISH_BFLOAT16", "native")
    created = build.make_convolution

    def refuse(node, *more):
        return None if node.out.dtype == "bfloat16" else created(node, *more)

    monkeypatch.setattr(build, "make_convolution", refuse)
    names = [unit.name for unit in check_convolution_of_halves()]
    assert len([name for name in names if "cast" in name]) >= 2, names


def check_convolution_of_halves():
    engine.COMPILED_PLANS.clear()
    x, w = np.ones((2, 5, 5, 3), bfloat16), np.ones((3, 3, 3, 2), bfloat16)
    compiled = backends.get("static").compile(lambda x, w: ops.conv(x, w))
    got = compiled(x, w)
    assert got.dtype == "bfloat16"
    assert got.astype("float32").tolist() == np.full((2, 3, 3, 2), 27.0).tolist()
    units = compiled.executables()[0].units
    assert all(unit.native for unit in units), [unit.name for unit in units]
    return units


@pytest.mark.filterwarnings("ignore:The static engine multiplies and convolves")
@pytest.mark.parametrize("limit", ["LARGEST", "MOST_GROUPS"])
def test_numpy_serves_where_columns_would_be_too_large(limit, without_onednn, monkeypatch):
    monkeypatch.setattr(lower_columns, limit, 0)
    x, w = np.ones((2, 5, 5, 3), "float32"), np.ones((3, 3, 3, 2), "float32")
    compiled = backends.get("static").compile(lambda x, w: ops.conv(x, w) * float(len(limit)))
    assert compiled(x, w).numpy().max() == 27.0 * len(limit)
    assert not all(unit.native for unit in compiled.executables()[0].units)
