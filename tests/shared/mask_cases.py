"""Every layer that may meet a mask: what becomes of it; no framework in here."""

from __future__ import annotations

from typing import Any

import numpy as np

STEPS = np.array([[1, 1, 1, 0], [1, 0, 1, 0]], "bool")  # the mask of every input
OTHER = np.array([[1, 1, 0, 0], [1, 1, 1, 1]], "bool")  # of a second one

# (layer, constructor arguments) on (2, 4, 6): (batch, steps, features)
_PLAIN: list[tuple[str, dict[str, Any]]] = [
    ("Activation", {"activation": "relu"}), ("ActivityRegularization", {}),
    ("AdaptiveAveragePooling1D", {"output_size": 2}), ("AdaptiveMaxPooling1D", {"output_size": 2}),
    ("AlphaDropout", {"rate": 0.5}), ("AveragePooling1D", {"pool_size": 2}),
    ("BatchNormalization", {}),
    ("Conv1D", {"filters": 2, "kernel_size": 3, "padding": "same"}),
    ("Conv1D", {"filters": 2, "kernel_size": 3, "padding": "causal"}),
    ("Conv1D", {"filters": 2, "kernel_size": 1}),
    ("Conv1DTranspose", {"filters": 2, "kernel_size": 2}), ("Cropping1D", {"cropping": 1}),
    ("Dense", {"units": 3}), ("DepthwiseConv1D", {"kernel_size": 2, "padding": "same"}),
    ("Dropout", {"rate": 0.5}), ("ELU", {}),
    ("EinsumDense", {"equation": "abc,cd->abd", "output_shape": [None, 3]}), ("Flatten", {}),
    ("GRU", {"units": 3}), ("GRU", {"units": 3, "return_sequences": True}),
    ("GRU", {"units": 3, "return_sequences": True, "return_state": True}),
    ("GaussianDropout", {"rate": 0.5}), ("GaussianNoise", {"stddev": 0.1}),
    ("GlobalAveragePooling1D", {}), ("GlobalAveragePooling1D", {"keepdims": True}),
    ("GlobalMaxPooling1D", {}), ("GroupNormalization", {"groups": 2}), ("Identity", {}),
    ("LSTM", {"units": 3}), ("LSTM", {"units": 3, "return_sequences": True}),
    ("LSTM", {"units": 3, "return_state": True}), ("LayerNormalization", {}), ("LeakyReLU", {}),
    ("Masking", {}), ("MaxPooling1D", {"pool_size": 2}),
    ("Normalization", {"mean": 0.0, "variance": 1.0}),
    ("PReLU", {}), ("Permute", {"dims": [2, 1]}), ("RMSNormalization", {}), ("ReLU", {}),
    ("Rescaling", {"scale": 2.0}), ("Reshape", {"target_shape": [4, 6]}),
    ("Reshape", {"target_shape": [8, 3]}),
    ("SeparableConv1D", {"filters": 2, "kernel_size": 2, "padding": "same"}),
    ("SimpleRNN", {"units": 3}), ("SimpleRNN", {"units": 3, "return_sequences": True}),
    ("SpatialDropout1D", {"rate": 0.5}), ("UnitNormalization", {}), ("UpSampling1D", {}),
    ("ZeroPadding1D", {}),
]  # fmt: skip
_WRAPPED: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("Bidirectional", "LSTM", {"units": 3}, {}),
    ("Bidirectional", "LSTM", {"units": 3, "return_sequences": True}, {}),
    ("Bidirectional", "GRU", {"units": 3, "return_sequences": True}, {"merge_mode": None}),
    ("Bidirectional", "GRU", {"units": 3, "return_sequences": True, "return_state": True}, {}),
    ("SpectralNormalization", "Dense", {"units": 3}, {}),
    ("TimeDistributed", "Dense", {"units": 3}, {}),
]
_MANY: list[tuple[str, dict[str, Any]]] = [
    ("Add", {}), ("AdditiveAttention", {}), ("Attention", {}), ("Average", {}),
    ("Concatenate", {}), ("Concatenate", {"axis": 1}), ("Dot", {"axes": 2}), ("Maximum", {}),
    ("Minimum", {}), ("Multiply", {}), ("Subtract", {}),
]  # fmt: skip
_PAIRS: list[tuple[str, dict[str, Any]]] = [
    ("GroupQueryAttention", {"head_dim": 2, "num_query_heads": 2, "num_key_value_heads": 1}),
    ("MultiHeadAttention", {"num_heads": 2, "key_dim": 3}),
]
_WORDS: list[tuple[str, dict[str, Any]]] = [
    ("Embedding", {"input_dim": 6, "output_dim": 3}),
    ("Embedding", {"input_dim": 6, "output_dim": 3, "mask_zero": True}),
    ("ReversibleEmbedding", {"input_dim": 6, "output_dim": 3, "mask_zero": True}),
]


def name_of(kind: str, args: dict[str, Any]) -> str:
    return f"{kind}({', '.join(f'{k}={v}' for k, v in args.items())})"


def fates(layers: Any, tensor: Any, mask_of: Any, give_mask: Any) -> dict[str, Any]:
    """Return, by layer, the masks on its results: None, or nested lists of 0 and 1.

    Args:
        layers: the module `layers` of a framework.
        tensor: makes its tensors of arrays.
        mask_of: returns the mask of a tensor as an array, or None.
        give_mask: sets the mask of a tensor.
    """
    rng = np.random.default_rng(1)
    numbers = rng.normal(size=(2, 4, 6)).astype("float32")
    words = np.array([[1, 2, 3, 0], [4, 0, 5, 0]], "int32")

    def masked(array: Any, mask: Any = STEPS) -> Any:
        created = tensor(array)
        give_mask(created, tensor(mask))
        return created

    result: dict[str, Any] = {}

    def note(name: str, results: Any) -> None:
        many = list(results) if isinstance(results, (list, tuple)) else [results]
        masks = [mask_of(t) for t in many]
        result[name] = [None if m is None else np.asarray(m).astype(int).tolist() for m in masks]

    for kind, args in _PLAIN:
        note(name_of(kind, args), getattr(layers, kind)(**args)(masked(numbers)))
    for kind, inner, inside, args in _WRAPPED:
        layer = getattr(layers, kind)(getattr(layers, inner)(**inside), **args)
        note(name_of(f"{kind}:{inner}", {**inside, **args}), layer(masked(numbers)))
    for kind, args in _MANY:
        for first, second in ((STEPS, OTHER), (STEPS, None), (None, OTHER)):
            inputs = [tensor(numbers) if m is None else masked(numbers, m) for m in (first, second)]
            given = "both" if first is not None and second is not None else (
                "first" if second is None else "second"
            )  # fmt: skip
            note(f"{name_of(kind, args)} {given}", getattr(layers, kind)(**args)(inputs))
    for kind, args in _PAIRS:
        layer = getattr(layers, kind)(**args)
        note(name_of(kind, args), layer(masked(numbers), masked(numbers, OTHER)))
        note(f"{name_of(kind, args)} value", layer(tensor(numbers), masked(numbers, OTHER)))
    for kind, args in _WORDS:
        note(name_of(kind, args), getattr(layers, kind)(**args)(tensor(words)))
    return result
