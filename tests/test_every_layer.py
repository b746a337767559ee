"""What is true of every layer: each class of `kerasish.layers` with an `example` is picked up."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import numpy as np
import pytest
from layer_examples import (
    EXAMPLES,
    call,
    data,
    expect_same,
    flat,
    make,
    shapes_of,
    slopes_by_inputs,
    started,
    step_of,
)

import kerasish
from kerasish import backends, layers, registry
from kerasish.tensor import Tensor

every_layer = pytest.mark.parametrize("name", EXAMPLES)


def test_all_families_are_there() -> None:
    assert len(EXAMPLES) > 60, sorted(EXAMPLES)


@every_layer
def test_shapes_with_any_number_of_rows(name: str) -> None:
    layer = make(name)
    direct = [a.shape for a in flat(call(layer, name, data(name)))]
    symbols = [
        layers.Input(batch_shape=s, dtype=EXAMPLES[name].get("dtype", "float32"))
        for s in shapes_of(name, None)
    ]
    symbolic = call(make(name), name, symbols)
    many = symbolic if isinstance(symbolic, (list, tuple)) else [symbolic]
    assert [tuple(t.shape) for t in many] == [(None, *s[1:]) for s in direct]
    if not EXAMPLES[name].get("spread"):
        shapes = shapes_of(name, None)
        alone = make(name).compute_output_shape(
            shapes if isinstance(EXAMPLES[name]["shape"], list) else shapes[0]
        )
        alone = alone if isinstance(alone, list) else [alone]
        assert [tuple(s) for s in alone] == [(None, *s[1:]) for s in direct]


@every_layer
def test_a_symbolic_model_gives_what_the_layer_gives(name: str) -> None:
    layer = started(name)
    symbols = [
        layers.Input(batch_shape=s, dtype=EXAMPLES[name].get("dtype", "float32"))
        for s in shapes_of(name, None)
    ]
    model = kerasish.Model(symbols, call(layer, name, symbols))
    inputs = data(name)
    expect_same(model(inputs if len(inputs) > 1 else inputs[0]), call(layer, name, inputs))


@every_layer
def test_configs_and_weights_make_an_equal_layer(name: str) -> None:
    layer = started(name)
    assert json.loads(json.dumps(layer.get_config()))["name"] == layer.name
    text = json.dumps(registry.serialize_keras_object(layer))
    other = registry.deserialize_keras_object(json.loads(text))
    assert type(other) is type(layer) and other.name == layer.name
    assert json.dumps(registry.serialize_keras_object(other.get_config())) == json.dumps(
        registry.serialize_keras_object(layer.get_config())
    )
    inputs = data(name)
    call(other, name, inputs)
    assert [(v.name, v.shape) for v in other.weights] == [(v.name, v.shape) for v in layer.weights]
    other.set_weights(layer.get_weights())
    expect_same(call(other, name, inputs), call(layer, name, inputs), 0, 0)


@every_layer
def test_pickles_and_copies_are_equal(name: str) -> None:
    layer, inputs = started(name), data(name)
    for other in (pickle.loads(pickle.dumps(layer)), copy.deepcopy(layer)):
        expect_same(call(other, name, inputs), call(layer, name, inputs), 0, 0)
        for a, b in zip(other.weights, layer.weights):
            assert a is not b and a.path == b.path


@every_layer
def test_rows_do_not_meet(name: str) -> None:
    """A single row gives what it gives among others; no rows give none."""
    layer, inputs = started(name), data(name)
    whole = flat(call(layer, name, inputs))
    expect_same(call(layer, name, [x[:1] for x in inputs]), [y[:1] for y in whole])
    none = flat(call(layer, name, [x[:0] for x in inputs]))
    assert [y.shape for y in none] == [(0, *y.shape[1:]) for y in whole]


@every_layer
def test_half_precision(name: str) -> None:
    exact = flat(call(started(name), name, data(name)))
    for policy, dtype in (("mixed_float16", "float16"), ("mixed_bfloat16", "bfloat16")):
        layer = started(name, policy)
        for result, expected in zip(flat(call(layer, name, data(name))), exact):
            if EXAMPLES[name].get("dtype", "float32") == "float32" or layer.weights:
                assert str(result.dtype) == dtype
            np.testing.assert_allclose(result.astype("float32"), expected, atol=0.1, rtol=0.1)
        assert all(v.dtype in ("float32", "int32") for v in layer.weights)


@every_layer
def test_engines_agree(name: str) -> None:
    """Results, gradients and what a training step leaves behind are the same on both engines."""
    first = started(name)
    second = copy.deepcopy(first)
    inputs = [Tensor(x) for x in data(name)]
    expected = step_of(first, name)(inputs)
    result = backends.get("static").compile(step_of(second, name))(inputs)
    for a, b in zip(result, expected):
        expect_same(a, b, 2e-4, 2e-5)
    for a, b in zip(second.variables, first.variables):
        expect_same(a.numpy(), b.numpy(), 1e-5, 1e-6)


@every_layer
def test_gradients_are_slopes(name: str) -> None:
    """The derivative along a random direction of inputs and weights, in float64."""
    layer = started(name, "float64")
    inputs, rng = data(name, dtype="float64"), np.random.default_rng(5)
    moving = str(inputs[0].dtype) == "float64"
    if not moving and not layer.trainable_variables:
        return
    if EXAMPLES[name].get("sets_weights"):
        return  # the gradient belongs to the weights that the call itself has set
    kept = [(v, v.numpy().copy()) for v in layer.variables]
    ways = [rng.uniform(-1, 1, v.shape) for v in layer.trainable_variables]
    ahead = [rng.uniform(-1, 1, x.shape) if moving else 0 * x for x in inputs]

    def reset(t: float) -> list[Any]:
        for v, value in kept:
            v.assign(value)
        for v, way in zip(layer.trainable_variables, ways):
            v.assign(v.numpy() + t * way)
        return [Tensor(x + t * a) if moving else Tensor(x) for x, a in zip(inputs, ahead)]

    plus, minus = (float(step_of(layer, name)(reset(t))[1]) for t in (1e-6, -1e-6))
    by_weights = step_of(layer, name)(reset(0.0))[2]
    used = [(g, w) for g, w in zip(by_weights, ways) if g is not None]
    slope = sum(float(np.sum(np.asarray(g) * w)) for g, w in used)
    if moving:
        by_inputs = slopes_by_inputs(layer, name, reset(0.0))
        slope += sum(float(np.sum(np.asarray(g) * a)) for g, a in zip(by_inputs, ahead))
    assert slope == pytest.approx((plus - minus) / 2e-6, rel=1e-5, abs=1e-5)
    assert abs(slope) > 1e-6


@every_layer
def test_masks_pass(name: str) -> None:
    layer = started(name)
    shapes = shapes_of(name)
    if not layer.supports_masking or len(shapes[0]) < 3 or len(shapes) > 1:
        return
    x = Tensor(data(name)[0])
    x._keras_mask = Tensor(np.arange(np.prod(shapes[0][:2])).reshape(shapes[0][:2]) % 3 != 1)
    y = layer(x)
    result = getattr(y, "_keras_mask", None)
    if type(layer).compute_mask is layers.Layer.compute_mask:
        assert result is x._keras_mask
    elif result is not None:
        assert result.dtype == "bool" and result.shape == y.shape[: len(result.shape)]
