"""Independent branches of a program run at the same time, with the same bits, where it pays."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import kerasish
from kerasish import backends, config, layers, ops
from kerasish.backends.static.codegen import cost
from kerasish.backends.static.engine import COMPILED_PLANS
from kerasish.backends.static.lowering import branches, compiled_plan, program_threads
from kerasish.backends.static.lowering.units import Group, Unit
from kerasish.backends.static.strict.plan import check_compiled_plan
from kerasish.graph.ir import Value
from kerasish.graph.plan_check import PlanError


def dense(x, width=12, depth=2):
    for _ in range(depth):
        x = layers.Dense(width, "tanh")(x)
    return x


def normal(x):
    x = layers.Dropout(0.3)(layers.Dense(12)(x))
    return layers.Dense(5)(layers.BatchNormalization()(x))


def embedded(x):
    return dense(layers.Flatten()(layers.Embedding(10, 4)(x)))


def towers(tower, count=2, dtype="float32"):
    inputs = [kerasish.Input((6,), dtype=dtype) for _ in range(count)]
    parts = [tower(x) for x in inputs]
    y = layers.Add()(parts) if count > 1 else parts[0]
    return kerasish.Model(inputs, layers.Dense(1)(y))


def siamese():
    inputs, shared = [kerasish.Input((6,)) for _ in range(2)], layers.Dense(12, "tanh")
    return kerasish.Model(inputs, layers.Dot(1)([dense(shared(x)) for x in inputs]))


def heads():
    x = kerasish.Input((6,))
    trunk = layers.Dense(12)(x)
    return kerasish.Model(x, [layers.Dense(1)(dense(trunk)) for _ in range(2)])


def wide_and_deep():
    x = kerasish.Input((6,))
    parts = layers.Concatenate()([layers.Dense(9)(x), dense(x, depth=3)])
    return kerasish.Model(x, layers.Dense(1)(parts))


def inception():
    x = kerasish.Input((5, 5, 3))
    parts = [layers.Conv2D(4, n, padding="same", activation="tanh")(x) for n in (1, 3, 5)]
    parts.append(layers.MaxPooling2D(2, strides=1, padding="same")(x))
    return kerasish.Model(x, layers.Dense(1)(layers.Flatten()(layers.Concatenate()(parts))))


def attention():
    x = kerasish.Input((4, 6))
    y = layers.MultiHeadAttention(2, 3)(x, x)
    return kerasish.Model(x, layers.Dense(1)(layers.Flatten()(y)))


MODELS = {
    "two towers": lambda: towers(dense),
    "three towers": lambda: towers(dense, 3),
    "normalization and dropout": lambda: towers(normal),
    "embeddings": lambda: towers(embedded, dtype="int32"),
    "siamese": siamese,
    "heads": heads,
    "wide and deep": wide_and_deep,
    "inception": inception,
    "attention": attention,
}


@contextlib.contextmanager
def limits(monkeypatch, worth, threads):
    """Let units take one thread each, and branches run together from a number of nanoseconds."""
    with monkeypatch.context() as patch, config.using_threads(threads):
        config.set_backend("static")
        patch.setattr(cost, "GRAIN", 1e12)
        patch.setattr(program_threads, "SMALL_PROGRAM", 0)
        patch.setattr(branches, "WORTH", worth)
        patch.setattr(branches, "MEETING", 0.0)
        patch.setattr(compiled_plan, "SOME_MEMORY", 1 << 30)
        COMPILED_PLANS.clear()
        kerasish.utils.set_random_seed(1)
        yield
        COMPILED_PLANS.clear()


def given(model):
    rng = np.random.default_rng(0)
    arrays = [
        rng.integers(0, 10, (7, *x.shape[1:])).astype("int32") if x.dtype == "int32"
        else rng.normal(size=(7, *x.shape[1:])).astype("float32")
        for x in model.inputs
    ]  # fmt: skip
    return arrays if len(arrays) > 1 else arrays[0]


def plans(model, *kinds):
    steps = [model.training_program.step(kind) for kind in kinds]
    return [e.compiled_plan for step in steps for e in step.executables()]


def trained(name, monkeypatch, worth, threads=2):
    """Return (numbers of a training and a prediction, plans of both)."""
    with limits(monkeypatch, worth, threads):
        model = MODELS[name]()
        model.compile(kerasish.optimizers.Adam(0.01), "mse")
        x = given(model)
        ys = [np.ones((7, *y.shape[1:]), "float32") for y in model.outputs]
        logs = model.fit(x, ys if len(ys) > 1 else ys[0], batch_size=3, epochs=2, verbose=0)
        predicted = model.predict(x, batch_size=3, verbose=0)
        found = [*logs.history["loss"], *(predicted if len(ys) > 1 else [predicted])]
        return [*found, *model.get_weights()], plans(model, "train", "predict")


@pytest.mark.parametrize("name", MODELS)
def test_same_bits_as_one_after_the_other(name, monkeypatch):
    together, grouped = trained(name, monkeypatch, 1e-9)
    alone, none = trained(name, monkeypatch, np.inf)
    # Two groups at least in the training steps (forward and backward), one in those of predict.
    assert [bool(p.groups) for p in grouped] == [True] * 4
    assert max(len(p.groups) for p in grouped) >= 2
    assert not any(p.groups for p in none)
    for a, b in zip(together, alone, strict=True):
        np.testing.assert_array_equal(a, b)


def test_as_many_lists_as_threads(monkeypatch):
    for threads, most in ((1, []), (2, [2]), (3, [3])):
        found = trained("three towers", monkeypatch, 1e-9, threads)[1]
        lists = {len(group.counts) for plan in found for group in plan.groups}
        assert sorted(lists)[-1:] == most


def test_groups_that_save_little_or_take_much_memory_are_not_formed(monkeypatch):
    assert not any(p.groups for p in trained("two towers", monkeypatch, 20_000.0)[1])
    with limits(monkeypatch, 1e-9, 2):
        monkeypatch.setattr(compiled_plan, "MORE_MEMORY", 0.0)
        monkeypatch.setattr(compiled_plan, "SOME_MEMORY", 0)
        model = MODELS["two towers"]()
        model.predict(given(model), verbose=0)
        assert not any(p.groups for p in plans(model, "predict"))


# --- errors, times, strict memory ---------------------------------------------------------------


@pytest.mark.parametrize("bad", [0, 1])
def test_an_index_out_of_range_is_named_and_leaves_variables_as_ever(bad, monkeypatch):
    outcomes = []
    for worth in (np.inf, 1e-9):
        with limits(monkeypatch, worth, 2):
            w = np.eye(6, dtype="float32")
            counts = [kerasish.Variable(np.zeros(6, "float32")) for _ in range(3)]

            def step(x, rows, columns, counts=counts, w=w):
                for values, count in zip((x, rows, columns), counts):
                    table = values if values is x else ops.take(w, values, axis=0)
                    y = ops.matmul(ops.tanh(ops.matmul(table, w)), w)
                    count.assign(ops.add(count, ops.sum(y, axis=0)))
                return ops.add(x, 1)

            compiled = backends.get("static").compile(step)
            given = [np.arange(5), np.arange(5)]
            compiled(np.ones((5, 6), "float32"), *given)
            given[bad][2] = 6
            with pytest.raises(IndexError, match="Index 6") as raised:
                compiled(np.ones((5, 6), "float32"), *given)
            outcomes.append((str(raised.value), [count.numpy() for count in counts]))
            (executable,) = compiled.executables()
            assert bool(executable.compiled_plan.groups) == (worth == 1e-9)
    (first, kept), (second, now) = outcomes
    assert first == second
    for a, b in zip(kept, now, strict=True):
        np.testing.assert_array_equal(a, b)


def test_times_of_branches_add_up(monkeypatch):
    with limits(monkeypatch, 1e-9, 2):
        x, w = np.ones((5, 6), "float32"), np.ones((6, 6), "float32")

        def step(x, y, w):
            return [ops.exp(ops.matmul(ops.tanh(ops.matmul(v, w)), w)) for v in (x, y)]

        compiled = backends.get("static").compile(step)
        expected = compiled(x, x, w)
        (executable,) = compiled.executables()
        ((_, count),) = ((g.first, g.counts) for g in executable.compiled_plan.groups)
        (program,) = executable.parts
        found, timings = compiled.call_timed(x, x, w)
        assert sum(t.seconds for t in timings) <= program.seconds
        assert len(count) == 2 and len(timings) >= sum(count)
        assert min(t.seconds for t in timings) > 0
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, b)
        assert not any("at the same time" in t.name for t in timings)
        assert any("at the same time" in record.name for record in program.records)
        assert "(branch 2 of 2)" in executable.describe()


def test_times_name_the_layers_of_branches(monkeypatch):
    with limits(monkeypatch, 1e-9, 2):
        model = MODELS["two towers"]()
        compiled = backends.get("static").compile(lambda *x: model(list(x)))
        _, timings = compiled.call_timed(*given(model))
        (executable,) = compiled.executables()
        assert executable.compiled_plan.groups
        named = " ".join(t.layer for t in timings)
        assert all(layer.name in named for layer in model.layers if layer.weights)


def test_two_lists_that_share_memory_are_noticed(monkeypatch):
    with limits(monkeypatch, 1e-9, 2):
        x = np.ones((5, 6), "float32")

        def step(x, w):
            return [ops.matmul(ops.matmul(v, w), w) for v in (x, ops.tanh(x))]

        compiled = backends.get("static").compile(step)
        compiled(x, np.ones((6, 6), "float32"))
        (plan,) = (e.compiled_plan for e in compiled.executables())
        check_compiled_plan(plan)
        (group,) = plan.groups
        first, second = (plan.units[lane[0]].writes[0] for lane in group.lanes)
        offsets = {**plan.plan.offsets, plan.root(first): plan.plan.offsets[plan.root(second)]}
        plan.plan = plan.plan._replace(offsets=offsets)
        with pytest.raises(PlanError, match="at the same time"):
            check_compiled_plan(plan)


# --- the order of units -------------------------------------------------------------------------


def values(count):
    return [Value((1 << 18,), "float32") for _ in range(count)]


def small(name, reads, writes, threads=1):
    unit = Unit(name, reads, writes)
    unit.threads = threads
    return unit


def order(units, variables=(), threads=2, aliases=None):
    """Return the names of units in their new order; those of a group as a list of lists."""
    root = aliases or {}
    ordered, groups = branches.grouped(units, lambda v: root.get(v, v), set(variables), threads)
    names = [unit.name for unit in ordered]
    result = []
    for number, name in enumerate(names):
        group = next((g for g in groups if number in range(g.first, g.stop)), None)
        if group is None:
            result.append(name)
        elif number == group.first:
            result.append([[names[n] for n in lane] for lane in group.lanes])
    return result


def chains():
    """Return the units of two chains that meet, and their values."""
    a, b, c, d, e, f, g = values(7)
    units = [small("a1", [a], [b]), small("b1", [a], [c]), small("a2", [b], [d]),
             small("b2", [c], [e]), small("meet", [d, e], [f]), small("end", [f], [g])]  # fmt: skip
    return units, (a, b, c, d, e, f, g)


TOGETHER = [["a1", "a2"], ["b1", "b2"]]


def test_two_chains_run_together_until_they_meet():
    units, _ = chains()
    assert order(units) == [TOGETHER, "meet", "end"]
    assert order(units, threads=1) == [u.name for u in units]
    assert Group(3, (2, 1)).lanes == [range(3, 5), range(5, 6)] and Group(3, (2, 1)).stop == 6


def test_what_needs_threads_runs_alone():
    units, _ = chains()
    units[2].threads = 2
    assert order(units) == [[["a1"], ["b1"]], "a2", "b2", "meet", "end"]
    units, (_, b, *_) = chains()
    units.insert(1, small("large", [b], values(1), threads=2))
    # What it needs runs first; what it does not need waits for a group.
    assert order(units) == ["a1", "large", [["b1", "b2"], ["a2"]], "meet", "end"]


def test_small_branches_join_large_ones():
    units, (_, b, *_) = chains()
    (new,) = values(1)
    units[2].reads = (b, new)
    (group, *rest) = order([small("a0", [], [new]), *units])
    assert group == [["a0", "a1", "a2"], ["b1", "b2"]] and rest == ["meet", "end"]


@pytest.mark.parametrize("kind", ["Python", "moved", "memory", "writes", "fails"])
def test_no_unit_runs_before_what_it_needs(kind):
    units, (a, b, c, *_, g) = chains()
    if kind == "Python":
        units.insert(2, small("python", [], [g]))
        units[2].movable = False
        assert order(units)[1] == "python"
    elif kind == "moved":
        units.insert(2, small("other", [c], [a], threads=2))
        assert order(units)[:3] == [[["a1"], ["b1"]], "other", [["a2"], ["b2"]]]
    elif kind == "memory":
        assert order(units, aliases={c: b})[:3] == ["a1", "b1", [["a2"], ["b2"]]]
    elif kind == "writes":
        units.insert(2, small("update", [a], [g]))
        assert order(units, [g])[:2] == [[["a1"], ["b1"]], "update"]
    else:
        assert units[0].may_fail()


# --- threads of programs ------------------------------------------------------------------------


def test_small_programs_take_one_thread(monkeypatch):
    config.set_backend("static")
    found = {}
    monkeypatch.setattr(program_threads, "CALLS_APART", 1)
    for limit in (program_threads.SMALL_PROGRAM, 0):
        monkeypatch.setattr(program_threads, "SMALL_PROGRAM", limit)
        COMPILED_PLANS.clear()
        with config.using_threads(2):
            kerasish.utils.set_random_seed(0)
            model = kerasish.Sequential([layers.Dense(900, "relu"), layers.Dense(10)])
            model.compile("sgd", "mse")
            x = np.random.default_rng(0).normal(size=(32, 300)).astype("float32")
            found[limit] = [model.predict_on_batch(x[:n]) for n in (16, 32)]
            few, many = plans(model, "predict")
            assert few.threads == (1 if limit else None) and many.threads is None
            assert max(u.threads for u in many.units) == 2
            assert max(u.threads for u in few.units) == (1 if limit else 2)
    COMPILED_PLANS.clear()
    for a, b in zip(*found.values()):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_predictions_need_more_work_for_a_second_thread_than_training_steps():
    """Between two predictions the second thread falls asleep, or others' threads spin."""
    config.set_backend("static")
    with config.using_threads(2):
        hidden = [layers.Dense(300, "relu") for _ in range(5)]
        model = kerasish.Sequential([*hidden, layers.Dense(10)])
        model.compile("sgd", "mse")
        x = np.ones((32, 300), "float32")
        model.predict_on_batch(x)
        model.train_on_batch(x, np.zeros((32, 10), "float32"))
        wide = kerasish.Sequential([layers.Dense(3000, "relu")])
        wide.predict_on_batch(x)
    assert plans(model, "predict")[0].threads == 1
    assert plans(model, "train")[0].threads is None
    assert plans(wide, "predict")[0].threads is None  # threads meet once


@pytest.mark.parametrize("apart", [1, program_threads.CALLS_APART])
def test_programs_of_small_branches_take_one_thread_for_each_branch(apart, monkeypatch):
    monkeypatch.setattr(program_threads, "CALLS_APART", apart)
    COMPILED_PLANS.clear()
    config.set_backend("static")
    found = {}
    for count in (1, 2):
        with config.using_threads(2):
            model = towers(lambda x: dense(x, 200, 8), count)
            x = [np.ones((32, 6), "float32")] * count
            model.predict_on_batch(x if count > 1 else x[0])
            (found[count],) = plans(model, "predict")
    assert found[1].threads == (None if apart == 1 else 1) and not found[1].groups
    assert found[2].threads == 1 and [len(g.counts) for g in found[2].groups] == [2]
