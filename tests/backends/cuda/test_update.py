"""Updates of all variables in one launch, run on the CPU, against the optimizers."""

from __future__ import annotations

import itertools
import math
import types
from collections import OrderedDict

import numpy as np
import pytest
from cuda_on_cpu import DTYPES, assert_close, numbers, put, wide
from kernel_calls import UPDATES, update_source
from package_values import package_values

from kerasish import optimizers
from kerasish.backends.eager.cuda import kernels as sources
from kerasish.backends.eager.cuda import update as kernels
from kerasish.optimizers.clipping import clip_by_global_norm
from kerasish.optimizers.fused_update import formula_of
from kerasish.tensor import Variable

SHAPES = [(3,), (), (8200,), (0, 4), (5, 7), (64, 300), (1,)]


def _lists(dtype, count=1, offset=0, shapes=SHAPES):
    return [[numbers(s, dtype, offset, seed=9 * k + i) for i, s in enumerate(shapes)]
            for k in range(count)]  # fmt: skip


def _expected(optimizer, values, gradients, steps):
    """Return the values, then each kind of slot (float64), after some steps of an optimizer."""
    variables = [Variable(wide(v), dtype="float64") for v in values]
    signals = {"loss": 2.0} if optimizer.needs_loss else {}
    for _ in range(steps):
        optimizer.apply([wide(g) for g in gradients], variables, **signals)
    slots = zip(*(optimizer.slots_of(v) for v in variables))
    return [[v.numpy() for v in some] for some in (variables, *slots)]


def _found(optimizer, values, gradients, steps, decays=None, factor=None):
    """Return the same by kernels, in the dtype of the values."""
    variables = [Variable(wide(v), dtype="float32") for v in values]
    optimizer.build(variables)
    loss = np.float32(2) if optimizer.needs_loss else None
    slots = zip(*(optimizer.slots_of(v) for v in variables))
    lists = [
        values,
        gradients,
        *([put(s.numpy(), values[0].dtype) for s in some] for some in slots),
    ]
    formula = formula_of(optimizer)
    for step in range(steps):
        optimizer.iterations.assign(step)
        shared = optimizer.shared_updates(loss)
        formula.refresh(shared)
        given = [np.float32(optimizer.learning_rate.numpy()), factor, *shared.values()]
        found = kernels.update_by_formula(
            formula, lists, given, decays or [optimizer.weight_decay or 0.0] * len(values), _put
        )
        for variable, value in shared.items():
            variable.assign(value)
        lists = [found[0], gradients, *found[1:]]
    return [lists[0], *lists[2:]]


def _put(x):
    return put(x.numpy() if hasattr(x, "numpy") else x)


def _check(make, dtype, factors=(3,), offset=0):
    values, gradients = _lists(dtype, 2, offset)
    expected = _expected(make(), values, gradients, 3)
    found = _found(make(), values, gradients, 3)
    for k, (some, others) in enumerate(zip(found, expected, strict=True)):
        for a, b in zip(some, others, strict=True):
            assert_close(a, b, dtype, factors[min(k, len(factors) - 1)])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
@pytest.mark.parametrize("decay", [None, 0.01])
@pytest.mark.parametrize("offset", [0, 1])
def test_sgd(cuda, momentum, nesterov, decay, dtype, offset):
    _check(lambda: optimizers.SGD(0.1, momentum, nesterov, decay), dtype, (3,), offset)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("decay", [None, 0.02])
@pytest.mark.parametrize("offset", [0, 1])
def test_adam(cuda, decay, dtype, offset):
    factors = (40 if dtype == "float32" else 4, 3)
    _check(lambda: optimizers.Adam(0.1, weight_decay=decay), dtype, factors, offset)


OTHERS = {
    "amsgrad": lambda: optimizers.Adam(0.01, amsgrad=True),
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


@pytest.mark.parametrize("name", OTHERS)
def test_other_optimizers(cuda, name):
    _check(OTHERS[name], "float32", (40, 20))


def test_every_elementwise_optimizer_has_a_kernel():
    kinds = [c for c in package_values(optimizers).values() if isinstance(c, type)]
    names = {c.__name__.lower() for c in kinds if vars(c).get("elementwise") is True}
    assert {f"{name}_update" for name in names} == set(UPDATES)


def test_settings_share_a_kernel(cuda):
    first, second = (update_source(optimizers.Adam(0.1, beta_1=b)) for b in (0.9, 0.8))
    assert (first.name, first.kernel) == (second.name, second.kernel)
    assert first.constants != second.constants
    assert update_source(optimizers.Adam(0.1, amsgrad=True)).name != first.name
    assert "adam_update(Table table" in sources.source(first.name)


def test_only_some_values_decay(cuda):
    for make in (optimizers.SGD, optimizers.Adam):
        values = [put(np.ones(3, "float32")), put(np.ones(3, "float32"))]
        zeros = [put(np.zeros(3, "float32")) for _ in values]
        made, *_ = _found(make(0.5), values, zeros, 1, [0.2, 0.0])
        np.testing.assert_allclose(made, [[0.9] * 3, [1.0] * 3])


def test_old_values_stay_as_they_are(cuda):
    values, gradients = _lists("float32", 2)
    before = [np.array(v) for v in values]
    _found(optimizers.SGD(0.1), values, gradients, 1)
    for a, b in zip(values, before):
        np.testing.assert_array_equal(a, b)


def test_more_tensors_than_a_launch_takes_and_several_dtypes(cuda):
    shapes = [(k % 5 + 1,) for k in range(2 * kernels.MOST + 3)]
    values, gradients = _lists("float32", 2, 0, shapes)
    more, more_gradients = _lists("bfloat16", 2)
    (made,) = _found(
        optimizers.SGD(0.1), values + more, gradients + more_gradients, 1, factor=np.float32(0.5)
    )
    assert cuda.launches["sgd_update"] == 4
    for v, g, new in zip(values + more, gradients + more_gradients, made):
        assert_close(new, wide(v) - 0.1 * 0.5 * wide(g), v.dtype.name)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("limit", [math.inf, 1.0, 1e6])
def test_global_norm(cuda, limit, dtype):
    (gradients,) = _lists(dtype)
    norm, factor = kernels.global_norm(gradients, limit)
    whole = np.concatenate([wide(g).ravel() for g in gradients])
    expected = np.sqrt((whole**2).sum())
    np.testing.assert_allclose(norm, expected, rtol=2e-6)
    np.testing.assert_allclose(factor, min(1.0, limit / expected), rtol=2e-6)


def test_global_norm_clips_as_the_optimizers_do(cuda):
    (gradients,) = _lists("float32")
    _, factor = kernels.global_norm(gradients, 2.5)
    values = [put(np.zeros(g.shape, "float32")) for g in gradients]
    (made,) = _found(optimizers.SGD(1.0), values, gradients, 1, factor=factor)
    for new, clipped in zip(made, clip_by_global_norm([wide(g) for g in gradients], 2.5)):
        assert_close(new, -clipped.numpy(), "float32")


def test_the_norm_of_nothing_and_of_nan(cuda):
    norm, factor = kernels.global_norm([], 1.0)
    assert (norm.item(), factor.item()) == (0, 1)
    norm, factor = kernels.global_norm([put([np.nan, 1.0], "float32")], 1.0)
    assert np.isnan(norm)
    assert np.isnan(factor)


def test_gradients_of_another_dtype_are_refused(cuda):
    with pytest.raises(TypeError, match="got float32, float16"):
        kernels.update_tensors(
            update_source(optimizers.SGD(0.1)),
            [[numbers((2,), "float32")], [numbers((2,), "float16")]],
            [put(np.float32(0.1))],
        )


class _Plain:
    """An array of which only its place, size and dtype are asked for."""

    def __init__(self, address, size):
        self.data = types.SimpleNamespace(ptr=address)
        self.size, self.dtype = size, np.dtype("float32")


def test_tables_are_made_once_while_the_pointers_stay(monkeypatch):
    source = update_source(optimizers.Adam(0.1))
    made, build = [], kernels._made
    monkeypatch.setattr(kernels, "_kept", OrderedDict())
    monkeypatch.setattr(kernels, "_made", lambda *args: made.append(args) or build(*args))

    def step(address, count=160):
        lists = [[_Plain(address + 4096 * (k * count + i), 7 + i) for i in range(count)]
                 for k in range(7)]  # fmt: skip
        return kernels._launches(source.table, source.most, lists, [0.0] * count, (1.0, 2.0))

    first = step(1 << 20)
    for _ in range(5):
        assert step(1 << 30) is not first
        assert step(1 << 20) is first
    assert len(made) == 2
    for k in range(kernels.KEPT):
        step(k << 40)
    assert step(1 << 20) is not first  # dropped: few are kept
    assert len(kernels._kept) == kernels.KEPT
    for launch, start in zip(first, range(0, 160, source.most)):
        count = int(launch.table["count"])
        assert launch.table["sizes"][:count].tolist() == [
            7 + i for i in range(start, start + count)
        ]
        place = launch.table["arrays"][3, 0]
        assert place == (1 << 20) + 4096 * (3 * 160 + start)
        assert launch.packed == 1


def test_new_values_take_memory_once_for_each_dtype(cuda, monkeypatch):
    taken, empty = [], kernels.empty
    monkeypatch.setattr(kernels, "empty", lambda *args: taken.append(args) or empty(*args))
    arrays = [numbers(s, d) for s in SHAPES for d in ("float32", "float16")]
    made = kernels._results(arrays)
    assert len(taken) == 2
    assert [(m.shape, m.dtype) for m in made] == [(a.shape, a.dtype) for a in arrays]
    places = sorted((m.data.ptr, m.nbytes) for m in made if m.size)
    assert all(a + n <= b for (a, n), (b, _) in itertools.pairwise(places))
    assert all(p % kernels.ALIGNMENT == 0 for p, _ in places)
