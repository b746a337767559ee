"""Fingerprints against known ones; Hashing, HashedCrossing and what they refuse."""

from __future__ import annotations

import json

import numpy as np
import pytest

import kerasish
from kerasish import layers, registry
from kerasish.errors import TraceError
from kerasish.layers import HashedCrossing, Hashing
from kerasish.layers.preprocessing.fingerprint import farm_fingerprints, keyed_fingerprints


def test_known_fingerprints():
    """The reference vectors of SipHash-2-4 (its authors'), and of FarmHash's Fingerprint64."""
    key = (0x0706050403020100, 0x0F0E0D0C0B0A0908)
    strings = [bytes(range(n)) for n in (0, 1, 7, 8, 15)]
    expected = [
        0x726FDB47DD0E0E31, 0x74F839C593DC67FD, 0xAB0200F58B01D137, 0x93F5F5799A932462,
        0xA129CA6149BE45E5,
    ]  # fmt: skip
    assert keyed_fingerprints(strings, key).tolist() == expected
    assert farm_fingerprints([b"hello"]).tolist() == [0xB48BE5A931380CE8]


def test_many_strings_give_what_each_alone_gives():
    strings = [bytes(i * j % 251 for j in range(i)) for i in range(150)] * 2
    for prints in (farm_fingerprints, lambda s: keyed_fingerprints(s, (1, 2))):
        assert prints(strings).tolist() == [int(prints([s])[0]) for s in strings]
        assert prints([]).shape == (0,)


def test_integers_hash_as_their_digits():
    layer = Hashing(100)
    assert (layer([1, -20, 3]).numpy() == layer(["1", "-20", "3"]).numpy()).all()


def test_the_mask_has_bin_0_to_itself():
    words = np.array([f"w{i}" for i in range(50)] + [""])
    result = Hashing(5, mask_value="")(words).numpy()
    assert result[-1] == 0 and set(result[:-1]) == {1, 2, 3, 4}
    assert Hashing(1, mask_value="")(words).numpy().max() == 0


@pytest.mark.parametrize("mode", ["int", "one_hot", "multi_hot", "count"])
@pytest.mark.parametrize("shape", [(None, 3), (None, 1)])
def test_symbolic_results_say_shape_and_dtype(mode, shape):
    layer = Hashing(4, output_mode=mode)
    symbol = layer(layers.Input(batch_shape=shape, dtype="int32"))
    result = layer(np.ones([s or 5 for s in shape], "int32"))
    assert tuple(symbol.shape[1:]) == result.shape[1:] and symbol.dtype == result.dtype
    if mode in ("int", "one_hot"):
        cross = HashedCrossing(4, output_mode=mode)
        inputs = [layers.Input((1,), dtype="int32"), layers.Input((1,), dtype="string")]
        symbol, result = cross(inputs), cross([np.ones((5, 1), int), np.full((5, 1), "a")])
        assert tuple(symbol.shape[1:]) == result.shape[1:] and symbol.dtype == result.dtype


@pytest.mark.parametrize(
    "layer",
    [Hashing(7, mask_value="x", salt=5), HashedCrossing(6, output_mode="one_hot"), Hashing(3)],
)
def test_configs_make_an_equal_layer(layer):
    text = json.dumps(registry.serialize_keras_object(layer))
    other = registry.deserialize_keras_object(json.loads(text))
    assert json.dumps(registry.serialize_keras_object(other)) == text
    one = np.array(["a", "b"])
    inputs = one if isinstance(layer, Hashing) else (one, one)
    assert (other(inputs).numpy() == layer(inputs).numpy()).all()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Hashing(0), "num_bins is a number >= 1"),
        (lambda: Hashing(None), "num_bins is a number >= 1"),
        (lambda: Hashing(3, salt="x"), "salt is an integer or a pair"),
        (lambda: Hashing(3, output_mode="hot"), "one_hot"),
        (lambda: Hashing(3, dtype="float32"), "the dtype is an integer one"),
        (lambda: Hashing(3, sparse=True, output_mode="count"), "sparse=True"),
        (lambda: HashedCrossing(0), "num_bins is a number >= 1"),
        (lambda: HashedCrossing(3, output_mode="count"), "one_hot"),
        (lambda: HashedCrossing(3)(np.array([1, 2])), "at least two inputs, got ndarray"),
        (lambda: HashedCrossing(3)([np.array([1])]), "at least two inputs, got list of 1"),
        (lambda: HashedCrossing(3)([np.ones(2, int), np.ones(3, int)]), "equal shapes"),
        (lambda: HashedCrossing(3)([np.ones((2, 2), int)] * 2), r"got \(2, 2\)"),
        (lambda: HashedCrossing(3)([np.ones(2)] * 2), "integers or strings, got floating"),
    ],
)
def test_mistakes_are_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_inside_a_compiled_function_the_error_says_what_to_do():
    layer = Hashing(3)
    with pytest.raises(TraceError, match="runs on the host, not in a compiled step"):
        kerasish.function(lambda x: layer(x), backend="static")(np.arange(3))
