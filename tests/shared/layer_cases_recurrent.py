"""The cases of recurrent layers, without dropout: see layer_cases.py."""

from __future__ import annotations

from typing import Any

M = [[1, 1, 0, 1, 0], [0, 1, 1, 0, 1]]
START = [[1, 1, 0, 1, 0], [1, 0, 1, 0, 1]]  # the first step counts
L2 = {"class_name": "L2", "config": {"l2": 0.1}}
NAMES = ("LSTM", "GRU", "SimpleRNN")
BACK = {"go_backwards": True}
ALL = {"return_sequences": True}
STATE = {"return_state": True}


def _states(name: str, batch: int = 2, units: int = 3) -> list[list[int]]:
    return [[batch, units]] * (2 if name == "LSTM" else 1)


def _layers() -> Any:
    for name in NAMES:
        units, shape = {"units": 3}, [2, 5, 4]
        for args in (
            {}, ALL, {**BACK, **ALL}, STATE, {"use_bias": False}, {"unroll": True},
            {"activation": "relu"}, BACK, {**ALL, **STATE}, {**BACK, **STATE},
            {"unroll": True, **BACK, **ALL, **STATE}, {"use_bias": False, **ALL},
            {"kernel_regularizer": L2, "recurrent_regularizer": L2, "bias_regularizer": L2},
            {"activation": None, **ALL},
            {"activation": "sigmoid", **ALL},
        ):  # fmt: skip
            yield name, {**units, **args}, shape, {}
        for args in (ALL, {**BACK, **ALL, **STATE}, STATE, {"unroll": True, **STATE}):
            yield name, {**units, **args}, [shape, *_states(name)], {"states": True}
        yield name, {"units": 1, **ALL}, [1, 3, 1], {}
        yield name, {**units, **ALL, **STATE}, [2, 1, 4], {}
        for mode in ("elu", "gelu", "softsign"):
            yield name, {**units, "activation": mode, **ALL}, shape, {}
    for name in ("LSTM", "GRU"):
        # Keras's SimpleRNN takes this argument, and does not hand it on.
        yield name, {"units": 3, "activity_regularizer": L2, **ALL}, [2, 5, 4], {}
        for mode in ("hard_sigmoid", "tanh", None):
            yield name, {"units": 3, "recurrent_activation": mode, **ALL}, [2, 5, 4], {}
    for args in (ALL, {"use_bias": False}, {**BACK, **ALL, **STATE}, {"unroll": True},
                 {"activation": "relu"}, {"recurrent_activation": "hard_sigmoid"}):  # fmt: skip
        yield "GRU", {"units": 3, "reset_after": False, **args}, [2, 5, 4], {}
    before = {"units": 3, "reset_after": False, **ALL}
    yield "GRU", before, [[2, 5, 4], [2, 3]], {"states": True}
    yield "GRU", before, [2, 5, 4], {"mask": START}
    yield "LSTM", {"units": 3, "unit_forget_bias": False, **ALL}, [2, 5, 4], {}


def _masked() -> Any:
    for name in NAMES:
        units, shape = {"units": 3}, [2, 5, 4]
        # Keras's backends differ in the output before the first step that counts.
        for args in (
            {}, {**ALL, **STATE}, {**BACK, **ALL}, {"zero_output_for_mask": True, **ALL}, BACK,
            {"activation": "relu", **ALL}, {"unroll": True, **ALL, **STATE},
            {"unroll": True, **BACK, **STATE}, {"zero_output_for_mask": True, **BACK, **ALL},
        ):  # fmt: skip
            yield name, {**units, **args}, shape, {"mask": START}
        for args in ({}, {"zero_output_for_mask": True, **ALL}, {**BACK, **STATE}, STATE):
            yield name, {**units, **args}, shape, {"mask": M}
            options = {"mask": M, "states": True}
            yield name, {**units, **args}, [shape, *_states(name)], options


def _convolved() -> Any:
    first = {"data_format": "channels_first"}
    for n, places in (("1D", [5]), ("2D", [4, 3]), ("3D", [3, 3, 2])):
        shape = [2, 3, *places, 2]
        for args in (
            {}, {"padding": "same", "strides": 2, **ALL}, {**BACK, **ALL}, STATE,
            {"use_bias": False, **ALL}, {"recurrent_activation": "hard_sigmoid"},
            {"kernel_size": 1, "unit_forget_bias": False}, {"padding": "same", **ALL, **STATE},
            {"activation": "relu", **BACK},
        ):  # fmt: skip
            yield f"ConvLSTM{n}", {"filters": 2, "kernel_size": 2, **args}, shape, {}
        for args in ({}, {"padding": "same", **ALL}):
            given = {"filters": 3, "kernel_size": 2, **first, **args}
            yield f"ConvLSTM{n}", given, [2, 3, 2, *places], {}
    yield "ConvLSTM2D", {"filters": 2, "kernel_size": 2, "dilation_rate": 2, **ALL}, [
        1, 3, 4, 4, 2,
    ], {}  # fmt: skip
    mask = [[1, 0, 1], [1, 1, 0]]
    yield "ConvLSTM2D", {"filters": 2, "kernel_size": 2, **ALL}, [2, 3, 4, 3, 2], {"mask": mask}


def _cells() -> Any:
    for name in NAMES:
        for args in ({}, {"use_bias": False}, {"activation": "relu"}):
            inputs = [[2, 4], *_states(name)]
            yield f"{name}Cell", {"units": 3, **args}, inputs, {"states": True}
        cell = {"cell": [f"{name}Cell", {"units": 3}]}
        for args in ({}, {**ALL, **STATE}, {**BACK, **ALL}, {"unroll": True}):
            yield "RNN", {**cell, **args}, [2, 4, 2], {}
    before = {"units": 3, "reset_after": False}
    yield "GRUCell", before, [[2, 4], [2, 3]], {"states": True}
    stack = [["LSTMCell", {"units": 3}], ["GRUCell", {"units": 2}]]
    for args in ({}, {**ALL, **STATE}):
        yield "RNN", {"cell": ["StackedRNNCells", {"cells": stack}], **args}, [2, 4, 3], {}
    mask = [[1, 0, 1, 1], [1, 1, 0, 0]]
    yield "RNN", {"cell": ["StackedRNNCells", {"cells": stack}], **ALL}, [2, 4, 3], {"mask": mask}


def _both_ways() -> Any:
    shape = [2, 4, 3]
    for name in NAMES:
        for merge in ("concat", "sum", "mul", "ave", None):
            for args in ({}, ALL):
                inner = {"layer": [name, {"units": 2, **args}], "merge_mode": merge}
                yield "Bidirectional", inner, shape, {}
        inner = {"layer": [name, {"units": 2, **ALL, **STATE}]}
        yield "Bidirectional", inner, shape, {}
        yield "Bidirectional", {"layer": [name, {"units": 2, **ALL}]}, shape, {
            "mask": [[1, 0, 1, 1], [1, 1, 0, 1]],
        }  # fmt: skip
    yield "Bidirectional", {
        "layer": ["LSTM", {"units": 2, **ALL}], "backward_layer": ["GRU", {"units": 3, **BACK,
                                                                           **ALL}],
    }, shape, {}  # fmt: skip
    for inner in (["LSTM", {"units": 2}], ["Conv1D", {"filters": 2, "kernel_size": 2}]):
        yield "TimeDistributed", {"layer": inner}, [2, 3, 4, 2], {}


FAMILIES = (_layers, _masked, _convolved, _cells, _both_ways)
