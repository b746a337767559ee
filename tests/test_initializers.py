"""Initializers: moments, shapes, seeds, names and configs."""

from __future__ import annotations

import copy
import json
import math
import pickle

import numpy as np
import pytest
import threadpoolctl

from kerasish import config, initializers, random
from kerasish.errors import ShapeError, UnknownNameError
from kerasish.registry import BUILTINS
from kerasish.tensor import Variable, to_numpy

CLASSES = sorted(
    {c for c in BUILTINS["keras.initializers"].values() if c is not initializers.Initializer},
    key=lambda c: c.__name__,
)
SHAPES = {"STFT": (8, 2, 5), "Identity": (3, 4)}


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
@pytest.mark.parametrize("dtype", [None, "float32", "float64", "float16", "bfloat16"])
def test_shape_and_dtype(cls, dtype):
    shape = SHAPES.get(cls.__name__, (3, 2, 4))
    created = Variable(cls(), shape=shape, dtype=dtype or "float32")
    assert created.shape == shape and created.dtype == (dtype or "float32")
    assert np.isfinite(created.numpy().astype("float64")).all()
    assert str(np.asarray(to_numpy(cls()(shape, dtype))).dtype) == (dtype or config.floatx())


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_config_pickle_and_copy_give_the_same_config(cls):
    created = cls()
    for again in (
        cls.from_config(created.get_config()),
        initializers.deserialize(initializers.serialize(created)),
        created.clone(),
    ):
        assert type(again) is cls and again.get_config() == created.get_config()
    shape = SHAPES.get(cls.__name__, (3, 4))
    for again in (pickle.loads(pickle.dumps(created)), copy.deepcopy(created)):
        assert np.array_equal(to_numpy(again(shape)), to_numpy(created(shape)))


@pytest.mark.parametrize(
    ("name", "scale", "fan", "shape"),
    [
        ("glorot_uniform", 1.0, "avg", (60, 90)),
        ("glorot_normal", 1.0, "avg", (3, 3, 30, 60)),
        ("he_normal", 2.0, "in", (200, 40)),
        ("he_uniform", 2.0, "in", (3, 3, 30, 60)),
        ("lecun_normal", 1.0, "in", (200, 40)),
        ("lecun_uniform", 1.0, "in", (5, 20, 60)),
        ("variance_scaling", 1.0, "in", (200, 40)),
    ],
)
def test_variance_follows_from_the_fans(name, scale, fan, shape):
    x = to_numpy(initializers.get({"class_name": name, "config": {"seed": 3}})(shape))
    fan_in, fan_out = initializers.scaling.fans(shape)
    count = fan_in if fan == "in" else (fan_in + fan_out) / 2
    assert abs(x.mean()) < 4 * math.sqrt(scale / count / x.size)
    assert x.var() == pytest.approx(scale / count, rel=0.06)


@pytest.mark.parametrize(
    ("shape", "axes", "expected"),
    [
        ((), (None, None), (1, 1)),
        ((5,), (None, None), (5, 5)),
        ((20, 30, 50), (None, None), (600, 1000)),
        ((20, 30, 50), ([0], None), (600, 1000)),
        ((20, 30, 50), ([-1], [0]), (50, 20)),
        ((7, 20, 30), ([], [0, 1]), (1, 140)),
    ],
)
def test_fans_as_keras_counts_them(shape, axes, expected):
    assert initializers.scaling.fans(shape, *axes) == expected


def test_modes_and_distributions():
    make = initializers.VarianceScaling
    wide = to_numpy(make(mode="fan_out", distribution="untruncated_normal", seed=1)((50, 400)))
    assert wide.var() == pytest.approx(1 / 400, rel=0.05)
    assert abs(wide).max() > 3 / 20  # not truncated
    cut = to_numpy(make(seed=1)((400, 50)))
    assert abs(cut).max() <= 2 / 20 / 0.8796 + 1e-6
    for wrong in ({"scale": 0}, {"mode": "fan"}, {"distribution": "gamma"}):
        with pytest.raises(ValueError):
            make(**wrong)


def test_normal_uniform_truncated():
    x = to_numpy(initializers.RandomNormal(1.0, 0.5, seed=1)((10000,)))
    assert x.mean() == pytest.approx(1, abs=0.02) and x.std() == pytest.approx(0.5, rel=0.03)
    x = to_numpy(initializers.RandomUniform(2, 5, seed=1)((10000,)))
    assert 2 <= x.min() < 2.01 and 4.99 < x.max() < 5
    x = to_numpy(initializers.TruncatedNormal(0.0, 2.0, seed=1)((10000,)))
    assert abs(x).max() <= 4 and x.std() == pytest.approx(2 * 0.8796, rel=0.03)


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (3, 2, 2), (4, 4)])
def test_orthogonal(shape):
    q = to_numpy(initializers.Orthogonal(gain=2.0, seed=1)(shape)).reshape(-1, shape[-1])
    product = q @ q.T if q.shape[0] < q.shape[1] else q.T @ q
    assert np.allclose(product, 4 * np.eye(len(product)), atol=1e-5)


def test_stft_against_numpy_fft():
    samples, bins = 8, 5
    x = np.random.default_rng(0).normal(size=samples)
    parts = [
        to_numpy(initializers.STFT(side, window=None, scaling=None)((samples, 1, bins)))[:, 0]
        for side in ("real", "imag")
    ]
    assert np.allclose(x @ parts[0] + 1j * (x @ parts[1]), np.fft.rfft(x), atol=1e-5)
    # Values of Keras 3.15.1: STFT()((8, 1, 5)).
    first = to_numpy(initializers.STFT()((8, 1, 5)))[1, 0]
    assert np.allclose(first, [0.11619, 0.08216, 0, -0.08216, -0.11619], atol=1e-5)
    spectrum = initializers.STFT(window="hamming", scaling="spectrum", periodic=True)((8, 1, 5))
    assert np.allclose(spectrum[:2, 0, 0], [0.01852, 0.04971], atol=1e-5)
    ones = initializers.STFT(window=np.ones(8))((8, 1, 3))
    assert np.allclose(ones[:, 0, 0], 8**-0.5)
    with pytest.raises(ShapeError, match="8 samples"):
        initializers.STFT(window=np.ones(4))((8, 1, 3))
    with pytest.raises(ValueError, match="side"):
        initializers.STFT(side="left")


def test_the_same_object_gives_the_same_values_and_others_differ():
    config.set_seed(5)
    a, b = initializers.GlorotUniform(), initializers.GlorotUniform()
    assert np.array_equal(to_numpy(a((3, 4))), to_numpy(a((3, 4))))
    assert not np.array_equal(to_numpy(a((3, 4))), to_numpy(b((3, 4))))
    config.set_seed(5)
    again = initializers.GlorotUniform()
    assert np.array_equal(to_numpy(a((3, 4))), to_numpy(again((3, 4))))
    config.set_seed(None)


def test_a_seed_generator_gives_new_values_each_time():
    created = initializers.RandomNormal(seed=random.SeedGenerator(3))
    assert not np.array_equal(to_numpy(created((4,))), to_numpy(created((4,))))
    with pytest.raises(ValueError, match="seed"):
        initializers.RandomNormal(seed="three")


def test_constants():
    assert to_numpy(initializers.Constant([1, 2])((2, 2))).tolist() == [[1, 2], [1, 2]]
    assert to_numpy(initializers.Identity(3.0)((2, 3))).tolist() == [[3, 0, 0], [0, 3, 0]]
    with pytest.raises(ShapeError, match="2 axes"):
        initializers.Identity()((2, 3, 3))
    with pytest.raises(ShapeError, match="2 axes or more"):
        initializers.Orthogonal()((3,))


def test_get():
    assert isinstance(initializers.get("glorot_uniform"), initializers.GlorotUniform)
    assert isinstance(initializers.get("GlorotUniform"), initializers.GlorotUniform)
    assert isinstance(initializers.get(initializers.Zeros), initializers.Zeros)
    assert initializers.get(None) is None
    own = initializers.Ones()
    assert initializers.get(own) is own
    assert initializers.get(np.ones) is np.ones
    assert to_numpy(initializers.get(np.eye(2))((2, 2))).tolist() == [[1, 0], [0, 1]]
    with pytest.raises(UnknownNameError, match="glorot_uniform"):
        initializers.get("glorot_unifrom")
    with pytest.raises(ValueError, match="initializer"):
        initializers.get(3)


def test_constants_that_are_arrays_have_configs_for_json():
    value = np.array([[1.5, 2.0]], "float32")
    created = initializers.Constant(value)
    again = initializers.deserialize(json.loads(json.dumps(initializers.serialize(created))))
    assert to_numpy(again((3, 2))).tolist() == [[1.5, 2.0]] * 3


def test_stft_without_a_window_scales_nothing():
    result = initializers.STFT("real", window=None, scaling="density")((8, 1, 5))
    assert (result[0] == 1.0).all() and np.abs(result).max() == 1.0
    with pytest.raises(ValueError, match="window"):
        initializers.STFT("real", window="no such window")


def test_a_large_orthogonal_matrix_takes_one_thread_of_the_blas_library(monkeypatch):
    """Next to busy processes two threads took 4 seconds where one takes 0.1."""

    def numbers():
        every = threadpoolctl.threadpool_info()
        return {library["num_threads"] for library in every if library["user_api"] == "blas"}

    seen, qr = [], np.linalg.qr
    monkeypatch.setattr(np.linalg, "qr", lambda a: seen.append(numbers()) or qr(a))
    with threadpoolctl.threadpool_limits(2, "blas"):
        initializers.Orthogonal(seed=3)((100, 400))
        assert seen == [{1}] and numbers() == {2}
        initializers.Orthogonal(seed=3)((10, 40))
        assert seen == [{1}, {2}]
