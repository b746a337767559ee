"""The models whose Python reads values train as the same lines do on Keras with torch."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from python_model_losses import losses_of
from python_models import MODELS

import kerasish

FACTS = json.loads((Path(__file__).parents[1] / "data" / "data_dependent.json").read_text("utf-8"))


@pytest.mark.parametrize("cls", MODELS)
def test_losses_are_those_of_keras(cls):
    losses = losses_of(kerasish, cls)
    if cls.__name__ in FACTS["losses"]:
        np.testing.assert_allclose(losses, FACTS["losses"][cls.__name__], rtol=1e-5, atol=1e-5)
    else:  # Keras cannot train it; kerasish does
        assert FACTS["refused"][cls.__name__] in ("RuntimeError", "ValueError")
        assert np.isfinite(losses).all() and losses[-1] < losses[0]


def test_most_of_them_train_on_keras():
    assert (FACTS["keras"], FACTS["backend"]) == ("3.15.1", "torch")
    assert len(FACTS["losses"]) == 9
    # NumPy reads no tensor of a gradient; the others build a layer after the first step.
    assert set(FACTS["refused"]) == {"ArgmaxExperts", "Curriculum", "Debugged"}
