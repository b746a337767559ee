"""`python -m benchmarks.lora`: what is trained, and the ratios by hand. No clock is compared."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def models(load):
    make = load("lora").model_of
    return {name: make(name == "lora", 4, width=12, blocks=1, rank=2) for name in ("full", "lora")}


def test_lora_trains_small_weights_and_biases_alone(models):
    trained = {v.path.rpartition("/")[2] for v in models["lora"].trainable_variables}
    assert trained == {"bias", "lora_kernel_a", "lora_kernel_b"}
    assert sum(v.name == "lora_kernel_a" for v in models["lora"].trainable_variables) == 7
    assert len(models["full"].trainable_variables) == len(models["full"].weights) == 18


def test_both_models_start_with_the_same_predictions(models):
    x = np.random.default_rng(0).normal(size=(3, 4, 12)).astype("float32")
    full, lora = (models[name].predict(x, verbose=0) for name in ("full", "lora"))
    np.testing.assert_allclose(lora, full, rtol=1e-5, atol=1e-6)


def test_steps_alternate_and_two_of_each_warm_up(load, models):
    times = load("lora").measure(models, batch=2, rounds=3)
    assert {name: len(spent) for name, spent in times.items()} == {"full": 3, "lora": 3}
    assert all(int(model.optimizer.iterations.numpy()) == 5 for model in models.values())


def test_ratios_are_of_medians_and_of_best_times(load):
    assert load("lora").ratios({"full": [4.0, 2.0, 8.0], "lora": [3.0, 1.0, 9.0]}) == (0.75, 0.5)
