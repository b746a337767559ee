"""Every loss against Keras's numbers and gradients, both engines, shapes, weights, masks, names."""

from __future__ import annotations

import inspect
import json
import math
import warnings

import facts
import loss_cases as cases
import numpy as np
import pytest
from own_classes import own_classes, own_tests_of

from kerasish import losses, ops, registry
from kerasish.autodiff import GradientTape
from kerasish.engine.function import function
from kerasish.errors import ShapeError, UnknownNameError
from kerasish.losses.loss import Loss, LossFunction
from kerasish.tensor import Tensor

FACTS = facts.read("losses")
CASES = [
    pytest.param(name, arguments, kind, id=cases.name_of(name, arguments, kind))
    for name, arguments, kinds in cases.LOSSES
    for kind in kinds
]
CLASSES = sorted(
    n
    for n, x in vars(losses).items()
    if inspect.isclass(x) and issubclass(x, Loss) and x not in (Loss, LossFunction)
)


def compiled_step(f):
    return function(f, backend="static")


def close(found, expected):
    found = np.asarray(found, np.float64).ravel()
    np.testing.assert_allclose(found, np.ravel(expected), rtol=2e-5, atol=2e-6)


def check(name, arguments, kind, engine):
    """Each reduction's value and gradient, plain, weighted and masked, as Keras gives them."""
    case = cases.name_of(name, arguments, kind)
    true, pred = cases.inputs(kind)
    # A trace of all reductions and ways would hold 35 losses; sums and means differ by a factor.
    some = ("sum_over_batch_size", "mean_with_sample_weight", "none")
    reductions = cases.REDUCTIONS if engine == "eager" else some
    created = {r: getattr(losses, name)(reduction=r, **arguments) for r in reductions}
    shape = created["none"](true, pred).shape
    ways = list(cases.ways(tuple(shape)))

    def all_of(y, x):
        result = {}
        for reduction, loss in created.items():
            for words, weights, mask in ways:
                with GradientTape() as tape:
                    tape.watch(x)
                    given = ops.multiply(x, 1.0)
                    if mask is not None:
                        given._keras_mask = Tensor(mask)
                    value = loss(y, given, sample_weight=weights)
                    total = ops.sum(value * cases.wave(value.shape))
                result[f"{reduction}, {words}"] = [value, tape.gradient(total, x)]
        return result

    run = all_of if engine == "eager" else compiled_step(all_of)
    result = run(Tensor(true), Tensor(pred))
    for reduction in reductions:
        for words, (expected, slope) in FACTS[case][reduction].items():
            value, gradient = result[f"{reduction}, {words}"]
            what = f"{case}: {reduction}, {words}"
            facts.expect_close(value, expected, what)
            gradient = np.zeros(slope.shape) if gradient is None else gradient
            facts.expect_close(gradient, slope, f"gradient of {what}")


@pytest.mark.parametrize(("name", "arguments", "kind"), CASES)
def test_values_and_gradients_are_keras_s(name, arguments, kind):
    check(name, arguments, kind, "eager")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "arguments", "kind"), CASES)
def test_static_values_and_gradients_are_keras_s(name, arguments, kind):
    check(name, arguments, kind, "static")


@pytest.mark.parametrize(("name", "arguments", "kind"), CASES)
def test_compiled_is_as_eager(name, arguments, kind):
    true, pred = cases.inputs(kind)
    loss = getattr(losses, name)(**arguments)
    compiled = compiled_step(lambda y, p: loss(y, p))
    close(compiled(true, pred), np.asarray(loss(true, pred)))


def test_every_loss_has_a_case():
    own = own_classes(losses, Loss).keys() - {"LossFunction"}  # of the base, Keras has no name
    assert {name for name, _, _ in cases.LOSSES} == set(CLASSES) - own
    assert all(own_tests_of(getattr(losses, name)) for name in own)
    names = {cases.name_of(n, a, k) for n, a, kinds in cases.LOSSES for k in kinds}
    assert set(FACTS) - {"keras"} == names


@pytest.mark.parametrize("name", CLASSES)
def test_round_trip(name):
    arguments = next((a for n, a, _ in cases.LOSSES if n == name and a), {})
    created = getattr(losses, name)(**arguments, reduction="sum", name="other")
    config = losses.serialize(created)
    assert config["module"] == "keras.losses"
    assert config["class_name"] == name
    json.dumps(config)
    again = losses.deserialize(config)
    assert type(again) is type(created)
    assert again.get_config() == created.get_config()
    assert again.get_config().items() >= {"name": "other", "reduction": "sum", **arguments}.items()


@pytest.mark.parametrize("name", CLASSES)
def test_config_holds_the_constructor_s_arguments(name):
    parameters = set(inspect.signature(getattr(losses, name)).parameters)
    assert set(getattr(losses, name)().get_config()) == parameters - {"dtype"}


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("mse", "mean_squared_error"), ("MSE", "mean_squared_error"),
        ("mae", "mean_absolute_error"), ("MAE", "mean_absolute_error"),
        ("mape", "mean_absolute_percentage_error"), ("msle", "mean_squared_logarithmic_error"),
        ("bce", "binary_crossentropy"), ("BCE", "binary_crossentropy"),
        ("kld", "kl_divergence"), ("KLD", "kl_divergence"),
    ],
)  # fmt: skip
def test_short_names(short, full):
    assert losses.get(short) is getattr(losses, full)


def test_get():
    assert losses.get(None) is None
    assert isinstance(losses.get("Huber"), losses.Huber)
    assert isinstance(losses.get(losses.Huber), losses.Huber)
    created = losses.Huber(2.0)
    assert losses.get(created) is created
    assert losses.get(max) is max
    assert losses.get(losses.serialize(created)).get_config() == created.get_config()
    assert losses.deserialize("log_cosh") is losses.log_cosh


@pytest.mark.parametrize("name", ["mean_square_error", "mze", "sparse_categorical_cross_entropy"])
def test_unknown_names_list_the_nearest(name):
    with pytest.raises(UnknownNameError, match="Did you mean"):
        losses.get(name)


@pytest.mark.parametrize("kind", [3, 2.5, object()])
def test_get_refuses_other_things(kind):
    with pytest.raises(ValueError, match="Expected a loss"):
        losses.get(kind)


# --- shapes, weights, masks ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["MeanSquaredError", "BinaryCrossentropy", "Hinge", "Poisson"])
@pytest.mark.parametrize(("true", "pred"), [((32,), (32, 10)), ((32, 3), (32, 4)), ((4,), (5,))])
def test_shapes_that_do_not_fit_are_named(name, true, pred):
    with pytest.raises(ShapeError) as error:
        getattr(losses, name)()(np.ones(true), np.ones(pred))
    assert str(true) in str(error.value)
    assert str(pred) in str(error.value)


@pytest.mark.parametrize(
    ("name", "true", "pred"),
    [
        ("SparseCategoricalCrossentropy", (8, 3), (8, 10)),
        ("CategoricalCrossentropy", (8,), (8, 10)),
        ("CTC", (8,), (8, 4, 10)),
        ("Circle", (7,), (8, 4)),
    ],
)
def test_classes_that_do_not_fit_are_named(name, true, pred):
    with pytest.raises(ShapeError) as error:
        getattr(losses, name)()(np.ones(true), np.ones(pred))
    assert str(true) in str(error.value)
    assert str(pred) in str(error.value)


def test_vectors_meet_columns_row_by_row():
    true, pred = np.arange(4.0), np.asarray([[3.0], [1.0], [-2.0], [5.0]])
    expected = np.mean((true - pred[:, 0]) ** 2)
    close(losses.MeanSquaredError()(true, pred), expected)
    close(losses.MeanSquaredError()(true[:, None], pred[:, 0]), expected)
    weights = np.asarray([1.0, 2.0, 0.0, 0.5])
    weighted = np.mean((true - pred[:, 0]) ** 2 * weights)
    for given in (weights, weights[:, None]):
        close(losses.MeanSquaredError()(true, pred, sample_weight=given), weighted)
        close(losses.MeanSquaredError()(true[:, None], pred[:, 0], sample_weight=given), weighted)


def test_one_weight_a_row_fits_losses_of_many_steps():
    true, pred = np.ones((2, 2, 3)), np.zeros((2, 2, 3))
    # Two rows, two steps: weights by row, not by step.
    values = losses.MeanSquaredError(reduction="none")(true, pred, sample_weight=[1.0, 5.0])
    assert values.tolist() == [[1.0, 1.0], [5.0, 5.0]]


def test_weights_that_do_not_fit_are_named():
    with pytest.raises(ShapeError, match=r"\(3,\).*\(4,\)"):
        losses.MeanSquaredError()(np.ones((4, 2)), np.ones((4, 2)), sample_weight=[1, 2, 3])


def masked(x, mask):
    x = ops.convert_to_tensor(np.asarray(x, "float32"))
    x._keras_mask = ops.convert_to_tensor(np.asarray(mask))
    return x


@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "mean", "mean_with_sample_weight"])
def test_masked_values_do_not_count(reduction):
    pred = masked([[1.0], [2.0], [100.0]], [True, True, False])
    assert losses.MeanSquaredError(reduction=reduction)(np.zeros((3, 1)), pred).item() == 2.5


def test_masks_and_weights_multiply():
    pred = masked([[1.0], [2.0], [100.0]], [True, True, False])
    loss = losses.MeanSquaredError(reduction="sum")
    assert loss(np.zeros((3, 1)), pred, sample_weight=[3.0, 1.0, 1.0]).item() == 7.0
    mean = losses.MeanSquaredError()(np.zeros((3, 1)), pred, sample_weight=[3.0, 1.0, 1.0])
    assert mean.item() == 3.5


def test_a_mask_that_hides_all_gives_zero():
    pred = masked([[1.0], [2.0]], [False, False])
    assert losses.MeanSquaredError()(np.zeros((2, 1)), pred).item() == 0.0


def test_large_class_numbers_stay_exact():
    # 2**24 + 1 is no float32: as a float it would be ignored class 2**24.
    true = np.array([2**24 + 1, 0])
    loss = losses.SparseCategoricalCrossentropy(ignore_class=2**24 + 1)
    close(loss(true, [[0.5, 0.5], [0.25, 0.75]]), -math.log(0.25))


def test_ignored_classes_do_not_count():
    loss = losses.SparseCategoricalCrossentropy(ignore_class=255)
    close(loss([255, 1], [[0.1, 0.9], [0.5, 0.5]]), math.log(2))


# --- extremes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["BinaryCrossentropy", "CategoricalCrossentropy"])
def test_certain_and_wrong_is_finite(name):
    x = Tensor([[1.0, 0.0]], requires_grad=True)
    loss = getattr(losses, name)()([[0.0, 1.0]], x)
    loss.backward()
    assert np.isfinite(loss.numpy())
    assert np.isfinite(x.grad.numpy()).all()


@pytest.mark.parametrize(
    ("name", "true"),
    [
        ("BinaryCrossentropy", [[0.0, 1.0]]),
        ("BinaryFocalCrossentropy", [[0.0, 1.0]]),
        ("CategoricalCrossentropy", [[0.0, 1.0]]),
        ("CategoricalFocalCrossentropy", [[0.0, 1.0]]),
        ("SparseCategoricalCrossentropy", [1]),
    ],
)
def test_huge_logits_are_finite(name, true):
    x = Tensor([[1e4, -1e4]], requires_grad=True)
    loss = getattr(losses, name)(from_logits=True)(true, x)
    loss.backward()
    assert np.isfinite(loss.numpy())
    assert np.isfinite(x.grad.numpy()).all()


def test_log_cosh_does_not_overflow():
    close(losses.log_cosh([[0.0]], [[500.0]]), 500.0 - math.log(2))
    close(losses.log_cosh([[0.0]], [[-500.0]]), 500.0 - math.log(2))


def test_impossible_sequences_have_finite_gradients():
    # Two equal labels need a blank between them: two steps are too few.
    x = Tensor(np.zeros((1, 2, 3), "float32"), requires_grad=True)
    losses.CTC()([[1, 1]], x).backward()
    assert np.isfinite(x.grad.numpy()).all()


def test_generalized_crossentropy_has_a_slope_at_zero():
    x = Tensor([[0.0, 1.0]], requires_grad=True)
    losses.CategoricalGeneralizedCrossEntropy()([0], x).backward()
    assert np.isfinite(x.grad.numpy()).all()


# --- losses of one's own -------------------------------------------------------------------------


class Distance(Loss):
    def call(self, y_true, y_pred):
        return ops.absolute(y_true - y_pred)


def test_a_class_of_one_s_own():
    loss = Distance()
    assert loss.name == "distance"
    assert loss([1, 2], [2.0, 4.0]).item() == 1.5
    assert Distance(name="d").get_config() == {"name": "d", "reduction": "sum_over_batch_size"}
    with pytest.raises(NotImplementedError, match="call"):
        Loss()([1.0], [1.0])


def test_a_function_of_one_s_own():
    loss = LossFunction(lambda t, p, power: ops.absolute(t - p) ** power, power=2.0, name="own")
    assert loss([1.0, 2.0], [2.0, 4.0]).item() == 2.5
    builtin = LossFunction(losses.huber, delta=2.0)
    again = LossFunction.from_config(json.loads(json.dumps(builtin.get_config())))
    assert again.fn is losses.huber
    assert again.get_config() == builtin.get_config()


def test_a_registered_class_is_found():
    with registry.custom_object_scope({"Distance": Distance}):
        assert isinstance(losses.get("Distance"), Distance)


def test_structures_reach_the_call():
    class Sum(Loss):
        def call(self, y_true, y_pred):
            return (y_true["a"] - y_pred["a"]) ** 2 + (y_true["b"] - y_pred["b"]) ** 2

    result = Sum()({"a": [1.0], "b": [1]}, {"a": [3.0], "b": [2.0]})
    assert result.item() == 5.0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_dtypes(dtype):
    loss = losses.MeanSquaredError(dtype=dtype)
    result = loss(np.ones((2, 2)), np.zeros((2, 2)))
    assert result.dtype == loss.dtype == dtype
    assert result.item() == 1.0


def test_reductions_are_checked():
    with pytest.raises(UnknownNameError, match="Did you mean 'mean'"):
        losses.MeanSquaredError(reduction="means")


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_smoothing_is_checked(share):
    with pytest.raises(ValueError, match="label_smoothing"):
        losses.BinaryCrossentropy(label_smoothing=share)


@pytest.mark.parametrize("q", [0.0, 1.0, 2.0])
def test_q_is_checked(q):
    with pytest.raises(ValueError, match=r"q must be in \(0, 1\)"):
        losses.CategoricalGeneralizedCrossEntropy(q=q)


def test_no_warnings_on_empty_batches():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert losses.MeanSquaredError()(np.zeros((0, 2)), np.zeros((0, 2))).shape == (0,)


@pytest.mark.parametrize("name", ["BinaryCrossentropy", "BinaryFocalCrossentropy"])
def test_binary_losses_do_not_spread_targets_over_predictions(name):
    with pytest.raises(ShapeError, match="one target for each prediction"):
        getattr(losses, name)()([[0.0], [1.0]], [[0.2, 0.3], [0.4, 0.9]])


def test_ctc_reads_a_zero_between_labels_as_a_label():
    logits = np.log([[[0.2, 0.5, 0.3], [0.6, 0.1, 0.3], [0.1, 0.2, 0.7]]]).astype("float32")
    # Zeros do not count as labels: the first two entries are read, 1 and then 0.
    ways = 0.5 * 0.1 * 0.1 + 3 * (0.5 * 0.6 * 0.1) + 0.2 * 0.1 * 0.1
    close(losses.ctc([[1, 0, 2]], logits), -np.log(ways))
