"""`python -m benchmarks.lora`: what is trained, and the ratios by hand. No clock is compared."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def models(load):
    module = load("lora")
    return {name: module.model_of(name, 4, width=12, blocks=1, rank=2) for name in module.ADAPTED}


@pytest.mark.parametrize(("name", "layers"), [("query, value", 2), ("every layer", 7)])
def test_lora_trains_small_weights_and_biases_alone(models, name, layers):
    trained = {v.path.rpartition("/")[2] for v in models[name].trainable_variables}
    assert trained == {"bias", "lora_kernel_a", "lora_kernel_b"}
    assert sum(v.name == "lora_kernel_a" for v in models[name].trainable_variables) == layers
    assert len(models["full"].trainable_variables) == len(models["full"].weights) == 18


def test_all_models_start_with_the_same_predictions(models):
    x = np.random.default_rng(0).normal(size=(3, 4, 12)).astype("float32")
    full, *others = (model.predict(x, verbose=0) for model in models.values())
    for lora in others:
        np.testing.assert_allclose(lora, full, rtol=1e-5, atol=1e-6)


def test_steps_alternate_and_two_of_each_warm_up(load, models):
    times = load("lora").measure(models, batch=2, rounds=3)
    assert {name: len(spent) for name, spent in times.items()} == dict.fromkeys(models, 3)
    assert all(int(model.optimizer.iterations.numpy()) == 5 for model in models.values())


def test_ratios_are_of_medians_and_of_best_times(load):
    assert load("lora").ratios(
        {"full": [4.0, 2.0, 8.0], "every layer": [3.0, 1.0, 9.0]}, "every layer"
    ) == (0.75, 0.5)
