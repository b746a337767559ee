"""Unsupported names: each says what to use instead, wherever it is asked for."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from kerasish import layers
from kerasish.unsupported import (
    METHODS,
    TORCH_METHODS,
    UNSUPPORTED,
    UnsupportedError,
    UnsupportedImportError,
)

NAMES = [(module, name) for module, names in UNSUPPORTED.items() for name in names]


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_an_unsupported_name_says_what_to_use(module, name):
    module_object = importlib.import_module(f"kerasish.{module}".rstrip("."))
    with pytest.raises(UnsupportedError, match=f"{name} is not supported: .{{30}}"):
        getattr(module_object, name)
    assert not hasattr(module_object, name)


@pytest.mark.parametrize(
    "line",
    ["from kerasish.layers import TFSMLayer", "from kerasish import Quantizer, distillation"],
)
def test_an_import_says_so_as_well(line):
    with pytest.raises(UnsupportedImportError, match="is not supported: "):
        exec(line, {})


@pytest.mark.parametrize(
    "line", ["from kerasish.layers import Dens", "from kerasish import nothing"]
)
def test_unknown_names_stay_unknown(line):
    with pytest.raises(ImportError, match="cannot import name"):
        exec(line, {})
    with pytest.raises(AttributeError, match="no attribute 'Dens'"):
        layers.Dens  # noqa: B018


@pytest.mark.parametrize("name", sorted([*METHODS, *TORCH_METHODS]))
def test_an_unsupported_method_says_what_to_use(name):
    layer = layers.Dense(1)
    layer(np.ones((1, 2), "float32"))
    with pytest.raises(UnsupportedError, match=f"Dense.{name} is not supported: .{{30}}"):
        getattr(layer, name)
    with pytest.raises(AttributeError, match="no attribute 'quantse'"):
        layer.quantse  # noqa: B018
