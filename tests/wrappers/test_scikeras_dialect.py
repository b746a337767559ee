"""What SciKeras documents: classes, routed parameters everywhere, subclasses, encoders."""

import inspect

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import kerasish as keras
from kerasish.errors import UnknownNameError
from kerasish.wrappers import KerasClassifier, KerasRegressor


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return StandardScaler().fit_transform(X), y


def stack(meta, hidden=8):
    return keras.Sequential(
        [
            keras.Input((meta["n_features_in_"],)),
            keras.layers.Dense(hidden, activation="relu"),
            keras.layers.Dense(meta["n_outputs_expected_"], activation="softmax"),
        ]
    )


class Net(keras.Model):
    def __init__(self, meta, width=8):
        super().__init__()
        self.hidden = keras.layers.Dense(width, activation="relu")
        self.last = keras.layers.Dense(meta["n_classes_"], activation="softmax")

    def call(self, x):
        return self.last(self.hidden(x))


def test_a_model_class_is_built(iris):
    fitted = KerasClassifier(Net, model__width=5, random_state=0, epochs=2).fit(*iris)
    assert isinstance(fitted.model_, Net) and fitted.model_.hidden.units == 5
    assert fitted.predict_proba(iris[0]).shape == (150, 3)


def test_meta_tells_what_scikeras_tells(iris):
    seen = {}

    def build(meta):
        seen.update(meta)
        return stack(meta)

    KerasClassifier(build, epochs=1).fit(*iris)
    assert {k: seen[k] for k in ("n_classes_", "target_type_", "n_outputs_", "n_features_in_")} == {
        "n_classes_": 3, "target_type_": "multiclass", "n_outputs_": 1, "n_features_in_": 4,
    }  # fmt: skip
    assert seen["X_shape_"] == (150, 4) and seen["n_outputs_expected_"] == 3
    assert seen["classes_"].tolist() == [0, 1, 2] and seen["y_ndim_"] == 1
    assert {"X_dtype_", "y_dtype_"} <= set(seen)


def test_functions_may_compile_with_what_they_are_given(iris):
    def build(meta, compile_kwargs, hidden=4):
        model = stack(meta, hidden)
        model.compile(**compile_kwargs)
        return model

    fitted = KerasClassifier(
        build, optimizer=keras.optimizers.SGD, optimizer__learning_rate=0.125, hidden=6,
        loss="sparse_categorical_crossentropy", metrics=["accuracy"], epochs=1,
    ).fit(*iris)  # fmt: skip
    assert fitted.model_.layers[0].units == 6
    assert float(fitted.model_.optimizer.learning_rate) == 0.125
    assert set(fitted.history_) == {"loss", "accuracy"}


def test_losses_take_routed_parameters(iris):
    def logits(meta):
        return keras.Sequential([keras.Input((4,)), keras.layers.Dense(meta["n_classes_"])])

    fitted = KerasClassifier(
        logits, loss=keras.losses.SparseCategoricalCrossentropy, loss__from_logits=True, epochs=1
    ).fit(*iris)
    assert fitted.model_.loss.get_config()["from_logits"]
    np.testing.assert_allclose(fitted.predict_proba(iris[0]).sum(axis=1), 1)
    with pytest.raises(UnknownNameError, match="loss__from_logits"):
        fitted.set_params(loss__from_logit=True).fit(*iris)


@pytest.mark.parametrize(
    ("metrics", "routed"),
    [
        ([keras.metrics.TopKCategoricalAccuracy], {"metrics__k": 2}),
        ([keras.metrics.TopKCategoricalAccuracy(k=3)], {"metrics__0__k": 2}),
        (["accuracy", "top_k_categorical_accuracy"], {}),
        (keras.metrics.TopKCategoricalAccuracy, {"metrics__k": 2, "metrics__name": "top"}),
    ],
)
def test_metrics_take_routed_parameters(iris, metrics, routed):
    given = {"loss": "categorical_crossentropy", "metrics": metrics, "epochs": 1, **routed}
    fitted = KerasClassifier(stack, **given).fit(*iris)
    assert len(fitted.history_) == 1 + (len(metrics) if isinstance(metrics, list) else 1)
    if routed:
        tracker = fitted.model_.training_program.scores.metrics[0]
        assert tracker.get_config()["k"] == 2 and tracker is not metrics
    with pytest.raises(UnknownNameError, match="metrics__k"):
        clone(fitted).set_params(
            metrics=[keras.metrics.TopKCategoricalAccuracy], metrics__kk=1
        ).fit(*iris)


def test_several_outputs_take_losses_by_name():
    X = np.random.default_rng(0).normal(size=(60, 3))
    Y = np.stack([X[:, 0], 2 * X[:, 1]], axis=1)

    def build():
        inputs = keras.Input((3,))
        heads = {n: keras.layers.Dense(1, name=n)(inputs) for n in ("a", "b")}
        return keras.Model(inputs, list(heads.values()))

    fitted = KerasRegressor(
        build, loss=["mse", keras.losses.Huber], loss__1__delta=0.5, epochs=40, random_state=0,
        optimizer="adam", optimizer__learning_rate=0.05,
    ).fit(X, Y)  # fmt: skip
    assert fitted.model_.loss[1].get_config()["delta"] == 0.5 and fitted.score(X, Y) > 0.8


@pytest.mark.parametrize(
    ("callbacks", "routed"),
    [
        (keras.callbacks.EarlyStopping, {"callbacks__patience": 7}),
        ([keras.callbacks.EarlyStopping], {"callbacks__0__patience": 7}),
        ({"stop": keras.callbacks.EarlyStopping}, {"callbacks__stop__patience": 7}),
        ([keras.callbacks.EarlyStopping()], {"callbacks__patience": 7}),
    ],
)
def test_callbacks_take_routed_parameters(iris, callbacks, routed, monkeypatch):
    seen = []
    monkeypatch.setattr(
        keras.callbacks.EarlyStopping, "on_train_begin",
        lambda self, logs=None: seen.append((self.patience, self.monitor)),
    )  # fmt: skip
    own = keras.callbacks.EarlyStopping.on_epoch_end
    monkeypatch.setattr(keras.callbacks.EarlyStopping, "on_epoch_end", lambda *a, **k: None)
    KerasClassifier(stack, epochs=1, callbacks=callbacks, callbacks__monitor="loss", **routed).fit(
        *iris
    )
    assert seen == [(7, "loss")] and inspect.isfunction(own)


def test_fit_and_predict_take_routed_parameters(iris, monkeypatch):
    seen = {}
    plain = keras.Model.predict

    def predict(self, x, batch_size=None, verbose="auto", steps=None, callbacks=None):
        seen["batch_size"] = batch_size
        return plain(self, x, batch_size=batch_size, verbose=verbose)

    monkeypatch.setattr(keras.Model, "predict", predict)
    fitted = KerasClassifier(stack, fit__epochs=3, predict__batch_size=17).fit(*iris)
    fitted.predict(iris[0])
    assert fitted.n_iter_ == 3 and seen["batch_size"] == 17


def test_initialize_makes_an_untrained_model(iris):
    fresh = KerasClassifier(stack, random_state=0, epochs=3).initialize(*iris)
    assert fresh.current_epoch == 0 and fresh.predict(iris[0]).shape == (150,)
    weights = fresh.model_.get_weights()
    again = KerasClassifier(stack, random_state=0, epochs=3).initialize(*iris)
    for one, other in zip(weights, again.model_.get_weights()):
        np.testing.assert_array_equal(one, other)
    assert fresh.partial_fit(*iris).current_epoch == 1
    assert fresh.fit(*iris).current_epoch == 3


class MLPClassifier(KerasClassifier):
    def __init__(self, hidden=(8,), optimizer="adam", **kwargs):
        super().__init__(optimizer=optimizer, **kwargs)
        self.hidden = hidden

    def _keras_build_fn(self, compile_kwargs):
        model = keras.Sequential([keras.Input((self.n_features_in_,))])
        for units in self.hidden:
            model.add(keras.layers.Dense(units, activation="relu"))
        model.add(keras.layers.Dense(self.n_outputs_expected_, activation="softmax"))
        model.compile(**compile_kwargs)
        return model


def test_subclasses_build_their_own(iris):
    created = MLPClassifier((5, 6), epochs=2, random_state=3, optimizer__learning_rate=0.01)
    copied = clone(created)
    assert copied.get_params() == created.get_params()
    assert copied.epochs == 2 and copied.hidden == (5, 6) and copied.random_state == 3
    assert [layer.units for layer in copied.fit(*iris).model_.layers] == [5, 6, 3]
    assert copied.set_params(hidden=(4,), batch_size=50).fit(*iris).model_.layers[0].units == 4


class TwoInputs(KerasClassifier):
    @property
    def feature_encoder(self):
        return FunctionTransformer(split)


def split(X):
    return [X[:, :1].astype("float32"), X[:, 1:].astype("float32")]


def test_feature_encoders_serve_models_of_several_inputs(iris):
    def build(meta):
        one, rest = keras.Input((1,)), keras.Input((3,))
        joined = keras.layers.Concatenate()([one, rest])
        return keras.Model([one, rest], keras.layers.Dense(3, activation="softmax")(joined))

    X, y = iris
    fitted = TwoInputs(
        build, epochs=30, random_state=0, optimizer="adam", optimizer__learning_rate=0.05
    ).fit(X, y, sample_weight=np.arange(150) % 3)
    assert fitted.score(X, y) > 0.85 and fitted.n_features_in_ == 4


def test_validation_data_are_encoded_like_the_rest(iris):
    X, y = iris
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    fitted = KerasClassifier(random_state=0, epochs=3).fit(
        X[::2], names[::2], validation_data=(X[1::2], names[1::2])
    )
    assert len(fitted.history_["val_loss"]) == 3
    with pytest.raises(ValueError, match="not among the known classes"):
        fitted.fit(X, names, validation_data=(X, np.repeat("rose", 150)))
    scale = KerasRegressor(random_state=0, epochs=30).fit(
        X, 1000.0 * y, validation_data=(X, 1000.0 * y)
    )
    assert scale.history_["val_loss"][-1] < 1  # in the units that are trained on
