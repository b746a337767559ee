"""An example call of every layer, as each class of `kerasish.layers` gives it in `example`."""

from __future__ import annotations

from typing import Any

import numpy as np
from package_values import package_values

from kerasish import autodiff, layers, ops

# Layers that hold others: their examples need objects.
HOLDERS: dict[str, dict[str, Any]] = {
    "TimeDistributed": {"args": lambda **o: {"layer": layers.Dense(3, **o)}, "shape": (2, 3, 4)},
    "Bidirectional": {"args": lambda **o: {"layer": layers.GRU(2, **o)}, "shape": (2, 3, 4)},
    "SpectralNormalization": {
        "args": lambda **o: {"layer": layers.Dense(3, **o)},
        "shape": (2, 4),
        "sets_weights": True,
    },
    "RNN": {"args": lambda **o: {"cell": layers.SimpleRNNCell(2, **o)}, "shape": (2, 3, 4)},
}


def _classes() -> dict[str, Any]:
    result = {}
    for name, cls in sorted(package_values(layers).items()):
        if isinstance(cls, type) and issubclass(cls, layers.Layer) and cls.__name__ == name:
            if name in HOLDERS:
                result[name] = HOLDERS[name]
            elif hasattr(cls, "example"):
                result[name] = cls.example
    return result


EXAMPLES = _classes()


def make(name: str, **options: Any) -> Any:
    args = EXAMPLES[name]["args"]
    args = args(**options) if callable(args) else dict(args)
    return getattr(layers, name)(**args, **options)


def shapes_of(name: str, rows: int | None = 0) -> list[tuple[Any, ...]]:
    shape = EXAMPLES[name]["shape"]
    many = shape if isinstance(shape, list) else [shape]
    return [tuple(s) if rows == 0 else (rows, *s[1:]) for s in many]


def data(name: str, rows: int = 0, dtype: str | None = None, seed: int = 1) -> list[Any]:
    rng, example = np.random.default_rng(seed), EXAMPLES[name]
    result = []
    for shape in shapes_of(name, rows):
        kind = dtype or example.get("dtype", "float32")
        if example.get("dtype", "float32").startswith("int"):
            result.append(rng.integers(0, example["high"], shape).astype(example["dtype"]))
        else:
            result.append(rng.uniform(-1, 1, shape).astype(kind))
    return result


def call(layer: Any, name: str, inputs: Any, **options: Any) -> Any:
    """Call the layer as its inputs are meant: one, a list of several, or several arguments."""
    if not isinstance(EXAMPLES[name]["shape"], list):
        return layer(inputs[0], **options)
    return layer(*inputs, **options) if EXAMPLES[name].get("spread") else layer(inputs, **options)


def started(name: str, dtype: str | None = None, **options: Any) -> Any:
    """Return a built layer whose weights are none of the plain ones an initializer gives."""
    layer = make(name, **({"dtype": dtype} if dtype else {}), **options)
    call(layer, name, data(name, dtype=None if dtype and "float16" in dtype else dtype))
    rng = np.random.default_rng(3)
    for v in layer.weights:
        low = 0.2 if "variance" in v.name else -0.8
        if v.dtype.startswith(("float", "bfloat")):
            v.assign(rng.uniform(low, 0.8, v.shape))
    return layer


def flat(outputs: Any) -> list[np.ndarray]:
    many = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    return [np.asarray(t) for t in many]


def expect_same(found: Any, expected: Any, rtol: float = 2e-5, atol: float = 2e-6) -> None:
    found, expected = flat(found), flat(expected)
    assert len(found) == len(expected)
    for a, b in zip(found, expected):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a.astype("float64"), b.astype("float64"), rtol=rtol, atol=atol)


def takes_training(layer: Any) -> dict[str, Any]:
    return {"training": True} if layer.call_parts.training else {}


def weighed(layer: Any, name: str, inputs: Any) -> Any:
    """Return (a weighted sum of the outputs and the layer's losses, the outputs), in training."""
    outputs = call(layer, name, inputs, **takes_training(layer))
    many = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    total: Any = sum(layer.losses) if layer.losses else 0.0
    for t in many:
        # Weights of its own for each element, or a softmax's sum would have no slope.
        number = ops.reshape(ops.arange(t.size, dtype="float32"), t.shape)
        weight = ops.cast(ops.add(ops.sin(number), 1.5), t.dtype)
        total = ops.add(total, ops.sum(ops.multiply(t, weight)))
    return total, many


def step_of(layer: Any, name: str) -> Any:
    """Return a function giving (outputs, loss, gradients by the weights and by the inputs)."""

    def step(inputs: Any) -> Any:
        by_weights = autodiff.value_and_grad(
            lambda: weighed(layer, name, inputs),
            argnums=None, has_aux=True, variables=layer.trainable_variables,
        )  # fmt: skip
        (value, many), slopes = by_weights()
        return many, value, list(slopes)

    return step


def slopes_by_inputs(layer: Any, name: str, inputs: Any) -> Any:
    places = tuple(range(len(inputs)))
    return autodiff.grad(lambda *given: weighed(layer, name, list(given))[0], argnums=places)(
        *inputs
    )
