"""More cases of everyday layers, option by option: see layer_cases.py."""

from __future__ import annotations

from typing import Any

M23 = [[1, 1, 0], [0, 1, 1]]
M24 = [[1, 1, 1, 0], [0, 1, 1, 1]]
FIRST = [[1, 1, 0, 1, 0], [1, 0, 1, 0, 1]]
START = [[1, 1, 1, 0], [1, 0, 1, 1]]  # each query has a value to attend to
M25 = [[1, 1, 0, 1, 0], [0, 1, 1, 0, 1]]
L1 = {"class_name": "L1", "config": {"l1": 0.1}}
L2 = {"class_name": "L2", "config": {"l2": 0.1}}
BOTH = {"class_name": "L1L2", "config": {"l1": 0.1, "l2": 0.2}}
ORTHOGONAL = {"class_name": "OrthogonalRegularizer", "config": {"factor": 0.1, "mode": "columns"}}


def _core() -> Any:
    for shape in ([2, 3], [1, 4], [2, 2, 3], [2, 2, 1, 3]):
        yield "Dense", {"units": 3}, shape, {}
    for args in (
        {"kernel_regularizer": BOTH, "bias_regularizer": L1}, {"kernel_regularizer": ORTHOGONAL},
        {"activity_regularizer": L1, "activation": "relu"}, {"activation": "gelu"},
        {"units": 1, "activation": "sigmoid"},
    ):  # fmt: skip
        yield "Dense", {"units": 3, **args}, [4, 5], {}
    yield "Embedding", {"input_dim": 5, "output_dim": 2, "embeddings_regularizer": L2}, [3], {
        "high": 5,
    }  # fmt: skip
    table = {"input_dim": 6, "output_dim": 3}
    yield "ReversibleEmbedding", {**table, "mask_zero": True}, [2, 4], {
        "high": 3, "out_mask": True,
    }  # fmt: skip
    yield "Masking", {"mask_value": 1.0}, [2, 3, 2], {"out_mask": True}
    yield "Identity", {}, [2, 3], {}
    yield "Identity", {}, [[2, 3], [2, 1]], {}
    l2 = {"kernel_regularizer": L2, "activity_regularizer": L2}
    equation = {"equation": "abc,cd->abd", "output_shape": [None, 3], "bias_axes": "d"}
    yield "EinsumDense", {**equation, **l2}, [2, 3, 4], {}
    for inner, shape in (
        (["Conv1D", {"filters": 2, "kernel_size": 2}], [2, 4, 3]),
        (["Embedding", {"input_dim": 4, "output_dim": 3}], [2, 3]),
    ):
        options = {"high": 4} if inner[0] == "Embedding" else {}
        yield "SpectralNormalization", {"layer": inner}, shape, options
    yield "SpectralNormalization", {"layer": ["Dense", {"units": 3}], "power_iterations": 3}, [
        2, 4,
    ], {"training": False}  # fmt: skip


def _unmoved() -> Any:
    """Layers of chance, where nothing is drawn: at prediction, and with nothing to draw."""
    for name in ("Dropout", "AlphaDropout", "GaussianDropout"):
        yield name, {"rate": 0.4}, [2, 3], {"training": False}
        yield name, {"rate": 0.0}, [2, 3], {"training": True}
    for n, shape in (("1D", [2, 3, 2]), ("2D", [2, 2, 3, 2]), ("3D", [2, 2, 2, 3, 2])):
        yield f"SpatialDropout{n}", {"rate": 0.4}, shape, {"training": False}
        yield f"SpatialDropout{n}", {"rate": 0.0}, shape, {"training": True}
    yield "GaussianNoise", {"stddev": 0.4}, [2, 3], {"training": False}
    yield "GaussianNoise", {"stddev": 0.0}, [2, 3], {"training": True}


def _activation() -> Any:
    for name in ("linear", "sparsemax", "sparse_plus", "gelu", "softmax", "relu6"):
        yield "Activation", {"activation": name}, [2, 3, 4], {"size": 8.0}
    for args in (
        {"max_value": 6.0}, {"negative_slope": 0.3}, {"threshold": 0.5}, {"max_value": 0.0},
        {"max_value": 0.5, "negative_slope": 0.1}, {"negative_slope": 0.2, "threshold": 0.4},
    ):  # fmt: skip
        yield "ReLU", args, [2, 6], {"size": 2.0}
    yield "LeakyReLU", {"negative_slope": 0.05}, [2, 4], {}
    yield "ELU", {}, [2, 4], {}
    yield "PReLU", {"alpha_regularizer": L2}, [2, 3], {}
    yield "PReLU", {"shared_axes": [1]}, [2, 3, 2], {}
    yield "Softmax", {"axis": -2}, [2, 3, 2], {}


def _reshaping() -> Any:
    yield "Flatten", {}, [2, 1, 3], {}
    yield "Reshape", {"target_shape": [-1]}, [2, 2, 3], {}
    yield "Reshape", {"target_shape": [3, 1, 2]}, [2, 6], {}
    yield "Permute", {"dims": [2, 1]}, [2, 2, 3], {}
    yield "RepeatVector", {"n": 1}, [2, 3], {}
    for args in ({"mean": 0.5, "variance": 4.0}, {"mean": [1.0, 2.0], "variance": [4.0, 0.0]}):
        yield "Normalization", {**args, "axis": -1}, [2, 3, 2], {}
    yield "Normalization", {"mean": [1.0, 2.0], "variance": [4.0, 2.0], "invert": True}, [2, 2], {}


def _merging() -> Any:
    for name in ("Add", "Multiply", "Average", "Maximum", "Minimum"):
        yield name, {}, [[2, 3], [2, 3]], {}
        yield name, {}, [[2, 3, 2], [2, 3, 2], [2, 3, 2]], {"masks": [M23, None, M23]}
    yield "Subtract", {}, [[2, 1, 3], [2, 2, 3]], {}
    yield "Concatenate", {"axis": -2}, [[2, 1, 2], [2, 3, 2]], {}
    yield "Concatenate", {"axis": 2}, [[2, 3, 2], [2, 3, 1]], {"masks": [M23, M23]}
    for axes, shapes in (
        (1, [[2, 3, 2], [2, 3, 4]]), (2, [[2, 3, 4], [2, 2, 4]]), ([1, 1], [[2, 3], [2, 3, 4]]),
        ([3, 2], [[2, 2, 3, 4], [2, 3, 4]]), (-1, [[2, 4], [2, 4]]),
    ):  # fmt: skip
        yield "Dot", {"axes": axes}, shapes, {}
        yield "Dot", {"axes": axes, "normalize": True}, shapes, {}


def _normalization() -> Any:
    for training in (False, True):
        for args, shape in (
            ({"axis": 1}, [3, 2, 4]), ({"axis": -2}, [2, 3, 2]), ({"momentum": 0.5}, [4, 2]),
            ({"center": False, "scale": False}, [3, 2, 2]),
            ({"beta_regularizer": L2, "gamma_regularizer": L2}, [4, 3]),
            ({}, [2, 2, 1, 2, 3]),
        ):  # fmt: skip
            yield "BatchNormalization", args, shape, {"training": training}
        renorm = {"renorm": True}
        for args in (
            {},
            {"renorm_momentum": 0.7},
            {"renorm_clipping": {"rmax": 1.2, "rmin": 0.8, "dmax": 0.3}},
        ):
            yield "BatchNormalization", {**renorm, **args}, [4, 3], {"training": training}
    yield "BatchNormalization", {}, [2, 3, 2], {"training": True, "mask": M23}
    yield "BatchNormalization", {"axis": 2}, [2, 3, 2], {"training": True, "mask": [[1, 0, 0]] * 2}
    for args, shape in (
        ({}, [2, 4]), ({"axis": [1, 2, 3]}, [2, 2, 3, 2]), ({"axis": [-1, -2]}, [2, 3, 4]),
        ({"center": False, "scale": False}, [2, 3]), ({"axis": 1}, [2, 3, 2]),
        ({"beta_regularizer": L2, "gamma_regularizer": L1}, [2, 3]), ({}, [2, 1]),
    ):  # fmt: skip
        yield "LayerNormalization", args, shape, {}
    for args, shape in (
        ({"groups": 4}, [2, 3, 4]), ({"groups": 1}, [2, 4]), ({"groups": 3}, [1, 2, 2, 6]),
        ({"groups": 2, "axis": 1}, [2, 4, 2, 3]), ({"groups": 2, "axis": 2}, [2, 3, 4, 2]),
        ({"groups": 2, "center": False, "scale": False}, [2, 2, 2, 2, 4]),
        ({"groups": 2, "beta_regularizer": L2, "gamma_regularizer": L2}, [2, 3, 4]),
    ):  # fmt: skip
        yield "GroupNormalization", args, shape, {}
    for axis, shape in ((1, [2, 3, 2]), (-1, [2, 3, 2]), ([1, 2, 3], [2, 2, 2, 3])):
        yield "UnitNormalization", {"axis": axis}, shape, {}
        if axis != 1:  # Keras multiplies the last axis by the scale of axis 1
            yield "RMSNormalization", {"axis": axis}, shape, {}
    yield "ActivityRegularization", {"l1": 0.3}, [2, 3], {}
    yield "ActivityRegularization", {"l2": 0.3}, [2, 3, 2], {}


def _attention() -> Any:
    two, three = [[2, 3, 2], [2, 4, 2]], [[2, 3, 2], [2, 4, 3], [2, 4, 2]]
    for name in ("Attention", "AdditiveAttention"):
        for options in (
            {"mask": [M23, M24]}, {"mask": [M23, None]}, {"mask": [None, M24]},
            {"call": {"use_causal_mask": True}}, {"call": {"return_attention_scores": True}},
            {"call": {"use_causal_mask": True, "return_attention_scores": True},
             "mask": [M23, START]},
        ):  # fmt: skip
            yield name, {}, two, options
        yield name, {}, three, {}
        yield name, {"dropout": 0.5}, three, {"training": False}
    heads = {"num_heads": 2, "key_dim": 3}
    grouped = {"head_dim": 2, "num_query_heads": 4, "num_key_value_heads": 2}
    shapes = [[2, 4, 3], [2, 5, 2]]
    for name, args in (("MultiHeadAttention", heads), ("GroupQueryAttention", grouped)):
        for call in (
            {"value_mask": M25, "key_mask": M25[::-1]}, {"use_causal_mask": True},
            {"value_mask": FIRST, "use_causal_mask": True, "return_attention_scores": True},
        ):  # fmt: skip
            yield name, args, shapes, {"spread": True, "call": call}
        yield name, {**args, "dropout": 0.5}, shapes, {"spread": True, "training": False}
        yield name, {**args, "sliding_window": 2}, [[2, 5, 3], [2, 5, 2]], {
            "spread": True, "call": {"use_causal_mask": True},
        }  # fmt: skip
        yield name, {**args, "kernel_regularizer": L2}, shapes, {"spread": True}
    for args in (
        {"value_dim": 2}, {"num_heads": 1}, {"num_heads": 3, "key_dim": 1, "use_bias": False},
        {"use_gate": True, "use_bias": False}, {"value_dim": 4, "output_shape": 2},
    ):  # fmt: skip
        yield "MultiHeadAttention", {**heads, **args}, shapes, {"spread": True}
    for args in (
        {"num_key_value_heads": 4},
        {"num_key_value_heads": 1},
        {"use_gate": True, "use_bias": False},
    ):
        yield "GroupQueryAttention", {**grouped, **args}, shapes, {"spread": True}
    for inner in (["Dense", {"units": 2, "activation": "tanh"}], ["BatchNormalization", {}]):
        yield "TimeDistributed", {"layer": inner}, [2, 3, 4], {}


def _spectra() -> Any:
    short = {"frame_length": 4, "frame_step": 2, "fft_length": 8}
    for mode in ("magnitude", "psd", "real", "imag", "log", "stft"):
        yield "STFTSpectrogram", {"mode": mode, **short}, [2, 12, 1], {}
    mel = {"fft_length": 8, "sequence_stride": 4, "num_mel_bins": 3, "sampling_rate": 16}
    for args in ({}, {"power_to_db": False}, {"mag_exp": 1.0, "power_to_db": False}):
        yield "MelSpectrogram", {**mel, "min_freq": 0.5, **args}, [2, 20], {}


FAMILIES = (
    _core, _unmoved, _activation, _reshaping, _merging, _normalization, _attention, _spectra,
)  # fmt: skip
