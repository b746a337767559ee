"""Ten steps of every optimizer, and every schedule, against Keras's recorded numbers."""

from __future__ import annotations

import facts
import numpy as np
import optimizer_cases as cases
import pytest
from own_classes import own_classes, own_tests_of
from package_values import package_values

from kerasish import backends, optimizers
from kerasish.graph.trace import trace
from kerasish.registry import deserialize_keras_object
from kerasish.tensor import Tensor, Variable

RECORDED = facts.read("optimizers")
FIRST = {name: case for case, (name, _) in reversed(cases.CASES.items())}


def make(case):
    options = cases.options_of(case, optimizers.schedules)
    return getattr(optimizers, cases.CASES[case][0])(**options)


def weights():
    shapes = cases.SHAPES.items()
    return [Variable(cases.start(s, i), name=n) for i, (n, s) in enumerate(shapes)]


def close(found, expected, what):
    assert len(found) == len(expected), what
    for i, (a, b) in enumerate(zip(found, expected)):
        facts.expect_close(a, b, f"{what} {i}")


def test_every_optimizer_has_cases():
    """By default, and with each option that all have; the wrapping ones in test_wrapping."""
    around = {"LossScaleOptimizer", "MultiOptimizer"}
    known = {
        name
        for name, created in package_values(optimizers).items()
        if isinstance(created, type) and issubclass(created, optimizers.Optimizer)
    }
    own = own_classes(optimizers, optimizers.Optimizer)
    assert "Eve" in own
    assert all(own_tests_of(cls) for cls in own.values())
    endings = (
        "", ", averages", ", two batches", ", decay and clipped norms", ", clipped values",
        ", clipped together", ", three batches, all else", ", schedule",
    )  # fmt: skip
    for ending in endings:
        cased = {n for c, (n, _) in cases.CASES.items() if not ending or c == n + ending}
        assert cased == known - around - own.keys() - {"Optimizer"}


def check_steps(case, engine):
    """Ten steps, as Keras takes them: the first, the last, the optimizer's own variables."""
    expected = RECORDED["optimizers"][case]
    own = weights()
    created = make(case)
    created.build(own)
    assert len(created.variables) == len(expected["names"])
    apply = created.apply
    if engine == "static":
        apply = backends.get("static").compile(lambda gradients: created.apply(gradients))
    for step in range(cases.STEPS):
        shapes = cases.SHAPES.values()
        apply([Tensor(cases.gradient(s, i, step)) for i, s in enumerate(shapes)])
        if step == 0:
            close(own, expected["first"], f"{case}: after a step, variable")
    close(own, expected["weights"], f"{case}: variable")
    slots = expected["slots"]
    close(created.variables[-len(slots) :] if slots else [], slots, f"{case}: optimizer's variable")
    assert int(created._iterations) == cases.STEPS
    created.finalize_variable_values(own)
    close(own, expected["final"], f"{case}: final variable")


@pytest.mark.parametrize("case", cases.CASES)
def test_ten_steps(case):
    check_steps(case, "eager")


@pytest.mark.parametrize("case", sorted(FIRST.values()))
def test_ten_static_steps(case):
    """The first case of each optimizer."""
    check_steps(case, "static")


@pytest.mark.slow
@pytest.mark.parametrize("case", [c for c in cases.CASES if c not in FIRST.values()])
def test_ten_static_steps_with_every_option(case):
    check_steps(case, "static")


@pytest.mark.parametrize("case", cases.CASES)
def test_config_is_keras_config(case):
    created, expected = make(case), RECORDED["optimizers"][case]["config"]
    config = optimizers.serialize(created)["config"]
    assert {k: v for k, v in config.items() if k != "name"} == {
        k: v for k, v in expected.items() if k != "name"
    }
    again = optimizers.deserialize(optimizers.serialize(created))
    assert type(again) is type(created)
    assert optimizers.serialize(again)["config"] == config


@pytest.mark.parametrize("case", cases.SCHEDULES)
def test_schedule(case):
    name, arguments, options = cases.SCHEDULES[case]
    created = getattr(optimizers.schedules, name)(*arguments, **options)
    expected = RECORDED["schedules"][case]
    values = [float(created(step)) for step in cases.SCHEDULE_STEPS]
    assert np.allclose(values, expected["values"], rtol=1e-5, atol=1e-7)
    assert created.get_config() == expected["config"]
    again = deserialize_keras_object(optimizers.schedules.serialize(created))
    assert again.get_config() == created.get_config() and type(again) is type(created)
    counter = Variable(0, dtype="int32")
    assert len(trace(lambda: created(counter)).graph.outputs) == 1
