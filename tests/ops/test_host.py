"""Ops that call Python functions of arrays: same numbers on both engines, checked results."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import kerasish
from kerasish import ops
from kerasish.errors import ShapeError
from kerasish.ops.host import HostOp


def cube():
    gradient = HostOp("cube_gradient", lambda g, x: [3 * g * x * x], lambda g, x: [x], 1)
    return HostOp("cube", lambda x: [x**3], lambda x: [x], 1, lambda g, y, x: [gradient([g, x])])


class Cube(kerasish.layers.Layer):
    """Counts how often NumPy was called."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.op = cube()
        self.scale = self.add_weight(shape=(3,), initializer="ones", name="scale")

    def call(self, x):
        return self.op([x * self.scale])


def test_training_through_a_python_function(engine, recwarn):
    x = np.linspace(-1, 1, 30, dtype="float32").reshape(10, 3)
    inputs = kerasish.Input((3,))
    layer = Cube()
    model = kerasish.Model(inputs, ops.sum(layer(inputs), axis=-1))
    model.compile(kerasish.optimizers.SGD(0.1), "mse")
    expected = np.ones(3)
    for _ in range(3):
        model.train_on_batch(x, np.zeros(10, "float32"))
        y = ((x * expected) ** 3).sum(-1, keepdims=True)
        slope = 3 * (x * expected) ** 2 * x
        expected = expected - 0.1 * (2 * y * slope).mean(0)
    np.testing.assert_allclose(layer.scale.numpy(), expected, rtol=1e-5)
    history = model.fit(x, np.zeros(10, "float32"), batch_size=4, epochs=2, verbose=0)
    assert history.history["loss"][1] < history.history["loss"][0]
    assert model.predict(x, verbose=0).shape == (10,)
    # A Python function is what was asked for: nothing warns that it is not native.
    assert not [w for w in recwarn if "no native code" in str(w.message)]


def test_no_second_derivative_instead_of_a_wrong_one(engine):
    op = cube()
    first = kerasish.grad(lambda x: ops.sum(op([x])))
    np.testing.assert_allclose(first(np.float32([2.0])).numpy(), [12.0])
    with pytest.raises(NotImplementedError, match="cube_gradient has no derivative"):
        kerasish.grad(lambda x: ops.sum(first(x)))(np.float32([2.0]))


def test_several_outputs_and_symbolic_shapes(engine):
    op = HostOp("parts", lambda x: [x.sum(1), x[:, ::2].astype("int32")],
                lambda x: [type(x)((x.shape[0],), x.dtype),
                           type(x)((x.shape[0], (x.shape[1] + 1) // 2), "int32")], 2)  # fmt: skip
    spec = kerasish.KerasTensor((None, 5))
    total, half = op([spec])
    assert (total.shape, half.shape, half.dtype) == ((None,), (None, 3), "int32")
    total, half = op([np.ones((2, 5), "float32")])
    assert total.tolist() == [5.0, 5.0] and half.tolist() == [[1, 1, 1]] * 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: [x[:1]], r"output 0 has shape \(1,\)"),
        (lambda x: [x.astype("float64")], "dtype float64; shape"),
        (lambda x: [x, x], "gave 2 arrays, expected 1"),
    ],
)
def test_a_result_that_is_not_what_was_inferred(engine, call, message):
    op = HostOp("wrong", call, lambda x: [x], 1)
    with pytest.raises(ShapeError, match=message):
        kerasish.function(lambda x: op([x]))(np.ones(2, "float32"))


def test_the_function_cannot_write_to_its_arrays(engine):

    def write(x):
        x[:] = 0
        return [x]

    op = HostOp("write", write, lambda x: [x], 1)
    with pytest.raises(ValueError, match="read-only"):
        kerasish.function(lambda x: op([x * 2]))(np.ones(2, "float32"))


def test_it_is_not_pickled_nor_exported(tmp_path):
    with pytest.raises(TypeError, match="cube calls a Python function"):
        pickle.dumps(cube())
    inputs = kerasish.Input((3,))
    model = kerasish.Model(inputs, Cube()(inputs))
    with pytest.raises((ValueError, TypeError), match="cube"):
        model.export(tmp_path / "model")
