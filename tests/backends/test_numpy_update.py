"""Updates of all variables at once on the CPU: the same bits as op by op."""

import numpy as np
import pytest
from package_values import package_values

import kerasish
from kerasish import ops, optimizers
from kerasish.backends.eager import loop_update, native_loops, numpy_update, update_program
from kerasish.backends.eager.engine import Eager
from kerasish.ops.shapes import Spec

MAKERS = {
    "sgd": lambda: optimizers.SGD(0.1),
    "momentum": lambda: optimizers.SGD(0.1, momentum=0.9),
    "nesterov": lambda: optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "adam": lambda: optimizers.Adam(0.01),
    "amsgrad": lambda: optimizers.Adam(0.01, amsgrad=True),
    "adamw": lambda: optimizers.AdamW(0.01, weight_decay=0.02),
    "clipnorm": lambda: optimizers.Adam(0.01, clipnorm=0.5),
    "clipvalue": lambda: optimizers.SGD(0.1, clipvalue=0.1),
    "global_clipnorm": lambda: optimizers.Adam(0.01, global_clipnorm=0.3),
    "schedule": lambda: optimizers.Adam(optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)),
    "ema": lambda: optimizers.Adam(0.01, use_ema=True, ema_momentum=0.5),
    "accumulation": lambda: optimizers.Adam(0.01, gradient_accumulation_steps=2),
    "nadam": lambda: optimizers.Nadam(0.01),
    "adamax": lambda: optimizers.Adamax(0.01),
    "adagrad": lambda: optimizers.Adagrad(0.01),
    "adadelta": lambda: optimizers.Adadelta(0.01),
    "rmsprop": lambda: optimizers.RMSprop(0.01, momentum=0.5, centered=True, weight_decay=0.1),
    "ftrl": lambda: optimizers.Ftrl(0.01, l1_regularization_strength=0.01),
    "ftrl_power": lambda: optimizers.Ftrl(0.01, learning_rate_power=-0.7),
    "lion": lambda: optimizers.Lion(0.01),
    "schedule_free": lambda: optimizers.ScheduleFreeAdamW(0.01, warmup_steps=3),
    "eve": lambda: optimizers.Eve(0.01),
}
SHAPES = [(), (1,), (7, 3), (300, 500), (0, 4)]


def run(make, dtype="float32", steps=4):
    rng = np.random.default_rng(0)
    dtypes = [dtype] * len(SHAPES) if isinstance(dtype, str) else dtype
    variables = [
        kerasish.Variable(rng.normal(size=s).astype(t), name=f"v{i}")
        for i, (s, t) in enumerate(zip(SHAPES, dtypes, strict=True))
    ]
    optimizer = make()
    signals = {"loss": 2.0} if optimizer.needs_loss else {}
    for _ in range(steps):
        gradients = [rng.normal(size=s).astype(t) for s, t in zip(SHAPES, dtypes, strict=True)]
        optimizer.apply(gradients, variables, **signals)
    return [v.numpy() for v in [*variables, *optimizer.variables]]


@pytest.fixture
def asked(monkeypatch):
    """Return what each call of the engine's `fused_update` returned."""
    result = []
    fused = Eager.fused_update

    def ask(*args):
        result.append(fused(*args))
        return result[-1]

    monkeypatch.setattr(Eager, "fused_update", ask)
    return result


def check_bits(make, dtype, asked, monkeypatch, count=4):
    got = run(make, dtype)
    assert len(asked) == count
    assert all(result is not None for result in asked)
    monkeypatch.setattr(Eager, "fused_update", lambda *args: None)
    for a, b in zip(got, run(make, dtype), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", MAKERS)
def test_the_bits_are_those_of_the_ops(name, dtype, asked, monkeypatch):
    check_bits(MAKERS[name], dtype, asked, monkeypatch)


def test_variables_of_two_dtypes(asked, monkeypatch):
    dtypes = ["float32", "float64", "float32", "float64", "float32"]
    check_bits(MAKERS["adamw"], dtypes, asked, monkeypatch)


def test_every_optimizer_says_whether_it_is_elementwise():
    by_element = {c.__name__ for c in kinds() if vars(c).get("elementwise")}
    assert by_element == {
        "SGD", "RMSprop", "Adagrad", "Adadelta", "Adam", "Adamax", "Nadam", "Ftrl", "Lion",
        "ScheduleFreeAdamW", "Eve",
    }  # fmt: skip
    assert by_element == {type(make()).__name__ for make in MAKERS.values()} - {"AdamW"}


def kinds():
    names = package_values(optimizers).values()
    return [c for c in names if isinstance(c, type) and issubclass(c, optimizers.Optimizer)]


def test_only_some_variables_decay(asked, monkeypatch):
    def make():
        optimizer = optimizers.AdamW(0.1, weight_decay=0.5)
        optimizer.exclude_from_weight_decay(var_names=["v2"])
        return optimizer

    check_bits(make, "float32", asked, monkeypatch)


def test_a_setting_that_changes_takes_effect(asked, monkeypatch):
    def make():
        optimizer = optimizers.SGD(0.1, momentum=0.9)
        update = optimizer.apply

        def apply(*args):
            update(*args)
            optimizer.momentum /= 2
            optimizer.nesterov = not optimizer.nesterov

        optimizer.apply = apply
        return optimizer

    check_bits(make, "float32", asked, monkeypatch)


def test_other_dtypes_and_rules_are_left_to_the_ops(asked):
    run(lambda: optimizers.Lamb(0.01))
    assert not asked
    result = run(MAKERS["adam"], "float16")
    assert result[0].dtype == np.float16
    assert asked == [None] * 4


class Printing(optimizers.Adam):
    """What users write runs in each step, with numbers."""

    def update(self, value, gradient, slots, c):
        self.seen = float(ops.sum(value))
        return super().update(value, gradient, slots, c)


class Coefficients(optimizers.SGD):
    def coefficients(self, learning_rate, dtype, shared):
        return ops.multiply(learning_rate, float(self.iterations))


class Mean(optimizers.Optimizer):
    """A sum is no element-wise formula, whatever the class says."""

    elementwise = True

    def update(self, value, gradient, slots, c):
        return (ops.subtract(value, ops.mean(gradient)),)


class Own(optimizers.Optimizer):
    elementwise = True

    def update(self, value, gradient, slots, c):
        return (ops.subtract(value, ops.tanh(ops.multiply(gradient, c["learning_rate"]))),)


@pytest.mark.parametrize(("kind", "count"), [(Printing, 0), (Coefficients, 0), (Mean, 4)])
def test_what_users_write_runs_op_by_op(kind, count, asked):
    run(lambda: kind(0.1))
    assert asked == [None] * count


def test_an_own_formula_is_fused_where_its_class_says_so(asked, monkeypatch):
    check_bits(lambda: Own(0.1), "float32", asked, monkeypatch)


def formula(optimizer, count):
    variable = kerasish.Variable(np.zeros(3, "float32"))
    optimizer.build([variable])
    assert len(optimizer.slots_of(variable)) == count - 2
    return optimizers.fused_update.formula_of(optimizer)


def test_gradients_and_values_stay_as_they_were():
    value = np.arange(6, dtype="float32")
    gradient = np.ones((3, 2), "float32").T.reshape(-1)
    lists = [[value], [gradient], [np.zeros(6, "float32")], [np.zeros(6, "float32")]]
    kept = [a[0].copy() for a in lists]
    numbers = [np.asarray(0.1, "float32"), np.asarray(0.5, "float32")]
    adam = formula(optimizers.Adam(0.1), 4)
    kernels = Eager().kernel
    result = numpy_update.update_all(adam, lists, numbers, [0.1], kernels)
    for a, b in zip(lists, kept, strict=True):
        np.testing.assert_array_equal(a[0], b)
    assert not any(np.shares_memory(new[0], old[0]) for new in result for old in lists)
    lists[1] = [gradient.astype("float64")]
    assert numpy_update.update_all(adam, lists, numbers, [0.1], kernels) is None


def test_what_adam_computes_once_and_for_each_element():
    adam = formula(optimizers.Adam(0.1), 4)
    rate = Spec((), "float32")
    program = update_program.program_of(adam, "float32", 4, [rate, None], False)
    assert [node.op.name for node in program.each] == [
        "subtract", "multiply", "add", "square", "subtract", "multiply", "add", "sqrt", "add",
        "multiply", "divide", "subtract",
    ]  # fmt: skip
    assert {node.op.name for node in program.once} == {
        "add", "cast", "power", "subtract", "sqrt", "multiply", "divide",
    }  # fmt: skip
    assert [v.path for v in program.variables] == [adam.optimizer.variables[0].path]
    assert numpy_update.Chain(program, Eager().kernel).scratch == 1


def test_a_small_model_takes_a_loop_after_some_updates(monkeypatch):
    found = []
    find = native_loops.CompiledLoop.find
    monkeypatch.setattr(
        native_loops.CompiledLoop, "find", lambda self: (found.append(1), find(self))[1]
    )
    monkeypatch.setattr(loop_update, "LARGE", 1 << 40)
    expected = run(MAKERS["adam"], steps=6)
    assert not found
    monkeypatch.setattr(loop_update, "_PATIENCE", 4)
    for a, b in zip(run(MAKERS["adam"], steps=6), expected, strict=True):
        np.testing.assert_array_equal(a, b)
    assert len(found) == 2
