"""The everyday layers against Keras's numbers: outputs, losses, gradients, weights, masks."""

from __future__ import annotations

import json
from pathlib import Path

import layer_cases as cases
import numpy as np
import pytest

from kerasish import autodiff, layers, ops
from kerasish.tensor import Tensor

FACTS = json.loads((Path(__file__).parents[1] / "data" / "layers.json").read_text())


def close(found, expected):
    np.testing.assert_allclose(
        np.asarray(found, "float64").ravel(), np.ravel(expected), rtol=2e-5, atol=1e-5
    )


@pytest.mark.parametrize("case", [pytest.param(c, id=cases.name_of(c)) for c in cases.CASES])
def test_as_keras(case):
    fact = FACTS[cases.name_of(case)]
    options, several = case[3], isinstance(case[2][0], list)
    inputs = [Tensor(x) for x in cases.inputs_of(case)]
    layer, call = cases.arguments(case, layers)
    call = {k: [None if m is None else Tensor(m) for m in v] if isinstance(v, list) else v
            for k, v in call.items()}  # fmt: skip

    def run(*given, **more):
        given = list(given)
        return layer(*given, **more) if options.get("spread") else layer(
            given if several else given[0], **more
        )  # fmt: skip

    run(*inputs, **{k: v for k, v in call.items() if k != "training"})
    assert [[v.name, list(v.shape)] for v in layer.weights] == fact["weights"]
    layer.set_weights([cases.weight_of(v.name, v.shape, i) for i, v in enumerate(layer.weights)])

    def loss(*given):
        outputs = run(*given, **call)
        many = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        total = sum(layer.losses) if layer.losses else 0.0
        for i, t in enumerate(many):
            total = total + ops.sum(t * cases.wave(t.shape, 2.0 + i))
        return total, many

    before = layer.get_weights()
    (total, many), by_weights = autodiff.value_and_grad(
        loss, argnums=None, has_aux=True, variables=layer.trainable_variables
    )(*inputs)
    assert [list(t.shape) for t in many] == [shape for shape, _ in fact["outputs"]]
    for t, (_, numbers) in zip(many, fact["outputs"]):
        close(t, numbers)
    close(total, fact["loss"])
    after = [v.numpy() for v in layer.weights if not v.trainable]
    assert len(after) == len(fact.get("after", []))
    for a, b in zip(after, fact.get("after", [])):
        close(a, b)
    layer.set_weights(before)
    slopes = [*by_weights]
    if "high" not in options:
        slopes += autodiff.grad(
            lambda *given: loss(*given)[0], argnums=tuple(range(len(inputs)))
        )(*inputs)  # fmt: skip
    assert len(slopes) == len(fact["slopes"])
    for g, expected in zip(slopes, fact["slopes"]):
        # A weight that the call does not use has no gradient; JAX says 0.
        found = np.zeros(1) if g is None else np.asarray(g, "float64")
        close(np.sum(found * cases.wave(found.shape, 0.5)), expected)
    if "mask" in fact:
        masks = cases.masks_of(options.get("masks"))
        tensors = masks and [None if m is None else Tensor(m) for m in masks]
        mask = layer.compute_mask(inputs if several else inputs[0], tensors)
        found = None if mask is None else np.asarray(mask).astype(int).tolist()
        assert found == fact["mask"]


@pytest.mark.parametrize("axis", [-1, None, [1, 2]])
def test_normalization_learns_what_keras_learns(axis):
    fact = FACTS["adapt"][json.dumps(axis)]
    layer = layers.Normalization(axis=axis)
    data = cases.wave([4, 3, 2], 1.0, 5.0)
    layer.adapt(data)
    # Keras leaves the count, the third weight, at 0 where the data come as one array.
    for found, expected in zip(layer.get_weights()[:2], fact["moments"][:2], strict=True):
        close(found, expected)
    close(layer(data), fact["output"])


def test_spectral_normalization_goes_the_way_of_keras():
    facts = iter(FACTS["spectral"])
    for (name, args), shape in cases.SPECTRAL:
        layer = layers.SpectralNormalization(getattr(layers, name)(**args), 2)
        x = Tensor(cases.wave(shape, 1.0))
        layer(x)
        values = [cases.weight_of(v.name, v.shape, i) for i, v in enumerate(layer.weights)]
        layer.set_weights(values)
        for _ in range(2):
            found = [layer(x, training=True), *layer.get_weights()]
            for number, expected in zip(found, next(facts), strict=True):
                close(number, expected)
