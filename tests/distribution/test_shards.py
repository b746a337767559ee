"""Shards of a batch add up to the batch: all losses and metrics, weights, masks, options."""

from __future__ import annotations

import loss_cases
import metric_cases
import numpy as np
import pytest
import rank_models as models

import kerasish as keras
from kerasish.ranks import set_sharding

SHARDS = 4


@pytest.fixture(autouse=True)
def _full_batches_afterwards():
    yield
    set_sharding(None)


class Scaled(keras.layers.Layer):
    """x * scale, with a mask where the test gives one."""

    masks = False

    def build(self, shape):
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")

    def call(self, x):
        y = x * self.scale + 0.01
        if self.masks:
            # A mask of rows that follows from the rows.
            y._keras_mask = keras.ops.sum(x, tuple(range(1, len(x.shape)))) > -1.0
        return y


def step(loss, x, y, weights=None, masks=False, shards=None, **options):
    """Return the weight and the logs after two training steps, on whole batches or shards."""
    models.use_shards(shards)
    layer = Scaled()
    layer.masks = masks
    model = keras.Sequential([keras.Input(x.shape[1:]), layer])
    model.compile("sgd", loss, run_eagerly=True, **options)
    for _ in range(2):
        logs = model.train_on_batch(x, y, weights, return_dict=True)
    tested = model.test_on_batch(x, y, weights, return_dict=True)
    return {"scale": float(layer.scale.numpy()), **logs, **{f"t_{k}": v for k, v in tested.items()}}


def same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=2e-5, atol=1e-6, err_msg=name)


# What compares the rows of a batch with each other depends on the batch, also in one process.
BETWEEN_ROWS = {"Circle", "CTC"}
LOSSES = [
    (name, arguments, kinds[0])
    for name, arguments, kinds in loss_cases.LOSSES
    if name not in BETWEEN_ROWS
    and arguments.get("axis") not in (0, [0])
    and (name, kinds[0]) != ("Hinge", "column")  # labels that hinge warns of
]


@pytest.mark.parametrize(("name", "arguments", "kind"), LOSSES)
def test_losses(name, arguments, kind):
    y, x = loss_cases.inputs(kind)
    y, x = (np.concatenate([a, a[::-1], a * 1])[:7] for a in (y, x))
    weights = (np.arange(len(x)) % 3 + 0.5).astype("float32")
    make = getattr(keras.losses, name)
    for reduction in ("sum_over_batch_size", "mean_with_sample_weight", "sum"):
        for given in (None, weights):
            expected = step(make(**arguments, reduction=reduction), x, y, given)
            same(step(make(**arguments, reduction=reduction), x, y, given, shards=3), expected)


@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "mean_with_sample_weight", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
def test_masks(reduction, weighted):
    x, y = (a.astype("float32") for a in loss_cases.inputs("real 3d"))
    x, y = np.tile(x, (5, 1, 1)), np.tile(y, (5, 1, 1))
    x += np.arange(len(x), dtype="float32")[:, None, None] % 3 - 1
    weights = (np.arange(len(x)) % 3 + 0.5).astype("float32") if weighted else None
    loss = keras.losses.MeanSquaredError(reduction=reduction)
    expected = step(loss, x, y, weights, masks=True)
    assert expected["loss"] != pytest.approx(step(loss, x, y, weights)["loss"], rel=1e-3)
    same(step(loss, x, y, weights, masks=True, shards=SHARDS), expected)


METRICS = [
    (name, arguments, kinds[0])
    for name, arguments, kinds in metric_cases.METRICS
    if name not in (*metric_cases.OF_VALUES, "MeanMetricWrapper")
]


@pytest.mark.filterwarnings("ignore:.*sample weights are float32 but the counts:UserWarning")
@pytest.mark.parametrize(("name", "arguments", "kind"), METRICS)
def test_metrics(name, arguments, kind):
    y, x, weights = metric_cases.inputs(kind)
    x = x.astype("float32")

    def run(shards):
        models.use_shards(shards)
        model = keras.Sequential([keras.Input(x.shape[1:]), keras.layers.Identity()])
        make = getattr(keras.metrics, name)
        created = [make(**arguments, name=n) for n in ("plain", "weighted")]
        model.compile(
            loss=lambda t, p: keras.ops.cast(p, "float32"), metrics=created[:1],
            weighted_metrics=created[1:], run_eagerly=True,
        )  # fmt: skip
        return model.evaluate(
            x, y, sample_weight=weights, batch_size=13, verbose=0, return_dict=True
        )

    same(run(SHARDS), run(None))


OPTIONS = {
    "regularized": {},
    "clipped": {"optimizer": keras.optimizers.SGD(0.1, global_clipnorm=0.1)},
    "accumulated": {"optimizer": keras.optimizers.Adam(gradient_accumulation_steps=2)},
    "averaged": {"optimizer": keras.optimizers.Adam(use_ema=True, ema_overwrite_frequency=2)},
    "decayed": {"optimizer": keras.optimizers.AdamW(0.01, weight_decay=0.1)},
    "scaled": {"optimizer": keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam())},
    "class weights": {},
    "sample weights": {},
}


@pytest.mark.parametrize("case", OPTIONS)
def test_training_options(case):
    """Uneven shards give what whole batches give, up to rounding."""
    x, y = models.data(50)
    more = {}
    if case == "class weights":
        more = {"class_weight": {i: 0.5 + i for i in range(10)}}
    if case == "sample weights":
        more = {"sample_weight": np.linspace(0, 2, 50, dtype="float32")}

    def run(shards):
        models.use_shards(shards)
        keras.utils.set_random_seed(1)
        given = {
            k: type(v).from_config(v.get_config()) if k == "optimizer" else v
            for k, v in OPTIONS[case].items()
        }
        model = models.compiled("smooth", **given)
        if case == "regularized":
            layer = keras.layers.Dense(8, kernel_regularizer="l2", activity_regularizer="l1")
            model = keras.Sequential([keras.Input((20,)), layer, keras.layers.Dense(10)])
            model.compile("adam", "mse")
        target = np.eye(10, dtype="float32")[y] if case == "regularized" else y
        history = model.fit(x, target, batch_size=13, epochs=2, verbose=0, **more)
        return history.history, model.get_weights()

    logs, weights = run(None)
    result = run(3)
    same(result[0], logs)
    assert models.greatest_difference(result[1], weights) < 2e-6
