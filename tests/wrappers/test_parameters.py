"""Bad settings: every error names the parameter, and what would be accepted."""

import inspect

import numpy as np
import pytest

from kerasish.wrappers import KerasClassifier, KerasRegressor
from kerasish.wrappers.parameters import ACCEPTED

X, Y = np.eye(6), np.array([0, 1, 0, 1, 0, 1])


@pytest.mark.parametrize("kind", [KerasClassifier, KerasRegressor])
@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("batch_size", 0, "1 or more"),
        ("batch_size", 2.5, "1 or more"),
        ("batch_size", "all", "1 or more"),
        ("batch_size", True, "1 or more"),
        ("batch_size", [1, 2], "1 or more"),
        ("validation_batch_size", -1, "1 or more"),
        ("epochs", 0, "1 or more"),
        ("epochs", "many", "1 or more"),
        ("validation_split", 1.0, "less than 1"),
        ("validation_split", -0.1, "less than 1"),
        ("validation_split", "half", "less than 1"),
        ("verbose", "loud", "0, 1, 2"),
        ("shuffle", "rows", "batch"),
        ("warm_start", "yes", "True or False"),
        ("run_eagerly", None, "True or False"),
        ("random_state", "seed", "seed"),
        ("hidden_layer_sizes", (0,), "1 or more"),
        ("hidden_layer_sizes", ("a",), "1 or more"),
        ("activation", "reluu", "relu"),
        ("alpha", -1, "0 or more"),
        ("alpha", "big", "0 or more"),
        ("optimizer", "adamm", "adam"),
        ("loss", "msee", "mse"),
        ("metrics", ["acuracy"], "accuracy"),
        ("memory", 3, "directory"),
    ],
)
def test_bad_values_are_named(kind, name, value, told):
    with pytest.raises((ValueError, TypeError)) as raised:
        kind(**{name: value}).fit(X, Y)
    assert told in str(raised.value)
    named = name.rstrip("s") in str(raised.value) or repr(value) in str(raised.value)
    assert named, str(raised.value)


@pytest.mark.parametrize("value", ["equal", 3, (1, 2)])
def test_bad_class_weights_are_named(value):
    with pytest.raises(ValueError, match="class_weight: expected"):
        KerasClassifier(class_weight=value).fit(X, Y)


def test_what_is_accepted_is_about_parameters():
    names = set(inspect.signature(KerasClassifier).parameters)
    assert set(ACCEPTED) <= names


@pytest.mark.parametrize("callbacks", [3, "early_stopping", [object()]])
def test_bad_callbacks_are_named(callbacks):
    with pytest.raises((TypeError, ValueError), match="callbacks"):
        KerasClassifier(callbacks=callbacks, epochs=1).fit(X, Y)
