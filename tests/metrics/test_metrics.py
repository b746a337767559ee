"""Every metric against Keras's numbers and scikit-learn's, batching, both engines, names, state."""

from __future__ import annotations

import copy
import inspect
import json
import pickle

import facts
import metric_cases as cases
import numpy as np
import pytest
from own_classes import own_classes, own_tests_of
from sklearn import metrics as sklearn_metrics

import kerasish
from kerasish import losses, metrics, ops
from kerasish.engine.function import function
from kerasish.errors import ShapeError, UnknownNameError
from kerasish.metrics.metric import Metric
from kerasish.tensor import Variable

FACTS = {k: v for k, v in facts.read("metrics").items() if k != "keras"}
CASES = [
    pytest.param(name, arguments, kind, id=cases.name_of(name, arguments, kind))
    for name, arguments, kinds in cases.METRICS
    for kind in kinds
]
CLASSES = sorted(
    n
    for n, x in vars(metrics).items()
    if inspect.isclass(x) and issubclass(x, Metric) and x is not Metric
)


def close(found, expected, rtol=2e-5):
    found = np.asarray(found, np.float64).ravel()
    np.testing.assert_allclose(found, np.ravel(expected), rtol=rtol, atol=2e-6)


def made_for(name, arguments):
    return getattr(metrics, name)(**cases.given(arguments, losses))


def masked(pred, mask):
    tensor = ops.convert_to_tensor(np.asarray(pred))
    if mask is not None:
        tensor._keras_mask = ops.convert_to_tensor(np.asarray(mask))
    return tensor


def counted(name, arguments, kind, batches):
    metric = made_for(name, arguments)
    for true, pred, weights, mask in batches:
        args = (pred,) if name in cases.OF_VALUES else (true, pred)
        metric.update_state(*args[:-1], masked(pred, mask), sample_weight=weights)
    return metric


@pytest.mark.filterwarnings("ignore:.*lose their fractions")
@pytest.mark.parametrize(("name", "arguments", "kind"), CASES)
def test_results_are_keras_s(name, arguments, kind):
    for way, expected in FACTS[cases.name_of(name, arguments, kind)].items():
        metric = counted(name, arguments, kind, cases.batches(kind, way))
        what = f"{cases.name_of(name, arguments, kind)}, {way}"
        facts.expect_close(metric.result(), expected, what)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*lose their fractions")
@pytest.mark.parametrize(("name", "arguments", "kind"), CASES)
def test_static_results_are_keras_s(name, arguments, kind):
    for way, expected in FACTS[cases.name_of(name, arguments, kind)].items():
        metric = made_for(name, arguments)

        def update(true, pred, weights, mask, metric=metric):
            # The tensor that a trace gets is its argument; the mask belongs to what is computed.
            pred = pred * 1
            if mask is not None:
                pred._keras_mask = mask
            args = (pred,) if name in cases.OF_VALUES else (true, pred)
            metric.update_state(*args, sample_weight=weights)

        update = function(update, backend="static")
        for batch in cases.batches(kind, way):
            update(*batch)
        what = f"{cases.name_of(name, arguments, kind)}, {way}"
        facts.expect_close(metric.result(), expected, what)


@pytest.mark.filterwarnings("ignore:.*lose their fractions")
@pytest.mark.parametrize(("name", "arguments", "kind"), CASES)
def test_batching_changes_nothing(name, arguments, kind):
    whole = counted(name, arguments, kind, [(*cases.inputs(kind), None)])
    parts = counted(name, arguments, kind, cases.batches(kind))
    close(parts.result(), np.asarray(whole.result()))


@pytest.mark.parametrize(("name", "arguments", "kind"), CASES)
def test_compiled_is_as_eager(name, arguments, kind):
    true, pred, _ = cases.inputs(kind)
    metric = counted(name, arguments, kind, [(true, pred, None, None)])
    expected = np.asarray(metric.result())
    metric.reset_state()
    args = (pred,) if name in cases.OF_VALUES else (true, pred)
    function(lambda *given: metric.update_state(*given), backend="static")(*args)
    close(metric.result(), expected)


def test_every_metric_has_a_case():
    own = own_classes(metrics, Metric)
    assert "SklearnScorer" in own
    assert {name for name, _, _ in cases.METRICS} == set(CLASSES) - set(own)
    assert all(own_tests_of(cls) for cls in own.values())
    assert set(FACTS) == {cases.name_of(n, a, k) for n, a, kinds in cases.METRICS for k in kinds}


@pytest.mark.parametrize("name", sorted({n for n, _, _ in cases.METRICS}))
def test_round_trip_and_reset(name):
    arguments, kinds = next((a, k) for n, a, k in cases.METRICS if n == name)
    metric = counted(name, arguments, kinds[0], cases.batches(kinds[0], "plain"))
    config = json.loads(json.dumps(metrics.serialize(metric)))
    assert config["module"] == "keras.metrics"
    again = metrics.deserialize(config)
    assert type(again) is type(metric)
    assert again.get_config() == metric.get_config()
    for true, pred, _, _ in cases.batches(kinds[0]):
        args = (pred,) if name in cases.OF_VALUES else (true, pred)
        again.update_state(*args)
    close(again.result(), np.asarray(metric.result()))
    metric.reset_state()
    assert all(not np.any(v.numpy()) for v in metric.variables)
    for true, pred, _, _ in cases.batches(kinds[0]):
        args = (pred,) if name in cases.OF_VALUES else (true, pred)
        metric.update_state(*args)
    close(metric.result(), np.asarray(again.result()))


@pytest.mark.parametrize("name", ["AUC", "Precision", "F1Score", "R2Score", "MeanSquaredError"])
def test_copies_count_on_their_own(name):
    arguments, kinds = next((a, k) for n, a, k in cases.METRICS if n == name)
    metric = counted(name, arguments, kinds[0], cases.batches(kinds[0], "plain")[:1])
    for other in (copy.deepcopy(metric), pickle.loads(pickle.dumps(metric))):
        before = np.asarray(metric.result())
        close(other.result(), before)
        other.reset_state()
        close(metric.result(), before)
        assert len(other.variables) == len(metric.variables)


# --- against scikit-learn ------------------------------------------------------------------------


def test_auc_nears_the_true_area():
    true, pred, weights = cases.inputs("flat")
    expected = sklearn_metrics.roc_auc_score(true, pred, sample_weight=weights)
    result = metrics.AUC(num_thresholds=5000)(true, pred, sample_weight=weights)
    close(result, expected, rtol=1e-3)


def test_scores_are_scikit_learn_s():
    true, pred, weights = cases.inputs("flat")
    hard = pred > 0.5
    close(
        metrics.Precision()(true, pred, weights),
        sklearn_metrics.precision_score(true, hard, sample_weight=weights),
    )
    close(
        metrics.Recall()(true, pred, weights),
        sklearn_metrics.recall_score(true, hard, sample_weight=weights),
    )
    true, pred, weights = cases.inputs("onehot")
    for average in (None, "micro", "macro", "weighted"):
        close(
            metrics.FBetaScore(average=average, beta=2.0)(true, pred, weights),
            sklearn_metrics.fbeta_score(
                true.argmax(1), pred.argmax(1), beta=2.0, average=average, sample_weight=weights
            ),
        )


def test_r2_far_from_zero():
    # Sums of squares in float32 would lose all digits here.
    rng = np.random.RandomState(0)
    true = rng.normal(size=(200, 1)) + 3000
    pred = true + rng.normal(size=(200, 1)) * 0.5
    true, pred = true.astype("float32"), pred.astype("float32")
    metric = metrics.R2Score()
    for start in range(0, 200, 32):
        metric.update_state(true[start : start + 32], pred[start : start + 32])
    expected = sklearn_metrics.r2_score(true.astype("float64"), pred.astype("float64"))
    close(metric.result(), expected, rtol=1e-4)


def test_iou_is_scikit_learn_s():
    true, pred, _ = cases.inputs("labels")
    close(
        metrics.MeanIoU(4)(true, pred),
        sklearn_metrics.jaccard_score(true, pred, average="macro"),
    )


# --- means and sums ------------------------------------------------------------------------------


def test_means_weigh_samples_not_batches():
    mean = metrics.Mean()
    mean.update_state([1.0, 2.0, 3.0])
    mean.update_state(10.0)
    assert mean.result().item() == 4.0
    mean.update_state([0.0, 0.0], sample_weight=[0.0, 4.0])
    assert mean.result().item() == 2.0


def test_a_sample_counts_once_however_long_it_is():
    mean = metrics.Mean()
    mean.update_state(np.ones((1, 10)))
    mean.update_state(np.zeros((1, 2)))
    assert mean.result().item() == 0.5
    assert mean.count.numpy() == 2


def test_sums():
    total = metrics.Sum()
    total.update_state([[1.0, 2.0], [3.0, 4.0]])
    total.update_state([[1.0, 2.0], [3.0, 4.0]], sample_weight=[1.0, 0.0])
    assert total.result().item() == 13.0


def test_means_start_at_zero():
    assert metrics.Mean().result().item() == 0.0


def test_weights_that_do_not_fit_are_named():
    with pytest.raises(ShapeError, match=r"\(3,\).*\(4,\)"):
        metrics.Mean()([1.0, 2.0, 3.0, 4.0], sample_weight=[1.0, 2.0, 3.0])


def test_masked_predictions_do_not_count():
    pred = masked([[1.0], [2.0], [9.0]], [True, True, False])
    assert metrics.MeanSquaredError()(np.zeros((3, 1)), pred).item() == 2.5
    weighted = metrics.MeanSquaredError()(np.zeros((3, 1)), pred, sample_weight=[3.0, 1.0, 1.0])
    assert weighted.item() == 1.75


def test_a_function_of_one_s_own():
    metric = metrics.MeanMetricWrapper(lambda t, p, k: ops.absolute(t - p) * k, name="own", k=2.0)
    metric.update_state(np.float32([1, 2]), np.float32([1, 4]))
    assert metric.result().item() == 2.0
    assert metric.name == "own"


def test_a_wrapper_s_round_trip():
    created = metrics.MeanMetricWrapper(metrics.huber, name="own", delta=2.0)
    again = metrics.deserialize(json.loads(json.dumps(metrics.serialize(created))))
    assert again._fn is metrics.huber
    assert again.get_config() == created.get_config()


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("mse", "MeanSquaredError"), ("MSE", "MeanSquaredError"), ("mae", "MeanAbsoluteError"),
        ("MAPE", "MeanAbsolutePercentageError"), ("msle", "MeanSquaredLogarithmicError"),
        ("bce", "BinaryCrossentropy"), ("accuracy", "Accuracy"), ("auc", "AUC"), ("AUC", "AUC"),
        ("binary_accuracy", "BinaryAccuracy"), ("f1_score", "F1Score"), ("Precision", "Precision"),
        ("root_mean_squared_error", "RootMeanSquaredError"), ("hinge", "Hinge"),
    ],
)  # fmt: skip
def test_names(name, kind):
    assert type(metrics.get(name)) is getattr(metrics, kind)


def test_get():
    assert metrics.get(None) is None
    assert isinstance(metrics.get(metrics.AUC), metrics.AUC)
    created = metrics.AUC()
    assert metrics.get(created) is created
    assert metrics.get(max) is max
    assert metrics.get({"class_name": "AUC", "config": {"curve": "PR"}}).curve == "PR"


@pytest.mark.parametrize("name", ["acuracy", "binary_acc", "f1_scores", "precission"])
def test_unknown_names_list_the_nearest(name):
    with pytest.raises(UnknownNameError, match="Did you mean"):
        metrics.get(name)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: metrics.AUC(curve="RCO"), "curve.*ROC"),
        (lambda: metrics.AUC(num_thresholds=1), "num_thresholds"),
        (lambda: metrics.AUC(num_labels=3), "multi_label"),
        (lambda: metrics.AUC(thresholds=[0.5, 1.5]), "1.5"),
        (lambda: metrics.Precision(thresholds=-0.1), "-0.1"),
        (lambda: metrics.Precision(thresholds=[0.1, None]), "None"),
        (lambda: metrics.RecallAtPrecision(1.5), "precision.*1.5"),
        (lambda: metrics.FBetaScore(beta=-1.0), "beta"),
        (lambda: metrics.FBetaScore(average="makro"), "macro"),
        (lambda: metrics.F1Score(threshold=3), "threshold"),
        (lambda: metrics.IoU(2, [2]), "target class 2"),
        (lambda: metrics.R2Score(num_regressors=-1), "num_regressors"),
        (lambda: metrics.R2Score(class_aggregation="mean"), "class_aggregation"),
    ],
)
def test_arguments_are_checked(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize(
    ("metric", "true", "pred"),
    [
        (metrics.MeanSquaredError, (3,), (3, 4)),
        (metrics.BinaryAccuracy, (3, 2), (3, 4)),
        (metrics.CategoricalAccuracy, (3,), (3, 4)),
        (metrics.SparseCategoricalAccuracy, (2,), (3, 4)),
        (metrics.SparseCategoricalAccuracy, (3, 4), (3, 4)),
        (metrics.Precision, (3, 2), (3, 4)),
        (metrics.AUC, (3,), (3, 4)),
        (metrics.F1Score, (3,), (3, 4)),
        (metrics.R2Score, (3, 2), (3, 4)),
    ],
)
def test_shapes_that_do_not_fit_are_named(metric, true, pred):
    with pytest.raises(ShapeError) as error:
        metric()(np.ones(true), np.ones(pred))
    assert str(true) in str(error.value)
    assert str(pred) in str(error.value)


def test_fractions_of_weights_are_not_lost_silently():
    with pytest.warns(UserWarning, match="lose their fractions"):
        metrics.MeanIoU(2)([0, 1], [0, 1], sample_weight=[0.5, 0.5])
    result = metrics.MeanIoU(2, dtype="float32")([0, 1], [0, 0], sample_weight=[0.5, 1.5])
    assert result.item() == 0.125


# --- the base class ------------------------------------------------------------------------------


class Largest(Metric):
    def __init__(self, name=None):
        super().__init__(name=name)
        self.seen = self.add_variable((), initializer=-1.0, name="seen")
        self.calls = Variable(0.0, trainable=False)
        self.inner = metrics.Mean()

    def update_state(self, values):
        self.seen.assign(ops.maximum(self.seen, ops.max(values)))
        self.calls.assign_add(1.0)
        self.inner.update_state(values)

    def result(self):
        return {"largest": self.seen.value, "mean": self.inner.result()}


def test_a_metric_of_one_s_own():
    metric = Largest()
    assert metric.name == "largest"
    assert len(metric.variables) == 4
    metric.update_state([3.0, 1.0])
    assert {k: float(v) for k, v in metric.result().items()} == {"largest": 3.0, "mean": 2.0}
    metric.reset_state()
    assert [float(v) for v in metric.variables] == [-1.0, 0.0, 0.0, 0.0]


def test_stateless_methods_change_nothing():
    mean = metrics.Mean()
    state = [v.value for v in mean.variables]
    state = mean.stateless_update_state(state, [2.0, 4.0])
    assert mean.stateless_result(state).item() == 3.0
    assert mean.result().item() == 0.0
    assert [float(v) for v in mean.stateless_reset_state()] == [0.0, 0.0]


def test_undefined_methods_say_so():
    with pytest.raises(NotImplementedError, match="update_state"):
        Metric().update_state()
    with pytest.raises(NotImplementedError, match="result"):
        Metric().result()


def test_names_count_up():
    kerasish.utils.clear_session()
    assert [metrics.AUC().name for _ in range(3)] == ["auc", "auc_1", "auc_2"]
    assert metrics.Mean().name == metrics.Mean().name == "mean"


def test_binary_accuracy_weighs_single_entries():
    result = metrics.binary_accuracy([[1, 0], [1, 1]], [[0.8, 0.3], [0.2, 0.9]])
    assert result.tolist() == [[1.0, 1.0], [0.0, 1.0]]
    metric = metrics.BinaryAccuracy()
    metric.update_state([[1, 0], [1, 1]], [[0.8, 0.3], [0.2, 0.9]], [[1, 0], [3, 0]])
    assert metric.result().item() == 0.25


def test_targets_of_an_ignored_class_weigh_nothing():
    metric = metrics.SparseCategoricalCrossentropy(ignore_class=2)
    metric.update_state([2, 0], [[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]], [5.0, 2.0])
    close(metric.result(), np.log(2.0))


@pytest.mark.parametrize("name", ["Precision", "Recall", "SensitivityAtSpecificity"])
def test_one_class_of_predictions_without_classes_is_an_error(name):
    first = {"specificity": 0.5} if "At" in name else {}
    metric = getattr(metrics, name)(class_id=0, **first)
    with pytest.raises(ShapeError, match="class_id=0"):
        metric.update_state([0, 1, 1], [0.3, 0.6, 0.7])


def test_r2_wants_rows_of_outputs():
    metric = metrics.R2Score()
    with pytest.raises(ShapeError, match=r"\(n, outputs\)"):
        metric.update_state([1.0, 2.0], [1.0, 2.5])
    metric.update_state([1.0, 2.0], [[1.0], [2.0]])
    assert metric.result().item() == 1.0


@pytest.mark.parametrize(
    ("method", "heights"),
    [("interpolation", (0.25, 0.75)), ("minoring", (0.0, 0.5)), ("majoring", (0.5, 1.0))],
)
def test_area_under_the_gains_of_precision_and_recall(method, heights):
    # At thresholds below 0, at 0.5 and above 1: tp 4, 3, 0; fn 0, 1, 4; fp 2, 0.75, 0. There are
    # twice as many ones as zeros: the gains of recall are 1, 1 - 2 * 1 / 3 and 0; those of
    # precision 0, 1 - 2 * 0.75 / 3 and 1.
    target, pred = [1, 1, 1, 1, 0, 0], [0.4, 0.6, 0.7, 0.9, 0.8, 0.2]
    weights = [1, 1, 1, 1, 0.75, 1.25]
    metric = metrics.AUC(num_thresholds=3, curve="PRGAIN", summation_method=method)
    close(metric(target, pred, weights), np.dot((2 / 3, 1 / 3), heights))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("TopKCategoricalAccuracy", {"k": 3}),
        ("SparseTopKCategoricalAccuracy", {"k": 3, "from_sorted_ids": True}),
        ("BinaryAccuracy", {"threshold": 0.3}),
        ("SensitivityAtSpecificity", {"specificity": 0.3}),
        ("SpecificityAtSensitivity", {"sensitivity": 0.3}),
        ("PrecisionAtRecall", {"recall": 0.3}),
        ("RecallAtPrecision", {"precision": 0.3}),
    ],
)
def test_arguments_are_attributes(name, arguments):
    metric = getattr(metrics, name)(**arguments)
    assert {key: getattr(metric, key) for key in arguments} == arguments


def test_variables_and_metrics_are_found_in_lists_and_dicts():
    metric = metrics.Sum()
    metric.more = {"a": [Variable(1.0)], "b": (metrics.Mean(), {"c": metrics.Sum()})}
    assert len(metric.variables) == 5
    metric.more["b"][0].update_state([4.0])
    metric.reset_state()
    assert [float(v) for v in metric.variables] == [0.0] * 5


def test_the_confusion_matrix_is_total_cm():
    metric = metrics.MeanIoU(num_classes=2)
    metric.update_state([0, 0, 1], [0, 1, 1])
    assert metric.total_cm.numpy().tolist() == [[1, 1], [0, 1]]


@pytest.mark.parametrize("name", ["Precision", "Recall"])
@pytest.mark.parametrize("class_id", [0, 1, 2])
def test_a_class_is_weighed_by_its_own_weights(name, class_id):
    rng = np.random.default_rng(4)
    true, pred = rng.integers(0, 2, (20, 3)), rng.uniform(size=(20, 3))
    weights = rng.uniform(0.1, 3.0, (20, 3))
    result = getattr(metrics, name)(class_id=class_id)(true, pred, sample_weight=weights)
    expected = getattr(sklearn_metrics, f"{name.lower()}_score")(
        true[:, class_id], pred[:, class_id] > 0.5, sample_weight=weights[:, class_id]
    )
    close(result, expected)


def test_a_class_beyond_the_last_is_refused():
    with pytest.raises(ValueError, match=r"class_id=3 .* shape \(4, 3\) have 3 classes"):
        metrics.Recall(class_id=3)(np.eye(4, 3), np.eye(4, 3))
