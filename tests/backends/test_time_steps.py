"""All time steps of a recurrence in one call, against NumPy: the same bits on all threads."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from kerasish import backends, config, layers, ops
from kerasish.autodiff import grad
from kerasish.backends import loops
from kerasish.backends.eager import loop_recurrent
from kerasish.backends.eager.numpy_kernels import KERNELS
from kerasish.backends.static.codegen import kernels, time_steps
from kerasish.backends.static.codegen.driver import load_runtime
from kerasish.backends.static.codegen.step_loops import GATES
from kerasish.backends.static.codegen.time_steps import TimeSteps
from kerasish.backends.static.engine import Static
from kerasish.backends.static.lowering.time_steps import LstmGradientUnit
from kerasish.backends.static.machine import guard_pages, machine_code

_HOST = machine_code.host_target("avx512").level
LEVELS = ["avx2", "avx512"] if _HOST == "avx512" else [_HOST]
# Vectors of 4, 8 and 16 numbers: one that is not complete, several, strips of four and of one;
# tiles of rows and single ones.
SIZES = [(1, 1, 1), (3, 2, 5), (2, 13, 17), (4, 9, 83), (2, 4, 64)]


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def guarded(array):
    """Return a copy of an array whose last byte is before a page that cannot be accessed."""
    owner, address = guard_pages.block(array.nbytes)
    place = (ctypes.c_char * array.nbytes).from_address(address)
    copy = np.frombuffer(place, array.dtype).reshape(array.shape)
    copy[...] = array
    return owner, copy


def run(kernel, level, threads, sizes, arrays):
    _, rows, units = sizes
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERASISH_STRICT_MEMORY", "1")
        size = time_steps.scratch_size(kernel, rows, units)
        held = [guarded(np.zeros(-(-size // 64) * 64, np.uint8)), *map(guarded, arrays)]
    places = [array for _, array in held]
    block = time_steps.pack(
        kernel, table=load_runtime().table, threads=threads, sizes=sizes,
        scratch=places[0].ctypes.data, addresses=[a.ctypes.data for a in places[1:]],
    )  # fmt: skip
    address = kernels.compile_one(kernel, machine_code.host_target(level))
    assert ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(address)(block.ctypes.data) == 0
    return [np.array(a) for a in places[1:]]


def _arrays(cell, sizes):
    """Return the inputs of a recurrence and of its gradient by name, in the ops' order."""
    steps, rows, units = sizes
    width, state = GATES[cell] * units, (rows, units)
    shapes = {"x": (steps, rows, width), "recurrent": (units, width), "bias": (width,)}
    shapes.update(h=state, c=state, g_states=(steps, *state), g_cells=(steps, *state))
    arrays = {n: normal(*shape, seed=i) for i, (n, shape) in enumerate(shapes.items())}
    arrays["recurrent"] /= np.float32(units**0.5)
    for name in {"lstm": ["bias"], "gru": ["c", "g_cells"]}.get(cell, ["bias", "c", "g_cells"]):
        del arrays[name]
    return arrays


def _run_named(kernel, level, threads, sizes, arrays):
    """Return the results of a loop by name; they are NaN before."""
    steps, rows, units = sizes
    width = (steps, rows, GATES[kernel.cell] * units)
    shapes = {"dx": width, "ds": width, "dh": (rows, units), "dc": (rows, units)}
    own = shapes if kernel.backward else ("states", "cells", "gates")
    given = dict(arrays)
    for name in set(own).intersection(kernel.names):
        shape = shapes[name] if kernel.backward else arrays[name].shape
        given[name] = np.full(shape, np.nan, "float32")
    results = run(kernel, level, threads, sizes, [given[name] for name in kernel.names])
    return {n: a for n, a in zip(kernel.names, results, strict=True) if n in own}


@pytest.mark.parametrize("masked", [False, True], ids=["all", "masked"])
@pytest.mark.parametrize("cell", GATES)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_time_steps_are_those_of_numpy(cell, level, sizes, masked, monkeypatch):
    steps, rows, _ = sizes
    monkeypatch.setattr(loop_recurrent, "LEAST", 1 << 40)
    arrays = _arrays(cell, sizes)
    mask = (np.random.default_rng(5).random((steps, rows)) < 0.6).astype("float32")
    mask[steps // 2] = 0  # a time step that counts for no row
    more = [mask] if masked else []
    inputs = [a for name, a in arrays.items() if not name.startswith("g_")]
    results = KERNELS[cell](*inputs, *more)
    results = results if isinstance(results, tuple) else (results,)
    arrays.update(
        zip({"gru": ("states", "gates")}.get(cell, ("states", "cells", "gates")), results)
    )
    before = [arrays[n] for n in ("g_states", "g_cells", "recurrent", "h", "c") if n in arrays]
    dx, weights, *rest = KERNELS[f"{cell}_gradient"](*before, *results, *more)
    wanted = {n: arrays[n] for n in ("states", "cells", "gates") if n in arrays}
    wanted["dx"] = dx
    if cell == "gru":
        bias = rest.pop(0)
    wanted.update(zip(("dh", "dc"), rest))
    both = []
    for threads in (1, 3):
        found = {}
        for backward in (False, True):
            kernel = TimeSteps(cell, backward, masked=masked)
            found |= _run_named(kernel, level, threads, sizes, {**arrays, "mask": mask})
        both.append(found)
    for name, numbers in both[0].items():
        np.testing.assert_array_equal(numbers, both[1][name])
    if cell == "gru":  # the gradient by the products with the states
        ds = both[0].pop("ds")
        np.testing.assert_allclose(ds.sum(axis=(0, 1)), bias, rtol=2e-5, atol=2e-5)
        states = np.concatenate([arrays["h"][None], results[0]])[:-1]
        by_weights = np.einsum("tnu,tnk->uk", states, ds)
        np.testing.assert_allclose(by_weights, weights, rtol=2e-5, atol=5e-5)
    assert both[0].keys() == wanted.keys()
    for name, numbers in both[0].items():
        np.testing.assert_allclose(numbers, wanted[name], rtol=2e-5, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("states", ["every", "last", "none"])
@pytest.mark.parametrize("cells", ["every", "last", "none"])
def test_zeros_that_arrive_are_not_read(states, cells):
    """The bits are those with arrays of zeros."""
    steps, rows, units = sizes = (3, 5, 18)
    whole, given = [], []
    for seed, kind in enumerate((states, cells)):
        array = normal(steps, rows, units, seed=seed)
        array[: {"every": 0, "last": steps - 1, "none": steps}[kind]] = 0
        whole.append(array)
        given += {"every": [array], "last": [array[-1]], "none": []}[kind]
    recurrent, c = normal(units, 4 * units), normal(rows, units, seed=2)
    x, h = normal(steps, rows, 4 * units), np.zeros((rows, units), "float32")
    _, *kept = KERNELS["lstm"](x, recurrent, h, c)
    rest = [recurrent, c, *kept, np.full_like(x, np.nan), *[np.full_like(c, np.nan)] * 2]
    results = run(TimeSteps("lstm", True, (states, cells)), None, 2, sizes, [*given, *rest])
    wanted = run(TimeSteps(backward=True), None, 1, sizes, [*whole, *rest])
    for result, want in zip(results[-3:], wanted[-3:], strict=True):
        np.testing.assert_array_equal(result, want)


@pytest.mark.parametrize(
    "options", [{}, {"return_sequences": True}, {"go_backwards": True}], ids=str
)
def test_a_layer_s_gradient_reads_what_arrives(options):
    """That of only the last output has no array of zeros for the other time steps."""
    layer = layers.LSTM(6, **options)
    x = normal(4, 7, 5)
    layer.build(x.shape)

    def slope(x):
        return (grad(lambda x: ops.sum(layer(x) ** 2))(x),)

    compiled = Static().compile(slope)
    result = np.asarray(compiled(ops.convert_to_tensor(x))[0])
    units = [u for e in compiled.executables() for u in e.units]
    given = [u.steps_kernel.given for u in units if isinstance(u, LstmGradientUnit)]
    assert given == [("every" if "return_sequences" in options else "last", "none")]
    assert not any(v.shape == (7, 4, 6) for u in units if u.name in ("fill", "unslice")
                   for v in u.writes)  # fmt: skip
    np.testing.assert_allclose(result, backends.get("eager").compile(slope)(x)[0], 1e-5, 1e-5)


def test_nan_and_infinity_stay():
    x = normal(3, 4, 20)
    x[1, 2, 3], x[0, 1, :] = np.nan, np.inf
    state = np.zeros((4, 5), "float32")
    nothing = [np.zeros((3, 4, 5), "float32"), np.zeros((3, 4, 5), "float32"), np.zeros_like(x)]
    given = [x, normal(5, 20), state, state, *nothing]
    states, _, gates = run(TimeSteps(), None, 1, (3, 4, 5), given)[4:]
    assert np.isnan(gates[1, 2, 3]) and np.isnan(states[2, 2]).all()
    assert np.isfinite(states[:, 3]).all() and (gates[0, 1] == 1).all()


def test_threads_are_chosen_by_work_and_rows():
    def choose(sizes, limit):
        return time_steps.choose_threads(TimeSteps(), sizes, limit)

    assert choose((80, 32, 128), 2) == 2
    assert choose((80, 32, 128), 1) == 1
    assert choose((80, 1, 512), 8) == 1  # a row is computed by one thread
    assert choose((2, 32, 16), 8) == 1  # too little work
    assert choose((0, 32, 16), 8) == 1


def test_arrays_are_checked_and_shared_out():
    with pytest.raises(ValueError, match="expected 7 addresses, got 2"):
        time_steps.pack(TimeSteps(), table=0, threads=1, sizes=(1, 1, 1), scratch=0,
                        addresses=[0, 0])  # fmt: skip
    steps = loops.compile_time_steps("lstm", backward=False)
    assert steps is not None
    x, recurrent, state = normal(40, 32, 256), normal(64, 256) / 8, np.zeros((32, 64), "float32")
    results = []
    for threads in (1, 2):
        with config.using_threads(threads):
            empty = [np.empty((40, 32, 64), "float32") for _ in range(2)]
            results.append([*empty, np.empty_like(x)])
            steps((x, recurrent, state, state, *results[-1]), (40, 32, 64))
    for one, two in zip(*results, strict=True):
        np.testing.assert_array_equal(one, two)
