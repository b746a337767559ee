"""fit, evaluate and predict on both engines: numbers, flags, errors, interruptions, threads."""

from __future__ import annotations

import gc
import threading
import tracemalloc

import numpy as np
import pytest

import kerasish
from kerasish import config, layers, ops
from kerasish.callbacks import Callback
from kerasish.errors import AdviceWarning
from kerasish.tensor import to_numpy

ENGINES = ("eager", "static")


@pytest.fixture(params=ENGINES)
def engine(request):
    kerasish.config.set_backend(request.param)
    return request.param


def test_a_layer_made_by_exec_trains(engine):
    """Its functions have no module, which says whose they are."""
    space = {"Layer": layers.Layer}
    exec("class Double(Layer):\n    def call(self, x):\n        return x * 2\n", space)
    assert space["Double"].call.__module__ is None
    model = kerasish.Sequential([layers.Input((2,)), layers.Dense(1), space["Double"]()])
    model.compile("sgd", "mse")
    model.fit(np.ones((4, 2), "float32"), np.ones((4, 1), "float32"), verbose=0)
    y = model.predict(np.ones((4, 2), "float32"), verbose=0)
    np.testing.assert_allclose(y, model(np.ones((4, 2), "float32")), rtol=1e-6)


def data(rows=96, inputs=6, outputs=2):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, inputs)).astype("float32")
    weights = rng.normal(size=(inputs, outputs)).astype("float32")
    return x, x @ weights


def network(**options):
    model = kerasish.Sequential(
        [layers.Input((6,)), layers.Dense(8, activation="tanh"), layers.Dense(2)]
    )
    model.compile(**{"optimizer": "adam", "loss": "mse", **options})
    return model


def test_loss_falls_and_history_is_kept(engine):
    x, y = data()
    history = network().fit(x, y, epochs=5, verbose=0, validation_split=0.25)
    assert history.history["loss"][-1] < history.history["loss"][0]
    assert len(history.history["val_loss"]) == 5
    assert history.epoch == [0, 1, 2, 3, 4]


def test_engines_train_alike():
    x, y = data()
    result = {}
    for name in ENGINES:
        kerasish.config.set_backend(name)
        kerasish.utils.set_random_seed(3)
        model = kerasish.Sequential(
            [
                layers.Input((6,)),
                layers.Dense(8, activation="relu"),
                layers.BatchNormalization(),
                layers.Dropout(0.3),
                layers.LayerNormalization(),
                layers.Dense(2),
            ]
        )
        model.compile("adam", "mse", metrics=["mae"])
        # 96 rows in batches of 20: the last batch is shorter.
        history = model.fit(x, y, epochs=4, batch_size=20, verbose=0)
        result[name] = (history.history, model.get_weights(), model.predict(x, verbose=0))
    (h, w, p), (h2, w2, p2) = result["eager"], result["static"]
    for key in h:
        np.testing.assert_allclose(h[key], h2[key], rtol=1e-5)
    for a, b in zip(w, w2, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)
    np.testing.assert_allclose(p, p2, atol=2e-6)


def test_engine_may_change_in_the_middle():
    x, y = data()
    results = []
    for plan in (("eager", "eager"), ("eager", "static"), ("static", "eager")):
        kerasish.utils.set_random_seed(3)
        model = network()
        for i, name in enumerate(plan):
            kerasish.config.set_backend(name)
            model.fit(x, y, epochs=i + 2, initial_epoch=2 * i, verbose=0, shuffle=False)
        results.append(model.get_weights())
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_allclose(a, b, atol=2e-6)


def test_weights_handed_out_do_not_change_later(engine):
    x, y = data()
    model = network()
    before = [v.numpy() for v in model.weights]
    tensor = model.weights[0].value
    kept, kept_tensor = [a.copy() for a in before], to_numpy(tensor).copy()
    model.fit(x, y, verbose=0)
    for a, b in zip(before, kept, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(to_numpy(tensor), kept_tensor)
    assert not np.array_equal(model.weights[0].numpy(), kept[0])


def test_set_weights_between_fits_counts(engine):
    x, y = data()
    model = network(optimizer="sgd")
    model.fit(x, y, verbose=0)
    model.set_weights([np.zeros_like(w) for w in model.get_weights()])
    np.testing.assert_array_equal(model.predict(x, verbose=0), np.zeros((96, 2)))


def test_sample_and_class_weights(engine):
    x, y = data()
    model = network(optimizer="sgd", metrics=["mse"], weighted_metrics=["mae"])
    weights = np.zeros(96, "float32")
    start = model.get_weights()
    with pytest.warns(AdviceWarning, match="sample_weight is 0"):
        model.fit(x, y, sample_weight=weights, verbose=0)
    for a, b in zip(start, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_evaluate_is_exact_over_batches(engine):
    x, y = data(rows=50)
    model = network(metrics=["mae"])
    expected = np.mean(np.square(model.predict(x, verbose=0) - y))
    for size in (1, 7, 32, 50):
        loss, mae = model.evaluate(x, y, batch_size=size, verbose=0)
        assert loss == pytest.approx(expected, rel=1e-5)
        assert mae > 0


def test_an_evaluation_is_no_training(engine):
    model = kerasish.Sequential([layers.Input((6,)), layers.Dropout(0.5)])
    model.compile("sgd", "mse", metrics=["mae"])
    x = np.ones((8, 6), "float32")
    assert model.evaluate(x, x, verbose=0) == [0.0, 0.0]
    assert model.fit(x, x, validation_data=(x, x), verbose=0).history["val_loss"] == [0.0]
    assert model.test_on_batch(x, x)[0] == 0.0


@pytest.mark.parametrize("batch_hooks", [False, True])
def test_each_epoch_s_results_are_its_own(engine, batch_hooks):
    """With a learning rate of 0 every epoch gives what the evaluation gives."""
    x, y = data(rows=40)
    model = network(optimizer=kerasish.optimizers.SGD(0.0), metrics=["mae"])
    loss, mae = model.evaluate(x, y, batch_size=8, verbose=0)
    seen = []

    class Hooks(Callback):
        def on_epoch_begin(self, epoch, logs=None):
            seen.append([float(np.max(v.numpy())) for m in self.model.metrics for v in m.variables])

        if batch_hooks:

            def on_train_batch_end(self, batch, logs=None):
                seen[-1].append(0.0)

    history = model.fit(x, y, batch_size=8, epochs=3, verbose=0, callbacks=[Hooks()]).history
    assert history["loss"] == pytest.approx([loss] * 3, rel=1e-5)
    assert history["mae"] == pytest.approx([mae] * 3, rel=1e-5)
    assert len(seen) == 3 and not any(map(any, seen))  # nothing of the epoch before


@pytest.mark.parametrize(
    ("frequency", "epochs"), [(1, [0, 1, 2, 3, 4]), (2, [1, 3]), (5, [4]), ([1, 4], [0, 3])]
)
def test_validation_freq_counts_epochs_from_1(frequency, epochs):
    x, y = data(rows=8)
    validated = []

    class Hooks(Callback):
        def on_epoch_end(self, epoch, logs=None):
            if "val_loss" in logs:
                validated.append(epoch)

    network().fit(
        x, y, epochs=5, verbose=0, validation_data=(x, y), validation_freq=frequency,
        callbacks=[Hooks()],
    )  # fmt: skip
    assert validated == epochs


def test_on_batch_methods(engine):
    x, y = data()
    model = network(metrics=["mae"])
    first = model.train_on_batch(x, y)
    assert len(first) == 2
    assert set(model.test_on_batch(x, y, return_dict=True)) == {"loss", "mae"}
    assert model.predict_on_batch(x).shape == (96, 2)


def test_custom_train_step(engine):
    class Own(kerasish.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(2)

        def call(self, x):
            return self.dense(x)

        def train_step(self, batch):
            x, y = batch
            with kerasish.GradientTape() as tape:
                loss = ops.mean(ops.square(self(x, training=True) - y))
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            return {"own": loss}

    x, y = data()
    model = Own()
    model.compile("adam")
    history = model.fit(x, y, epochs=3, verbose=0)
    assert list(history.history) == ["own"]
    assert history.history["own"][-1] < history.history["own"][0]


def test_functional_with_several_inputs_and_outputs(engine):
    a, b = layers.Input((3,), name="a"), layers.Input((2,), name="b")
    joined = layers.Concatenate()([layers.Dense(4)(a), layers.Dense(4)(b)])
    outputs = {"p": layers.Dense(1, name="p")(joined), "q": layers.Dense(2, name="q")(joined)}
    model = kerasish.Model({"a": a, "b": b}, outputs)
    model.compile("sgd", {"p": "mse", "q": "mae"}, loss_weights={"p": 1.0, "q": 0.5},
                  metrics={"q": ["mse"]})  # fmt: skip
    rng = np.random.default_rng(0)
    x = {"a": rng.normal(size=(40, 3)), "b": rng.normal(size=(40, 2))}
    y = {"p": rng.normal(size=(40, 1)), "q": rng.normal(size=(40, 2))}
    history = model.fit(x, y, verbose=0).history
    assert {"loss", "p_loss", "q_loss", "q_mse"} <= set(history)
    assert history["loss"][0] == pytest.approx(
        history["p_loss"][0] + 0.5 * history["q_loss"][0], rel=1e-4
    )
    assert {k: v.shape for k, v in model.predict(x, verbose=0).items()} == {
        "p": (40, 1), "q": (40, 2),
    }  # fmt: skip


def test_generator_and_batches_of_other_sizes(engine):
    x, y = data()

    def batches():
        while True:
            for size in (8, 16, 24):
                yield x[:size], y[:size]

    history = network().fit(batches(), steps_per_epoch=6, epochs=2, verbose=0)
    assert len(history.history["loss"]) == 2


def test_stop_training_and_batch_hooks(engine):
    seen = []

    class Stop(Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append((batch, logs["loss"]))
            if batch == 1:
                self.model.stop_training = True

    x, y = data()
    network().fit(x, y, batch_size=16, epochs=3, verbose=0, callbacks=[Stop()])
    assert [b for b, _ in seen] == [0, 1]
    assert all(np.isfinite(loss) for _, loss in seen)


def test_interrupt_leaves_a_finished_step(engine):
    class Interrupt(Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 2:
                raise KeyboardInterrupt

    x, y = data()
    model = network()
    with pytest.raises(KeyboardInterrupt):
        model.fit(x, y, batch_size=16, verbose=0, callbacks=[Interrupt()])
    assert int(model.optimizer.iterations.numpy()) == 3
    model.fit(x, y, verbose=0)


def test_an_error_inside_a_step_changes_nothing(engine):
    class Fails(layers.Layer):
        broken = False

        def call(self, x):
            if self.broken:
                raise ArithmeticError("on purpose")
            return x

    fails = Fails()
    model = kerasish.Sequential([layers.Input((6,)), layers.Dense(2), fails])
    model.compile("sgd", "mse")
    x, y = data()
    model.fit(x, y, verbose=0)
    kept = model.get_weights()
    fails.broken = True
    model.compile("sgd", "mse")
    with pytest.raises(ArithmeticError):
        model.fit(x, y, verbose=0)
    for a, b in zip(kept, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    fails.broken = False
    model.fit(x, y, verbose=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.zeros((96, 5), "float32")}, r"shape.*\(None, 6\).*\(.*5\)"),
        ({"y": np.zeros((95, 2), "float32")}, "96.*95|95.*96"),
        ({"x": np.zeros((0, 6), "float32"), "y": np.zeros((0, 2), "float32")}, "empty|no |0"),
        ({"batch_size": 0}, "batch_size"),
        ({"epochs": -1}, "epochs"),
        ({"validation_split": 1.5}, "validation_split"),
    ],
)
def test_bad_input_is_one_clear_error(engine, change, message):
    x, y = data()
    model = network()
    kept = model.get_weights()
    arguments = {"x": x, "y": y, "verbose": 0, **change}
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(**arguments)
    for a, b in zip(kept, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "options", [{"optimizer": "adm"}, {"loss": "mze"}, {"metrics": ["acuracy"]}]
)
def test_unknown_names_list_the_nearest(options):
    x, y = data()
    with pytest.raises(ValueError, match="Did you mean"):
        network(**options).fit(x, y, verbose=0)


def test_not_compiled():
    model = kerasish.Sequential([layers.Input((6,)), layers.Dense(2)])
    with pytest.raises(ValueError, match="compile"):
        model.fit(*data(), verbose=0)


def test_two_models_in_two_threads(engine):
    def train(seed, result):
        x, y = data()
        rng = np.random.default_rng(seed)
        model = network()
        model.set_weights([rng.normal(size=w.shape) for w in model.get_weights()])
        model.fit(x, y, epochs=3, batch_size=16, shuffle=False, verbose=0)
        result[seed] = model.get_weights()

    alone, together = {}, {}
    for seed in range(2):
        train(seed, alone)
    threads = [threading.Thread(target=train, args=(s, together)) for s in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for seed in range(2):
        for a, b in zip(alone[seed], together[seed], strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6)


def test_same_seed_same_weights(engine):
    x, y = data()
    result = []
    for _ in range(2):
        kerasish.utils.set_random_seed(11)
        model = network()
        model.fit(x, y, epochs=2, verbose=0)
        result.append(model.get_weights())
    for a, b in zip(*result, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_memory_does_not_grow_over_steps(engine):
    x, y = data(rows=32)
    model = network()
    tracemalloc.start()
    held = []
    for _ in range(16):  # each fit's history takes the place of the last one's, of the same length
        model.fit(x, y, epochs=60, verbose=0)
        gc.collect()
        held.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    # Caches, and memory that is used again, fill in the first fits; what each step left would be in
    # each fit.
    grown = sorted(after - before for before, after in zip(held[10:], held[11:]))
    assert grown[2] < 60 * 40, held


def test_a_batch_is_judged_alone(engine):
    x, y = data()
    model = network(metrics=["mae"])
    result = [model.train_on_batch(x[:32], y[:32], return_dict=True)["loss"] for _ in range(3)]
    assert result[0] > result[1] > result[2]
    here, there = model.test_on_batch(x[:32], y[:32]), model.test_on_batch(x[32:64] * 9, y[32:64])
    assert here != there
    assert model.test_on_batch(x[:32], y[:32]) == here
    np.testing.assert_allclose(model.evaluate(x[:32], y[:32], verbose=0), here, rtol=1e-5)


def test_one_row_and_short_batches(engine):
    x, y = data(rows=33)
    model = network()
    model.fit(x, y, batch_size=32, verbose=0)
    assert model.predict(x[:1], verbose=0).shape == (1, 2)
    assert model.predict(x, verbose=0, batch_size=10).shape == (33, 2)


def test_a_generator_that_runs_dry_ends_training_with_a_warning(engine):
    x, y = data()
    batches = ((x[i : i + 16], y[i : i + 16]) for i in range(0, 96, 16))
    with pytest.warns(UserWarning, match="dry|ran out|exhausted"):
        history = network().fit(batches, epochs=3, verbose=0)
    assert len(history.history["loss"]) == 1


def test_a_compute_loss_that_knows_nothing_of_training(engine):
    class Older(kerasish.Sequential):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
            return 2 * super().compute_loss(x, y, y_pred, sample_weight)

    created = [layers.Input((3,)), layers.Dense(2, kernel_initializer="ones")]
    older, plain = Older(created), kerasish.Sequential(created)
    x, y = np.ones((4, 3), "float32"), np.ones((4, 2), "float32")
    for model in (older, plain):
        model.compile("sgd", "mse")
    assert older.evaluate(x, y, verbose=0) == 2 * plain.evaluate(x, y, verbose=0) == 8.0
    assert older.fit(x, y, verbose=0).history["loss"] == [8.0]


class Counting(layers.Layer):
    def build(self, input_shape):
        self.w = self.add_weight(shape=(), initializer="ones", name="w")
        self.count = self.add_weight(shape=(), initializer="zeros", trainable=False, name="count")

    def call(self, x):
        def counted():
            self.count.assign(self.count + 1.0)
            return x * self.w

        return ops.cond(ops.max(x) > 2.0, counted, lambda: x * self.w * 3.0)


def test_only_the_branch_taken_assigns(engine):
    model = kerasish.Sequential([layers.Input((2,)), Counting()])
    model.compile("sgd", "mse")
    x, (_, count) = np.ones((4, 2), "float32"), model.layers[0].weights
    model.fit(x, x, batch_size=2, epochs=2, verbose=0)
    assert count.numpy() == 0
    model.fit(3 * x, x, batch_size=2, verbose=0)
    assert count.numpy() == 2


class Branching(layers.Layer):
    def build(self, input_shape):
        self.w = self.add_weight(shape=(3,), initializer="ones", name="w")
        self.u = self.add_weight(shape=(3,), initializer="ones", name="u")
        self.unread = self.add_weight(shape=(3,), initializer="ones", name="unread")

    def call(self, x):
        before = x * self.u
        return ops.cond(ops.sum(x) > 0, lambda: before * self.w, lambda: ops.tanh(x))


def test_a_weight_of_the_other_branch_has_the_gradient_zero():
    """Its momentum decays, and an accumulated gradient is applied when it is due."""

    def trained(backend):
        before = config.backend()
        config.set_backend(backend)
        try:
            model = kerasish.Sequential(
                [layers.Input((3,)), Branching(), layers.Dense(1, kernel_initializer="ones")]
            )
            rule = kerasish.optimizers.SGD(
                0.1, momentum=0.9, weight_decay=0.1, gradient_accumulation_steps=2
            )
            model.compile(rule, "mse")
            for sign in (1.0, -1.0, 1.0):
                x = np.full((2, 3), sign, "float32")
                model.train_on_batch(x, np.ones((2, 1), "float32"))
            return [v.numpy() for v in model.layers[0].weights]
        finally:
            config.set_backend(before)

    with pytest.warns(UserWarning, match="no gradient for the variables"):
        result, expected = trained("eager"), trained("static")
    for a, b in zip(result, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    *read, unread = expected
    assert not any(np.allclose(w, 1.0) for w in read)
    assert unread.tolist() == [1.0] * 3
