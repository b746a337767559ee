"""The table of a model's layers: bytes and FLOPs of a batch."""

from __future__ import annotations

import numpy as np
import pytest

import kerasish
from kerasish import layers, ops
from kerasish.engine.model.summary import work_of


def said(model, **options):
    result = []
    model.summary(print_fn=result.append, **options)
    return result[0]


def test_bytes_and_flops_of_a_batch():
    model = kerasish.Sequential(
        [
            kerasish.Input((8, 8, 2)),
            layers.Conv2D(4, 3),  # 6 x 6 places, 2 * 3 * 3 * 2 FLOPs a value, and the bias
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(10),  # 36 inputs
        ]
    )
    conv, pool, flat, dense = (work_of(x, model.layer_graph, 5) for x in model.layers)
    assert conv == (5 * 36 * 4 * 37, 5 * 36 * 4)
    assert pool == (5 * 36 * 4, 5 * 9 * 4)
    assert flat == (0, 5 * 36)
    assert dense == (5 * 10 * (2 * 36 + 1), 50)
    text = said(model, batch_size=5)
    assert "Bytes" in text and "FLOPs" in text
    total = sum(w[0] for w in (conv, pool, flat, dense))
    assert f"Batch of 5: {total / 1000:.2f} KFLOPs forward" in text
    plain = said(model)
    assert "FLOPs" not in plain and "Batch" not in plain


def test_recurrent_layers_and_ops_count():
    x = kerasish.Input((5, 4))
    y = layers.LSTM(7)(x)
    model = kerasish.Model(x, ops.exp(y))
    lstm = next(o for o in model.operations if o.name.startswith("lstm"))
    flops, values = work_of(lstm, model.layer_graph, 2)
    products = 2 * 5 * (2 * 4 * 28 + 2 * 7 * 28)
    assert products <= flops <= products * 1.3 and values == 14
    assert work_of(model.operations[-1], model.layer_graph, 2) == (14, 14)


def test_a_layer_called_twice_counts_twice():
    x = kerasish.Input((4,))
    layer = layers.Dense(4, use_bias=False)
    model = kerasish.Model(x, layer(layer(x)))
    assert work_of(layer, model.layer_graph, 3) == (2 * 3 * 4 * 4 * 2, 2 * 12)


def test_what_is_not_known_is_said():
    x = kerasish.Input((None, 4))
    text = said(kerasish.Model(x, layers.GRU(3, name="read")(x)), batch_size=2)
    assert "not counted: read" in text

    class Own(kerasish.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(2, name="inner")

        def call(self, x):
            return self.dense(x)

    model = Own()
    model(np.ones((2, 3), "float32"))
    assert "not counted: inner" in said(model, batch_size=2)
    with pytest.raises(ValueError, match="batch_size"):
        model.summary(batch_size=0)
