"""What the eager engine does once for many variables or ops: the same as one by one."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import kerasish
from kerasish import backends, layers, ops
from kerasish.autodiff import GradientTape
from kerasish.backends.eager import fused_on_cpu, loop_update, memory, onednn_pool
from kerasish.backends.eager.cuda import fused_pool
from kerasish.backends.onednn import native
from kerasish.engine.training.step import as_part
from kerasish.ops.basic.statistics import running_sums
from kerasish.ops.networks.crossentropy import class_hits
from kerasish.tensor import Variable, VariableScope, no_gradient, put_all, values_of
from tests.backends.test_eager_kernels import both

RNG = np.random.default_rng(0)
FLOAT = np.dtype("float32")


def normal(*shape):
    return RNG.standard_normal(shape).astype("float32")


def equal(fused, composed):
    for a, b in zip(fused, composed, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_array_equal(a, b)


# --- fused functions ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "axis", "keepdims"),
    [
        ((7,), None, False),
        ((1,), None, False),
        ((), None, False),
        ((4, 3, 5), None, False),
        ((4, 3, 5), (0, 2), False),
        ((4, 3, 5), 1, True),
        ((4, 3, 5), None, True),
        ((1, 3), 1, False),
        ((300, 40), None, False),
        ((300, 40), 0, False),
        ((0, 4), 1, False),
    ],
)
def test_the_mean_is_its_composition(shape, axis, keepdims):
    x = normal(*shape)
    if x.size > 3:
        x.reshape(-1)[3] = np.inf

    def run(x):
        x = ops.convert_to_tensor(x)
        with GradientTape() as outer:
            outer.watch(x)
            with GradientTape() as tape:
                tape.watch(x)
                y = ops.mean(x, axis, keepdims)
                loss = ops.sum(y * y * 0.5)
            first = tape.gradient(loss, x)
            total = ops.sum(first * first)
        return [np.asarray(v) for v in (y, first, outer.gradient(total, x))]

    equal(*both(run, x))


@pytest.mark.parametrize(("rows", "classes"), [((6,), 2), ((5, 4), 3), ((1,), 1), ((300,), 1000)])
def test_hits_of_classes_are_their_composition(rows, classes):
    scores, target = normal(*rows, classes), RNG.integers(-1, classes + 1, rows).astype("int32")
    flat = scores.reshape(-1, classes)
    flat[0] = 1.0  # the first of equal ones counts
    if len(flat) > 3:
        flat[1, -1], flat[2] = np.nan, -np.inf
    equal(*both(lambda s: [np.asarray(class_hits(target, s))], scores))


@pytest.mark.parametrize("shape", [(), (1,), (6, 5), (300, 300)])
@pytest.mark.parametrize("factor", [1.0, 1, 32.0, 0.1])
def test_running_sums_are_their_composition(shape, factor):
    total, count = Variable(1.5), Variable(np.float32(2**24))

    def run(values):
        with no_gradient():
            return [np.asarray(v) for v in running_sums(total, count, values, factor, 3)]

    equal(*both(run, normal(*shape)))


def test_running_sums_have_gradients():
    values = Variable(normal(3))
    with GradientTape() as tape:
        total, _ = running_sums(0.0, 0.0, values, 2.0, 3.0)
    assert tape.gradient(total, values).tolist() == [2.0, 2.0, 2.0]


def test_functions_of_halves_and_doubles_are_composed():
    for dtype in ("float16", "float64"):
        call = (normal(4).astype(dtype),)
        assert fused_on_cpu.fused_call(ops.mean, [ops.convert_to_tensor(*call)], {}) is None


@pytest.mark.parametrize("activation", [None, "relu"])
@pytest.mark.parametrize("watched", [True, False])
@pytest.mark.parametrize("rows", [(6,), (2, 3)])
def test_gradients_of_a_first_and_of_a_later_layer_are_their_compositions(
    rows, watched, activation
):
    x, kernel, bias = normal(*rows, 4), Variable(normal(4, 5)), Variable(normal(5))
    x[..., 0] = np.where(x[..., 0] > 0, 0, x[..., 0])

    def run(x):
        x = ops.convert_to_tensor(x)
        layer = layers.Dense(5, activation=activation)
        layer.build(x.shape)
        layer.set_weights([kernel.numpy(), bias.numpy()])
        sources = [*layer.trainable_variables, *([x] if watched else [])]
        with GradientTape(persistent=True) as outer:
            if watched:
                outer.watch(x)
            with GradientTape() as tape:
                if watched:
                    tape.watch(x)
                y = layer(x)
                loss = ops.sum(y * y * y + y)
            first = tape.gradient(loss, sources)
            squares = sum(ops.sum(g * g) for g in first)
        second = outer.gradient(squares, sources)
        return [np.asarray(v) for v in (y, *first, *second)]

    fused, composed = both(run, x)
    for a, b in zip(fused, composed, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4 * np.abs(b).max())


@pytest.mark.skipif(bool(native.available()), reason=native.available() or "-")
@pytest.mark.parametrize(
    ("shape", "settings"),
    [
        ((2, 6, 4, 3), {"pool_size": 2}),
        ((2, 7, 5, 3), {"pool_size": 3, "strides": 2, "padding": "same"}),
        ((1, 9, 2), {"pool_size": 4, "strides": 1}),
        ((2, 4, 5, 6, 1), {"pool_size": 2, "strides": (2, 1, 2)}),
        ((2, 3, 6, 6), {"pool_size": 2, "data_format": "channels_first"}),
    ],
)
@pytest.mark.parametrize("kind", ["normal", "ties", "nan"])
def test_pooling_that_keeps_the_places_is_its_composition(shape, settings, kind, monkeypatch):
    monkeypatch.setattr(onednn_pool, "LEAST", 1)
    x = normal(*shape)
    x = np.round(x) if kind == "ties" else x
    if kind == "nan":
        x.reshape(-1)[::5] = np.nan
    asked = []
    run_kept = fused_pool.MAX_POOL.kernel
    monkeypatch.setattr(
        fused_pool.MAX_POOL, "kernel", lambda *a, **k: (asked.append(1), run_kept(*a, **k))[1]
    )
    backends.get("eager")._kernels.pop(fused_pool.MAX_POOL, None)

    def run(x):
        x = ops.convert_to_tensor(x)
        with GradientTape() as outer:
            outer.watch(x)
            with GradientTape() as tape:
                tape.watch(x)
                y = ops.max_pool(x, **settings)
                loss = ops.sum(y * y * y)
            first = tape.gradient(loss, x)
            squares = ops.sum(first * first)
        return [np.asarray(v) for v in (y, first, outer.gradient(squares, x))]

    equal(*both(run, x))
    assert bool(asked) == (kind != "nan" and "data_format" not in settings)
    backends.get("eager")._kernels.pop(fused_pool.MAX_POOL, None)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_a_list_of_inputs_that_changes_later_changes_no_gradient(dtype):
    x, y = Variable(normal(2, 3)), ops.convert_to_tensor(normal(2, 3))
    with GradientTape() as tape:
        parts = [x.value, y] if dtype == "float32" else [x.value, ops.cast(y, dtype)]
        joined = ops.concatenate(parts, 0)
        parts.reverse()
        loss = ops.sum(joined * ops.arange(4.0)[:, None])
    assert tape.gradient(loss, x).tolist() == [[0.0] * 3, [1.0] * 3]


def test_weights_that_do_not_train_get_no_gradient():
    layer = layers.Dense(3)
    layer.build((None, 2))
    layer.kernel.trainable = False
    x = normal(4, 2)
    with GradientTape() as tape:
        loss = ops.sum(layer(x))
    by_kernel, by_bias = tape.gradient(loss, [layer.kernel, layer.bias])
    assert by_kernel is None and by_bias.tolist() == [4.0, 4.0, 4.0]


def test_targets_become_a_tensor_that_shares_no_memory_with_the_batch():
    y = np.array([0, 1], "int32")
    part = as_part(y)
    y[:] = 2
    assert part.tolist() == [0, 1] and part.dtype == "int32"
    texts = np.array(["a", "b"])
    assert as_part(texts) is texts and as_part(None) is None and as_part({"a": y})["a"] is y


# --- many variables -------------------------------------------------------------------------------


def small_model():
    model = kerasish.Sequential([kerasish.Input((4,)), layers.Dense(90, "relu"), layers.Dense(2)])
    loss = kerasish.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"], run_eagerly=True)
    return model


def test_values_that_are_held_survive_later_updates(monkeypatch):
    """The memory of results is used again, but not while a tensor or an array refers to it."""
    monkeypatch.setattr(loop_update, "_PATIENCE", 0)
    monkeypatch.setattr(loop_update, "LARGE", 1)
    model = small_model()
    x, y = normal(8, 4), RNG.integers(0, 2, 8)
    held = []
    for _ in range(12):
        model.train_on_batch(x, y)
        variables = [*model.trainable_variables, *model.optimizer.variables]
        tensors, views = values_of(variables), [v.numpy()[:1] for v in variables if v.shape]
        copies = [np.array(t.numpy()) for t in tensors], [np.array(v) for v in views]
        held.append((tensors[::2], views[1::2], copies[0][::2], copies[1][1::2]))
    for tensors, views, kept, kept_views in held:
        for a, b in zip([*(t.numpy() for t in tensors), *views], [*kept, *kept_views], strict=True):
            np.testing.assert_array_equal(a, b)


def test_sets_of_arrays_take_turns():
    turns = memory.Turns([(3, 2), (), (0,)], FLOAT)
    first = turns.take()
    assert [a.shape for a in first] == [(3, 2), (), (0,)]
    assert all(turns.addresses[id(a)] == a.ctypes.data for a in first[:2])
    turns.give_back(first)
    part = first[0][1:]
    second = turns.take()
    assert second is not first
    turns.give_back(second)
    del part
    assert turns.take() is first
    others = [turns.take() for _ in range(6)]
    assert len({id(some[0]) for some in (first, *others)}) == 7
    for some in (first, *others):
        turns.give_back(some)
    assert len(turns.addresses) <= 2 * turns.MOST


def test_threads_take_different_sets():
    turns, wrong = memory.Turns([(50,)], FLOAT), []

    def work(number):
        for _ in range(300):
            some = turns.take()
            some[0][:] = number
            result = some[0]
            turns.give_back(some)
            del some
            if not (result == number).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_many_variables_are_read_and_set_as_one_by_one():
    a, b, c = Variable(1.0), Variable(np.zeros(3, "float32")), Variable(np.int32(4))
    with kerasish.tensor.using_scope(VariableScope()) as _:
        b.assign(np.ones(3))
        assert [v.tolist() for v in values_of([a, b, c])] == [1.0, [1.0, 1.0, 1.0], 4]
        with kerasish.tensor.using_scope(VariableScope({a: 7.0})):
            assert [v.tolist() for v in values_of([a, b])] == [7.0, [1.0, 1.0, 1.0]]
        put_all([(a, ops.convert_to_tensor(2.0)), (c, 5.0)])
        assert values_of([a, c])[0].dtype == "float32" and c.value.dtype == "int32"
        assert [v.tolist() for v in values_of([a, c])] == [2.0, 5]
        with pytest.raises(kerasish.errors.ShapeError, match="cannot assign"):
            put_all([(b, ops.convert_to_tensor([1.0]))])
        put_all([(c, ops.convert_to_tensor(6.0))])
        assert c.value.dtype == "int32" and int(c.value) == 6
    assert float(a) == 1.0 and int(c) == 4
    put_all([(a, ops.convert_to_tensor(np.float64(3.0)))])
    assert a.value.dtype == "float32" and float(a) == 3.0
    with kerasish.tensor.autocast("float16"):
        assert [v.dtype for v in values_of([a, c])] == ["float16", "int32"]


def test_a_step_that_fails_changes_nothing_and_leaves_numpy_as_it_was():
    variable, engine = Variable(1.0), backends.get("eager")

    def step(x):
        variable.assign_add(x)
        if x > 1:
            raise ValueError("too much")
        return variable.value

    before, compiled = np.geterr(), engine.compile(step)
    assert float(compiled(1.0)) == 2.0
    with pytest.raises(ValueError, match="too much"):
        compiled(2.0)
    assert float(variable) == 2.0 and np.geterr() == before
    assert kerasish.tensor.current_scope() is None


def test_threads_are_those_of_products_and_loops():
    engine, before = backends.get("eager"), kerasish.config.threads()
    try:
        kerasish.config.set_threads(64)
        most = engine.threads()
        kerasish.config.set_threads(1)
        assert 1 <= engine.threads() <= most
    finally:
        kerasish.config.set_threads(before)
