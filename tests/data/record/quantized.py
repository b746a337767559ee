"""Write quantized.npz and the files quantized_<mode>.keras and .weights.h5, on JAX."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import facts
import jax
import jax.numpy as jnp
import keras
import numpy as np
import quantized_cases as cases

DATA = Path(__file__).parents[1]
FILES = {"int8": "int8", "int4 blocks": "int4"}


def described(layer: Any) -> list[Any]:
    """Return the layer's weights: names, shapes, dtypes, whether they are trained."""
    return [[v.name, list(v.shape), str(v.dtype), v.trainable] for v in layer.weights]


def stored(layer: Any) -> dict[str, Any]:
    """Return what the layer puts into files."""
    store: dict[str, Any] = {}
    layer.save_own_variables(store)
    return {name: np.asarray(value) for name, value in store.items()}


def fact_of(case: str) -> dict[str, Any]:
    """Return the results, the input's gradient, the weights and what files hold of them."""
    name, mode = cases.CASES[case]
    layer = cases.layer_of(name, mode, keras)
    x = cases.inputs_of(name)
    fact: dict[str, Any] = {"weights": described(layer), "stored": stored(layer)}
    fact["outputs"] = np.asarray(layer(x))
    if "Reversible" in name:
        rows = cases.wave((2, 3, 13), 4.0)
        fact["scores"] = np.asarray(layer(rows, reverse=True))
    if "Dense" in name:
        trained = [v.value for v in layer.trainable_variables]
        others = [v.value for v in layer.non_trainable_variables]

        def loss(x: Any) -> Any:
            y, _ = layer.stateless_call(trained, others, x)
            return jnp.sum(y * cases.wave(y.shape, 2.0))

        fact["slope"] = np.asarray(jax.grad(loss)(jnp.asarray(x)))
    if case not in cases.NOT_ADAPTED:
        cases.adapt(layer)
        fact["adapted"] = np.asarray(layer(x))
        fact["merged"] = stored(layer)
    return fact


def played(case: str) -> dict[str, Any]:
    """Return results and gradients of `fake_quant_with_min_max_vars`."""
    x, low, high, options = cases.fake_case(case)

    def loss(x: Any, low: Any, high: Any) -> Any:
        y = keras.quantizers.fake_quant_with_min_max_vars(x, low, high, **options)
        return jnp.sum(y * cases.wave(y.shape, 2.0)), y

    slopes, y = jax.grad(loss, (0, 1, 2), has_aux=True)(x, low, high)
    return {"outputs": np.asarray(y), "slopes": [np.asarray(g) for g in slopes]}


def trained() -> list[Any]:
    """Return losses and weights of three steps with float8."""
    model = cases.float8_model(keras)
    x, y = cases.float8_data()
    model.compile(keras.optimizers.SGD(0.1), "mse")
    steps = []
    for _ in range(3):
        loss = float(model.train_on_batch(x, y))
        steps.append([loss, {v.name: np.asarray(v.value).ravel()[:4] for v in model.weights}])
    return steps


def main() -> None:
    warnings.simplefilter("ignore")
    found = {case: fact_of(case) for case in cases.CASES}
    outputs = {}
    for mode, ending in FILES.items():
        model = cases.model_of(keras)
        model.quantize(config=cases.config_of(mode, keras.quantizers))
        model.save(DATA / f"quantized_{ending}.keras")
        model.save_weights(DATA / f"quantized_{ending}.weights.h5")
        outputs[ending] = np.asarray(model(cases.model_inputs()))
    fact = {"keras": keras.__version__, "cases": found, "outputs": outputs}
    fact["fake"] = {case: played(case) for case in cases.FAKE}
    fact["float8"] = trained()
    print(facts.write("quantized", fact))


if __name__ == "__main__":
    main()
