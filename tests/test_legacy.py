"""The functions of Keras 2's backend."""

from __future__ import annotations

import importlib
import inspect

import numpy as np
import pytest

import kerasish
from kerasish import backend, ops
from kerasish.errors import ShapeError

legacy = importlib.import_module("kerasish.legacy")
KERAS_2 = """
abs all any argmax argmin arange batch_dot batch_flatten batch_get_value batch_set_value bias_add
binary_crossentropy cast cast_to_floatx categorical_crossentropy clip concatenate constant cos
count_params cumprod cumsum dot dropout dtype elu equal eval exp expand_dims eye flatten foldl foldr
gather get_value gradients greater greater_equal hard_sigmoid in_top_k int_shape is_sparse
l2_normalize less less_equal log map_fn max maximum mean min minimum moving_average_update ndim
not_equal one_hot ones ones_like permute_dimensions pow prod random_bernoulli random_normal
random_uniform relu repeat repeat_elements reshape reverse round set_value shape sigmoid sign sin
softmax softplus softsign sparse_categorical_crossentropy sqrt square squeeze stack std
stop_gradient sum switch tanh tile to_dense transpose truncated_normal update update_add update_sub
var variable zeros zeros_like
""".split()


def test_the_backend_finds_them():
    assert [name for name in KERAS_2 if not callable(getattr(backend, name, None))] == []
    with pytest.raises(AttributeError, match="'kerasish.backend' has no attribute 'rnn'"):
        _ = backend.rnn


def test_their_first_arguments_work_on_symbolic_tensors():
    x = kerasish.Input((3,))
    model = kerasish.Model(x, backend.mean(backend.square(backend.relu(x, alpha=0.1)), axis=-1))
    assert model.predict(np.float32([[-10.0, 1.0, 2.0]]), verbose=0) == pytest.approx([2.0])


@pytest.mark.parametrize(
    ("shapes", "axes", "equation"),
    [
        (((2, 3, 4), (2, 4, 5)), None, "bij,bjk->bik"),
        (((2, 3, 4), (2, 4)), None, "bij,bj->bi"),
        (((2, 4, 3), (2, 4, 5)), 1, "bji,bjk->bik"),
        (((2, 3, 4), (2, 5, 4)), (2, 2), "bij,bkj->bik"),
        (((2, 3, 4, 5), (2, 4, 6)), (2, 1), "bijl,bjk->bilk"),
    ],
)
def test_batch_dot(shapes, axes, equation):
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=s).astype("float32") for s in shapes)
    expected = np.einsum(equation, x, y)
    np.testing.assert_allclose(
        backend.batch_dot(x, y, axes).numpy(), expected, rtol=1e-5, atol=1e-6
    )


def test_batch_dot_of_vectors_keeps_an_axis():
    x = np.ones((3, 4), "float32")
    assert backend.batch_dot(x, x).tolist() == [[4.0]] * 3
    with pytest.raises(ShapeError, match="at least 2 axes"):
        backend.batch_dot(np.ones(3), np.ones((3, 2)))


def test_switch_by_rows_and_by_functions():
    a, b = ops.ones((2, 3)), ops.zeros((2, 3))
    assert backend.switch([True, False], a, b).tolist() == [[1.0] * 3, [0.0] * 3]
    assert float(backend.switch(False, lambda: 1.0, lambda: 2.0)) == 2.0


def test_a_constraint_of_a_variable_is_kept():
    v = backend.variable([-1.0, 2.0], constraint=kerasish.constraints.NonNeg())
    assert isinstance(v.constraint, kerasish.constraints.NonNeg)


def test_gradients_say_what_to_use():
    with pytest.raises(NotImplementedError, match="GradientTape"):
        backend.gradients(None, None)


def test_every_function_has_a_docstring():
    assert all(inspect.getdoc(getattr(legacy, name)) for name in KERAS_2)
