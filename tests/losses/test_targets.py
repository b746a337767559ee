"""Loss functions say which targets they take, and the checks of `fit` ask."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import kerasish as keras
from kerasish import layers, losses
from kerasish.losses.targets import takes, targets_of

FUNCTIONS = {
    function
    for name, function in vars(losses).items()
    if callable(function) and not isinstance(function, type) and targets_of(function)
}


def test_every_built_in_function_says_which_targets_it_takes():
    wrapped = {
        losses.get(name).fn
        for name, value in vars(losses).items()
        if isinstance(value, type) and issubclass(value, losses.LossFunction)
        and name not in ("LossFunction", "PlainLoss")
    }  # fmt: skip
    assert len(wrapped) >= 22
    assert wrapped <= FUNCTIONS


def fit(loss, y):
    x = np.zeros((8, 3), "float32")
    model = keras.Sequential([keras.Input((3,)), layers.Dense(2, activation="softmax")])
    model.compile("sgd", loss)
    model.fit(x, y, batch_size=8, verbose=0)


def test_a_function_around_a_built_in_one_is_not_taken_for_it():
    @functools.wraps(losses.sparse_categorical_crossentropy)
    def shifted(y_true, y_pred):
        return losses.sparse_categorical_crossentropy(y_true - 1, y_pred)

    assert targets_of(shifted) is None
    fit(shifted, np.arange(8) % 2 + 1)


def test_a_loss_of_the_user_s_is_checked_as_it_says():
    @takes("classes")
    def ranked(y_true, y_pred):
        return losses.sparse_categorical_crossentropy(y_true, y_pred)

    fit(ranked, np.arange(8) % 2)
    with pytest.raises(ValueError, match="ranked takes class numbers 0 to 1 .* Count classes"):
        fit(ranked, np.arange(8) % 2 + 1)


def test_objects_that_cannot_be_hashed_take_what_they_like():
    class Call:
        __hash__ = None

        def __call__(self, y_true, y_pred):
            return losses.mean_squared_error(y_true, y_pred)

    assert targets_of(Call()) is None
    fit(Call(), np.zeros((8, 2), "float32"))
