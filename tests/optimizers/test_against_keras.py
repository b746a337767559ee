"""Ten steps of every optimizer, and every schedule, against Keras's recorded numbers."""

from __future__ import annotations

import importlib.util
import json
import pathlib

import numpy as np
import pytest

from kerasish import optimizers
from kerasish.graph.trace import trace
from kerasish.registry import deserialize_keras_object
from kerasish.tensor import Variable

DATA = pathlib.Path(__file__).parents[1] / "data"
RECORDED = json.loads((DATA / "optimizers.json").read_text())
_spec = importlib.util.spec_from_file_location("record", DATA / "record_optimizers.py")
record = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(record)


def make(case):
    name, options = record.CASES[case]
    return getattr(optimizers, name)(**options)


def weights():
    shapes = record.SHAPES.items()
    return [Variable(record.start(s, i), name=n) for i, (n, s) in enumerate(shapes)]


def close(got, expected, rel=1e-5, abs_=2e-6):
    assert len(got) == len(expected)
    for a, b in zip(got, expected):
        assert np.allclose(record.flat(a), b, rtol=rel, atol=abs_)


def test_every_optimizer_has_cases():
    """Alone, with averages, with several batches an update; the wrapping ones in test_wrapping."""
    around = {"LossScaleOptimizer", "MultiOptimizer"}
    known = {
        name
        for name, made in vars(optimizers).items()
        if isinstance(made, type) and issubclass(made, optimizers.Optimizer)
    }
    ours = {"Optimizer", "Eve"}  # Keras has none of this name, or it is the base
    for ending in ("", ", averages", ", two batches"):
        cased = {n for c, (n, _) in record.CASES.items() if not ending or c == n + ending}
        assert cased == known - around - ours


@pytest.mark.parametrize("case", record.CASES)
def test_ten_steps(case):
    expected = RECORDED["optimizers"][case]
    own = weights()
    made = make(case)
    made.build(own)
    assert len(made.variables) == len(expected["names"])
    for step in range(record.STEPS):
        shapes = record.SHAPES.values()
        made.apply([record.gradient(s, i, step) for i, s in enumerate(shapes)])
        if step == 0:
            close(own, expected["first"])
    close(own, expected["weights"])
    close(made.variables[2:], expected["slots"], abs_=1e-5)
    assert int(made._iterations) == record.STEPS
    made.finalize_variable_values(own)
    close(own, expected["final"])


@pytest.mark.parametrize("case", record.CASES)
def test_config_is_keras_config(case):
    made, expected = make(case), RECORDED["optimizers"][case]["config"]
    assert {k: v for k, v in made.get_config().items() if k != "name"} == {
        k: v for k, v in expected.items() if k != "name"
    }
    again = optimizers.deserialize(optimizers.serialize(made))
    assert type(again) is type(made) and again.get_config() == made.get_config()


@pytest.mark.parametrize("case", record.SCHEDULES)
def test_schedule(case):
    name, arguments, options = record.SCHEDULES[case]
    made = getattr(optimizers.schedules, name)(*arguments, **options)
    expected = RECORDED["schedules"][case]
    values = [float(made(step)) for step in record.SCHEDULE_STEPS]
    assert np.allclose(values, expected["values"], rtol=1e-5, atol=1e-7)
    assert made.get_config() == expected["config"]
    again = deserialize_keras_object(optimizers.schedules.serialize(made))
    assert again.get_config() == made.get_config() and type(again) is type(made)
    counter = Variable(0, dtype="int32")
    assert len(trace(lambda: made(counter)).graph.outputs) == 1
