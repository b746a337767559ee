"""Estimators inside scikit-learn's pipelines as ONNX, by skl2onnx."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import kerasish
from kerasish import layers
from kerasish.wrappers import KerasClassifier, KerasRegressor, register_onnx_converters

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
skl2onnx = pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")

RNG = np.random.default_rng(0)
X = RNG.normal(3, 2, (60, 4)).astype("float32")


def logits(meta: Any) -> Any:
    model = kerasish.Sequential([kerasish.Input((4,)), layers.Dense(meta["n_classes_"])])
    model.compile("adam", kerasish.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def run(pipeline: Any, **options: Any) -> list[Any]:
    register_onnx_converters()
    proto = skl2onnx.to_onnx(pipeline, X[:1], target_opset=18, options=options or None)
    options_of_session = onnxruntime.SessionOptions()
    options_of_session.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options_of_session, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, {session.get_inputs()[0].name: X}))


@pytest.mark.parametrize("labels", [[0, 1], [3, 5, 9], ["no", "perhaps", "yes"]])
@pytest.mark.parametrize("model", [None, logits])
def test_classifiers_in_pipelines(labels: list[Any], model: Any) -> None:
    y = np.array(labels)[RNG.integers(0, len(labels), len(X))]
    pipeline = make_pipeline(StandardScaler(), KerasClassifier(model, epochs=2, random_state=0))
    pipeline.fit(X, y)
    found, shares = run(pipeline, zipmap=False)
    np.testing.assert_allclose(shares, pipeline.predict_proba(X), atol=1e-5)
    sure = np.sort(pipeline.predict_proba(X), axis=1)[:, -2:] @ [-1, 1] > 1e-4
    assert (np.asarray(found)[sure] == pipeline.predict(X)[sure]).all() and sure.sum() > 40


def test_regressors_in_pipelines() -> None:
    y = X @ [1.0, 2.0, -1.0, 0.5] * 100 + 1000
    pipeline = make_pipeline(StandardScaler(), KerasRegressor(epochs=2, random_state=0))
    pipeline.fit(X, y)
    (found,) = run(pipeline)
    expected = pipeline.predict(X)
    np.testing.assert_allclose(found.reshape(-1), expected, rtol=1e-5)


def test_what_is_refused() -> None:
    y = RNG.integers(0, 2, (len(X), 3))
    several = KerasClassifier(epochs=1, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="only classifiers with one column of labels"):
        run(several)
    one = KerasClassifier(epochs=1, random_state=0).fit(X, y[:, 0])
    register_onnx_converters()
    with pytest.raises(ValueError, match="target_opset=15; 18 and later"):
        skl2onnx.to_onnx(one, X[:1], target_opset=15)
