"""Layers against Keras's numbers, on both engines: outputs, losses, gradients, weights, masks."""

from __future__ import annotations

import inspect
import json

import augmentation_cases
import facts
import layer_cases as cases
import numpy as np
import preprocessing_cases
import pytest
from own_classes import own_classes, own_tests_of
from package_values import package_values

from kerasish import autodiff, backends, layers, ops
from kerasish.tensor import Tensor

FACTS = facts.read("layers")
KNOWN = FACTS["cases"]
FIRST = {name: case for case in reversed(cases.CASES.values()) for name in [case[0]]}
FIRST_NAMES = {cases.name_of(case) for case in FIRST.values()}
# Layer: (share of the largest number that results may be off, why more than 1e-5).
LOOSER: dict[str, tuple[float, str]] = {
    "GroupNormalization": (1e-4, "of two numbers in a group, gradients of 1 cancel to 0.01"),
    "MelSpectrogram": (1e-4, "Keras takes log(1 + f / 700) of low frequencies in float32"),
}
_DRAWN = "draws at random how much is changed; tests/layers/test_augmentation.py"
# Layers without recorded facts, and why.
WITHOUT: dict[str, str] = {
    "AugMix": _DRAWN,
    "FlaxLayer": "calls Flax; tests/layers/test_other_frameworks.py",
    "InputLayer": "computes nothing",
    "JaxLayer": "calls JAX; tests/layers/test_other_frameworks.py",
    "Lambda": "computes what the user's function does",
    "Layer": "the base of all layers",
    "Pipeline": "calls other layers in turn; tests/layers/test_augmentation.py",
    "RandAugment": _DRAWN,
    "RandomColorJitter": "calls layers that have facts, by amounts drawn at random",
    "RandomElasticTransform": _DRAWN,
    "TorchModuleWrapper": "calls PyTorch; tests/layers/test_other_frameworks.py",
    "Wrapper": "the base of wrapping layers",
}


def taken(case, tensors):
    """Return the layer of a case with its weights set, and a function of its inputs."""
    layer, call = cases.arguments(case, layers)
    call = {
        k: [None if m is None else Tensor(m) for m in v] if isinstance(v, list) else v
        for k, v in call.items()
    }
    without = {k: v for k, v in call.items() if k != "training"}
    layer(*cases.arranged(case, tensors), **without)
    values = [cases.weight_of(v.name, v.shape, i) for i, v in enumerate(layer.weights)]
    layer.set_weights(values)

    def loss(*inputs):
        many = cases.leaves(layer(*cases.arranged(case, list(inputs)), **call))
        total = sum(layer.losses) if layer.losses else ops.zeros(())
        for i, t in enumerate(many):
            total = total + ops.sum(t * cases.wave(t.shape, 2.0 + i))
        return total, many

    return layer, loss


def step_of(case, layer, loss):
    """Return a function giving (sum, outputs, gradients by weights, gradients by inputs)."""
    floats = "high" not in case[3]

    def step(inputs):
        by_inputs = []
        with autodiff.GradientTape() as tape:
            if floats:
                for x in inputs:
                    tape.watch(x)
            total, many = loss(*inputs)
        wanted = [*layer.trainable_variables, *(inputs if floats else [])]
        if wanted:
            by_inputs = tape.gradient(total, wanted)
        return total, many, by_inputs

    return step


def check(case, engine):
    name, fact = cases.name_of(case), KNOWN[cases.name_of(case)]
    tolerance = LOOSER.get(case[0], (1e-5, ""))[0]
    tensors = [Tensor(x) for x in cases.inputs_of(case)]
    layer, loss = taken(case, tensors)
    assert [[v.name, list(v.shape)] for v in layer.weights] == fact["weights"]
    step = step_of(case, layer, loss)
    if engine == "static":
        step = backends.get("static").compile(step)
    total, many, slopes = step(tensors)
    assert len(many) == len(fact["outputs"])
    for i, (t, expected) in enumerate(zip(many, fact["outputs"])):
        facts.expect_close(t, expected, f"output {i} of {name}", tolerance)
    # Terms of about 1, of both signs: their sum may be small.
    terms = max(1.0, *(float(np.abs(t).sum()) for t in fact["outputs"]))
    facts.expect_close(total / terms, fact["loss"] / terms, f"sum of {name}", tolerance)
    names = [v.name for v in layer.trainable_variables] + [f"input {i}" for i in range(9)]
    assert len(slopes) == len(fact["slopes"])
    for g, expected, what in zip(slopes, fact["slopes"], names):
        # What the call does not use has no gradient; the facts say 0.
        result = np.zeros(expected.shape) if g is None else g
        facts.expect_close(result, expected, f"gradient by {what} of {name}", tolerance)
    after = [v.numpy() for v in layer.weights if not v.trainable]
    for result, expected in zip(after, fact.get("after", []), strict=True):
        facts.expect_close(result, expected, f"weights after {name}", tolerance)
    return layer, tensors


def named(names):
    return pytest.mark.parametrize("name", [pytest.param(n, id=n) for n in names])


@named(cases.CASES)
def test_eager_is_keras(name):
    case, fact = cases.CASES[name], KNOWN[name]
    layer, tensors = check(case, "eager")
    if "mask" in fact:
        masks = cases.masks_of(case[3].get("masks"))
        given = masks and [None if m is None else Tensor(m) for m in masks]
        mask = layer.compute_mask(cases.arranged(case, tensors)[0], given)
        result = None if mask is None else np.asarray(mask).astype(int).tolist()
        assert result == fact["mask"]


@named(sorted(FIRST_NAMES))
def test_static_is_keras(name):
    """The first case of each layer."""
    check(cases.CASES[name], "static")


@pytest.mark.slow
@named(n for n in cases.CASES if n not in FIRST_NAMES)
def test_static_is_keras_for_every_option(name):
    check(cases.CASES[name], "static")


def test_every_layer_has_facts_or_a_reason():
    """A new layer of Keras's needs a case in tests/shared, or its reason in WITHOUT."""
    ours = {
        name
        for name, cls in package_values(layers).items()
        if inspect.isclass(cls) and issubclass(cls, layers.Layer) and cls.__name__ == name
    }
    here = {case[0] for case in cases.CASES.values()}
    inside = {"StackedRNNCells"}  # cases hold it as the cell of an RNN
    others = {c[0] for c in (*augmentation_cases.CASES, *preprocessing_cases.CASES)}
    own = own_classes(layers, layers.Layer)
    assert "CRF" in own
    assert all(own_tests_of(cls) for cls in own.values())
    assert ours - here - inside - others - own.keys() == set(WITHOUT)
    assert set(KNOWN) == set(cases.CASES)


@pytest.mark.parametrize("axis", [-1, None, [1, 2]])
def test_normalization_learns_what_keras_learns(axis):
    fact = FACTS["adapt"][json.dumps(axis)]
    layer = layers.Normalization(axis=axis)
    data = cases.wave([4, 3, 2], 1.0, 5.0)
    layer.adapt(data)
    # Keras leaves the count, the third weight, at 0 where the data come as one array.
    for result, expected in zip(layer.get_weights()[:2], fact["moments"][:2], strict=True):
        facts.expect_close(result, expected, "moments")
    facts.expect_close(layer(data), fact["output"], "output")


def test_spectral_normalization_goes_the_way_of_keras():
    recorded = iter(FACTS["spectral"])
    for (name, args), shape in cases.SPECTRAL:
        layer = layers.SpectralNormalization(getattr(layers, name)(**args), 2)
        x = Tensor(cases.wave(shape, 1.0))
        layer(x)
        values = [cases.weight_of(v.name, v.shape, i) for i, v in enumerate(layer.weights)]
        layer.set_weights(values)
        for _ in range(2):
            result = [layer(x, training=True), *layer.get_weights()]
            for number, expected in zip(result, next(recorded), strict=True):
                facts.expect_close(number, expected, name)
