"""Maximum pooling in our own loops: what the eager engine gives, for NaN and infinities, too."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kerasish import backends, config, ops
from kerasish.autodiff import grad
from kerasish.backends.eager import numpy_pool
from kerasish.backends.static.codegen import window_ranges
from kerasish.backends.static.codegen.driver import Program
from kerasish.backends.static.engine import COMPILED_PLANS
from kerasish.backends.static.lowering.pool import GRAIN, MaxPoolUnit
from kerasish.backends.static.lowering.units import aligned_array, place_of
from kerasish.backends.static.machine import guard_pages
from kerasish.backends.static.machine.machine_code import LEVELS, host_target
from kerasish.graph.ir import Node, Value
from kerasish.ops import dtypes
from kerasish.ops.op import REGISTRY

POOL, GRADIENT, SELECT = (
    REGISTRY[name] for name in ("pool_max", "pool_max_gradient", "pool_max_select")
)
SPECIAL = (0.0, 1.0, 2.0, -1.0, np.nan, np.inf, -np.inf)
SHARES = (0.2, 0.2, 0.2, 0.1, 0.1, 0.1, 0.1)
GEOMETRIES = [
    ((3, 7, 3), (2,)),
    ((2, 9, 1), (3,)),
    ((1, 1, 5), (1,)),
    ((2, 8, 6, 32), (2, 2)),
    ((2, 9, 7, 37), (3, 3)),
    ((3, 5, 6, 16), (2, 3)),
    ((1, 12, 13, 150), (3, 2)),
    ((2, 6, 6, 4), (4, 4)),
    ((1, 4, 3, 5, 9), (2, 2, 3)),
    ((2, 4, 4, 4, 64), (2, 2, 2)),
    ((1, 40, 40, 2), (17, 17)),  # more places than a byte numbers
]
# The largest of each processor that this one can run.
RUNNABLE = [v for v in LEVELS if list(LEVELS).index(v) >= list(LEVELS).index(host_target().level)]


def specials(shape, seed=0):
    """Return ties, NaN and infinities; the first sample and the first row of all are -Inf."""
    x = np.random.default_rng(seed).choice(SPECIAL, shape, p=SHARES).astype("float32")
    x[0] = -np.inf
    x[:, 0] = -np.inf
    if shape[0] > 2:
        x[-1] = 1.0
    return x


def normals(shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def both(function, *arrays):
    """Return (what the eager engine gives, what the compiled function gives), all native."""
    expected = [t.numpy() for t in function(*arrays)]
    step = backends.get("static").compile(function)
    result = [t.numpy() for t in step(*arrays)]
    units = [u for created in step.executables() for u in created.units]
    assert units
    assert all(u.native for u in units), [u.name for u in units]
    return expected, result


def assert_equal(pair):
    for expected, result in zip(*pair, strict=True):
        assert result.dtype == expected.dtype
        np.testing.assert_array_equal(result, expected)


def settings_of(shape, size, strides, padding="valid"):
    return POOL.canonical([shape], {"size": size, "strides": strides, "padding": padding})


def compare(shape, size, strides, padding, dtype="float32"):
    settings = settings_of(shape, size, strides, padding)
    x = specials(shape).astype(dtype)
    g = normals(POOL(x, **settings).shape).astype(dtype)
    h = normals(shape).astype(dtype)

    def together(x, g, h):
        return POOL(x, **settings), GRADIENT(g, x, **settings), SELECT(h, x, **settings)

    expected, result = both(together, x, g, h)
    np.testing.assert_array_equal(result[0], expected[0])
    np.testing.assert_array_equal(result[2], expected[2])
    np.testing.assert_allclose(result[1], expected[1], rtol=1e-6, atol=1e-6)
    alone = both(lambda x, g, h: (GRADIENT(g, x, **settings),), x, g, h)
    np.testing.assert_array_equal(alone[1][0], result[1])
    alone = both(lambda x, g, h: (SELECT(h, x, **settings),), x, g, h)
    np.testing.assert_array_equal(alone[1][0], result[2])
    assert_equal(both(lambda x: (POOL(x, **settings),), x))


@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize("strides", [None, 1, 2, 3])
@pytest.mark.parametrize(("shape", "size"), GEOMETRIES, ids=str)
def test_engines_agree(shape, size, strides, padding):
    compare(shape, size, strides, padding)


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_level_of_processors(level, dtype, monkeypatch):
    monkeypatch.setenv("KERASISH_CPU", level)
    COMPILED_PLANS.clear()
    try:
        for shape, size in GEOMETRIES[:6]:
            compare(shape, size, 2, "same", dtype)
    finally:
        COMPILED_PLANS.clear()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64"])
def test_whole_numbers(dtype):
    info = np.iinfo(dtype)
    x = np.random.default_rng(0).integers(info.min, info.max, (2, 5, 6, 19), dtype, endpoint=True)
    x[0] = info.min
    h = normals(x.shape)
    for size, strides in ((2, 2), (3, 1)):
        settings = settings_of(x.shape, size, strides, "same")
        g = normals(POOL(x, **settings).shape)
        pair = both(lambda x, h, s=settings: (POOL(x, **s), SELECT(h, x, **s)), x, h)
        assert_equal(pair)
        expected, result = both(lambda x, g, s=settings: (GRADIENT(g, x, **s),), x, g)
        np.testing.assert_allclose(result[0], expected[0], rtol=1e-6, atol=1e-6)


# --- which element is chosen ----------------------------------------------------------------------


def line(*numbers):
    return np.array(numbers, "float32").reshape(1, -1, 1)


INF, NAN = np.inf, np.nan


@pytest.mark.parametrize(
    ("x", "chosen"),
    [
        (line(1, NAN, 5, 2), [0, 1, 2, 0]),
        (line(NAN, NAN, 2, NAN), [1, 0, 0, 2]),
        (line(INF, NAN, -INF, NAN), [0, 1, 0, 2]),
        (line(INF, INF, -INF, -INF), [1, 0, 2, 0]),
        (line(3, 3, 0, -0.0), [1, 0, 2, 0]),
    ],
)
def test_nan_goes_before_infinity_and_the_first_before_equals(x, chosen):
    step = backends.get("static").compile(lambda x: ops.max_pool(x, 2))
    result = step(x).numpy().ravel()
    np.testing.assert_array_equal(result, x.reshape(2, 2).max(axis=1))
    settings = settings_of(x.shape, 2, 2)
    g = line(1, 2)
    for kernel in (
        backends.get("static").compile(lambda g, x: GRADIENT(g, x, **settings)),
        lambda g, x: GRADIENT(g, x, **settings),
    ):
        assert kernel(g, x).numpy().ravel().tolist() == chosen
    for kernel in (GRADIENT.kernel.__get__(np), numpy_pool.pool_max_gradient):
        assert kernel(g, x, **settings).ravel().tolist() == chosen


def test_nan_reaches_every_window_that_holds_it():
    x = np.zeros((1, 5, 5, 20), "float32")
    x[0, 2, 2, 3] = np.nan
    x[0, 0, 0, 19] = np.inf
    for padding in ("valid", "same"):
        step = backends.get("static").compile(lambda x, p=padding: ops.max_pool(x, 3, 1, p))
        y = step(x).numpy()
        assert np.isnan(y).sum() == 9
        assert np.isnan(y[..., 3]).sum() == 9
        assert np.isinf(y[..., 19]).sum() == (1 if padding == "valid" else 4)


def test_the_padding_is_never_chosen():
    """Windows of -Inf that are partly in the padding: the first place inside gets the gradient."""
    x = np.full((1, 3, 3, 1), -np.inf, "float32")
    settings = settings_of(x.shape, 3, 3, ((1, 2), (1, 2)))
    g = np.arange(1, 5, dtype="float32").reshape(1, 2, 2, 1)
    expected = [[1, 0, 2], [0, 0, 0], [3, 0, 4]]
    static = backends.get("static").compile(lambda g, x: GRADIENT(g, x, **settings))(g, x)
    assert static.numpy()[0, :, :, 0].tolist() == expected
    for kernel in (GRADIENT.kernel.__get__(np), numpy_pool.pool_max_gradient):
        assert kernel(g, x, **settings)[0, :, :, 0].tolist() == expected
    assert np.isneginf(POOL(x, **settings).numpy()).all()


def test_windows_in_the_padding_alone():
    x = line(1, 2, 3)
    settings = settings_of(x.shape, 2, 1, ((3, 2),))
    expected, result = both(lambda x: (POOL(x, **settings),), x)
    assert result[0].ravel().tolist() == [-INF, -INF, 1, 2, 3, 3, -INF]
    np.testing.assert_array_equal(result[0], expected[0])
    g, h = line(*range(1, 8)), line(5, 6, 7)
    back = both(lambda g, x, h: (GRADIENT(g, x, **settings), SELECT(h, x, **settings)), g, x, h)
    assert_equal(back)
    assert back[1][0].ravel().tolist() == [3, 4, 11]
    assert back[1][1].ravel().tolist() == [0, 0, 5, 6, 7, 7, 0]


def test_places_between_windows_get_no_gradient():
    x = line(*range(11))
    for size, strides, chosen in ((2, 4, (1, 5, 9)), (3, 3, (2, 5, 8)), (1, 5, (0, 5, 10))):
        settings = {"pool_size": size, "strides": strides}
        slope = grad(lambda x, s=settings: ops.sum(ops.max_pool(x, **s) ** 2))
        expected = [2 * i if i in chosen else 0 for i in range(11)]
        assert slope(x).numpy().ravel().tolist() == expected
        assert backends.get("static").compile(slope)(x).numpy().ravel().tolist() == expected


def test_infinite_gradients_stay_in_their_place():
    x, g = line(1, 2, 4, 3), line(np.inf, np.nan)
    settings = settings_of(x.shape, 2, 2)
    step = backends.get("static").compile(lambda g, x: GRADIENT(g, x, **settings))
    np.testing.assert_array_equal(step(g, x).numpy().ravel(), [0, np.inf, np.nan, 0])


# --- workspaces -----------------------------------------------------------------------------------


def test_readers_take_the_places_of_their_own_data():
    a, b = specials((2, 6, 6, 3)), specials((2, 6, 6, 3), seed=5)
    settings = settings_of(a.shape, 2, 2)
    g, h = normals((2, 3, 3, 3)), normals((2, 6, 6, 3))

    def function(a, b, g, h):
        forward = POOL(a, **settings), POOL(b, **settings)
        back = GRADIENT(g, b, **settings), GRADIENT(g, a, **settings)
        return *forward, *back, SELECT(h, a, **settings), SELECT(h, b, **settings)

    assert_equal(both(function, a, b, g, h))


def test_a_gradient_before_its_forward_pass_finds_the_places_itself():
    x, g = specials((2, 6, 6, 3)), normals((2, 3, 3, 3))
    settings = settings_of(x.shape, 2, 2)

    def function(x, g):
        back = GRADIENT(g, x, **settings)
        return back, POOL(ops.where(ops.isnan(back), x, x), **settings), POOL(x, **settings)

    assert_equal(both(function, x, g))


@pytest.mark.parametrize("mode", ["1", "start", "shared"])
def test_in_strict_memory(mode, monkeypatch):
    monkeypatch.setenv(guard_pages.SETTING, mode)
    COMPILED_PLANS.clear()
    try:
        for (shape, size), strides in itertools.product(GEOMETRIES[:9], (1, 2)):
            x = np.nan_to_num(specials(shape), nan=9.0)
            settings = settings_of(shape, size, strides, "same")
            g, h = normals(POOL(x, **settings).shape), normals(shape)
            expected, result = both(
                lambda x, g, h, s=settings: (
                    POOL(x, **s), GRADIENT(g, x, **s), SELECT(h, x, **s), GRADIENT(g, h, **s),
                ),
                x, g, h,
            )  # fmt: skip
            for a, b in zip(expected, result, strict=True):
                np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-6)
    finally:
        COMPILED_PLANS.clear()


@pytest.mark.parametrize("channels", [1, 17, 33])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_one_channel_left_over_is_stored_alone(channels, dtype, monkeypatch):
    """LLVM's masked store of one truncated lane would write beyond it."""
    monkeypatch.setenv(guard_pages.SETTING, "1")
    COMPILED_PLANS.clear()
    try:
        x = np.arange(2 * 12 * channels).reshape(2, 12, channels) % 251
        x = x.astype(dtypes.array_dtype(dtype))
        step = backends.get("static").compile(lambda x: POOL(x, size=(2,)))
        np.testing.assert_array_equal(step(x).numpy(), np.maximum(x[:, ::2], x[:, 1::2]))
    finally:
        COMPILED_PLANS.clear()


# --- threads, sizes -------------------------------------------------------------------------------


@pytest.mark.parametrize("padding", ["valid", "same"])
def test_results_are_the_same_for_any_number_of_threads(padding):
    shape = (3, 41, 33, 48)
    settings = settings_of(shape, 3, 2, padding)
    x, h = specials(shape), normals(shape)
    g = normals(POOL(x, **settings).shape)
    assert g.size * 9 > 2 * GRAIN  # else one thread would do

    def function(x, g, h):
        return POOL(x, **settings), GRADIENT(g, x, **settings), SELECT(h, x, **settings)

    before = config.threads()
    result = []
    try:
        for threads in (1, 2, 3):
            config.set_threads(threads)
            COMPILED_PLANS.clear()
            step = backends.get("static").compile(function)
            result.append([t.numpy() for t in step(x, g, h)])
    finally:
        config.set_threads(before)
        COMPILED_PLANS.clear()
    for one in result[1:]:
        for a, b in zip(result[0], one, strict=True):
            np.testing.assert_array_equal(a, b)
    for a, b in zip(function(x, g, h), result[0], strict=True):
        np.testing.assert_allclose(b, a.numpy(), rtol=1e-6, atol=1e-6)


def test_an_empty_batch():
    x = np.zeros((0, 4, 4, 3), "float32")
    g = np.zeros((0, 2, 2, 3), "float32")
    settings = settings_of(x.shape, 2, 2)
    assert_equal(both(lambda x, g: (POOL(x, **settings), GRADIENT(g, x, **settings)), x, g))


# --- halves, which the engine widens where the processor has none ------------------------------


def run_unit(op, arrays, settings, dtype, workspace=None, places=None):
    inputs = [Value(a.shape, dtype) for a in arrays]
    spec = op.shape(*(v.spec for v in inputs), **settings)
    out = Value(spec.shape, spec.dtype)
    unit = MaxPoolUnit(Node(op, inputs, settings, [out]), workspace)
    memory = {out: aligned_array(out.shape, out.dtype)}
    for v, a in zip(inputs, arrays, strict=True):
        memory[v] = aligned_array(v.shape, dtype)
        memory[v][...] = a
    if unit.scratch:
        memory["scratch", unit] = aligned_array((unit.scratch,), "uint8")
    if workspace is not None:
        memory[workspace] = aligned_array((unit.workspace_bytes,), "uint8")
        if places is not None:
            memory[workspace][...] = places
    Program(unit.records(lambda key: place_of(memory[key]))).run()
    return memory[out], memory.get(workspace)


def half_cases():
    """All channels for each level and half; the middle ones, which have no tail, are slow."""
    for level, dtype, channels in itertools.product(
        RUNNABLE, ["bfloat16", "float16"], [1, 8, 32, 37]
    ):
        marks = pytest.mark.slow if channels in (8, 32) and level != RUNNABLE[0] else []
        yield pytest.param(dtype, channels, level, marks=marks)


@pytest.mark.parametrize(("dtype", "channels", "level"), list(half_cases()))
def test_halves(dtype, channels, level, monkeypatch):
    monkeypatch.setenv("KERASISH_CPU", level)
    kind = dtypes.array_dtype(dtype)
    for size, strides in ((2, 2), (3, 2), (2, 1)):
        x = specials((2, 6, 7, channels))
        settings = settings_of(x.shape, size, strides, "same")
        y, places = run_unit(POOL, [x], settings, dtype, "places")
        np.testing.assert_array_equal(y.astype("float32"), numpy_pool.pool_max(x, **settings))
        # Numbers of the half's, added up in float32 and rounded once, at the end.
        g, h = (normals(s).astype(kind).astype("float32") for s in (y.shape, x.shape))
        back, _ = run_unit(GRADIENT, [g, x], settings, dtype)
        exact = numpy_pool.pool_max_gradient(g, x, **settings).astype(kind)
        np.testing.assert_array_equal(back.astype("float32"), exact.astype("float32"))
        again, _ = run_unit(GRADIENT, [g, x], settings, dtype, "places", places)
        np.testing.assert_array_equal(again.astype("float32"), exact.astype("float32"))
        picked, _ = run_unit(SELECT, [h, x], settings, dtype)
        expected = numpy_pool.pool_max_select(h, x, **settings)
        np.testing.assert_array_equal(picked.astype("float32"), expected)


# --- ranges ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", list(itertools.product((1, 2, 3), (1, 2, 3), (0, 1, 4))), ids=str)
def test_ranges_are_those_of_the_definition(case):
    w, s, before = case
    n, count = 7, (7 + before + 2 - w) // s + 1
    geometry = ((n,), (count,), (w,), (s,), ((before, 2),))
    (inside,) = window_ranges.inside_ranges(*geometry)
    meeting = {i: [k for k in range(w) if 0 <= i * s - before + k < n] for i in range(count)}
    for i, (first, many, place) in enumerate(inside.ranges.tolist()):
        assert many == len(meeting[i])
        if many:
            assert (place, first) == (meeting[i][0], i * s - before + meeting[i][0])
    (over,) = window_ranges.cover_ranges(*geometry)
    for j, (last, many, place) in enumerate(over.ranges.tolist()):
        covering = [i for i in range(count) if i * s - before <= j < i * s - before + w]
        if not covering and w <= s:
            assert (last, many, place) == (0, 1, window_ranges.NOWHERE)
        elif covering:
            assert (last, many, place) == (covering[-1], len(covering), j + before - last * s)
        else:
            assert many == 0
