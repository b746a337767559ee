"""Steps looked at before they run: memory, formulas."""

from __future__ import annotations

import gc
import os
import tracemalloc

import numpy as np
import pytest

import kerasish
from kerasish import config, layers, ops

NUMPY = tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)


# Guard pages, patterns and checks are memory and records of their own; each plan has its own.
NOT_STRICT = pytest.mark.skipif(
    os.environ.get("KERASISH_STRICT_MEMORY", "0") not in ("", "0"),
    reason="strict memory adds memory and records of its own",
)


def mlp():
    return kerasish.Sequential(
        [
            kerasish.Input((256,)),
            layers.Dense(256, "relu"),
            layers.Dropout(0.2),
            layers.BatchNormalization(),
            layers.Dense(10, "softmax"),
        ]
    )


def tiny():
    """The bytes of its native calls, and of alignment, are not small next to its values."""
    hidden = [layers.Dense(32, "relu"), layers.Dense(32, "relu")]
    return kerasish.Sequential([kerasish.Input((20,)), *hidden, layers.Dense(10, "softmax")])


def cnn():
    return kerasish.Sequential(
        [
            kerasish.Input((20, 20, 3)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(10, "softmax"),
        ]
    )


def embedding():
    return kerasish.Sequential(
        [
            kerasish.Input((12,), dtype="int32"),
            layers.Embedding(4000, 64),
            layers.GlobalAveragePooling1D(),
            layers.Dense(10, "softmax"),
        ]
    )


def data(model, rows):
    shape = model.input_shape[1:]
    rng = np.random.default_rng(0)
    x = rng.integers(0, 10, (rows, *shape)).astype(model.inputs[0].dtype)
    return x, rng.integers(0, 10, rows).astype("int32")


@NOT_STRICT
@pytest.mark.parametrize("step", ["train", "test", "predict"])
@pytest.mark.parametrize(
    "make", [mlp, tiny, *(pytest.param(f, marks=pytest.mark.slow) for f in (cnn, embedding))]
)
def test_memory_is_known_before_the_first_step(make, step):
    config.set_backend("static")
    first = kerasish.Sequential([kerasish.Input((2,)), layers.Dense(1)])
    first.predict(np.ones((1, 2)), verbose=0)  # what a process holds once is not the model's
    gc.collect()
    tracemalloc.start()
    try:
        model = make()
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
        report = model.memory_report(batch_size=64, step=step)[step]
        assert int(model.optimizer.iterations) == 0
        x, y = data(model, 256)
        given = x.nbytes + y.nbytes
        if step == "train":
            model.fit(x, y, batch_size=64, epochs=2, verbose=0)
        elif step == "test":
            model.evaluate(x, y, batch_size=64, verbose=0)
        else:
            model.predict(x, batch_size=64, verbose=0)
        gc.collect()
        taken = tracemalloc.take_snapshot().filter_traces([NUMPY])
    finally:
        tracemalloc.stop()
    held = sum(s.size for s in taken.statistics("filename")) - given
    assert report["total"] == pytest.approx(held, rel=0.01)
    after = model.memory_report()[step]
    assert after["planned"] == report["planned"]  # the step of fit is the one that was compiled
    assert len(model.training_program.compiled_steps(step)) == 1


def test_the_parts_of_the_report(capsys):
    config.set_backend("static")
    model = mlp()
    model.compile("adam", "sparse_categorical_crossentropy")
    assert model.memory_report() == {}
    x, y = data(model, 100)
    report = model.memory_report(x, y, batch_size=32)["train"]
    weights = 256 * 256 + 256 + 4 * 256 + 256 * 10 + 10
    trained = 256 * 256 + 256 + 2 * 256 + 256 * 10 + 10
    assert report["gradients"] == 4 * trained
    assert report["weights"] == 4 * weights + 8  # and the state of the random numbers
    assert report["optimizer"] == 4 * 2 * trained + 8  # two slots, iterations, learning rate
    assert report["inputs"] == 32 * 256 * 4 + 32 * 4
    assert report["planned"] <= report["unshared"]
    outside = ("constants", "weights", "optimizer", "metrics", "overhead")
    assert report["total"] == report["planned"] + sum(report[name] for name in outside)


def test_the_eager_engine_reports_what_it_keeps():
    model = mlp()
    model.compile("sgd", "sparse_categorical_crossentropy", run_eagerly=True)
    report = model.memory_report(batch_size=8)["train"]
    assert report["inputs"] == 8 * 256 * 4 + 8 * 4 and "planned" not in report
    assert report["weights"] > report["gradients"] > 0


def test_several_inputs_and_outputs_of_zeros():
    a, b = kerasish.Input((3,), name="a"), kerasish.Input((2,), dtype="int32", name="b")
    model = kerasish.Model([a, b], [layers.Dense(2)(a), layers.Dense(3)(ops.cast(b, "float32"))])
    model.compile("sgd", ["mse", "mae"])
    report = model.memory_report(batch_size=5)["train"]
    assert report["inputs"] == 4 * 5 * (3 + 2 + 2 + 3)


def test_unknown_shapes_and_wrong_steps():
    class Own(kerasish.Model):
        def call(self, x):
            return x

    with pytest.raises(ValueError, match="has no known input shapes"):
        Own().memory_report(batch_size=4)
    model = kerasish.Sequential([kerasish.Input((None, 3)), layers.Dense(2)])
    with pytest.raises(ValueError, match="open sizes other than the batch"):
        model.explain(batch_size=4)
    with pytest.raises(ValueError, match="step: expected"):
        mlp().explain(step="fit")


def test_a_variable_in_a_buffer_is_held_once_and_read_as_before():
    config.set_backend("static")
    model = kerasish.Sequential([kerasish.Input((3,)), layers.Dense(2)])
    before = model.get_weights()
    x = np.ones((4, 3), "float32")
    expected = np.asarray(model(x))
    np.testing.assert_allclose(model.predict(x, verbose=0), expected, rtol=1e-6)
    for old, new in zip(before, model.get_weights()):
        np.testing.assert_array_equal(old, new)
    model.layers[0].kernel.assign(np.zeros((3, 2)))
    np.testing.assert_array_equal(model.predict(x, verbose=0), np.zeros((4, 2)))


# --- explain --------------------------------------------------------------------------------------


def test_formulas_before_and_after_each_pass():
    config.set_backend("static")
    model = kerasish.Sequential([kerasish.Input((4,)), layers.Dense(3, "relu", name="d")])
    model.compile("sgd", "mse")
    explained = model.explain(batch_size=8, passes=True)
    names = [name for name, _ in explained.stages]
    assert names[0] == "traced" and names[-1] == "fuse_loops" and "fold_constants" in names
    assert len(explained.formulas) < len(explained.stages[0][1])
    texts = [f.text for f in explained.stages[0][1]]
    assert "d.0 = x @ sequential/d/kernel".replace("sequential", model.name) in texts
    assert "d.2 = relu(d.1)" in texts
    assert any(t.startswith("d.1 = d.0 + ") for t in texts)
    text = str(explained)
    assert f"traced: {len(texts)} formulas" in text and "after fuse_loops" in text
    assert text.splitlines()[0] == f"train step of {model.display_name()}, static engine"
    assert int(model.optimizer.iterations) == 0


def test_operations_and_bytes_of_formulas():
    model = kerasish.Sequential([kerasish.Input((4,)), layers.Dense(3, name="d")])
    (product, addition) = model.explain(batch_size=8, step="predict").stages[0][1]
    assert (product.flops, product.nbytes) == (2 * 8 * 4 * 3, 4 * (8 * 4 + 4 * 3 + 8 * 3))
    assert (addition.flops, addition.nbytes) == (24, 4 * (24 + 3 + 24))
    assert product.layer.endswith("/d") and "test_inspection.py" in product.line
    assert product.result == "float32[8, 3]"


@NOT_STRICT
@pytest.mark.parametrize("eagerly", [False, True])
def test_times_leave_the_training_as_it_was(eagerly):
    config.set_backend("static")
    model = mlp()
    model.compile("adam", "sparse_categorical_crossentropy", run_eagerly=eagerly)
    x, y = data(model, 16)
    before = [w.copy() for w in model.get_weights()]
    explained = model.explain(x, y, time=True)
    assert explained.timings and all(t.seconds >= 0 for t in explained.timings)
    assert "measured: " in str(explained) and repr(explained) == str(explained)
    for old, new in zip(before, model.get_weights()):
        np.testing.assert_array_equal(old, new)
    assert int(model.optimizer.iterations) == 0


@pytest.mark.parametrize(("name", "gates"), [("LSTM", 4), ("GRU", 3), ("SimpleRNN", 1)])
def test_operations_of_recurrences_are_those_of_their_products(name, gates):
    config.set_backend("static")
    steps, rows, units = 20, 16, 64
    recurrent = getattr(layers, name)(units, return_sequences=True)
    parts = [kerasish.Input((steps, 8)), layers.Dense(32), recurrent, layers.Dense(4)]
    model = kerasish.Sequential(parts)
    model.compile("sgd", "mse")
    counted = sum(f.flops for f in model.explain(batch_size=rows).formulas)
    forward = np.array([8 * 32, 32 * gates * units, units * gates * units, units * 4])
    products = 2 * rows * steps * int(forward @ [2, 3, 3, 3])
    assert products <= counted <= 1.1 * products


@NOT_STRICT
def test_a_product_that_threads_share_is_one_part_with_its_whole_time():
    config.set_backend("static")
    model = kerasish.Sequential([kerasish.Input((512,)), layers.Dense(512), layers.Dense(512)])
    model.compile("sgd", "mse")
    x = np.ones((128, 512), "float32")
    explained = model.explain(x, x, batch_size=128, time=True)
    products = [t for t in explained.timings if t.name.startswith("matmul")]
    one = 2 * 128 * 512**2
    assert len(products) == 5 and all(one <= t.flops <= 1.01 * one for t in products)
    updates = [t.result for t in explained.timings if t.result.count("float32[512, 512]")]
    assert "float32[512, 512] x 2" in " ".join(updates)


def test_control_flow_in_formulas():
    class Loops(layers.Layer):
        def call(self, x):
            x = ops.cond(ops.sum(x) > 0, lambda: x + 1, lambda: x * 2)
            return ops.scan(lambda c, r: (c * 2, None), x, length=20)[0]

    model = kerasish.Sequential([kerasish.Input((4,)), Loops()])
    formulas = model.explain(batch_size=8).formulas
    work = {f.text.partition(" = ")[2].partition("(")[0]: f.flops for f in formulas}
    assert work["scan_along"] == 20 * 32 and work["branch"] == 32


@NOT_STRICT
def test_equal_models_share_a_plan_and_keep_their_own_layers():
    config.set_backend("static")

    def timed(name):
        model = kerasish.Sequential([kerasish.Input((5,)), layers.Dense(7, "tanh", name=name)])
        model.compile("sgd", "mse")
        explained = model.explain(batch_size=4, time=True)
        return {t.layer.rpartition("/")[2] for t in explained.timings if t.layer}

    assert "first" in timed("first")
    assert "second" in timed("second") and "first" not in timed("second")
