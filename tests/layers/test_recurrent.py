"""Recurrent layers: states, dropout, stacking, the static engine; numbers: see test_as_keras."""

from __future__ import annotations

import numpy as np
import pytest
from layer_cases import wave

from kerasish import backends, layers, ops, tree
from kerasish.autodiff import GradientTape
from kerasish.backends.onednn import native
from kerasish.errors import ShapeError

KINDS = [layers.LSTM, layers.GRU, layers.SimpleRNN]


def listed(y):
    return list(y) if isinstance(y, (list, tuple)) else [y]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("options", [{}, {"return_sequences": True, "return_state": True}])
def test_static_is_eager_and_native(kind, masked, options):
    layer = kind(7, **options)
    x = wave((3, 4, 5), 0.0)
    mask = np.array([[1, 0, 1, 1], [0, 1, 1, 0], [1, 1, 1, 1]], bool)
    layer(x)
    layer.set_weights([wave(w.shape, 1.0 + i, 0.5) for i, w in enumerate(layer.weights)])

    def step(x, *mask):
        x = ops.multiply(x, 1.0)
        with GradientTape() as tape:
            tape.watch(x)
            ys = listed(layer(x, mask=mask[0]) if mask else layer(x))
            loss = sum(ops.sum(ops.sin(y)) for y in ys)
        return [*ys, *tape.gradient(loss, [x, *layer.weights])]

    given = (x, mask) if masked else (x,)
    compiled = backends.get("static").compile(step)
    expected = step(*map(ops.convert_to_tensor, given))
    for _ in range(2):  # buffers are used again
        for a, b in zip(compiled(*given), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    units = compiled.executables()[0].units
    names = {u.name for u in units if u.native}
    name = {"LSTM": "lstm", "GRU": "gru", "SimpleRNN": "simple_rnn"}[kind.__name__]
    if native.available():
        pytest.skip(f"no oneDNN here: {native.available()}")
    assert {name, f"{name}_gradient"} <= names


@pytest.mark.parametrize("kind", KINDS)
def test_a_cell_by_cell_run_is_the_whole_sequence(kind):
    layer = kind(3, return_sequences=True)
    x = wave((2, 4, 3), 0.0)
    whole = layer(x)
    states, outputs = layer.get_initial_state(2), []
    for t in range(4):
        output, states = layer.cell(x[:, t], states)
        outputs.append(np.asarray(output))
    np.testing.assert_allclose(whole, np.stack(outputs, 1), atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_stateful_goes_on_where_it_stopped(kind):
    whole = kind(3)
    x = wave((2, 6, 3), 0.0)
    expected = whole(x)
    halves = kind(3, stateful=True)
    halves(x[:, :3])
    halves.set_weights(whole.get_weights())
    assert len(halves.weights) == len(whole.weights)
    halves.reset_state()
    halves(x[:, :3])
    np.testing.assert_allclose(halves(x[:, 3:]), expected, atol=1e-6)
    halves.reset_state()
    np.testing.assert_allclose(halves(x), expected, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_there_is_no_output_before_the_first_step_that_counts(kind):
    layer = kind(3, return_sequences=True, return_state=True)
    mask = np.array([[0, 0, 1, 0], [1, 0, 1, 1]], bool)
    first = [wave((2, 3), 1.0)] * (2 if kind is layers.LSTM else 1)
    y = np.asarray(layer(wave((2, 4, 3), 0.0), mask=mask, initial_state=first)[0])
    np.testing.assert_array_equal(y[0, :2], 0.0)
    np.testing.assert_array_equal(y[0, 3], y[0, 2])
    np.testing.assert_array_equal(y[1, 1], y[1, 0])
    assert np.abs(y[0, 2]).min() > 0


@pytest.mark.parametrize("kind", [*KINDS, "cells"])
@pytest.mark.parametrize("backwards", [False, True])
def test_masked_steps_count_as_absent(kind, backwards):
    """The last output and the states are those of the row without these steps."""
    options = {"return_state": True, "go_backwards": backwards}
    if kind == "cells":  # step by step, not the whole sequence at once
        layer = layers.RNN([layers.LSTMCell(3), layers.SimpleRNNCell(2)], **options)
    else:
        layer = kind(3, **options)
    x = wave((3, 5, 4), 0.0)
    mask = np.array([[1, 1, 0, 0, 0], [0, 1, 0, 1, 0], [0, 0, 1, 1, 1]], bool)
    result = tree.flatten(layer(x, mask=mask))
    for row in range(3):
        alone = tree.flatten(layer(x[row : row + 1, mask[row]]))
        for a, b in zip(result, alone, strict=True):
            np.testing.assert_allclose(np.asarray(a)[row : row + 1], b, rtol=1e-5, atol=1e-6)


def test_stateful_needs_the_batch_size():
    with pytest.raises(ShapeError, match="known batch size"):
        layers.LSTM(2, stateful=True).build((None, 3, 2))


@pytest.mark.parametrize("merge", ["sum", "mul", "concat", "ave", None])
@pytest.mark.parametrize("sequences", [False, True])
def test_bidirectional_merges_both_ways(merge, sequences):
    layer = layers.Bidirectional(
        layers.LSTM(3, return_sequences=sequences, name="inner"), merge_mode=merge
    )
    x = wave((2, 4, 3), 0.0)
    y = layer(x)
    forward = np.asarray(layer.forward_layer(x))
    backward = np.asarray(layer.backward_layer(x))
    backward = backward[:, ::-1] if sequences else backward
    expected = {
        "sum": forward + backward, "mul": forward * backward, "ave": (forward + backward) / 2,
        "concat": np.concatenate([forward, backward], -1), None: (forward, backward),
    }[merge]  # fmt: skip
    for a, b in zip(listed(y), listed(expected), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    assert layer.weights[0].path.endswith("forward_inner/lstm_cell/kernel")
    again = layers.Bidirectional.from_config(layer.get_config())
    again(x)
    again.set_weights(layer.get_weights())
    assert (again.forward_layer.name, again.backward_layer.name) == (
        "forward_inner", "backward_inner",
    )  # fmt: skip
    for a, b in zip(listed(again(x)), listed(y), strict=True):
        np.testing.assert_array_equal(a, b)


def test_bidirectional_wants_layers_that_differ_in_direction():
    with pytest.raises(ValueError, match="go_backwards"):
        layers.Bidirectional(layers.LSTM(2), backward_layer=layers.LSTM(2))


def test_stacked_cells_are_layers_one_above_the_other():
    stack = layers.RNN([layers.LSTMCell(3), layers.GRUCell(2)], return_state=True)
    x = wave((2, 4, 3), 0.0)
    y, first, second = stack(x)
    lower, upper = layers.LSTM(3, return_sequences=True), layers.GRU(2)
    upper(lower(x))
    lower.set_weights(stack.get_weights()[:3])
    upper.set_weights(stack.get_weights()[3:])
    np.testing.assert_allclose(y, upper(lower(x)), atol=1e-6)
    assert [s.shape for s in first] == [(2, 3), (2, 3)] and [s.shape for s in second] == [(2, 2)]
    again = layers.RNN.from_config(stack.get_config())
    assert [type(c).__name__ for c in again.cell.cells] == ["LSTMCell", "GRUCell"]


def test_a_cell_of_ones_own():
    class Sum(layers.Layer):
        state_size = 3

        def call(self, inputs, states):
            new = inputs + states[0]
            return new * 2.0, [new]

    x = wave((2, 4, 3), 0.0)
    np.testing.assert_allclose(layers.RNN(Sum())(x), 2 * x.sum(1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_is_the_same_at_all_steps_and_only_in_training(kind):
    layer = kind(4, dropout=0.5, seed=3, return_sequences=True)
    plain = kind(4, return_sequences=True)
    x = np.ones((2, 5, 6), "float32")
    plain(x)
    np.testing.assert_array_equal(layer(x).shape, (2, 5, 4))
    layer.set_weights(plain.get_weights())
    np.testing.assert_array_equal(layer(x), plain(x))
    state = np.asarray(layer.cell.seed_generator.state.value).copy()
    dropped = np.asarray(layer(x, training=True))
    layer.cell.seed_generator.state.assign(state)
    kept = np.asarray(layer.cell._mask("inputs", ops.ones((2, 6)), 0.5))
    np.testing.assert_allclose(dropped, plain(x * kept[:, None]), atol=1e-6)
    assert {0.0, 2.0} == set(kept.ravel().tolist())
    deep = kind(4, recurrent_dropout=0.5, seed=3)
    deep(x)
    assert np.abs(np.asarray(deep(x, training=True)) - np.asarray(deep(x))).max() > 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_config_names_the_cells_arguments(kind):
    layer = kind(4, kernel_regularizer="l2", dropout=0.25, go_backwards=True)
    config = layer.get_config()
    assert config["units"] == 4 and config["dropout"] == 0.25 and config["go_backwards"]
    assert "use_cudnn" not in config and config["zero_output_for_mask"] is False
    again = kind.from_config(config)
    assert again.cell.kernel_regularizer.get_config() == layer.kernel_regularizer.get_config()


def test_errors_name_layer_and_shapes():
    with pytest.raises(ShapeError, match=r"LSTM.*3 axes.*\(2, 3\)"):
        layers.LSTM(2)(np.ones((2, 3)))
    with pytest.raises(ShapeError, match="needs 2 state"):
        layers.LSTM(2)(np.ones((1, 3, 2)), initial_state=[np.ones((1, 2))])
    with pytest.raises(ValueError, match="units"):
        layers.GRU(0)
    with pytest.raises(ShapeError, match=r"\(4, 12\)"):
        ops.lstm(np.ones((2, 1, 8)), np.ones((4, 12)), np.ones((1, 2)), np.ones((1, 2)))


def test_only_the_forget_gate_starts_with_a_bias_of_one():
    layer = layers.LSTM(3)
    layer.build((None, 4, 2))
    assert layer.cell.bias.numpy().tolist() == [0.0] * 3 + [1.0] * 3 + [0.0] * 6
