"""The cases of everyday layers: (layer, arguments, shapes, options), see layer_cases.py."""

from __future__ import annotations

from typing import Any

M23 = [[1, 1, 0], [0, 1, 1]]
M24 = [[1, 1, 1, 0], [0, 1, 1, 1]]
M25 = [[1, 1, 0, 1, 0], [0, 1, 1, 0, 1]]


def _core() -> Any:
    l2 = {"class_name": "L2", "config": {"l2": 0.1}}
    yield "Dense", {"units": 4, "activation": "relu"}, [2, 3], {}
    yield "Dense", {"units": 2, "use_bias": False, "activation": "softmax"}, [2, 3, 4], {}
    yield "Dense", {"units": 2, "kernel_regularizer": l2, "activity_regularizer": l2}, [3, 4], {}
    for equation, sizes, bias, shape in (
        ("abc,cd->abd", [None, 4], "d", [2, 3, 5]), ("ab,bc->ac", 4, "c", [3, 2]),
        ("...x,xy->...y", 3, "y", [2, 2, 4]), ("abc,dc->adb", [4, 3], "db", [2, 3, 5]),
        ("abhv,hvo->abo", [None, 3], None, [2, 3, 2, 4]),
        ("abc,cde->abde", [3, 2, 4], "e", [2, 3, 5]),
        ("abc,cde->abde", [3, 2, 4], "de", [2, 3, 5]),
    ):  # fmt: skip
        args = {"equation": equation, "output_shape": sizes, "bias_axes": bias}
        yield "EinsumDense", {**args, "activation": "tanh"}, shape, {}
    yield "Embedding", {"input_dim": 6, "output_dim": 3}, [2, 4], {"high": 6}
    yield "Embedding", {"input_dim": 6, "output_dim": 2, "mask_zero": True}, [2, 4], {
        "high": 3, "out_mask": True,
    }  # fmt: skip
    table = {"input_dim": 6, "output_dim": 3}
    for args in ({}, {"tie_weights": False}, {"logit_soft_cap": 0.5}):
        yield "ReversibleEmbedding", {**table, **args}, [2, 4], {"high": 6}
        yield "ReversibleEmbedding", {**table, **args}, [2, 4, 3], {"call": {"reverse": True}}
    yield "SpectralNormalization", {"layer": ["Dense", {"units": 3}]}, [2, 4], {}
    yield "SpectralNormalization", {"layer": ["Conv2D", {"filters": 2, "kernel_size": 2}]}, [
        2, 3, 3, 2,
    ], {}  # fmt: skip
    yield "Masking", {"mask_value": 0.0}, [2, 3, 2], {"zeros": True, "out_mask": True}


def _activation() -> Any:
    for name in (
        "elu", "relu", "selu", "gelu", "silu", "softplus", "softsign", "exponential", "sigmoid",
        "hard_sigmoid", "hard_silu", "tanh", "softmax", "log_softmax", "leaky_relu", "relu6",
        "celu", "glu", "hard_tanh", "hard_shrink", "soft_shrink", "tanh_shrink", "squareplus",
        "mish", "log_sigmoid", "sparse_plus", "sparse_sigmoid",
    ):  # fmt: skip
        yield "Activation", {"activation": name}, [2, 4], {"size": 3.0}
    yield "ReLU", {}, [2, 5], {}
    yield "ReLU", {"max_value": 0.8, "negative_slope": 0.2, "threshold": 0.3}, [2, 8], {}
    yield "LeakyReLU", {}, [2, 4], {}
    yield "PReLU", {}, [2, 4], {}
    yield "PReLU", {"shared_axes": [1, 2]}, [2, 2, 3, 2], {}
    yield "ELU", {"alpha": 0.7}, [2, 4], {}
    yield "Softmax", {}, [2, 3], {"mask": M23}
    yield "Softmax", {"axis": [1, 2]}, [2, 3, 2], {}
    yield "Softmax", {"axis": 1}, [2, 3, 2], {}


def _reshaping() -> Any:
    yield "Flatten", {}, [2, 3, 2], {}
    yield "Flatten", {"data_format": "channels_first"}, [2, 3, 2, 2], {}
    yield "Flatten", {}, [3], {}
    yield "Reshape", {"target_shape": [4, -1]}, [2, 2, 6], {}
    yield "Permute", {"dims": [3, 1, 2]}, [2, 2, 3, 2], {}
    yield "RepeatVector", {"n": 3}, [2, 2], {}
    yield "ZeroPadding1D", {"padding": [1, 2]}, [2, 2, 2], {}
    yield "ZeroPadding2D", {"padding": [[1, 0], [2, 1]]}, [1, 2, 2, 2], {}
    yield "ZeroPadding2D", {"padding": [1, 2], "data_format": "channels_first"}, [1, 2, 2, 1], {}
    yield "ZeroPadding3D", {"padding": 1}, [1, 1, 2, 1, 1], {}
    yield "Cropping1D", {"cropping": [1, 0]}, [2, 3, 2], {}
    yield "Cropping2D", {"cropping": [[1, 0], [1, 1]]}, [1, 3, 4, 2], {}
    yield "Cropping2D", {"cropping": 1, "data_format": "channels_first"}, [1, 2, 3, 4], {}
    yield "Cropping3D", {"cropping": [[0, 1], [1, 0], [1, 1]]}, [1, 2, 3, 4, 1], {}
    yield "UpSampling1D", {"size": 3}, [2, 2, 2], {}
    yield "UpSampling2D", {"size": [2, 3]}, [1, 2, 2, 2], {}
    yield "UpSampling2D", {"size": 2, "data_format": "channels_first"}, [1, 2, 2, 2], {}
    yield "UpSampling2D", {"size": [2, 3], "interpolation": "bilinear"}, [1, 3, 2, 2], {}
    yield "UpSampling2D", {"size": 2, "interpolation": "bicubic"}, [1, 3, 4, 1], {}
    yield "UpSampling3D", {"size": [1, 2, 2]}, [1, 2, 1, 2, 2], {}
    yield "Rescaling", {"scale": 0.5, "offset": 1.5}, [2, 3], {}
    yield "Rescaling", {"scale": [0.5, 2.0], "offset": [0.0, 1.0]}, [2, 2], {}
    yield "Normalization", {"mean": 0.5, "variance": 4.0, "axis": None}, [2, 3], {}
    yield "Normalization", {"mean": [0.5, 1.0, 2.0], "variance": [1.0, 2.0, 0.0]}, [2, 3], {}
    yield "Normalization", {"mean": [1.0, 2.0], "variance": [4.0, 2.0], "axis": 1}, [2, 2, 3], {}
    yield "Normalization", {"mean": 1.0, "variance": 4.0, "invert": True, "axis": None}, [2, 3], {}


def _merging() -> Any:
    for name in ("Add", "Multiply", "Average", "Maximum", "Minimum"):
        yield name, {}, [[2, 3], [2, 3], [2, 3]], {}
        yield name, {}, [[2, 3], [2, 2, 3]], {}
        yield name, {}, [[2, 1, 3], [2, 2, 1]], {}
    yield "Add", {}, [[2, 3, 2], [2, 3, 2]], {"masks": [M23, [[1, 0, 1], [1, 1, 1]]]}
    yield "Add", {}, [[2, 3, 2], [2, 3, 2]], {"masks": [M23, None]}
    yield "Subtract", {}, [[2, 3], [2, 3]], {}
    yield "Concatenate", {}, [[2, 3], [2, 1], [2, 2]], {}
    yield "Concatenate", {"axis": 1}, [[2, 3, 2], [2, 1, 2]], {}
    yield "Concatenate", {"axis": 1}, [[2, 3, 2], [2, 4, 2]], {"masks": [M23, M24]}
    yield "Concatenate", {"axis": 1}, [[2, 3, 2], [2, 4, 2]], {"masks": [None, M24]}
    yield "Concatenate", {}, [[2, 3, 2], [2, 3, 4]], {"masks": [M23, None]}
    yield "Dot", {"axes": 1}, [[2, 3], [2, 3]], {}
    yield "Dot", {"axes": [1, 2]}, [[2, 3, 2], [2, 4, 3]], {}
    yield "Dot", {"axes": -1, "normalize": True}, [[2, 3, 2], [2, 4, 2]], {}
    yield "Dot", {"axes": [2, 1]}, [[2, 3, 4], [2, 4]], {}


def _normalization() -> Any:
    for training in (False, True):
        yield "BatchNormalization", {}, [4, 3], {"training": training}
        yield "BatchNormalization", {"axis": 1, "momentum": 0.9}, [2, 3, 2, 2], {
            "training": training,
        }  # fmt: skip
        yield "BatchNormalization", {"scale": False, "epsilon": 0.1}, [2, 3, 2], {
            "training": training, "mask": M23,
        }  # fmt: skip
    yield "BatchNormalization", {"center": False}, [2, 2, 2, 3], {"training": True}
    yield "BatchNormalization", {"trainable": False}, [4, 3], {"training": True}
    yield "LayerNormalization", {}, [2, 3, 4], {}
    yield "LayerNormalization", {"axis": [1, 2], "scale": False}, [2, 3, 4], {}
    yield "LayerNormalization", {"axis": 1, "center": False, "epsilon": 0.1}, [2, 3, 4], {}
    yield "GroupNormalization", {"groups": 2}, [2, 3, 4], {}
    yield "GroupNormalization", {"groups": 1, "scale": False}, [2, 3, 2, 4], {}
    yield "GroupNormalization", {"groups": -1, "center": False}, [2, 5, 3], {}
    yield "GroupNormalization", {"groups": 2, "axis": 1, "epsilon": 0.1}, [2, 4, 3], {}
    yield "GroupNormalization", {"groups": 2}, [3, 4], {}
    yield "UnitNormalization", {}, [2, 3], {}
    yield "UnitNormalization", {"axis": [1, 2]}, [2, 3, 2], {}
    yield "RMSNormalization", {}, [2, 3, 4], {}
    yield "RMSNormalization", {"axis": [1, 2], "epsilon": 0.1}, [2, 3, 4], {}
    yield "ActivityRegularization", {"l1": 0.1, "l2": 0.2}, [2, 3], {}


def _attention() -> Any:
    two, three = [[2, 3, 2], [2, 4, 2]], [[2, 3, 2], [2, 4, 3], [2, 4, 2]]
    for args in ({}, {"use_scale": True}, {"score_mode": "concat"},
                 {"score_mode": "concat", "use_scale": True}):  # fmt: skip
        yield "Attention", args, two, {}
        yield "Attention", args, three, {"mask": [M23, M24, M24]}
    yield "Attention", {}, two, {"call": {"use_causal_mask": True}, "mask": [None, M24]}
    yield "Attention", {}, two, {"call": {"return_attention_scores": True}, "mask": [M23, None]}
    for args in ({}, {"use_scale": False}):
        yield "AdditiveAttention", args, two, {}
        yield "AdditiveAttention", args, three, {"mask": [M23, M24, M24]}
    heads = {"num_heads": 2, "key_dim": 3}
    query = {"spread": True}
    for args in (
        {}, {"output_shape": 5}, {"output_shape": [2, 3]}, {"use_bias": False},
        {"use_gate": True}, {"sliding_window": 2},
    ):  # fmt: skip
        yield "MultiHeadAttention", {**heads, **args}, [[2, 4, 3], [2, 4, 2]], query
    for call in (
        {"use_causal_mask": True}, {"return_attention_scores": True},
        {"value_mask": M25}, {"key_mask": M25},
        {"attention_mask": [[[1, 1, 0, 1, 0]] * 4] * 2, "value_mask": M25},
    ):  # fmt: skip
        yield "MultiHeadAttention", heads, [[2, 4, 3], [2, 5, 2]], {**query, "call": call}
    yield "MultiHeadAttention", heads, [[2, 4, 3], [2, 5, 2], [2, 5, 4]], query
    yield "MultiHeadAttention", {**heads, "attention_axes": 2}, [[2, 2, 3, 4], [2, 2, 2, 4]], query
    yield "MultiHeadAttention", heads, [[2, 2, 3, 4], [2, 3, 2, 4]], query
    yield "MultiHeadAttention", heads, [[2, 2, 3, 4], [2, 3, 2, 4]], {
        **query, "call": {"return_attention_scores": True},
    }  # fmt: skip
    grouped = {"head_dim": 3, "num_query_heads": 4, "num_key_value_heads": 2}
    for args in ({}, {"use_bias": False}, {"use_gate": True}, {"sliding_window": 2}):
        yield "GroupQueryAttention", {**grouped, **args}, [[2, 4, 3], [2, 4, 2]], query
    for call in (
        {"use_causal_mask": True}, {"return_attention_scores": True},
        {"value_mask": M25}, {"key_mask": M25},
        {"attention_mask": [[[1, 1, 0, 1, 0]] * 4] * 2, "value_mask": M25},
    ):  # fmt: skip
        yield "GroupQueryAttention", grouped, [[2, 4, 3], [2, 5, 2]], {**query, "call": call}
    yield "GroupQueryAttention", grouped, [[2, 4, 3], [2, 5, 2], [2, 5, 4]], query
    yield "TimeDistributed", {"layer": ["Dense", {"units": 2}]}, [2, 3, 4], {}
    yield "TimeDistributed", {"layer": ["LayerNormalization", {}]}, [2, 3, 2, 2], {}


FAMILIES = (_core, _activation, _reshaping, _merging, _normalization, _attention)
