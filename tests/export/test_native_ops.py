"""Every op of the registry in a native library, by its own examples: code, or a reason for none."""

from __future__ import annotations

import ctypes
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from op_examples import arguments, call, results

import kerasish
from kerasish import InputSpec, ops
from kerasish.export.native import link, plan
from kerasish.export.native.emit import Emitter
from kerasish.ops.op import REGISTRY
from kerasish.tensor import Tensor

TARGETS = link.targets_named("native")
NATIVE = link.runs_here(TARGETS["native"])
needs_linker = pytest.mark.skipif(not NATIVE, reason="no code of this machine can be linked here")

GRADIENTS = "it is a gradient, which only training computes"
FACTORS = "it factorizes matrices by LAPACK"
COMPLEX = "C has no complex tensors here"
RANKS = "it exchanges tensors between processes, which only distributed training does"
WITHOUT = {
    **dict.fromkeys(["all_gather", "all_sum"], RANKS),
    "join_parts": COMPLEX,
    **dict.fromkeys(
        "eig eigh pinv singular_values svd_full svd_reduced swaps".split(),
        FACTORS,
    ),
    **dict.fromkeys([n for n in REGISTRY if n.endswith("_gradient")], GRADIENTS),
    "print_values": "exported models print nothing",
}  # fmt: skip
GRADIENT_CODE = {
    "convolution_data_gradient",
    "pool_max_gradient",
    "stop_gradient",
}  # and yet they have code
for _name in GRADIENT_CODE:
    WITHOUT.pop(_name, None)
# The kernel of a convolution or of a recurrence is given: an input that varies is refused.
CONSTANT = {
    "convolution": 1, "convolution_data_gradient": 1, "gru": 1, "lstm": 1, "simple_rnn": 1
}  # fmt: skip
PLAIN = "argmax argmin argsort running_sum searchsorted take_rows add_rows pick_along_axis".split()
PLAIN += "add_along_axis read_at add_at write_at combine_at write_slice matmul fourier".split()

Case = tuple[Any, list[Any], dict[str, Any]]


def cases(names: Any, most: int = 9) -> list[Case]:
    chosen = [
        (REGISTRY[name], *arguments(REGISTRY[name], example))
        for name in names
        for example in REGISTRY[name].examples[:most]
    ]
    return [(op, a, k) for op, a, k in chosen if a and all(x.dtype.kind != "c" for x in a)]


def one(case: Case, given: Any) -> list[Any]:
    op, arrays, attrs = case
    inputs = [x if CONSTANT.get(op.name) == i else next(given) for i, x in enumerate(arrays)]
    found = results(call(op, inputs, attrs))
    return list(found[:1] if op.kind == "recurrent" else found)


def library_of(chosen: list[Case], folder: Path) -> tuple[Any, list[Any], list[Any]]:
    """Return the function of a library with all cases, its inputs and what it has to give."""
    arrays = [
        x for op, given, _ in chosen for i, x in enumerate(given) if CONSTANT.get(op.name) != i
    ]

    def function(*tensors: Any) -> Any:
        given = iter([ops.reshape(t, t.shape[1:]) for t in tensors])
        many = itertools.chain.from_iterable(one(case, given) for case in chosen)
        # A result that is an input would have no place of its own.
        return [ops.expand_dims(t, 0) for t in many]

    specs = [InputSpec(shape=(None, *a.shape), dtype=str(a.dtype)) for a in arrays]
    weights = plan.Weights()
    made = plan.make_plan(function, specs, 1, weights)
    emitter = Emitter("m", [made], TARGETS, weights.content(), weights.size)
    (folder / "m.o").write_bytes(link.object_of(emitter.module(), TARGETS["native"]))
    missing = link.link(str(folder / "m.o"), str(folder / "m.so"), TARGETS["native"], ["m_predict"])
    if missing:
        pytest.skip(missing)
    predict = ctypes.CDLL(str(folder / "m.so")).m_predict
    given = iter([Tensor(a) for a in arrays])
    expected = [np.asarray(t) for case in chosen for t in one(case, given)]
    return predict, arrays, expected


def run(predict: Any, arrays: list[Any], expected: list[Any]) -> tuple[int, list[Any]]:
    found = [np.full(e.shape, 77).astype(e.dtype) for e in expected]
    held = [np.ascontiguousarray(a) for a in arrays]
    pointers = [ctypes.c_void_p(v.ctypes.data) for v in (*held, *found)]
    return predict(*pointers, ctypes.c_int64(1), None), found


def compare(chosen: list[Case], folder: Path) -> None:
    predict, arrays, expected = library_of(chosen, folder)
    code, found = run(predict, arrays, expected)
    assert code == 0
    given = iter([Tensor(a) for a in arrays])
    names = [c[0].name for c in chosen for _ in one(c, given)]
    for name, a, b in zip(names, found, expected, strict=True):
        largest = max(float(np.abs(b.astype("float64")).max(initial=0, where=np.isfinite(b))), 1e-6)
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6 * largest, err_msg=name)


@needs_linker
def test_orders_indices_and_products(tmp_path: Path) -> None:
    compare(cases(PLAIN, 1), tmp_path)


@needs_linker
@pytest.mark.slow
def test_more_orders_indices_and_products(tmp_path: Path) -> None:
    compare(cases(PLAIN), tmp_path)


@needs_linker
@pytest.mark.slow
def test_every_op(tmp_path: Path) -> None:
    others = [n for n in sorted(REGISTRY) if n not in WITHOUT and n not in PLAIN]
    compare(cases(others, 1), tmp_path)


def test_the_ops_without_code() -> None:
    """What a library cannot compute: a new op that joins these is a decision."""
    for name in WITHOUT:
        if REGISTRY[name].communicates or REGISTRY[name].effect:
            continue
        for op, arrays, attrs in cases([name])[:1]:
            specs = [InputSpec(shape=(None, *a.shape), dtype=str(a.dtype)) for a in arrays]

            def called(*x: Any, op: Any = op, attrs: Any = attrs) -> Any:
                return [t[None] for t in results(call(op, [v[0] for v in x], attrs))]

            with pytest.raises(ValueError, match=f"op '{name}' .*no code that needs no library"):
                plan.make_plan(called, specs, 1, plan.Weights())


def random_case(rng: Any) -> Case:
    """Return a call of an op on lines or indices, with ties, NaN and negative indices."""
    name = rng.choice([n for n in PLAIN if n not in ("fourier", "matmul", "add_at", "write_slice")])
    op = REGISTRY[str(name)]
    dtype = str(rng.choice(["float32", "float64", "int32", "int64", "uint8", "float16", "bool"]))
    shape = tuple(int(n) for n in rng.integers(1, 7, rng.integers(1, 4)))
    x = rng.integers(-3, 4, shape).astype(dtype)
    if x.dtype.kind == "f" and not name.startswith(("add", "combine")):
        x[rng.random(shape) < 0.2] = np.nan
    axis = int(rng.integers(-len(shape), len(shape)))
    size = shape[axis]
    kind = str(rng.choice(["int32", "int64"]))
    indices = rng.integers(-size, size, tuple(rng.integers(1, 4, rng.integers(1, 3)))).astype(kind)
    if name == "searchsorted":
        return op, [np.sort(x.ravel()), x], {"side": str(rng.choice(["left", "right"]))}
    if name == "take_rows":
        return op, [x, indices], {"axis": axis}
    if name == "add_rows":
        axis %= len(shape)
        given = (*shape[:axis], *indices.shape, *shape[axis + 1 :])
        return op, [rng.integers(0, 4, given).astype("float32"), indices], {
            "size": size, "axis": axis
        }  # fmt: skip
    if name in ("pick_along_axis", "add_along_axis"):
        along = [1 if rng.random() < 0.3 and name[0] == "p" else n for n in shape]
        along[axis] = int(rng.integers(1, 5))
        indices = rng.integers(-size, size, along).astype(kind)
        if name[0] == "p":
            return op, [x, indices], {"axis": axis}
        return op, [rng.integers(0, 4, along).astype("int32"), indices], {
            "shape": shape, "axis": axis
        }  # fmt: skip
    if name in ("read_at", "write_at", "combine_at"):
        count = int(rng.integers(1, len(shape) + 1))
        places = [rng.integers(-n, n, (3, 1)) for n in shape[:count]]
        indices = np.concatenate(places, axis=-1).astype(kind)
        if name == "read_at":
            return op, [x, indices], {}
        updates = np.broadcast_to(rng.integers(-3, 4, shape[count:]), (3, *shape[count:]))
        if dtype == "bool" or (dtype == "float16" and name == "combine_at"):
            x = x.astype("float32")
        attrs = {} if name == "write_at" else {"how": str(rng.choice(["max", "min", "mul"]))}
        return op, [x, indices, np.ascontiguousarray(updates).astype(x.dtype)], attrs
    return op, [x], {"axis": axis}


@needs_linker
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_random_orders_and_indices(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    compare([random_case(rng) for _ in range(60 if seed else 10)], tmp_path)


@needs_linker
def test_long_lines_keep_the_order_of_equal_elements(tmp_path: Path) -> None:
    x = np.random.default_rng(2).integers(0, 9, (3, 1000, 2)).astype("float32")
    x[0, ::7, 0] = np.nan
    compare([(REGISTRY["argsort"], [x], {"axis": 1})], tmp_path)


@needs_linker
def test_one_line_for_many_lines_of_indices(tmp_path: Path) -> None:
    indices = np.int32([[0, 3], [2, 2], [1, -1]])
    case = REGISTRY["pick_along_axis"], [np.float32([[1, 2, 3, 4]]), indices], {"axis": 1}
    compare([case], tmp_path)


@needs_linker
def test_long_transforms_are_divided(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(2, 3, 192)).astype("float32")
    wide = rng.normal(size=(2, 2, 134))
    fourier = REGISTRY["fourier"]
    chosen = [
        (fourier, [x, y], {"axes": (1,)}),
        (fourier, [x, y], {"axes": (0, 1), "inverse": True}),
        (fourier, list(wide), {"axes": (1,)}),
    ]
    compare(chosen, tmp_path)


@needs_linker
@pytest.mark.parametrize("index", [3, -4])
def test_an_index_out_of_range_is_an_error(index: int, tmp_path: Path) -> None:
    x, good = np.float32([[1, 2, 3]]), np.int32([[0]])
    case = REGISTRY["pick_along_axis"], [x, good], {"axis": 1}
    predict, arrays, expected = library_of([case], tmp_path)
    assert run(predict, arrays, expected)[0] == 0
    assert run(predict, [x, np.int32([[index]])], expected)[0] == 4
    with pytest.raises(IndexError):
        kerasish.ops.take_along_axis(x, np.int32([[index]]), axis=1).numpy()
