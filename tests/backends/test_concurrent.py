"""Recurrences that do not depend on each other run at the same time, with the same bits."""

from __future__ import annotations

import multiprocessing

import numpy as np
import pytest

import kerasish
from kerasish import config, layers
from kerasish.backends.static.codegen.driver import (
    Program,
    Record,
    RecordError,
)
from kerasish.backends.static.codegen.driver_code import equal_bytes
from kerasish.backends.static.codegen.kernels import compile_many
from kerasish.backends.static.codegen.nested_records import concurrent_record
from kerasish.backends.static.engine import COMPILED_PLANS
from kerasish.backends.static.lowering import concurrent, program_threads
from kerasish.backends.static.lowering.concurrent import ConcurrentUnit
from kerasish.backends.static.lowering.recurrent import RecurrentUnit
from kerasish.backends.static.lowering.units import Place, Unit, copy_record
from kerasish.graph.ir import Value

LAYERS = {
    "two directions": lambda x: layers.Bidirectional(layers.LSTM(5, return_sequences=True))(x),
    "two kinds": lambda x: layers.Concatenate()([layers.GRU(4)(x), layers.SimpleRNN(6)(x)]),
    "three": lambda x: layers.Add()([layers.LSTM(4)(x), layers.GRU(4)(x), layers.SimpleRNN(4)(x)]),
    "two levels": lambda x: layers.Bidirectional(layers.GRU(3))(
        layers.Bidirectional(layers.LSTM(3, return_sequences=True))(x)
    ),
    "masked": lambda x: layers.Bidirectional(layers.LSTM(4))(layers.Masking()(x)),
    "stacked": lambda x: layers.LSTM(4)(layers.LSTM(4, return_sequences=True)(x)),
}
GROUPS = {"two directions": 1, "two kinds": 1, "three": 1, "two levels": 2, "masked": 1,
          "stacked": 0}  # fmt: skip


def trained(make, monkeypatch, worth, threads=2):
    """Return (numbers of a training and a prediction, groups in the programs of both)."""
    monkeypatch.setattr(concurrent, "WORTH_FLOPS", worth)
    monkeypatch.setattr(program_threads, "SMALL_PROGRAM", 0)
    COMPILED_PLANS.clear()
    kerasish.utils.set_random_seed(1)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 7, 3)).astype("float32")
    x[1, 4:] = 0
    x[2, :2] = 0
    with config.using_threads(threads):
        inputs = kerasish.Input((7, 3))
        outputs = layers.Dense(2)(make(inputs))
        model = kerasish.Model(inputs, outputs)
        model.compile(kerasish.optimizers.Adam(0.01), "mse")
        y = np.zeros((6, *outputs.shape[1:]), "float32")
        losses = model.fit(x, y, batch_size=3, epochs=2, verbose=0).history["loss"]
        predicted = model.predict(x, batch_size=3, verbose=0)
        plans = [
            e.compiled_plan for kind in ("train", "predict")
            for e in model.training_program.step(kind).executables()
        ]  # fmt: skip
    COMPILED_PLANS.clear()
    groups = [[len(u.members) for u in p.units if isinstance(u, ConcurrentUnit)] for p in plans]
    return [np.array(losses), predicted, *model.get_weights()], groups


@pytest.fixture(autouse=True)
def static():
    config.set_backend("static")


@pytest.mark.parametrize("name", LAYERS)
def test_same_bits_as_one_after_the_other(name, monkeypatch):
    together, groups = trained(LAYERS[name], monkeypatch, 0)
    alone, none = trained(LAYERS[name], monkeypatch, np.inf)
    assert [len(g) for g in groups] == [2 * GROUPS[name], GROUPS[name]]  # train: with gradients
    assert none == [[], []]
    for a, b in zip(together, alone, strict=True):
        np.testing.assert_array_equal(a, b)


def test_as_many_at_once_as_threads(monkeypatch):
    assert trained(LAYERS["three"], monkeypatch, 0, 3)[1] == [[3, 3], [3]]
    assert trained(LAYERS["three"], monkeypatch, 0, 2)[1] == [[2, 2], [2]]
    assert trained(LAYERS["three"], monkeypatch, 0, 1)[1] == [[], []]


def test_little_work_runs_on_one_thread(monkeypatch):
    assert trained(LAYERS["two directions"], monkeypatch, concurrent.WORTH_FLOPS)[1] == [[], []]


class Long(RecurrentUnit):
    """A recurrence that takes long, for the order of units."""

    def __init__(self, name, reads, writes):
        Unit.__init__(self, name, reads, writes)
        self.one_thread, self.step_flops = True, np.inf


def order(*units, threads=2, aliases=None):
    """Return the names in the order in which units run; those of one group together."""
    root = {} if aliases is None else aliases
    ordered = concurrent.concurrent(units, lambda v: root.get(v, v), threads)
    return [[m.name for m in getattr(u, "members", [u])] for u in ordered]


def test_what_a_recurrence_needs_comes_before_its_group():
    a, b, c, d, e, f = (Value((2,), "float32") for _ in range(6))
    first, second = Long("first", [a], [b]), Long("second", [d], [e])
    makes, other = Unit("makes", [c], [d]), Unit("other", [b], [f])
    together = ["first", "second"]
    assert order(first, other, makes, second) == [["makes"], together, ["other"]]
    assert order(makes, first, second, other) == [["makes"], together, ["other"]]
    assert order(first, makes, second, threads=1) == [["first"], ["makes"], ["second"]]


@pytest.mark.parametrize(
    "kind",
    ["reads its result", "through another", "overwrites its input", "writes its output",
     "in its memory", "workspace", "Python"],
)  # fmt: skip
def test_no_group_of_recurrences_that_depend_on_each_other(kind):
    a, b, c, d = (Value((2,), "float32") for _ in range(4))
    first, second, between, aliases = Long("first", [a], [b]), Long("second", [c], [d]), [], {}
    if kind == "reads its result":
        second = Long("second", [b], [d])
    elif kind == "through another":
        between = [Unit("between", [b], [c])]
    elif kind == "overwrites its input":
        second = Long("second", [c], [a])
    elif kind == "writes its output":
        second = Long("second", [c], [b])
    elif kind == "in its memory":
        aliases = {c: b}
    elif kind == "workspace":
        first.workspace_key = second.workspace_key = "places"
        first.fills_workspace = True
    else:
        between = [Unit("between", [a], [c])]
        between[0].movable = False
    units = [first, *between, second]
    assert order(*units, aliases=aliases) == [[u.name] for u in units]


def copies(pairs):
    return [copy_record(Place(a.ctypes.data, a.nbytes), Place(b.ctypes.data, b.nbytes))
            for a, b in pairs]  # fmt: skip


def test_lists_of_records_all_run():
    sources = [np.full(3, n) for n in range(5)]
    targets = [np.zeros(3, int) for _ in sources]
    lists = [copies([pair]) for pair in zip(sources, targets)]
    Program([concurrent_record(lists)]).run()
    np.testing.assert_array_equal(targets, sources)
    Program([concurrent_record([]), concurrent_record([[]])]).run()


def test_a_failing_list_ends_the_program_and_is_named():
    (compare,) = compile_many([equal_bytes(7)])
    zero, one, target, never = np.zeros(1), np.ones(1), np.zeros(1), np.zeros(1)
    unequal = Record(compare, np.array([zero.ctypes.data, one.ctypes.data, 8], np.int64))
    lists = [copies([(one, target)]), [unequal, *copies([(one, never)])]]
    program = Program([concurrent_record(lists, "two lists"), *copies([(one, never)])])
    with pytest.raises(RecordError, match=r"record 0 \(two lists\): status 7"):
        program.run()
    assert target[0] == 1 and never[0] == 0


@pytest.mark.parametrize("timed", [False, True])
def test_the_record_that_failed_in_a_list_is_named(timed):
    (compare,) = compile_many([equal_bytes(7)])
    zero, one, other, last = np.zeros(1), np.ones(1), np.zeros(1), np.zeros(1)
    unequal = Record(compare, np.array([zero.ctypes.data, one.ctypes.data, 8], np.int64), "guilty")
    lists = [copies([(one, other)]), [*copies([(one, last)]), unequal]]
    program = Program([*copies([(zero, last)]), concurrent_record(lists)])
    for _ in range(2):
        with pytest.raises(RecordError, match=r"record 1 \(guilty\): status 7") as raised:
            program.run_timed() if timed else program.run()
        assert raised.value.record is unequal


def test_times_of_lists_are_shares_of_the_time_of_all():
    pairs = [(np.ones(1 << n), np.zeros(1 << n)) for n in (4, 18, 10)]
    lists = [copies([pair] * 2) for pair in pairs]
    program = Program([*lists[0], concurrent_record(lists), *lists[2]])
    timed = program.run_timed()
    assert [r for r, _ in timed] == [*lists[0], *(r for own in lists for r in own), *lists[2]]
    assert min(seconds for _, seconds in timed) > 0
    assert sum(seconds for _, seconds in timed) <= program.seconds
    together = program.records[2].keep.timed()
    Program([together.record]).run()
    assert sum(seconds for _, seconds in together.shares(10.0)) == pytest.approx(10.0)


def _in_child(queue):
    sources = [np.full(3, n) for n in range(3)]
    targets = [np.zeros(3, int) for _ in sources]
    Program([concurrent_record([copies([pair]) for pair in zip(sources, targets)])]).run()
    queue.put(np.array(targets))


def test_in_a_forked_child_one_after_the_other():
    test_lists_of_records_all_run()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(queue,))
    child.start()
    np.testing.assert_array_equal(queue.get(timeout=60)[:, 0], [0, 1, 2])
    child.join()
