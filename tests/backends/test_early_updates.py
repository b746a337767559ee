"""Updates of large variables that run right after their gradients."""

from __future__ import annotations

import numpy as np
import pytest

import kerasish
from kerasish import config, layers, ops
from kerasish.backends.static import engine
from kerasish.backends.static.lowering import early_updates
from kerasish.backends.static.lowering.compiled_plan import CompiledPlan
from kerasish.backends.static.lowering.failures import failing
from kerasish.backends.static.lowering.units import Unit
from kerasish.graph.ir import Value

rng = np.random.default_rng(0)
X = rng.normal(size=(12, 10)).astype("float32")
Y = rng.integers(0, 3, (12,))

OPTIMIZERS = {
    "SGD": lambda: kerasish.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "Adam": lambda: kerasish.optimizers.Adam(0.01),
    "AMSGrad": lambda: kerasish.optimizers.Adam(0.01, amsgrad=True),
    "Lion": lambda: kerasish.optimizers.Lion(0.01),
    "clipped": lambda: kerasish.optimizers.Adam(0.01, global_clipnorm=0.1),
    "averages": lambda: kerasish.optimizers.SGD(0.1, use_ema=True, ema_overwrite_frequency=2),
    "decay": lambda: kerasish.optimizers.AdamW(0.01, weight_decay=0.1),
}


@pytest.fixture(autouse=True)
def static(monkeypatch):
    config.set_backend("static")
    monkeypatch.setattr(early_updates, "LARGE", 0)
    monkeypatch.setattr(engine, "COMPILED_PLANS", engine.CompiledPlans())


@pytest.fixture
def plans(monkeypatch):
    """The compiled plans of this test, in order."""
    results = []
    initialize = CompiledPlan.__init__

    def noted(self, *args, **kwargs):
        initialize(self, *args, **kwargs)
        results.append(self)

    monkeypatch.setattr(CompiledPlan, "__init__", noted)
    return results


def build(optimizer, model_class=kerasish.Sequential, **options):
    kerasish.utils.set_random_seed(0)
    sizes = [layers.Dense(16, "tanh"), layers.BatchNormalization(), layers.Dense(16, "relu")]
    model = model_class([kerasish.Input((10,)), *sizes, layers.Dense(3)], **options)
    loss = kerasish.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    return model


def number_of(plan, variable_shape, kind):
    """Return the number of the only unit that writes a new variable of this shape."""
    found = [
        i for i, unit in enumerate(plan.units)
        if kind in unit.name and any(v.shape == variable_shape for v in unit.writes)
    ]  # fmt: skip
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_is_the_same(name, monkeypatch):
    states = []
    for limit in (0, 1 << 60):
        monkeypatch.setattr(early_updates, "LARGE", limit)
        engine.COMPILED_PLANS.clear()
        model = build(OPTIMIZERS[name]())
        history = model.fit(X, Y, batch_size=4, epochs=3, verbose=0).history
        states.append([history["loss"], *map(np.asarray, model.optimizer.variables),
                       *model.get_weights()])  # fmt: skip
    for a, b in zip(*states, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_kernel_is_updated_before_earlier_gradients(plans):
    build(kerasish.optimizers.SGD(0.1)).fit(X, Y, batch_size=4, verbose=0)
    plan = max(plans, key=lambda p: len(p.updates))
    update = number_of(plan, (16, 16), "loop")
    assert update < number_of(plan, (10, 16), "matmul")
    assert any(plan.buffer_of(plan.root(v)) is not None for v in plan.units[update].writes)
    assert not plan.copies


def test_a_step_needs_less_memory(plans, monkeypatch):
    """All gradients have memory at the end of the reverse pass, or one at a time."""
    for limit in (0, 1 << 60):
        monkeypatch.setattr(early_updates, "LARGE", limit)
        engine.COMPILED_PLANS.clear()
        kerasish.utils.set_random_seed(0)
        model = kerasish.Sequential([kerasish.Input((64,)), *[layers.Dense(64) for _ in range(8)]])
        model.compile(kerasish.optimizers.SGD(0.1, momentum=0.9), "mse")
        model.fit(np.ones((2, 64), "float32"), np.ones((2, 64), "float32"), verbose=0)
    early, late = [p.plan.nbytes for p in plans if p.updates]
    assert early < late - 5 * 4 * 64 * 64


class Picking(kerasish.Sequential):
    """Its step reads a row of a table after all else, which may not exist."""

    value = staticmethod(lambda model, x: x)

    def train_step(self, data):
        x, y = data
        logs = super().train_step((x, y))
        table = ops.reshape(ops.arange(6, dtype="float32"), (3, 2))
        index = ops.cast(self.value(self, x[0, 0]), "int32")
        return {**logs, "picked": ops.take(table, index, axis=0)[1]}


def _of_gradients(model, x):
    """The index depends on a slot of the first kernel, whose gradient is computed last."""
    return x + 0.0 * ops.sum(model.optimizer.variables[2])


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
@pytest.mark.parametrize(
    "value", [Picking.value, _of_gradients, lambda m, x: x + 0.0 * ops.sum(m.layers[3].kernel)],
    ids=["input", "gradients", "new weights"],
)  # fmt: skip
def test_an_error_late_in_the_step_leaves_all_variables(optimizer, value, monkeypatch):
    """No variable is read between the last good step and the bad one: its value is in a buffer."""
    monkeypatch.setattr(Picking, "value", staticmethod(value))
    states = []
    for index in (1, 7):
        model = build(OPTIMIZERS[optimizer](), Picking)
        x = X.copy()
        x[:, 0] = 1
        for _ in range(2):
            assert model.train_on_batch(x, Y, return_dict=True)["picked"] == 3
        if index == 7:
            x[:, 0] = 7
            with pytest.raises(IndexError, match="Index 7"):
                model.train_on_batch(x, Y)
        states.append([np.array(v) for v in (*model.variables, *model.optimizer.variables)])
    for a, b in zip(*states, strict=True):
        np.testing.assert_array_equal(a, b)


def two_towers(classes):
    """Statistics of the first input are computed before the words are looked up."""
    kerasish.utils.set_random_seed(0)
    numbers, words = kerasish.Input((10,)), kerasish.Input((4,), dtype="int32")
    x = layers.BatchNormalization()(layers.Dense(16, "relu")(layers.BatchNormalization()(numbers)))
    y = layers.Flatten()(layers.Embedding(9, 4)(words))
    outputs = layers.Dense(classes)(layers.Concatenate()([x, y]))
    model = kerasish.Model([numbers, words], outputs)
    loss = kerasish.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(kerasish.optimizers.Adam(0.01), loss)
    return model


@pytest.mark.parametrize("backend", ["static", "eager"])
@pytest.mark.parametrize("bad", ["word", "label"])
def test_a_bad_index_leaves_moving_averages(backend, bad):
    config.set_backend(backend)
    words, labels = rng.integers(0, 9, (12, 4)), rng.integers(0, 300, (12,))
    states, error = [], None
    for is_bad in (False, True):
        model = two_towers(300)
        for _ in range(2):
            model.train_on_batch([X, words], labels)
        if is_bad:
            wrong_words, wrong_labels = words.copy(), labels.copy()
            (wrong_words if bad == "word" else wrong_labels).flat[5] = 1000
            try:
                model.train_on_batch([X, wrong_words], wrong_labels)
            except (IndexError, ValueError) as caught:
                error = caught
        states.append([np.array(v) for v in (*model.variables, *model.optimizer.variables)])
    assert error is not None
    for a, b in zip(*states, strict=True):
        np.testing.assert_array_equal(a, b)


class Norms(kerasish.Sequential):
    """Its step returns the norm of the second kernel as it was before the update."""

    def train_step(self, data):
        before = ops.sum(ops.square(self.layers[2].kernel))
        return {**super().train_step(data), "norm": before}


def test_an_update_waits_for_other_readers_of_the_variable(plans):
    model = build(kerasish.optimizers.SGD(0.1), Norms)
    for _ in range(2):
        before = np.square(model.layers[2].kernel.numpy()).sum()
        result = model.train_on_batch(X, Y, return_dict=True)["norm"]
        assert result == pytest.approx(before, rel=1e-6)
    assert not max(plans, key=lambda p: len(p.updates)).copies


def test_indices_are_checked_once(plans):
    """An embedding's table is updated in place: its indices are known to be rows of it."""
    kerasish.utils.set_random_seed(0)
    words = kerasish.Input((4,), dtype="int32")
    x = layers.Flatten()(layers.Embedding(9, 4)(words))
    model = kerasish.Model(words, layers.BatchNormalization()(layers.Dense(4)(x)))
    model.compile("sgd", "mse")
    model.train_on_batch(np.zeros((2, 4), "int32"), np.zeros((2, 4), "float32"))
    plan = max(plans, key=lambda p: len(p.updates))
    assert failing(plan.units, plan.root) == [0]
    assert not plan.copies


def test_a_smaller_table_checks_again():
    units = [Unit("a", (), ()), Unit("b", (), ()), Unit("c", (), ())]
    index = Value((3,), "int32")
    for unit, rows in zip(units, (9, 4, 9)):
        unit.indices = lambda rows=rows: [(index, rows)]
    assert failing(units, lambda v: v) == [0, 1]
    units[2].indices = lambda: ()
    assert failing(units, lambda v: v) == [0, 1, 2]
    units[2].communicates = True
    assert failing(units, lambda v: v) == [0, 1]
