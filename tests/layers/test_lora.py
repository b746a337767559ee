"""LoRA: results, gradients and files as in Keras, and what a step computes, on both engines."""

from __future__ import annotations

import copy
from pathlib import Path

import facts
import lora_cases as cases
import numpy as np
import pytest

import kerasish as keras
from kerasish import config, layers, ops

FACTS = facts.read("lora")
DATA = Path(__file__).parents[1] / "data"
ENGINES = ("static", "eager")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", list(cases.CASES))
def test_results_and_gradients_are_those_of_keras(case, engine):
    config.set_backend(engine)
    fact = FACTS["cases"][case]
    layer = cases.layer_of(case, layers)
    assert [[v.name, list(v.shape), v.trainable] for v in layer.weights] == fact["weights"]
    assert [v.name for v in layer.trainable_variables] == fact["trained"]
    x = ops.convert_to_tensor(cases.inputs_of(case))
    with keras.GradientTape() as tape:
        y = layer(x)
        loss = ops.sum(y * cases.wave(tuple(y.shape), 2.0))
    slopes = tape.gradient(loss, layer.trainable_variables)
    facts.expect_close(ops.convert_to_numpy(y), fact["outputs"], case)
    for found, expected, name in zip(slopes, fact["slopes"], fact["trained"]):
        facts.expect_close(ops.convert_to_numpy(found), expected, f"{case}, {name}")
    merged = layer.embeddings if "Embedding" in case else layer.kernel
    facts.expect_close(ops.convert_to_numpy(merged), fact["merged"], f"{case}, merged")
    facts.expect_close(float(sum(layer.losses, 0.0)), fact["losses"], f"{case}, losses")


@pytest.mark.parametrize("ending", ["keras", "h5"])
@pytest.mark.parametrize("engine", ENGINES)
def test_models_of_keras_load(ending, engine):
    config.set_backend(engine)
    model = keras.models.load_model(DATA / f"lora.{ending}")
    assert all(model.get_layer(name).lora_enabled for name in ("table", "mix", "out"))
    assert model.get_layer("mix").lora_alpha == 4.0
    facts.expect_close(model.predict(cases.model_inputs(), verbose=0), FACTS["outputs"], ending)
    model.compile("sgd", "mse")
    frozen = [v for v in model.weights if not v.trainable]
    before = [v.numpy().copy() for v in frozen]
    first, second = (model.get_layer("out").lora_kernel_a, model.get_layer("out").lora_kernel_b)
    start = first.numpy().copy(), second.numpy().copy()
    model.fit(cases.model_inputs(), np.ones((3, 3), "float32"), epochs=3, verbose=0)
    for v, old in zip(frozen, before):
        np.testing.assert_array_equal(v.numpy(), old)
    assert (
        np.abs(second.numpy() - start[1]).max() > 0 and np.abs(first.numpy() - start[0]).max() > 0
    )


def plain_model():
    source = keras.models.load_model(DATA / "lora.keras")
    model = keras.models.model_from_json(without_lora(source))
    model.build((None, 4))
    return model


def without_lora(model):
    import json

    config_ = json.loads(model.to_json())
    for layer in config_["config"]["layers"]:
        for name in ("lora_rank", "lora_alpha"):
            layer["config"].pop(name, None)
    return json.dumps(config_)


def test_weight_files_are_merged():
    model = plain_model()
    assert not model.get_layer("out").lora_enabled
    model.load_weights(DATA / "lora.weights.h5")
    facts.expect_close(model.predict(cases.model_inputs(), verbose=0), FACTS["outputs"], "merged")


@pytest.mark.parametrize("ending", ["keras", "h5", "weights.h5", "safetensors"])
def test_files_both_ways(ending, tmp_path):
    source = cases.model_of(keras)
    expected = source.predict(cases.model_inputs(), verbose=0)
    facts.expect_close(expected, FACTS["outputs"], "built here")
    path = tmp_path / f"model.{ending}"
    if ending in ("keras", "h5"):
        source.save(path)
        model = keras.models.load_model(path)
        assert model.get_layer("out").lora_rank == 2
    else:
        source.save_weights(path)
        model = plain_model()
        model.load_weights(path)
        assert len(model.weights) == len(source.weights) - 6
    facts.expect_close(model.predict(cases.model_inputs(), verbose=0), expected, ending)
    if ending == "h5":  # not merged
        for ours, theirs in zip(model.weights, source.weights):
            np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def test_loading_starts_at_a_product_of_zero_that_can_be_trained(tmp_path):
    layer = cases.layer_of("Dense", layers)
    merged = ops.convert_to_numpy(layer.kernel)
    store = {}
    layer.save_own_variables(store)
    assert sorted(store) == ["0", "1"]
    layer.load_own_variables(store)
    np.testing.assert_allclose(layer.adapted_weight.numpy(), merged, rtol=1e-6)
    assert not layer.lora_kernel_b.numpy().any() and layer.lora_kernel_a.numpy().any()
    with pytest.raises(ValueError, match="expected 2 variables, got 1"):
        layer.load_own_variables({"0": merged})


def test_a_rank_in_the_constructor():
    dense = layers.Dense(3, lora_rank=2, lora_alpha=5.0)
    assert not dense.lora_enabled
    y = dense(np.ones((2, 4), "float32"))
    assert dense.lora_enabled and [v.name for v in dense.trainable_weights][1:] == [
        "lora_kernel_a", "lora_kernel_b",
    ]  # fmt: skip
    facts.expect_close(ops.convert_to_numpy(y), np.ones((2, 4)) @ dense.adapted_weight.numpy(), "")
    settings = dense.get_config()
    assert (settings["lora_rank"], settings["lora_alpha"]) == (2, 5.0)
    again = layers.Dense.from_config(settings)
    again.build((None, 4))
    assert again.lora_enabled and again.lora_alpha == 5.0
    assert "lora_rank" not in layers.Dense(3).get_config()
    assert copy.deepcopy(dense).lora_kernel_a.shape == (4, 2)


def transformer(rank=None):
    config.set_seed(3)
    x = keras.Input((16, 48))
    y = x
    for _ in range(2):
        a = layers.MultiHeadAttention(4, 12)(layers.LayerNormalization()(y), y)
        y = y + a
        h = layers.Dense(192, activation="gelu")(layers.LayerNormalization()(y))
        y = y + layers.Dense(48)(h)
    model = keras.Model(x, layers.Dense(3)(layers.GlobalAveragePooling1D()(y)))
    if rank is not None:
        for layer in model.flatten_layers(include_self=False):
            if isinstance(layer, (layers.Dense, layers.EinsumDense)):
                layer.enable_lora(rank)
                layer.bias.trainable = False
            elif isinstance(layer, layers.LayerNormalization):
                layer.trainable = False
    model.compile("adam", "mse")
    return model


def products(graph):
    """Return the shapes of the results of all products in a step's graph."""
    found = []
    for node in graph.nodes:
        if "matmul" in node.op.name or "einsum" in node.op.name or "affine" in node.op.name:
            found.append(tuple(node.outputs[0].shape))
    return found


def test_a_static_step_computes_no_gradient_of_the_frozen_weight():
    config.set_backend("static")
    x, y = np.ones((4, 16, 48), "float32"), np.ones((4, 3), "float32")
    shapes = {}
    for rank in (None, 2):
        model = transformer(rank)
        model.fit(x, y, verbose=0)
        graph = model.training_program.step("train").graphs()[0][1]
        shapes[rank] = products(graph)
    large = {(48, 192), (192, 48)}
    assert large & set(shapes[None]) == large
    assert not large & set(shapes[2])


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "bfloat16", "mixed_float16"])
def test_half_precision_keeps_the_small_weights_in_float32(policy):
    dense = layers.Dense(4, lora_rank=2, dtype=policy)
    y = dense(np.ones((2, 3), "float32"))
    assert y.dtype == dense.compute_dtype and dense.lora_kernel_a.dtype == "float32"
    rows = layers.Embedding(5, 4, lora_rank=2, dtype=policy)(np.array([[1, 2]]))
    assert rows.dtype == dense.compute_dtype


def test_frozen_layers_and_optimizer_states():
    model = keras.Sequential([keras.Input((3,)), layers.Dense(4), layers.Dense(2)])
    model.layers[0].trainable = False
    model.layers[1].enable_lora(1)
    model.compile("adam", "mse")
    model.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)
    assert len(model.trainable_variables) == 3
    # Two states for each trained weight, the learning rate and the number of steps.
    assert len(model.optimizer.variables) == 2 * 3 + 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: layers.Dense(2).enable_lora(1), "build the layer or call"),
        (lambda: built(layers.Dense(2)).enable_lora(0), "integer >= 1, got 0"),
        (lambda: built(layers.Dense(2, lora_rank=1)).enable_lora(1), "already enabled"),
        (
            lambda: built(layers.Dense(2, kernel_constraint="non_neg")).enable_lora(1),
            "cannot keep kernel_constraint",
        ),
        (lambda: layers.Dense(2, lora_rank=1, kernel_constraint="non_neg"), "kernel_constraint"),
        (lambda: layers.Embedding(3, 2, lora_rank=-1), "integer >= 1, got -1"),
    ],
)
def test_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def built(layer):
    layer.build((None, 3))
    return layer
