"""Every kernel of every source: run on the CPU in several orders, compiled for GPUs, run on one."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from cuda_on_cpu import (
    COMPILER,
    DTYPES,
    KERNEL,
    NO_COMPILER,
    TOLERANCES,
    FakeCupy,
    Function,
    dtype_of,
    put,
    signatures,
    wide,
)
from kernel_calls import CALLS, UPDATES, update_source
from kernel_texts import EVERY
from kernel_texts import text_of as _text

from kerasish import optimizers, tree
from kerasish.backends.eager.cuda import (
    KERNELS,
    activation,
    blas,
    kernels,
    norm,
    random,
    softmax,
    update,
)
from kerasish.ops.op import REGISTRY

NAMES = {name: source for source in kernels.SOURCES for name in signatures(kernels.source(source))}


def test_every_kernel_is_run_on_the_cpu():
    declared = sum(kernels.source(s).count("__global__") for s in kernels.SOURCES)
    assert set(CALLS) == {*NAMES, *UPDATES}
    assert declared == len(NAMES), "a name is in two sources, or the pattern missed one"
    assert {p.stem for p in kernels.FOLDER.glob("*.cu")} == set(kernels.SOURCES)


def test_the_table_names_ops():
    assert set(KERNELS) <= set(REGISTRY)


def _put_as(dtype):
    return lambda values, other=None: put(values, other or dtype_of(dtype))


def _in_orders(cuda, kernel, dtype, orders):
    found = []
    for seed, grid in orders:
        Function.seed, Function.grid = seed, grid
        found.append([np.array(a).tobytes() for a in CALLS[kernel](_put_as(dtype))])
        assert cuda.launches[kernel]
    assert all(f == found[0] for f in found)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", sorted(CALLS))
def test_the_order_of_threads_changes_nothing(cuda, kernel, dtype):
    """Warps far ahead of others, and grids so small that loops over the grid turn often."""
    _in_orders(cuda, kernel, dtype, [(0, 0), (1, 1)])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kernel", sorted(CALLS))
def test_twenty_orders_of_threads_change_nothing(cuda, kernel, dtype):
    orders = [(0, 0), *((7919 * k + 1, k % 4) for k in range(20))]
    _in_orders(cuda, kernel, dtype, orders)


# --- nothing at all -------------------------------------------------------------------------------

EMPTY = {
    "softmax": ((0, 4),), "softmax_gradient": ((0, 4), (0, 4)), "layer_norm": ((0, 4),),
    "bias_activation": ((0, 4), (4,)), "bias_activation_gradient": ((0, 4), (0, 4), (4,)),
    "column_sums": ((0, 4),), "column_moments": ((0, 4),), "target_loss": ((0, 4), (0, 4)),
    "batch_norm": ((0, 4), (4,), (4,)), "batch_norm_gradient": ((0, 4), (0, 4), (4,), (4,)),
    "matmul": ((0, 4), (4, 3)), "sigmoid": ((0,),), "softplus": ((0, 3),),
    "matrix_product": ((0, 4), (4, 3)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", EMPTY)
def test_functions_take_nothing(cuda, name, dtype):
    owners = (softmax, norm, activation, blas, SimpleNamespace(**KERNELS))
    function = next(getattr(owner, name) for owner in owners if hasattr(owner, name))
    found = function(*(put(np.ones(s), dtype_of(dtype)) for s in EMPTY[name]))
    for array in tree.flatten(found):
        rest = np.array(array).astype("float64")
        # Of no rows: sums are 0, means NaN, and there is nothing else.
        assert not rest.size or np.isnan(rest).all() or (rest == 0).all() or name == "batch_norm"


def test_groups_and_lists_of_nothing(cuda):
    x = put(np.ones((0, 5, 4)), "float32")
    assert [a.shape for a in norm.group_norm(x, 2)] == [(0, 5, 4), (0,), (0,)]
    none = put(np.ones((0, 3)), "float32")
    assert update.global_norm([none], 1.0)[0] == 0
    rate = put(np.float32(1))
    sgd = update_source(optimizers.SGD(0.1))
    assert update.update_tensors(sgd, [[none], [none]], [rate])[0][0].shape == (0, 3)
    assert random.dropout(put(np.array([1, 2], "uint32")), none, 0.5).shape == (0, 3)
    pooled = KERNELS["pool_max"](
        put(np.ones((0, 4, 4, 2)), "float32"), size=(2, 2), strides=(2, 2), padding=((0, 0),) * 2
    )
    assert pooled.shape == (0, 2, 2, 2)
    assert not cuda.launches.keys() - {"norm_of_parts"}


# --- what the sources say -------------------------------------------------------------------------


@pytest.mark.parametrize("source", EVERY)
def test_no_source_adds_floats_in_an_order_of_chance(source):
    assert not re.findall(r"\batomic\w*|\bred\.", _text(source))


# What kernels take as `int`: yes or no, and which one of a few.
FLAGS = {
    "biased", "centered", "has_beta", "has_factor", "has_gamma", "has_past", "has_slot", "kind",
    "logarithm", "masked", "nesterov", "packed", "values", "places", "with_x",
}  # fmt: skip


@pytest.mark.parametrize("source", EVERY)
def test_counts_and_places_have_64_bits(source):
    text = _text(source)
    for name, parameters in KERNEL.findall(text):
        for kind, parameter in (p.rsplit(maxsplit=1) for p in parameters.split(",")):
            assert kind != "int" or parameter in FLAGS, f"{name}: int {parameter}"
    # Products of the grid's and the block's numbers are wide from their first factor on.
    for line in text.splitlines():
        assert not re.search(r"(?<!\(i64\))(?<!\(Index\))\b(blockIdx|gridDim)\.x \*", line), line


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", sorted(CALLS))
def test_a_gpu_gives_what_the_cpu_does_and_repeats(monkeypatch, kernel, dtype):
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed: extras gpu13 or gpu12")
    if not cupy.is_available():
        pytest.skip("no CUDA device")
    if COMPILER is None:
        pytest.skip(NO_COMPILER)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "cupy", FakeCupy())
        expected = [wide(a) for a in CALLS[kernel](_put_as(dtype))]

    def to_gpu(values, other=None):
        return cupy.asarray(np.asarray(values, other or dtype_of(dtype)))

    found, again = ([a.get() for a in CALLS[kernel](to_gpu)] for _ in range(2))
    for a, b, c in zip(found, again, expected):
        assert a.tobytes() == b.tobytes()
        size = max(1.0, np.abs(c).max(initial=0))
        atol = 4 * size * TOLERANCES[dtype]
        np.testing.assert_allclose(a.astype("float64"), c, rtol=0, atol=atol)
