"""Random training programs: every engine gives what the eager one gives, up to rounding.

Each seed is a small model of random layers and ops, its losses, metrics and optimizer, and three
steps of training, the last of a short batch (`tests/shared/fuzz`). Here each runs on one engine in
turn; `KERASISH_FUZZ=2000` tries more seeds, `KERASISH_FUZZ_START` others, and
`python -m tests.fuzz --seeds 0:10000 --jobs 2` all engines for each, with a script for what fails.
"""

from __future__ import annotations

import collections
import dataclasses
import os

import numpy as np
import pytest
from fuzz import blocks, known, noise
from fuzz import compare as compare_module
from fuzz.campaign import engines_of
from fuzz.compare import check, excess
from fuzz.draft import Draft
from fuzz.generate import program_of
from fuzz.layers import add_layer
from fuzz.programs import Program
from fuzz.run import ENGINES, STATIC, run, using
from fuzz.script import script_of
from fuzz.shrink import shrink
from fuzz.training import OPTIMIZERS
from layer_examples import EXAMPLES

from kerasish import config, layers, ops

COUNT = int(os.environ.get("KERASISH_FUZZ", "72"))
START = int(os.environ.get("KERASISH_FUZZ_START", "0"))
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("seed", range(START, START + COUNT))
def test_engines_agree(seed):
    program = program_of(seed)
    reason = known.reason(program)
    if reason:
        pytest.skip(f"known, and not fixed yet: {reason}")
    (engine,) = engines_of(seed, 1)
    # Outputs and gradients of all, three steps of every third, a file of every sixth.
    given = {"saved": seed % 6 == 0, "gradients": seed % 3 != 0, "whole": seed % 3 == 0}
    verdict = check(program, [engine], **given)
    if verdict.bad:
        small = shrink(program, lambda p: check(p, [engine], **given).bad, 60.0)
        pytest.fail(f"{verdict.engine}: {verdict.text}\n\n{script_of(small, engine)}")


def test_nothing_is_left_out():
    """The lists of what is known and not fixed: a line for each, until it is."""
    assert all(isinstance(why, str) and len(why) > 20 for why in known.KNOWN.values())


def test_each_engine_has_its_turn():
    turns = collections.Counter(engines_of(seed, 1)[0].name for seed in range(90))
    assert set(turns) == {e.name for e in STATIC} and min(turns.values()) >= 8
    assert engines_of(3, len(STATIC)) == list(STATIC)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_layer_can_be_written(name):
    """A layer of the registry is called in programs, whatever options it draws."""
    draft = Draft(np.random.default_rng(3))
    draft.feed((3, 4))
    assert add_layer(draft, name)
    assert not draft.faults


def test_programs_hold_all_kinds_of_things():
    """Shared layers, several inputs and outputs, open sizes, loops, every optimizer."""
    programs = [program_of(seed) for seed in range(40)]
    assert any(s.like for p in programs for s in p.steps)
    assert any(len(p.feeds) > 1 for p in programs) and any(len(p.goals) > 1 for p in programs)
    assert any(None in f.declared for p in programs for f in p.feeds)
    assert any(s.before for p in programs for s in p.steps)
    assert len({s.layer.split("(")[0] for p in programs for s in p.steps}) > 40
    assert {p.optimizer.split("(")[0] for p in programs} - {"optimizers.LossScaleOptimizer"} - {
        f"optimizers.{name}" for name in OPTIMIZERS
    } == set()


def test_a_program_is_the_same_each_time():
    assert program_of(7) == program_of(7)
    first, again = (run(program_of(7), ENGINES["eager"]) for _ in range(2))
    assert list(first) == list(again)
    assert all(np.array_equal(first[k], again[k], equal_nan=True) for k in first)


# --- the fuzzer itself --------------------------------------------------------------------------


def mean_program() -> Program:
    """The program that trained on wrong gradients: a product, then a mean over its columns."""
    draft = Draft(np.random.default_rng(0))
    x = draft.feed((3,))
    y = draft.add("{layer}({0})", (x,), layer="layers.Dense(3, use_bias=False)")
    z = draft.add("{layer}({0})", (y,), layer="layers.Dense(4, activation='tanh')")
    m = draft.add("ops.mean({0}, axis=-1)", (z,))
    from_draft = program_of(0)
    return Program(
        0, tuple(draft.feeds), tuple(draft.steps), (type(from_draft.goals[0])(m, "'mse'", "real"),)
    )


@pytest.mark.slow
def test_a_wrong_engine_is_found_shrunk_and_printed(monkeypatch):
    """With a wrong tanh on the static side: the smallest program has that tanh and little else."""
    right = mean_program()
    assert check(right, [ENGINES["none"]]).kind == "equal"
    call = layers.Dense.call

    def wrong(self, inputs, *args, **more):
        out = call(self, inputs, *args, **more)
        return ops.multiply(out, 1.001) if config.backend() == "static" else out

    monkeypatch.setattr(layers.Dense, "call", wrong)
    fails = lambda p: check(p, [ENGINES["none"]], gradients=False).kind == "disagreement"  # noqa: E731
    assert fails(right)
    small = shrink(right, fails, 20.0)
    assert len(small.steps) == 1 and "Dense" in small.steps[0].layer
    text = script_of(small, ENGINES["none"], "a title")
    compile(text, "script", "exec")
    assert "layers.Dense" in text and "a title" in text


def test_a_refusal_that_says_nothing_of_the_program_is_a_crash(monkeypatch):
    """All engines raise alike, so nothing else would tell."""
    program = mean_program()
    for error, kind in ((AttributeError, "crash"), (KeyError, "crash"), (ValueError, "refused")):

        def call(self, inputs, error=error, **more):
            raise error("of a layer")

        monkeypatch.setattr(layers.Dense, "call", call)
        assert check(program, [ENGINES["none"]]).kind == kind


def test_the_printed_script_runs():
    space: dict[str, object] = {}
    with using(ENGINES["none"]):  # the script sets an engine, which is put back afterwards
        exec(script_of(mean_program(), ENGINES["none"]), space)
    assert callable(space["build"])


def test_what_is_equal_and_what_is_not():
    a = np.array([1.0, 1e-3, np.nan, np.inf], "float32")
    assert excess(a, a) == 0
    assert excess(a, a + np.float32(1e-6)) <= 1 < excess(a, a + np.float32(1e-3))
    assert excess(a, np.array([1.0, 1e-3, 0.0, np.inf], "float32")) == np.inf
    assert excess(a, np.array([1.0, 1e-3, np.nan, -np.inf], "float32")) == np.inf
    assert excess(a, a * np.float32(1.01), np.full(4, 0.01)) <= 1


def test_few_numbers_are_left_undefined():
    """Only overflow, and correlations of a constant."""
    program = mean_program()
    nan, inf, big, one = np.float32([np.nan, np.inf, 2e30, 1.0])

    def counts(name, a, b, program=program, diverged=False):
        return bool(compare_module._is_defined(program, name, np.array(a), np.array(b), diverged))

    assert not counts("more logs[0]", nan, -inf) and not counts("more weights[0] k", inf, big)
    assert counts("more logs[0]", nan, one) and counts("more weights[0] k", one, one)
    assert not counts("weights[0] k", nan, inf) and counts("forward[0]", inf, big)
    assert not counts("weights[0] k", nan, one, diverged=True)
    assert counts("weights[0] k", inf, one, diverged=True)
    assert counts("gradients[0]", nan, one, diverged=True)
    near, less = np.float32(-8.9e37), np.float32(8e36)
    assert not counts("forward[0]", near, -inf)  # in one order of its terms the sum overflows
    assert not counts("forward[0]", nan, near)
    assert counts("forward[0]", inf, less)
    assert counts("forward[0]", near, -near)
    goal = dataclasses.replace(program.goals[0], metrics=("metrics.PearsonCorrelation()",))
    constant = dataclasses.replace(program, goals=(goal,))
    assert not counts("training logs[0]", nan, np.float32(1e-8), constant)
    assert counts("training logs[0]", nan, one, constant) and counts("logs", 0.3, nan, constant)
    assert counts("weights[0] k", nan, np.float32(0), constant)


@pytest.mark.slow
def test_float16_may_be_computed_in_float32_and_must_then_agree_with_it(monkeypatch):
    """65504 * 2 is inf eagerly; a wider engine gives the float32 number, and no other."""
    from_draft = program_of(0)
    draft = Draft(np.random.default_rng(0))
    x = draft.feed((3,))
    half = "layers.Dense(2, kernel_initializer='ones', dtype='mixed_float16')"
    y = draft.add("{layer}({0})", (x,), layer=half)
    z = draft.add("ops.cast({0} * 60000.0, 'float32')", (y,))
    z = draft.add("ops.log(1.0 + ops.abs({0} * {0}))", (z,))
    program = Program(
        0, tuple(draft.feeds), tuple(draft.steps), (type(from_draft.goals[0])(z, "'mse'", "real"),)
    )
    assert compare_module.widened(mean_program()) is None
    wide = compare_module.widened(program)
    assert "float16" in program.source() and "float16" not in wide.source()
    eager, static = ENGINES["eager"], ENGINES["fast_run"]
    expected = run(program, eager)
    result = run(wide, eager)
    assert compare_module.compare(program, expected, result, static).kind == "equal"
    off = {n: a * a.dtype.type(1.05) if n == "forward[0]" else a for n, a in result.items()}
    assert np.isinf(expected["forward[0]"]).any() and np.isfinite(off["forward[0]"]).all()
    assert compare_module.compare(program, expected, off, static).kind == "disagreement"


@pytest.mark.parametrize(
    ("half", "number", "overflows"),
    [("bfloat16", 3.4028e38, True), ("float16", 1e6, True), ("bfloat16", 1e6, False)],
)
def test_a_cast_to_a_half_may_keep_what_overflows_there(half, number, overflows):
    """After the cast the number is infinite, or that of float32; others stay as they are."""
    draft = Draft(np.random.default_rng(0))
    y = draft.add(f"ops.cast({{0}} * 0.0 + {number}, '{half}')", (draft.feed((3,)),))
    z = draft.add("ops.log(ops.cast({0}, 'float32') * 0.5)", (y,))
    goal = type(program_of(0).goals[0])(z, "'mse'", "real")
    program = Program(0, tuple(draft.feeds), tuple(draft.steps), (goal,))
    eager, static = ENGINES["eager"], ENGINES["fast_run"]
    expected = run(program, eager, gradients=False)
    result = run(compare_module.widened(program), eager, gradients=False)
    assert np.isinf(expected["forward[0]"]).all() == overflows
    assert np.isfinite(result["forward[0]"]).all()
    assert compare_module.compare(program, expected, result, static, False).kind == "equal"
    if not overflows:
        off = {n: a * a.dtype.type(1.2) if n == "forward[0]" else a for n, a in result.items()}
        verdict = compare_module.compare(program, expected, off, static, False)
        assert verdict.kind == "disagreement"


def test_noise_is_large_where_a_program_is_badly_conditioned():
    """(x + 1e4) - 1e4 loses four digits; a mean loses none."""
    x = np.linspace(0.1, 0.9, 9, dtype="float32")
    plain = ((x + np.float32(1e4)) - np.float32(1e4), ops.mean(x).numpy())
    moved = []
    for seed in range(4):
        with noise.jittered(seed):
            moved.append((((ops.add(x, 1e4)) - 1e4).numpy(), ops.mean(x).numpy()))
    far = max(float(np.abs(m[0] - plain[0]).max()) for m in moved)
    near = max(float(np.abs(m[1] - plain[1])) for m in moved)
    assert far > 1e-4 > 1e-6 > near
    assert np.array_equal(ops.add(x, 1e4).numpy(), x + np.float32(1e4))


def test_blocks_hold_loops_and_branches():
    assert {"scan", "while", "cond", "remat", "fori", "switch"} <= set(blocks.BODIES)
