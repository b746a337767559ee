"""KERASISH_STRICT_MEMORY: each kind of mistake that it detects is made, and detected."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import kerasish
from kerasish import backends, layers, ops
from kerasish.backends.static.codegen.driver import RecordError, aligned
from kerasish.backends.static.engine import COMPILED_PLANS
from kerasish.backends.static.lowering import compiled_plan as compiled_plans
from kerasish.backends.static.lowering import units
from kerasish.backends.static.lowering.loops import LoopUnit
from kerasish.backends.static.lowering.moves import MoveUnit
from kerasish.backends.static.lowering.units import PythonUnit, aligned_array
from kerasish.backends.static.machine import guard_pages
from kerasish.graph.plan_check import PlanError

MODES = ["1", "start", "shared"]
X = np.arange(6, dtype="float32").reshape(2, 3)


@pytest.fixture(autouse=True)
def own_blueprints():
    """Nothing that was made with a mistake stays, and nothing made before is used."""
    COMPILED_PLANS.clear()
    yield
    COMPILED_PLANS.clear()


@pytest.fixture(params=MODES)
def strict(request, monkeypatch):
    monkeypatch.setenv(guard_pages.SETTING, request.param)
    return request.param


def run(function, *args):
    return backends.get("static").compile(function)(*args)


def watched(step):
    return [r.name for e in step.executables() for p in e.parts for r in p.records
            if r.name.startswith("strict")]  # fmt: skip


def train():
    kerasish.utils.set_random_seed(3)
    inputs = kerasish.Input((5, 3))
    x = layers.LSTM(4, return_sequences=True)(inputs)
    x = layers.Conv1D(4, 2, activation="relu")(layers.Concatenate()([x, inputs]))
    model = kerasish.Model(inputs, layers.Dense(2)(layers.Dropout(0.5)(layers.Flatten()(x))))
    model.compile("adam", "mse")
    data = np.random.default_rng(0).normal(size=(20, 5, 3)).astype("float32")
    losses = model.fit(data, data[:, 0, :2], batch_size=8, epochs=2, verbose=0).history["loss"]
    return [*losses, *model.get_weights()]


def test_a_training_gives_the_same_bits(strict, monkeypatch):
    result = train()
    monkeypatch.setenv(guard_pages.SETTING, "0")
    COMPILED_PLANS.clear()
    for a, b in zip(result, train(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_nothing_is_added_when_it_is_off(monkeypatch):
    monkeypatch.delenv(guard_pages.SETTING, raising=False)
    step = backends.get("static").compile(lambda x: ops.exp(x))
    step(X)
    assert watched(step) == []
    monkeypatch.setenv(guard_pages.SETTING, "1")
    step = backends.get("static").compile(lambda x: ops.exp(x))
    step(X)
    assert watched(step)


@pytest.mark.parametrize("wish", ["2", "on", "yes", "end", " 1"])
def test_other_values_are_refused(wish, monkeypatch):
    monkeypatch.setenv(guard_pages.SETTING, wish)
    with pytest.raises(ValueError, match=r"KERASISH_STRICT_MEMORY: expected '0', '1'"):
        run(lambda x: ops.exp(x), X)


# --- what is not written, or read too late ------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "int32", "bool"])
def test_an_unwritten_part_of_an_output(dtype, monkeypatch):
    monkeypatch.setenv(guard_pages.SETTING, "1")
    records = MoveUnit.records
    monkeypatch.setattr(MoveUnit, "records", lambda self, locate: records(self, locate)[:-1])
    x = ops.cast(X, dtype)
    with pytest.raises(RecordError, match=r"concatenate writes .*element 6 comes from unwritten"):
        run(lambda a, b: ops.concatenate([a, b]), x, x)


def test_an_unwritten_output_of_a_numpy_kernel(strict, monkeypatch):
    make_call = PythonUnit.make_call
    used = []

    def forgetful(self, locate):
        used.append(make_call(self, locate))
        return lambda: None

    monkeypatch.setattr(PythonUnit, "make_call", forgetful)
    with pytest.raises(RecordError, match=r"writes .*element 0 comes from unwritten"):
        run(lambda x: ops.sort(x), X)
    assert used


def test_a_variable_that_is_only_half_written(strict, monkeypatch):
    variable = kerasish.Variable(np.ones((4, 3), "float32"))
    records = MoveUnit.records
    monkeypatch.setattr(MoveUnit, "records", lambda self, locate: records(self, locate)[:-1])
    with pytest.raises(RecordError, match=r"concatenate writes .*element 6 comes from unwritten"):
        run(lambda a, b: variable.assign(ops.concatenate([a, b])), X, X)


def test_an_input_that_is_not_filled(strict):
    step = backends.get("static").compile(lambda x: ops.exp(x) + 1)
    step(X)
    (executable,) = step.executables()
    with pytest.raises(RecordError, match=r"reads .*element 0 comes from unwritten"):
        executable.run()  # what the last call left is gone


def test_a_partly_written_broadcast(strict, monkeypatch):
    """The mistake for which this mode was made: a fused loop whose output varies along rows only.

    Found by issue 12: models that end in a mean over the last axis trained on wrong gradients.
    """
    monkeypatch.setattr(LoopUnit, "_broadcast_name", lambda *_: "reshape")
    monkeypatch.setattr(LoopUnit, "_check_outputs", lambda *_: None)
    inputs = kerasish.Input((3,))
    outputs = ops.mean(layers.Dense(3, use_bias=False)(inputs), axis=-1)
    model = kerasish.Model(inputs, outputs)
    model.compile(kerasish.optimizers.SGD(1.0), "mse")
    with pytest.raises(RecordError, match=r"broadcast_to writes .*element 1 comes from unwritten"):
        model.train_on_batch(X, X[:, 0])


# --- plans --------------------------------------------------------------------------------------


def test_a_plan_in_which_all_values_overlap(strict, monkeypatch):
    plan = units.plan_memory

    def overlapping(lifetimes):
        created = plan(lifetimes)
        return created._replace(offsets=dict.fromkeys(created.offsets, 0))

    monkeypatch.setattr(units, "plan_memory", overlapping)
    with pytest.raises(PlanError, match=r"reads|over"):
        run(lambda x: ops.sort(ops.matmul(x, ops.transpose(x))) + ops.sum(x), X)


def test_a_variable_that_is_overwritten_before_it_is_read(monkeypatch):
    monkeypatch.setenv(guard_pages.SETTING, "1")
    monkeypatch.setattr(compiled_plans.CompiledPlan, "_save_overwritten", lambda self: None)
    first, second = kerasish.Variable(X), kerasish.Variable(X + 1)

    def swap():
        before = first.value
        first.assign(second)
        second.assign(before)

    with pytest.raises(PlanError, match=r"step \d \(copy\): reads"):
        run(swap)


def test_an_update_in_place_that_may_not_be(monkeypatch):
    monkeypatch.setenv(guard_pages.SETTING, "1")
    answers = iter([True])  # once; asked again, the unit answers that it may not
    monkeypatch.setattr(LoopUnit, "may_share", lambda *_: next(answers, False))
    variable = kerasish.Variable(np.ones((3, 3), "float32"))
    with pytest.raises(PlanError, match="in place of .* but may not"):
        run(lambda x: variable.assign(variable - ops.sum(variable, axis=-1, keepdims=True)), X)


# --- writes outside of a block ------------------------------------------------------------------


def shift_operand(monkeypatch, number, nbytes):
    operands = LoopUnit.operands

    def shifted(self, locate):
        result = operands(self, locate)
        old = result[number]
        result[number] = type(old)(old.address + nbytes, old.strides, old.column_stride)
        return result

    monkeypatch.setattr(LoopUnit, "operands", shifted)


def test_a_write_just_past_the_end(strict, monkeypatch):
    shift_operand(monkeypatch, -1, 4)
    with pytest.raises(RecordError, match="exp.* (writes outside of|writes) "):
        run(lambda x: ops.exp(x), X)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_read_just_past_the_end(strict, dtype, monkeypatch):
    """What lies there are NaNs, and the result is known to come of them."""
    shift_operand(monkeypatch, 0, 8)
    last = {"float32": 4, "float64": 5}[dtype]
    with pytest.raises(RecordError, match=f"writes .*element {last} comes from unwritten"):
        run(lambda x: -(x * 3 + 1), X.astype(dtype))


@pytest.mark.parametrize("mode", ["1", "start"])
def test_a_write_before_or_behind_on_the_same_page(mode, monkeypatch):
    monkeypatch.setenv(guard_pages.SETTING, mode)
    values = np.ones((2, 3), "float32")

    def stray(place):
        return np.frombuffer((np.ctypeslib.ctypes.c_char * 4).from_address(place), np.uint32)

    step = backends.get("static").compile(lambda x: ops.exp(x))
    step(values)
    (executable,) = step.executables()
    out = executable.locate(executable.compiled_plan.graph.outputs[0])
    first, last = out.address - 4, out.address + 24
    where = last if mode == "start" else first
    stray(where)[:] = 7
    with pytest.raises(RecordError, match="writes outside of"):
        step(values)


CRASH = """
import numpy as np
from kerasish import backends, ops
from kerasish.backends.static.strict import records as strict_records
from kerasish.backends.static.lowering.loops import LoopUnit

operands = LoopUnit.operands

def shifted(self, locate):
    *given, last = operands(self, locate)
    return [*given, type(last)(last.address + {shift}, last.strides, last.column_stride)]

LoopUnit.operands = shifted
print(strict_records.name_file(), flush=True)
backends.get("static").compile(lambda x: ops.exp(x))(np.ones((2, 8), "float32"))
"""

WRITE_CONSTANT = """
from kerasish.backends.static.machine import guard_pages
import numpy as np
array = guard_pages.constant(np.ones(3))
print(guard_pages.__file__, flush=True)
array.flags.writeable = True
array[1] = 2
"""


def crash(source, mode):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)],
        env={**os.environ, guard_pages.SETTING: mode}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode in (-signal.SIGSEGV, -signal.SIGBUS), done.stderr
    return Path(done.stdout.strip())


@pytest.mark.parametrize(("mode", "shift"), [("1", 64), ("start", -64)])
def test_a_guard_page_ends_the_process_and_the_record_is_named(mode, shift):
    names = crash(CRASH.format(shift=shift), mode)
    try:
        assert "loop exp" in names.read_text()
    finally:
        names.unlink()


# --- memory -------------------------------------------------------------------------------------


def test_constants_cannot_be_written():
    crash(WRITE_CONSTANT, "1")


@pytest.mark.parametrize("nbytes", [1, 63, 64, 4096, 4097, 10_000])
@pytest.mark.parametrize("at_start", [False, True])
def test_blocks_lie_at_the_end_or_start_of_their_pages(nbytes, at_start):
    blocks = guard_pages.Blocks([nbytes, nbytes], at_start)
    page = guard_pages.mmap.PAGESIZE
    for address in blocks.addresses:
        assert address % 64 == 0
        before, behind = address % page, -(address + nbytes) % page
        assert before == 0 if at_start else behind < 64
        outside = guard_pages.slack(address, nbytes)
        assert sum(r.stop - r.start for r in outside) == before + behind


def test_buffers_of_variables_hold_nans_until_they_are_filled(monkeypatch):
    monkeypatch.setenv(guard_pages.SETTING, "1")
    assert np.isnan(aligned_array((3, 5), "float32")).all()
    owner, address = aligned(40)
    assert guard_pages.is_guarded(address)
    del owner
    assert not guard_pages.is_guarded(address)
