"""Convolution by cuDNN: what is asked of its frontend, kept and given back, on the CPU."""

from __future__ import annotations

import functools
import warnings

import fake_cupy
import ml_dtypes
import numpy as np
import pytest
from cuda_on_cpu import COMPILER, DTYPES, NO_COMPILER, assert_close, dtype_of, poisoned, wide
from cudnn_on_cpu import COARSE, Frontend

import kerasish
from kerasish import config, layers, ops
from kerasish.backends import disk
from kerasish.backends.eager import Eager, engine_of
from kerasish.backends.eager.cuda import KERNELS, blas, cudnn, cudnn_convolution
from kerasish.devices import Device
from kerasish.ops.arrays.core import derivatives
from kerasish.ops.basic.conv import biased_conv
from kerasish.ops.basic.window import resolve_padding, window_counts
from kerasish.ops.op import REGISTRY, using_engine


@pytest.fixture
def cupy(monkeypatch, tmp_path):
    monkeypatch.setenv("KERASISH_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("KERASISH_CUDNN", raising=False)
    known = {"name": b"a GPU", "major": 9, "minor": 0, "multiProcessorCount": 132}
    with fake_cupy.installed(monkeypatch) as module:
        module.cuda.runtime.getDeviceProperties = lambda index: known
        yield module


@pytest.fixture
def lib(cupy, monkeypatch):
    made = Frontend()
    monkeypatch.setattr(cudnn, "library", lambda version: made)
    monkeypatch.setattr(config._Settings, "tf32", False)
    return made


@pytest.fixture(autouse=True)
def nothing_planned(monkeypatch):
    monkeypatch.setattr(cudnn._Said, "yet", False)
    monkeypatch.setattr(cudnn, "_failed", set())
    for kept in (cudnn._plan, cudnn._handle, cudnn._kind_of):
        kept.cache_clear()
    yield
    cudnn._plan.cache_clear()
    cudnn._handle.cache_clear()


def _put(numbers, dtype):
    space = fake_cupy.ndarray(np.asarray(poisoned(numbers.shape, dtype_of(dtype))))
    space._a[...] = numbers
    return space


def _random(shape, dtype, seed):
    return _put(np.random.default_rng(seed).standard_normal(shape), dtype)


# x, kernel, strides, padding, dilation, groups
CASES = [
    ((2, 5, 3), (2, 3, 4), (1,), "causal", (2,), 1),
    ((2, 9, 4), (3, 2, 6), (2,), "same", (1,), 2),
    ((1, 5, 4, 2), (3, 2, 2, 3), (2, 1), "same", (1, 1), 1),
    ((3, 4, 4, 8), (3, 3, 8, 8), (1, 1), "same", (1, 1), 1),
    ((2, 7, 5, 3), (3, 2, 3, 4), (3, 2), ((2, 0), (0, 3)), (1, 2), 1),
    ((2, 3, 3, 4), (2, 2, 2, 6), (1, 1), "valid", (1, 1), 2),
    ((2, 3, 3, 3), (3, 3, 1, 6), (1, 1), "same", (1, 1), 3),
    ((2, 6, 6, 5), (3, 3, 1, 5), (2, 2), "same", (1, 1), 5),
    ((1, 3, 4, 3, 2), (2, 2, 2, 1, 4), (1, 2, 1), "same", (1, 1, 1), 2),
    ((2, 5, 4, 4, 3), (2, 3, 1, 3, 2), (2, 1, 2), "valid", (2, 1, 1), 1),
    ((2, 5, 5, 4), (1, 1, 4, 2), (2, 2), "valid", (1, 1), 1),
]


def _attrs(x, kernel, strides, padding, dilation, groups):
    pairs = resolve_padding(padding, x[1:-1], kernel[:-2], strides, dilation, "test")
    counts = window_counts(x[1:-1], kernel[:-2], strides, pairs, dilation, "test")
    attrs = {"strides": strides, "padding": pairs, "dilation": dilation, "groups": groups}
    return attrs, (x[0], *counts, kernel[-1])


def _calls(case, dtype):
    attrs, y_shape = _attrs(*case)
    x, kernel, g = (_random(s, dtype, i) for i, s in enumerate((*case[:2], y_shape)))
    yield "convolution", [x, kernel], attrs
    yield "convolution_data_gradient", [g, kernel], {"size": case[0][1:-1], **attrs}
    yield "convolution_kernel_gradient", [x, g], {"size": case[1][:-2], **attrs}


def _expected(name, given, attrs):
    return REGISTRY[name].kernel(np, *(wide(a._a) for a in given), **attrs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_convolution_and_its_gradients(lib, case, dtype):
    for name, given, attrs in _calls(case, dtype):
        fake_cupy.launches.clear()
        found = KERNELS[name](*given, **attrs)
        assert (found.dtype, found.flags.c_contiguous) == (given[0].dtype, True)
        assert_close(found._a, _expected(name, given, attrs), dtype)
        assert not fake_cupy.launches
    assert (lib.asked["execute"], lib.asked["build_plans"]) == (3, 3)


def test_arrays_with_gaps_are_copied(lib):
    attrs, _ = _attrs(*CASES[3])
    x = _random((4, 4, 3, 8), "float32", 0).swapaxes(0, 2)
    kernel = _random((8, 3, 3, 8), "float32", 1).swapaxes(0, 2).swapaxes(0, 1)
    found = KERNELS["convolution"](x, kernel, **attrs)
    assert_close(found._a, _expected("convolution", [x, kernel], attrs), "float32")
    assert lib.asked["execute"] == 1


# --- what plans may do --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "tf32", "coarse"),
    [("float32", False, False), ("float32", True, True), ("float16", False, True)],
)
def test_plans_repeat_their_bits_and_round_only_where_allowed(lib, dtype, tf32, coarse):
    config.set_tf32(tf32)
    name, given, attrs = next(_calls(CASES[2], dtype))
    KERNELS[name](*given, **attrs)
    assert {"NONDETERMINISTIC", "REDUCED_PRECISION_REDUCTION"} <= set(lib.notes)
    assert (not COARSE & set(lib.notes)) == coarse


def test_plans_are_made_once(lib):
    for _ in range(3):
        for name, given, attrs in _calls(CASES[2], "float32"):
            KERNELS[name](*given, **attrs)
    assert (lib.asked["build_plans"], lib.asked["execute"]) == (3, 9)
    assert lib.asked["create_handle"] == 1
    name, given, attrs = next(_calls(CASES[2], "float16"))
    KERNELS[name](*given, **attrs)
    assert lib.asked["build_plans"] == 4


def test_they_run_on_the_current_stream(lib, cupy):
    name, given, attrs = next(_calls(CASES[2], "float32"))
    stream = cupy.cuda.Stream()
    stream.ptr = 1234
    with stream:
        KERNELS[name](*given, **attrs)
    assert lib.stream == 1234


# --- plans on the disk ----------------------------------------------------------------------------


def _forget():
    cudnn._plan.cache_clear()
    cudnn._handle.cache_clear()
    cudnn._kind_of.cache_clear()


def _convolve(dtype="float32", case=2):
    name, given, attrs = next(_calls(CASES[case], dtype))
    found = KERNELS[name](*given, **attrs)
    assert_close(found._a, _expected(name, given, attrs), dtype)


def _files(tmp_path):
    return sorted((tmp_path / "cudnn").iterdir())


def test_plans_are_read_from_the_disk(lib, tmp_path):
    _convolve()
    assert len(_files(tmp_path)) == 1
    _forget()
    _convolve()
    assert (lib.asked["build_plans"], lib.asked["deserialize"]) == (1, 1)
    _forget()
    _convolve("bfloat16")
    assert (lib.asked["build_plans"], len(_files(tmp_path))) == (2, 2)


@pytest.mark.parametrize("damage", ["cut", "bit", "mark", "empty", "foreign"])
def test_a_damaged_plan_is_made_again(lib, tmp_path, damage):
    _convolve()
    (path,) = _files(tmp_path)
    whole = path.read_bytes()
    path.write_bytes({
        "cut": whole[:-3], "bit": whole[:-1] + bytes([whole[-1] ^ 1]), "mark": b"x" + whole[1:],
        "empty": b"", "foreign": disk.seal(cudnn.MARK, b"graph 0 of 91100"),
    }[damage])  # fmt: skip
    _forget()
    _convolve()
    assert lib.asked["build_plans"] == 2
    assert cudnn.read(lib, path, {"handle": ("handle", 1)}) is not None
    _forget()
    _convolve()
    assert lib.asked["build_plans"] == 2


def test_other_versions_and_gpus_have_plans_of_their_own(lib, tmp_path, monkeypatch):
    _convolve()
    for change in ("frontend", "library", "gpu"):
        _forget()
        if change == "frontend":
            lib.__version__ = "1.28.1"
        elif change == "library":
            lib.version = 92900
        else:
            monkeypatch.setattr(cudnn, "_kind_of", functools.cache(lambda index: "another 9.0 4"))
        _convolve()
    assert (lib.asked["build_plans"], len(_files(tmp_path))) == (4, 4)


def test_without_a_disk_plans_stay_in_memory(lib, tmp_path, monkeypatch):
    monkeypatch.setenv("KERASISH_CACHE_DIR", "")
    _convolve()
    (tmp_path / "cudnn").write_text("a file where the folder should be")
    monkeypatch.setenv("KERASISH_CACHE_DIR", str(tmp_path))
    _convolve("float16")
    assert lib.asked["build_plans"] == 2


# --- where cuDNN does not do it -----------------------------------------------------------------


@pytest.fixture
def kernels(lib):
    if COMPILER is None:
        pytest.skip(NO_COMPILER)
    return lib


def test_what_it_refuses_is_done_by_kernels_of_our_own(kernels):
    kernels.refuse = lambda nodes: nodes[0][0] == "data"
    for name, given, attrs in _calls(CASES[2], "float32"):
        fake_cupy.launches.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(2):
                found = KERNELS[name](*given, **attrs)
        assert_close(found._a, _expected(name, given, attrs), "float32")
        assert bool(fake_cupy.launches) == (name == "convolution_data_gradient")
    assert kernels.asked["check_support"] == 3  # the refused one was asked once


@pytest.mark.parametrize("step", ["create_handle", "validate", "build_plans", "execute"])
def test_what_fails_is_said_once(kernels, step):
    kernels.fail = step
    with pytest.warns(UserWarning, match=f"{step} fails as it was told to"):
        _convolve()
    _convolve(case=3)
    assert set(fake_cupy.launches) == {"windows_to_rows"}


def test_what_fails_to_run_is_not_run_again(kernels):
    kernels.fail = "execute"

    def convolve():
        for name, given, attrs in _calls(CASES[2], "float32"):
            found = KERNELS[name](*given, **attrs)
            assert_close(found._a, _expected(name, given, attrs), "float32")

    with pytest.warns(UserWarning, match="execute fails .* KERASISH_CUDNN=0 does without it"):
        convolve()
    convolve()
    assert kernels.asked["execute"] == 3


def test_a_switch_turns_it_off(kernels, monkeypatch):
    monkeypatch.setenv("KERASISH_CUDNN", "0")
    _convolve()
    assert not kernels.asked
    monkeypatch.setenv("KERASISH_CUDNN", "1")
    _convolve()
    assert kernels.asked["execute"] == 1


@pytest.mark.parametrize("case", [
    ((0, 3, 3, 4), (2, 2, 4, 2), (1, 1), "valid", (1, 1), 1),
    ((2, 3, 4), (2, 4, 2), (1,), ((3, -1),), (1,), 1),
])  # fmt: skip
def test_nothing_is_asked_for_what_is_empty_or_cropped(kernels, case):
    for name, given, attrs in _calls(case, "float32"):
        found = KERNELS[name](*given, **attrs)
        assert_close(found._a, _expected(name, given, attrs), "float32")
    assert not kernels.asked


def test_other_dtypes_are_the_reference_s(lib):
    name, given, attrs = next(_calls(CASES[2], "float32"))
    given = [a.astype("float64") for a in given]
    found = KERNELS[name](*given, **attrs)
    np.testing.assert_allclose(found._a, _expected(name, given, attrs), rtol=1e-12)
    assert not lib.asked


# --- the library ----------------------------------------------------------------------------------


def test_without_cublaslt_there_is_no_library(monkeypatch):
    monkeypatch.setattr(blas, "library", lambda version: None)
    assert cudnn.library.__wrapped__(13) is None


@pytest.mark.parametrize("trouble", ["none", "old", "broken", "absent"])
def test_the_library_is_taken_as_it_is_found(monkeypatch, trouble):
    import sys

    made = Frontend()
    made.version = 91000 if trouble == "old" else 92800
    if trouble == "broken":
        made.backend_version = lambda: _raise("libcudnn.so.9: cannot open shared object file")
    monkeypatch.setattr(blas, "library", lambda version: object())
    found = None if trouble == "absent" else object()
    monkeypatch.setattr(cudnn.importlib.util, "find_spec", lambda name: found)
    monkeypatch.setitem(sys.modules, "cudnn", made)
    if trouble in ("old", "broken"):
        with pytest.warns(UserWarning, match="kernels are used instead"):
            assert cudnn.library.__wrapped__(13) is None
    else:
        assert cudnn.library.__wrapped__(13) is (made if trouble == "none" else None)


def _raise(text):
    raise RuntimeError(text)


def test_strides_of_channels_that_lie_last():
    x = np.zeros((2, 4, 5, 3), ml_dtypes.bfloat16)
    expected = [x.strides[a] // 2 for a in (0, 3, 1, 2)]
    assert cudnn_convolution.channels_last((2, 3, 4, 5)) == expected


# --- bias and relu in passing ---------------------------------------------------------------------


def _derive(f, arrays, dtype):
    rng = np.random.default_rng(6)
    given = [ops.cast(kerasish.Tensor(a), dtype) for a in arrays]
    y = f(*given)
    g = rng.standard_normal(y.shape).astype("float32")
    slopes = derivatives["vjp"](f, given, [ops.cast(g, dtype)])
    h = [rng.standard_normal(a.shape).astype("float32") for a in arrays]
    again = derivatives["vjp"](
        lambda *given: derivatives["vjp"](f, list(given), [ops.cast(g, dtype)]),
        given, [ops.cast(x, dtype) for x in h],
    )  # fmt: skip
    found = [y, *slopes, *(x for x in again if x is not None)]
    return [ops.convert_to_numpy(ops.cast(x, "float32")) for x in found]


@pytest.fixture
def asked(monkeypatch):
    """The requests that plans were asked for, each once."""
    found, planned = [], cudnn.planned

    def noting(request, device):
        if request not in found:
            found.append(request)
        return planned(request, device)

    monkeypatch.setattr(cudnn, "planned", noting)
    return found


@pytest.mark.parametrize("rectified", [False, True])
def test_a_bias_is_added_where_it_fails_to_run(kernels, rectified):
    kernels.fail = "execute"
    arrays = [np.random.default_rng(i).standard_normal(s).astype("float32")
              for i, s in enumerate(((2, 5, 3), (2, 3, 4), (4,)))]  # fmt: skip
    with using_engine(Eager()):
        expected = biased_conv(*arrays, rectified=rectified).numpy()
    with kerasish.device("gpu"), using_engine(engine_of(Device("gpu"))):
        with pytest.warns(UserWarning, match="fails to run .*biased=True"):
            found = biased_conv(*map(kerasish.Tensor, arrays), rectified=rectified)
        np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-5)
    assert kernels.asked["execute"] == 2  # whole, and without the bias


@pytest.mark.parametrize("refused", [False, True])
@pytest.mark.parametrize("rectified", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("case", [0, 2, 5, 8], ids=lambda i: str(CASES[i]))
def test_bias_and_relu_are_done_in_passing(kernels, asked, case, dtype, rectified, refused):
    x, kernel, strides, _, dilation, _ = CASES[case]
    rng = np.random.default_rng(2)
    arrays = [rng.standard_normal(s).astype("float32") for s in (x, kernel, kernel[-1:])]
    attrs, _ = _attrs(*CASES[case])
    if refused:
        kernels.refuse = lambda nodes: len(nodes) > 1

    def f(x, kernel, bias):
        return biased_conv(x, kernel, bias, strides, attrs["padding"], dilation, rectified)

    with using_engine(Eager()):
        expected = _derive(f, arrays, "float32")
    with kerasish.device("gpu"), using_engine(engine_of(Device("gpu"))):
        fake_cupy.launches.clear()
        found = _derive(f, arrays, dtype)
    assert len(found) == len(expected)
    for a, b in zip(found, expected):
        size = max(1.0, np.abs(b).max())
        np.testing.assert_allclose(a, b, rtol=0, atol=(1e-5 if dtype == "float32" else 1e-2) * size)
    assert [r.rectified for r in asked if r.biased] == [False]  # relu is a kernel's of our own
    plain = {r.kind for r in asked if not r.biased}
    assert plain == {"forward", "data", "kernel"}  # the gradients, and those of gradients
    assert ("bias_activation_gradient" in fake_cupy.launches) == rectified


def test_models_train_as_without_it(kernels, monkeypatch):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((24, 8, 8, 2)).astype("float32"), rng.integers(0, 3, 24)

    def train():
        kerasish.utils.set_random_seed(3)
        with kerasish.device("gpu"):
            model = kerasish.Sequential(
                [layers.Input((8, 8, 2)), layers.Conv2D(4, 3, 2, "same", activation="relu"),
                 layers.SeparableConv2D(5, 2), layers.Conv2DTranspose(3, 3, strides=2),
                 layers.GlobalAveragePooling2D(), layers.Dense(3, "softmax")]
            )  # fmt: skip
            model.compile("adam", "sparse_categorical_crossentropy", run_eagerly=True)
            history = model.fit(x, y, batch_size=8, epochs=1, verbose=0, shuffle=False)
        return history.history["loss"], model.get_weights()

    assert engine_of(Device("gpu")).xp is not np
    monkeypatch.setenv("KERASISH_CUDNN", "0")
    losses, weights = train()
    assert not kernels.asked
    monkeypatch.setenv("KERASISH_CUDNN", "1")
    found, moved = train()
    np.testing.assert_allclose(found, losses, rtol=1e-5)
    for a, b in zip(moved, weights):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)
    assert kernels.asked["execute"] == 3 * 11  # the first layer's data gets no gradient
