"""The preprocessing layers against Keras's results, vocabularies and boundaries."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import preprocessing_cases as cases
import pytest

from kerasish import layers

FACTS = json.loads((Path(__file__).parents[2] / "data" / "preprocessing.json").read_text())


@pytest.mark.parametrize(
    "number", [pytest.param(i, id=cases.name_of(i)) for i in range(len(cases.CASES))]
)
def test_as_keras(number):
    fact = FACTS[cases.name_of(number)]
    layer, inputs = cases.made(layers, number)
    result = layer(inputs)
    result = result if isinstance(result, np.ndarray) else result.numpy()
    assert list(result.shape) == fact["shape"]
    if fact["kind"] == "f":
        assert result.dtype == "float32"
        atol = 2e-3 if "Spectrogram" in cases.name_of(number) else 1e-6
        expected = np.array(fact["result"])
        if getattr(layer, "mode", "") == "angle":  # pi and -pi are one
            result, expected = np.exp(1j * result), np.exp(1j * expected)
        np.testing.assert_allclose(result.ravel(), expected, rtol=2e-4, atol=atol)
    else:
        assert result.ravel().tolist() == fact["result"]
    if "vocabulary" in fact:
        assert layer.get_vocabulary() == fact["vocabulary"]
    if "boundaries" in fact:
        np.testing.assert_allclose(layer.bin_boundaries, fact["boundaries"], rtol=1e-6)


def test_every_fact_is_compared():
    assert set(FACTS) == {cases.name_of(i) for i in range(len(cases.CASES))}
