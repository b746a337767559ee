"""What `compile` was given, matched to outputs of all structures: names, numbers, errors.

The names expected here are those that Keras 3.15 reports.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest

import kerasish
from kerasish import layers, losses, metrics, ops, tree
from kerasish.engine.training.compiled import CompiledLoss, CompiledMetrics, find_loss
from kerasish.engine.training.outputs import list_outputs
from kerasish.errors import UnknownNameError

RNG = np.random.RandomState(0)
A, B, C = (RNG.rand(8, n).astype("float32") for n in (2, 1, 2))
TA, TB, TC = (RNG.rand(8, n).astype("float32") for n in (2, 1, 2))
W = np.arange(8, dtype="float32")

# Outputs, targets, the names of the layers that make the outputs.
ONE = (A, TA, ["a"])
TWO = ([A, B], [TA, TB], ["a", "b"])
DICT = ({"p": A, "q": B}, {"p": TA, "q": TB}, ["a", "b"])
SINGLE_DICT = ({"p": A}, {"p": TA}, ["a"])
SINGLE_LIST = ([A], [TA], ["a"])
NESTED = ({"p": [A, C], "q": B}, {"p": [TA, TC], "q": TB}, ["a", "c", "b"])
NAMELESS = ((A, B), (TA, TB), [])


def mse(t, p, w=None):
    return np.average(((t - p) ** 2).mean(-1) * (1 if w is None else w))


def mae(t, p, w=None):
    return np.average(np.abs(t - p).mean(-1), weights=w)


def own(t, p):
    return ops.mean(ops.absolute(t - p), -1)


@pytest.mark.parametrize(
    ("case", "loss", "names"),
    [
        (ONE, "mse", []),
        (ONE, ["mse"], []),
        (ONE, {"a": "mse"}, []),
        (ONE, losses.Huber(), []),
        (TWO, "mse", ["a_loss", "b_loss"]),
        (TWO, ["mse", "mae"], ["a_loss", "b_loss"]),
        (TWO, {"a": "mse", "b": own}, ["a_loss", "b_loss"]),
        (TWO, [None, "mse"], []),
        (DICT, "mse", ["p_loss", "q_loss"]),
        (DICT, {"p": "mse", "q": "mae"}, ["p_loss", "q_loss"]),
        (DICT, ["mse", "mae"], ["p_loss", "q_loss"]),
        (DICT, {"p": "mse"}, []),
        (DICT, {"p": "mse", "q": None}, []),
        (SINGLE_DICT, {"p": "mse"}, []),
        (SINGLE_DICT, "mse", []),
        (SINGLE_LIST, ["mse"], []),
        (NESTED, "mse", ["p/a_loss", "p/c_loss", "q_loss"]),
        (NESTED, {"p": ["mse", "mae"], "q": "mse"}, ["p/a_loss", "p/c_loss", "q_loss"]),
        (NAMELESS, ["mse", "mae"], ["mse_loss", "mae_loss"]),
        # Keras reports only the second, both being called mse_loss.
        (NAMELESS, "mse", ["mse_loss", "mse_loss_1"]),
    ],
)
def test_names_of_losses(case, loss, names):
    pred, true, layer_names = case
    compiled = CompiledLoss(loss, None, layer_names)
    compiled(true, pred)
    assert [t.name for t in compiled.trackers] == names


@pytest.mark.parametrize(
    ("case", "plain", "weighted", "names"),
    [
        (ONE, ["mae", "mse"], None, ["mae", "mse"]),
        (ONE, ["MSE", "MeanAbsoluteError", own], None, ["MSE", "MeanAbsoluteError", "own"]),
        (ONE, [metrics.MeanSquaredError(name="z")], None, ["z"]),
        (ONE, [metrics.MeanSquaredError], None, ["mean_squared_error"]),
        (ONE, ["mae", "mae"], None, ["mae", "mae_1"]),
        (ONE, ["mae"], ["mae"], ["mae", "weighted_mae"]),
        (ONE, None, ["mae"], ["mae"]),
        (ONE, [["mae"]], None, ["mae"]),
        (ONE, {"a": "mae"}, None, ["mae"]),
        (TWO, [["mae"], ["mse"]], None, ["a_mae", "b_mse"]),
        (TWO, ["mae", "mse"], None, ["a_mae", "b_mse"]),
        (TWO, {"b": "mae"}, None, ["b_mae"]),
        (TWO, [None, ["mae", "mse"]], None, ["b_mae", "b_mse"]),
        (TWO, [["mae"], ["mae"]], [["mae"], ["mse"]],
         ["a_mae", "b_mae", "a_weighted_mae", "b_mse"]),
        (DICT, {"p": ["mae"], "q": ["mse"]}, None, ["p_mae", "q_mse"]),
        (DICT, {"q": "mae"}, {"q": "mae"}, ["q_mae", "q_weighted_mae"]),
        (SINGLE_DICT, {"p": ["mae"]}, None, ["mae"]),
        (SINGLE_DICT, ["mae"], None, ["mae"]),
        (SINGLE_LIST, ["mae", "mse"], None, ["mae", "mse"]),
        (NESTED, {"p": ["mae", "mse"], "q": "mae"}, None, ["a_mae", "c_mse", "q_mae"]),
        (NAMELESS, [["mae"], ["mse"]], None, ["mae", "mse"]),
    ],
)  # fmt: skip
def test_names_of_metrics(case, plain, weighted, names):
    pred, true, layer_names = case
    compiled = CompiledMetrics(plain, weighted, layer_names)
    compiled.update_state(true, pred)
    assert list(compiled.result()) == names


@pytest.mark.parametrize(
    ("true", "pred", "kind"),
    [
        ((8,), (8, 1), "binary"), ((8, 1), (8, 1), "binary"), ((8,), (8,), "categorical"),
        ((8,), (8, 3), "sparse"), ((8, 1), (8, 3), "sparse"), ((8, 3), (8, 3), "categorical"),
        ((8, 5), (8, 5, 3), "sparse"), ((8, 5, 3), (8, 5, 3), "categorical"),
    ],
)  # fmt: skip
def test_shapes_choose_accuracy_and_crossentropy(true, pred, kind):
    compiled = CompiledMetrics(["accuracy", "acc", "ce"], None, ["a"])
    compiled.build(np.zeros(true), np.full(pred, 0.5))
    kinds = {
        "binary": (metrics.BinaryAccuracy, metrics.BinaryCrossentropy),
        "categorical": (metrics.CategoricalAccuracy, metrics.CategoricalCrossentropy),
        "sparse": (metrics.SparseCategoricalAccuracy, metrics.SparseCategoricalCrossentropy),
    }[kind]
    assert [type(m) for m in compiled.metrics] == [kinds[0], kinds[0], kinds[1]]
    assert [m.name for m in compiled.metrics] == ["accuracy", "acc", "ce"]
    loss = find_loss("crossentropy", np.zeros(true), np.zeros(pred))
    assert type(loss).__name__ == kinds[1].__name__


# --- numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [TWO, DICT, NAMELESS], ids=["list", "dict", "nameless"])
def test_losses_add_up(case):
    pred, true, names = case
    compiled = CompiledLoss("mse", None, names)
    total = compiled(true, pred).item()
    assert total == pytest.approx(mse(TA, A) + mse(TB, B), rel=1e-6)
    parts = [t.result().item() for t in compiled.trackers]
    assert parts == pytest.approx([mse(TA, A), mse(TB, B)], rel=1e-6)


@pytest.mark.parametrize(
    ("case", "weights"),
    [(TWO, [0.3, 2.0]), (TWO, {"a": 0.3, "b": 2.0}), (DICT, {"p": 0.3, "q": 2.0})],
)
def test_loss_weights(case, weights):
    pred, true, names = case
    compiled = CompiledLoss("mse", weights, names)
    expected = 0.3 * mse(TA, A) + 2.0 * mse(TB, B)
    assert compiled(true, pred).item() == pytest.approx(expected, rel=1e-6)
    # What is tracked is not weighted, as in Keras.
    assert compiled.trackers[1].result().item() == pytest.approx(mse(TB, B), rel=1e-6)


@pytest.mark.parametrize("weight", [2.0, [2.0], {"a": 2.0}])
def test_a_weight_of_a_single_loss(weight):
    result = CompiledLoss("mse", weight, ["a"])(TA, A).item()
    assert result == pytest.approx(2 * mse(TA, A), rel=1e-6)


def test_one_array_of_sample_weights_is_for_all_outputs():
    result = CompiledLoss("mse", None, ["a", "b"])([TA, TB], [A, B], ops.convert_to_tensor(W))
    assert result.item() == pytest.approx(mse(TA, A, W) + mse(TB, B, W), rel=1e-5)


@pytest.mark.parametrize("weights", [[W, None], {"a": W}])
def test_sample_weights_by_output(weights):
    result = CompiledLoss("mse", None, ["a", "b"])([TA, TB], [A, B], weights)
    assert result.item() == pytest.approx(mse(TA, A, W) + mse(TB, B), rel=1e-5)


def test_only_weighted_metrics_are_weighted():
    compiled = CompiledMetrics(["mae"], ["mae"], ["a"])
    compiled.update_state(TA, A, ops.convert_to_tensor(W))
    result = {k: v.item() for k, v in compiled.result().items()}
    expected = {"mae": mae(TA, A), "weighted_mae": mae(TA, A, W)}
    assert result == pytest.approx(expected, rel=1e-5)


def test_targets_by_layer_names():
    result = CompiledLoss("mse", None, ["a", "b"])({"b": TB, "a": TA}, [A, B])
    assert result.item() == pytest.approx(mse(TA, A) + mse(TB, B), rel=1e-6)


def test_metrics_that_give_dicts():
    class Two(metrics.Mean):
        def update_state(self, y_true, y_pred, sample_weight=None):
            super().update_state(y_pred, sample_weight)

        def result(self):
            return {"first": super().result(), "second": super().result() * 2}

    compiled = CompiledMetrics([Two()], None, ["a"])
    compiled.update_state(TA, A)
    assert list(compiled.result()) == ["first", "second"]


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "loss", "words"),
    [
        (TWO, {"zz": "mse"}, "output in loss: 'zz'"),
        (DICT, {"p": "mse", "r": "mse"}, "output in loss: 'r'"),
        (ONE, {"zz": "mse"}, "output in loss: 'zz'"),
        (TWO, ["mse"], r"loss: 1 entries for 2 outputs \['a', 'b'\]"),
        (TWO, [None, None], "no output has a loss"),
        (TWO, ["mse", "mze"], "Did you mean 'mse'"),
    ],
)
def test_losses_that_do_not_fit(case, loss, words):
    pred, true, names = case
    with pytest.raises(ValueError, match=words):
        CompiledLoss(loss, None, names)(true, pred)


@pytest.mark.parametrize(
    ("true", "words"),
    [([TA], "'b'.*1 parts"), ({"a": TA}, r"'b'.*\['a'\]"), (TA, "'a'.*one part")],
)
def test_missing_targets_are_named(true, words):
    with pytest.raises(ValueError, match=f"{words} for 2 outputs"):
        CompiledLoss("mse", None, ["a", "b"])(true, [A, B])


@pytest.mark.parametrize(
    ("case", "given", "words"),
    [
        (TWO, ["mae"], "metrics: 1 entries for 2 outputs"),
        (TWO, {"zz": "mae"}, "output in metrics: 'zz'"),
        (DICT, ["mae"], "metrics: 1 entries for 2 outputs"),
        (ONE, ["mea"], "Did you mean 'mean'"),
    ],
)
def test_metrics_that_do_not_fit(case, given, words):
    pred, true, names = case
    with pytest.raises(ValueError, match=words):
        CompiledMetrics(given, None, names).update_state(true, pred)


def test_metrics_are_a_list():
    with pytest.raises(ValueError, match="metrics must be a list or dict"):
        CompiledMetrics("mae", None, ["a"])
    with pytest.raises(TypeError, match="loss_weights"):
        CompiledLoss("mse", "heavy", ["a"])


def test_unknown_outputs_are_an_unknown_name():
    with pytest.raises(UnknownNameError, match="Did you mean 'a_long_name'") as caught:
        CompiledLoss({"a_long_nam": "mse"}, None, ["a_long_name"])(TA, A)
    assert isinstance(caught.value, KeyError)
    assert str(caught.value).startswith("Unknown")


def whole(t, p):
    """The first output's error plus thrice the second's: a loss of two outputs together."""
    (t1, t2), (p1, p2) = (list(x.values()) if isinstance(x, dict) else x for x in (t, p))
    return ops.mean(ops.absolute(t1 - p1)) + 3 * ops.mean(ops.absolute(t2 - p2))


PAIR = mae(TA, A) + 3 * mae(TB, B)
POINT = namedtuple("Point", ["u", "v"])


@pytest.mark.parametrize(
    ("true", "pred", "loss", "names", "total"),
    [
        (TA, A, ["mse", "mae"], ["x_loss"], mse(TA, A) + mae(TA, A)),
        ([TA, TB], [A, B], ["mse", ["mse", "mae"]], ["x_loss", "y_loss"],
         mse(TA, A) + mse(TB, B) + mae(TB, B)),
        ({"p": TA, "q": TB}, {"p": A, "q": B}, {"p": "mse", "q": ["mae"]},
         ["p_loss", "q_loss"], mse(TA, A) + mae(TB, B)),
        ((TA, TB), (A, B), [whole, ("mse", None)], ["x_y_loss", "x_loss"], PAIR + mse(TA, A)),
        (POINT(TA, TB), POINT(A, B), [whole, POINT(None, "mae")], ["x_y_loss", "y_loss"],
         PAIR + mae(TB, B)),
        ({"p": TA, "q": TB}, {"p": A, "q": B}, [whole, {"q": "mae"}], ["p_q_loss", "q_loss"],
         PAIR + mae(TB, B)),
        ({"p": (TA, TB), "q": TB}, {"p": (A, B), "q": B}, {"p": whole, "q": "mae"},
         ["p_loss", "q_loss"], PAIR + mae(TB, B)),
        ([TB], [A, B], [None, "mae"], [], mae(TB, B)),
        (TB, [A, B], [None, "mae"], [], mae(TB, B)),
        ([TA, TB], [A, C, B], ["mse", None, "mae"], ["x_loss", "z_loss"], mse(TA, A) + mae(TB, B)),
    ],
)  # fmt: skip
def test_losses_of_one_output_and_of_several_together(true, pred, loss, names, total):
    compiled = CompiledLoss(loss, None, ["x", "y", "z"][: len(tree.flatten(pred))])
    assert float(compiled(true, pred)) == pytest.approx(float(total), rel=1e-5)
    assert [t.name for t in compiled.trackers] == names


def test_weights_of_losses_that_share_an_output():
    compiled = CompiledLoss([whole, ("mse", "mae")], [2.0, (0.5, 1.0)], ["x", "y"])
    expected = 2 * PAIR + 0.5 * mse(TA, A) + mae(TB, B)
    assert float(compiled((TA, TB), (A, B))) == pytest.approx(float(expected), rel=1e-5)
    with pytest.raises(ValueError, match="2 numbers for 3 losses"):
        CompiledLoss([whole, ("mse", "mae")], [2.0, 1.0], ["x", "y"])((TA, TB), (A, B))


# --- in a model ----------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["eager", "static"])
def test_in_a_model(engine):
    kerasish.config.set_backend(engine)
    x = kerasish.Input((3,))
    outputs = {"p": layers.Dense(2, name="a")(x), "q": layers.Dense(1, name="b")(x)}
    model = kerasish.Model(x, outputs)
    model.compile("sgd", {"p": "mse", "q": "mae"}, metrics={"q": ["mse"]}, loss_weights={"p": 0.5})
    data = RNG.rand(8, 3).astype("float32")
    history = model.fit(data, {"p": TA, "q": TB}, epochs=2, verbose=0).history
    assert sorted(history) == ["loss", "p_loss", "q_loss", "q_mse"]
    result = model.evaluate(data, {"p": TA, "q": TB}, batch_size=3, verbose=0, return_dict=True)
    predicted = model.predict(data, verbose=0)
    expected = {
        "p_loss": mse(TA, predicted["p"]),
        "q_loss": mae(TB, predicted["q"]),
        "q_mse": mse(TB, predicted["q"]),
    }
    expected["loss"] = 0.5 * expected["p_loss"] + expected["q_loss"]
    assert result == pytest.approx(expected, rel=1e-5)


def test_outputs_know_their_places():
    result = list_outputs({"q": B, "p": [A, C]}, ["a", "c", "b"])
    assert [o.path for o in result] == [("p", 0), ("p", 1), ("q",)]
    assert [o.layer for o in result] == ["a", "c", "b"]
