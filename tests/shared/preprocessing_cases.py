"""The cases in which the preprocessing layers meet Keras's results; no framework in here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

TEXTS = [
    "The cat sat, on the mat!", "the  DOG\tsat", "", "it's a cat-and-dog's life \u00c9t\u00e9",
    "The the THE ...", "mat cat mat",
]  # fmt: skip
WORDS = [["b", "a", "", "z"], ["\u00e9", "b", "b", "[UNK]"], ["a", "a", "q", "long word " * 9]]
NUMBERS = [[3, 7, -2, 0], [11, 7, 7, -1], [5, 3, 10**12, 4]]


def sound(*shape: int) -> Any:
    """Return a wave that anyone can make again, louder in later rows."""
    count = int(np.prod(shape))
    return (np.sin(0.7 * np.arange(count)) * np.linspace(0.1, 1.0, count)).reshape(shape)


def floats() -> Any:
    """Return 400 numbers of a lopsided distribution."""
    return (np.sin(np.arange(400) * 1.7) * np.exp(np.cos(np.arange(400)))).astype("float32")


def _lookups() -> Iterator[Any]:
    vocabulary = ["a", "b", "\u00e9"]
    modes = ("int", "one_hot", "multi_hot", "count")
    for mode in modes:
        for more in ({}, {"mask_token": ""}, {"num_oov_indices": 3, "mask_token": "q"}):
            yield (
                "StringLookup",
                {"vocabulary": vocabulary, "output_mode": mode, **more},
                None,
                WORDS,
            )
            numbers = {**more, **({"mask_token": -2} if "mask_token" in more else {})}
            args = {"vocabulary": [3, 7, 11], "output_mode": mode, **numbers}
            yield "IntegerLookup", args, None, NUMBERS
        for inputs in (["a", "z", "b"], [["a"], ["z"], ["b"]]):
            yield "StringLookup", {"vocabulary": vocabulary, "output_mode": mode}, None, inputs
    for mode in ("multi_hot", "count"):
        args = {"output_mode": mode, "pad_to_max_tokens": True, "max_tokens": 7}
        yield "StringLookup", {"vocabulary": vocabulary, **args}, None, WORDS
    args = {"vocabulary": vocabulary, "idf_weights": [0.5, 1.5, 2.0], "output_mode": "tf_idf"}
    yield "StringLookup", args, None, WORDS
    yield "StringLookup", {**args, "pad_to_max_tokens": True, "max_tokens": 6}, None, WORDS
    for more in ({}, {"max_tokens": 4}, {"mask_token": "b"}, {"num_oov_indices": 2}):
        yield "StringLookup", more, WORDS, WORDS
        yield "IntegerLookup", {**more, **({"mask_token": 7} if "mask_token" in more else {})}, \
            NUMBERS, NUMBERS  # fmt: skip
        yield "StringLookup", {**more, "output_mode": "tf_idf"}, WORDS, WORDS
    yield "StringLookup", {"output_mode": "tf_idf"}, ["a", "b", "a", "c"], [["a", "b", "x"]]
    for salt in (3, [3, 4]):
        more = {"num_oov_indices": 4, "salt": salt}
        yield "StringLookup", {"vocabulary": vocabulary, **more}, None, WORDS
        yield "IntegerLookup", {"vocabulary": [3], "oov_method": "farmhash", **more}, None, NUMBERS
    more = {"num_oov_indices": 4, "oov_method": "farmhash"}
    yield "IntegerLookup", {"vocabulary": [3, 7], **more}, None, NUMBERS
    for more in ({}, {"mask_token": ""}, {"num_oov_indices": 2}):
        args = {"vocabulary": vocabulary, "invert": True, **more}
        yield "StringLookup", args, None, [[0, 1, 2], [3, 4, 9]]
    args = {"vocabulary": [10, 20], "invert": True, "mask_token": 0}
    yield "IntegerLookup", args, None, [[0, 1, 2], [3, 4, 9]]
    yield "StringLookup", {"vocabulary": ["[UNK]", "a", "b"]}, None, WORDS
    yield "StringLookup", {"vocabulary": ["", "[UNK]", "a"], "mask_token": ""}, None, WORDS


def _hashes() -> Iterator[Any]:
    for mode in ("int", "one_hot", "multi_hot", "count"):
        yield "Hashing", {"num_bins": 7, "output_mode": mode}, None, WORDS
        yield "Hashing", {"num_bins": 7, "output_mode": mode}, None, [["a"], ["b"]]
    for inputs, mask in ((WORDS, ""), (NUMBERS, 7)):
        for more in ({}, {"salt": 1337}, {"salt": [133, 137]}, {"mask_value": mask}):
            yield "Hashing", {"num_bins": 11, **more}, None, inputs
    strings = ["".join(chr(97 + (7 * i + j) % 26) for j in range(i)) for i in range(0, 140, 3)]
    yield "Hashing", {"num_bins": 10**9}, None, strings
    yield "Hashing", {"num_bins": 10**9, "salt": 5}, None, strings
    words, numbers = ["A", "B", "A", "B", "A"], [101, 101, -101, 102, 102]
    for mode in ("int", "one_hot"):
        for inputs in ([words, numbers], [numbers, words, words], [numbers, numbers]):
            yield "HashedCrossing", {"num_bins": 9, "output_mode": mode}, None, inputs
            columns = [[[x] for x in one] for one in inputs]
            yield "HashedCrossing", {"num_bins": 9, "output_mode": mode}, None, columns


def _bins() -> Iterator[Any]:
    values = [[-1.5, 1.0, 3.4, 0.5], [0.0, 3.0, 1.3, 0.0]]
    for mode in ("int", "one_hot", "multi_hot", "count"):
        for inputs in (values, [[1.0], [2.0]], [1.0, 2.0]):
            args = {"bin_boundaries": [0.0, 1.0, 2.0], "output_mode": mode}
            yield "Discretization", args, None, inputs
    yield "Discretization", {"num_bins": 4}, values, values
    for epsilon in (0.01, 0.1, 0.3):
        for bins in (3, 10, 32):
            args = {"num_bins": bins, "epsilon": epsilon}
            yield "Discretization", args, floats().tolist(), values
    yield "Discretization", {"num_bins": 5, "epsilon": 0.1}, [0.5, -1.0, 2.0], values
    for mode in ("one_hot", "multi_hot", "count"):
        for inputs in ([3, 2, 0, 1], [[3], [1]], [[0, 1], [0, 0], [1, 3]], [[0, 4]], 2):
            yield "CategoryEncoding", {"num_tokens": 4, "output_mode": mode}, None, inputs


def _texts() -> Iterator[Any]:
    for mode in ("int", "multi_hot", "count", "tf_idf"):
        yield "TextVectorization", {"output_mode": mode}, TEXTS, TEXTS
        yield "TextVectorization", {"output_mode": mode, "max_tokens": 5}, TEXTS, TEXTS
        yield "TextVectorization", {"output_mode": mode}, TEXTS, [[t] for t in TEXTS]
        if mode != "int":
            more = {"pad_to_max_tokens": True, "max_tokens": 30}
            yield "TextVectorization", {"output_mode": mode, **more}, TEXTS, TEXTS
    for more in (
        {"standardize": "lower"}, {"standardize": "strip_punctuation"}, {"standardize": None},
        {"split": "character"}, {"split": None}, {"ngrams": 2}, {"ngrams": [1, 3]},
        {"ngrams": [2]}, {"ngrams": 2, "output_mode": "count"}, {"output_sequence_length": 3},
        {"output_sequence_length": 9}, {"split": "character", "ngrams": 2},
    ):  # fmt: skip
        yield "TextVectorization", more, TEXTS, TEXTS
    words = ["a", "b", "A,b", "a b", "c", "B."]
    for more in (
        {}, {"ngrams": 2}, {"output_mode": "count"}, {"output_mode": "multi_hot", "ngrams": 2},
        {"output_sequence_length": 2}, {"output_sequence_length": 5, "ngrams": 2},
    ):  # fmt: skip
        args = {"split": None, "vocabulary": ["a", "b", "ab", "a b", "b ab"], **more}
        yield "TextVectorization", args, None, words
        yield "TextVectorization", args, None, [words[:3], words[3:]]
    yield "TextVectorization", {"vocabulary": ["the", "cat"]}, None, TEXTS
    yield "TextVectorization", {"vocabulary": ["", "[UNK]", "the", "cat"]}, None, TEXTS
    args = {"vocabulary": ["the", "cat"], "output_mode": "tf_idf", "idf_weights": [2.0, 3.0]}
    yield "TextVectorization", args, None, TEXTS


def _sounds() -> Iterator[Any]:
    base = {"frame_length": 8, "frame_step": 3, "fft_length": 16}
    wave = sound(2, 40, 2).tolist()
    for mode in ("log", "magnitude", "psd", "real", "imag", "angle", "stft"):
        yield "STFTSpectrogram", {**base, "mode": mode}, None, wave
        yield "STFTSpectrogram", {**base, "mode": mode, "expand_dims": True}, None, wave
    for more in (
        {"padding": "same"}, {"scaling": "spectrum"}, {"scaling": None}, {"periodic": True},
        {"window": "hamming"}, {"window": None}, {"window": [0.5, 1, 1, 1, 1, 1, 1, 0.5]},
        {"fft_length": None}, {"frame_step": None}, {"frame_length": 5},
        {"frame_length": 3, "fft_length": 4, "frame_step": 1},
    ):  # fmt: skip
        yield "STFTSpectrogram", {**base, "mode": "magnitude", **more}, None, wave
    yield "STFTSpectrogram", base, None, np.zeros((1, 12, 1)).tolist()
    yield "STFTSpectrogram", {**base, "mode": "magnitude"}, None, np.zeros((1, 12, 1)).tolist()
    base = {"fft_length": 64, "sequence_stride": 16, "num_mel_bins": 6, "sampling_rate": 8000}
    for more in (
        {}, {"power_to_db": False}, {"mag_exp": 1.0}, {"mag_exp": 1.5}, {"window": "hamming"},
        {"window": None}, {"top_db": 10.0}, {"sequence_length": 32},
        {"min_freq": 50.0, "max_freq": 3000.0}, {"ref_power": 0.1, "min_power": 0.001},
    ):  # fmt: skip
        yield "MelSpectrogram", {**base, **more}, None, sound(2, 400).tolist()
    yield "MelSpectrogram", base, None, sound(400).tolist()


CASES = [*_lookups(), *_hashes(), *_bins(), *_texts(), *_sounds()]


def name_of(number: int) -> str:
    """Return the name of a case: its number, layer and arguments."""
    layer, args, adapted, _ = CASES[number]
    shown = json.dumps(args)[1:-1].replace('"', "")
    return f"{number} {layer} {shown}{' adapted' if adapted is not None else ''}"


def array_of(inputs: Any) -> Any:
    """Return a case's inputs as users give them."""
    array = np.array(inputs)
    return array.astype("float32") if array.dtype.kind == "f" else array


def made(layers: Any, number: int) -> tuple[Any, Any]:
    """Return a case's layer, adapted where it says so, and its inputs."""
    name, args, data, inputs = CASES[number]
    args = {k: tuple(v) if k == "ngrams" and isinstance(v, list) else v for k, v in args.items()}
    layer = getattr(layers, name)(**args)
    if data is not None:
        layer.adapt(array_of(data))
    if name == "HashedCrossing":
        return layer, tuple(array_of(x) for x in inputs)
    return layer, array_of(inputs)
