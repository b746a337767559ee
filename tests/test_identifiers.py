"""`get` and `deserialize` of the modules: what was meant, and short tracebacks."""

from __future__ import annotations

import operator
import sys
import traceback
from pathlib import Path

import pytest

import kerasish as keras
from kerasish import config
from kerasish.errors import UnknownNameError


@pytest.fixture(autouse=True)
def filtering():
    """Users' default: tests of other files see all frames (conftest)."""
    config.enable_traceback_filtering()
    yield
    config.disable_traceback_filtering()


def shows_one_frame(error):
    package = Path(keras.__file__).parent
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if package in Path(f.filename).parents]
    # Python 3.10 raises the traceback that a wrapper caught, and with it the wrapper's own frame.
    return len(own) == 1 or sys.version_info < (3, 11)


@pytest.mark.parametrize(
    ("module", "kind", "wrong", "right"),
    [
        ("losses", "loss", "bianry_crossentropy", "binary_crossentropy"),
        ("metrics", "metric", "acuracy", "accuracy"),
        ("metrics", "metric", "BinaryAcuracy", "BinaryAccuracy"),
        ("optimizers", "optimizer", "adm", "adam"),
        ("activations", "activation", "rellu", "relu"),
        ("initializers", "initializer", "glorot_unifrom", "glorot_uniform"),
        ("regularizers", "regularizer", "l3", "l2"),
        ("constraints", "constraint", "non_negg", "non_neg"),
        ("quantizers", "quantizer", "abs_max_quantizr", "abs_max_quantizer"),
        ("dtype_policies", "dtype", "mixed_bfloat61", "bfloat16"),
    ],
)
def test_get_of_a_module_names_what_was_meant(module, kind, wrong, right):
    with pytest.raises(UnknownNameError) as caught:
        getattr(keras, module).get(wrong)
    assert str(caught.value).startswith(f"Unknown {kind}: ")
    assert f"Did you mean {right!r}" in str(caught.value)
    assert shows_one_frame(caught.value)


@pytest.mark.parametrize(
    ("module", "kind", "wrong", "right"),
    [
        ("losses", "loss", "MeanSquardError", "MeanSquaredError"),
        ("metrics", "metric", "BinaryAcuracy", "BinaryAccuracy"),
        ("optimizers", "optimizer", "Adm", "Adam"),
        ("optimizers.schedules", "learning rate schedule", "CosinDecay", "CosineDecay"),
        ("activations", "activation", "Rellu", "relu"),
        ("initializers", "initializer", "GlorotUnifrom", "GlorotUniform"),
        ("regularizers", "regularizer", "L1L3", "L1L2"),
        ("constraints", "constraint", "NonNegg", "NonNeg"),
        ("quantizers", "quantizer", "AbsMaxQuantizr", "AbsMaxQuantizer"),
        ("layers", "layer", "Dens", "Dense"),
        ("dtype_policies", "object", "DTypePolcy", "DTypePolicy"),
    ],
)
def test_deserialize_of_a_module_names_what_was_meant(module, kind, wrong, right):
    deserialize = operator.attrgetter(module)(keras).deserialize
    with pytest.raises(UnknownNameError) as caught:
        deserialize({"class_name": wrong, "config": {}})
    assert str(caught.value).startswith(f"Unknown {kind} class: {wrong!r}")
    assert repr(right) in str(caught.value)
    assert shows_one_frame(caught.value)


def test_other_mistakes_with_functions_of_modules_show_one_frame():
    mistakes = [
        (lambda: keras.losses.get(3), "Expected a loss by name"),
        (lambda: keras.losses.get(identifer="mse"), "Did you mean 'identifier'"),
        (lambda: keras.layers.deserialize({"class_name": "Dense", "config": {"unit": 3}}),
         "Did you mean 'units'"),
        (lambda: keras.layers.deserialize("Dens"), "Unknown layer: 'Dens'. Did you mean 'Dense'"),
        (lambda: keras.layers.deserialize(3), "expected the config of a layer"),
        (lambda: keras.saving.deserialize_keras_object({"class_name": "Dens", "config": {}}),
         "'Dense'"),
        (lambda: keras.config.set_dtype_policy("mixed_float61"), "'float16'"),
        (lambda: keras.mixed_precision.set_global_policy("mixed_float61"), "'float16'"),
    ]  # fmt: skip
    for call, text in mistakes:
        with pytest.raises((TypeError, ValueError), match=text) as caught:
            call()
        assert shows_one_frame(caught.value)
