"""Small programs whose results Keras gives as facts: `run(keras)` returns name -> what it gave.

The same code runs on Keras (`tests/data/record/behavior.py`) and on kerasish
(`tests/test_behavior.py`). A result is JSON: numbers, words, lists, and for tensors their shape,
dtype and numbers. An error is {"error": the name of its class}.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

CASES: dict[str, Callable[[Any], Any]] = {}


def case(name: str) -> Callable[[Any], Any]:
    """Add the decorated function of `keras` to the cases."""

    def add(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        assert name not in CASES, name
        CASES[name] = function
        return function

    return add


def cases(family: str, **functions: Callable[[Any], Any]) -> None:
    """Add functions of `keras` to the cases of a family."""
    for name, function in functions.items():
        case(f"{family}/{name}")(function)


def run(keras: Any, name: str) -> Any:
    """Return what a case gives, as JSON."""
    keras.utils.set_random_seed(0)
    keras.backend.clear_session(free_memory=False)
    try:
        result = CASES[name](keras)
    except Exception as error:  # noqa: BLE001 (its class is the fact)
        return {"error": type(error).__name__}
    return plain(result)


def plain(value: Any) -> Any:
    """Return a result as JSON."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(f"{float(value):.6g}")
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if type(value).__name__ == "KerasTensor":
        return {"shape": plain(tuple(value.shape)), "dtype": str(value.dtype)}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        array = np.asarray(value)
        kind = str(getattr(value, "dtype", array.dtype))
        return {"shape": list(array.shape), "dtype": kind, "values": plain(array.ravel().tolist())}
    raise TypeError(f"no fact: {value!r}")


X = np.random.default_rng(0).normal(size=(4, 6)).astype("float32")
IMAGES = np.random.default_rng(1).uniform(0, 255, (4, 8, 8, 3)).astype("float32")
SIGNAL = np.random.default_rng(2).normal(size=(2, 400)).astype("float32")

# --- symbolic shapes with None --------------------------------------------------------------------


def symbolic(function: Callable[..., Any], *shapes: tuple[Any, ...], dtype: str = "float32") -> Any:
    """Return a function of `keras` that calls `function` on symbolic tensors of some shapes."""
    return lambda k: function(k.ops, *(k.KerasTensor(s, dtype) for s in shapes))


N = None
cases(
    "symbolic",
    einsum=symbolic(lambda o, a, b: o.einsum("bij,bjk->bik", a, b), (N, 3, N), (N, N, 5)),
    einsum_dots=symbolic(lambda o, a, b: o.einsum("...ij,jk->...ik", a, b), (N, 2, 3, 4), (4, N)),
    einsum_sum=symbolic(lambda o, a: o.einsum("bij->b", a), (N, 3, N)),
    inner=symbolic(lambda o, a, b: o.inner(a, b), (N, 3), (2, 3)),
    inner_none=symbolic(lambda o, a, b: o.inner(a, b), (N, N), (2, 3)),
    dot=symbolic(lambda o, a, b: o.dot(a, b), (N, 3), (3, 2)),
    dot_three=symbolic(lambda o, a, b: o.dot(a, b), (N, 2, 3), (N, 3, 2)),
    dot_vector=symbolic(lambda o, a, b: o.dot(a, b), (N, 3), (3,)),
    tensordot=symbolic(lambda o, a, b: o.tensordot(a, b, 1), (N, 3), (3, 4)),
    tensordot_axes=symbolic(lambda o, a, b: o.tensordot(a, b, axes=[[1], [0]]), (N, 3, 2), (3, N)),
    dstack=symbolic(lambda o, a, b: o.dstack([a, b]), (N, 3), (N, 3)),
    dstack_three=symbolic(lambda o, a, b: o.dstack([a, b]), (N, 3, 2), (N, 3, N)),
    dstack_vectors=symbolic(lambda o, a, b: o.dstack([a, b]), (N,), (3,)),
    vstack=symbolic(lambda o, a, b: o.vstack([a, b]), (N, 3), (2, 3)),
    vstack_vectors=symbolic(lambda o, a, b: o.vstack([a, b]), (3,), (3,)),
    hstack=symbolic(lambda o, a, b: o.hstack([a, b]), (N, 3), (N, 2)),
    concatenate=symbolic(lambda o, a, b: o.concatenate([a, b], 1), (N, 3), (N, N)),
    concatenate_known=symbolic(lambda o, a, b: o.concatenate([a, b], 1), (N, 3), (4, 2)),
    stack=symbolic(lambda o, a, b: o.stack([a, b], -1), (N, 3), (4, 3)),
    diag=symbolic(lambda o, a: o.diag(a), (N,)),
    diag_matrix=symbolic(lambda o, a: o.diag(a, 1), (N, 4)),
    diagonal=symbolic(lambda o, a: o.diagonal(a), (N, 3, 3)),
    diagonal_axes=symbolic(lambda o, a: o.diagonal(a, 1, 1, 2), (N, 3, 4)),
    corrcoef=symbolic(lambda o, a: o.corrcoef(a), (N, 3)),
    get_item=symbolic(lambda o, a: o.get_item(a, (slice(1, None), 0)), (N, 3, 4)),
    get_item_dots=symbolic(lambda o, a: o.get_item(a, (Ellipsis, None, slice(0, 2))), (N, 3, 4)),
    repeat=symbolic(lambda o, a: o.repeat(a, 2, axis=0), (N, 3)),
    repeat_flat=symbolic(lambda o, a: o.repeat(a, 2), (N, 3)),
    repeat_each=symbolic(lambda o, a: o.repeat(a, [1, 2, 3], axis=1), (N, 3)),
    reshape=symbolic(lambda o, a: o.reshape(a, (-1, 6)), (N, 2, 3)),
    reshape_known=symbolic(lambda o, a: o.reshape(a, (2, 6)), (N, 2, 3)),
    reshape_one=symbolic(lambda o, a: o.reshape(a, (-1,)), (N, 3)),
    where=symbolic(lambda o, a, b: o.where(o.greater(a, 0), a, b), (N, 3), (1, 3)),
    where_alone=symbolic(lambda o, a: o.where(o.greater(a, 0)), (N, 3)),
    nonzero=symbolic(lambda o, a: o.nonzero(a), (N, 3)),
    size=symbolic(lambda o, a: o.size(a), (N, 3)),
    ndim=symbolic(lambda o, a: o.ndim(a), (N, 3)),
    shape=symbolic(lambda o, a: o.shape(a), (N, 3)),
    psnr=symbolic(lambda o, a, b: o.psnr(a, b, 1.0), (N, 3), (N, 3)),
    segment_sum=lambda k: k.ops.segment_sum(
        k.KerasTensor((N, 3)), k.KerasTensor((N,), "int32"), num_segments=4
    ),
    segment_max=lambda k: k.ops.segment_max(k.KerasTensor((N, 3)), k.KerasTensor((N,), "int32")),
    ctc_decode=lambda k: k.ops.ctc_decode(
        k.KerasTensor((N, 7, 5)), k.KerasTensor((N,), "int32"), strategy="greedy"
    ),
    ctc_beam=lambda k: k.ops.ctc_decode(
        k.KerasTensor((N, 7, 5)), k.KerasTensor((N,), "int32"), strategy="beam_search", top_paths=2
    ),
    ctc_loss=lambda k: k.ops.ctc_loss(
        k.KerasTensor((N, 4), "int32"),
        k.KerasTensor((N, 7, 5)),
        k.KerasTensor((N,), "int32"),
        k.KerasTensor((N,), "int32"),
    ),
    pad_images=symbolic(lambda o, a: o.image.pad_images(a, 1, 2, None, None, 12, 12), (N, 8, 8, 3)),
    pad_images_none=symbolic(lambda o, a: o.image.pad_images(a, 1, 2, 1, 2), (N, N, 8, 3)),
    crop_images=symbolic(lambda o, a: o.image.crop_images(a, 1, 2, None, None, 4, 4), (N, 8, 8, 3)),
    crop_images_none=symbolic(lambda o, a: o.image.crop_images(a, 1, 2, 1, 1), (N, N, 8, 3)),
    resize=symbolic(lambda o, a: o.image.resize(a, (4, 5)), (N, N, N, 3)),
    extract_patches=symbolic(lambda o, a: o.image.extract_patches(a, 2), (N, 8, 8, 3)),
    average=symbolic(lambda o, a: o.average(a, axis=0), (N, 3)),
    searchsorted=symbolic(lambda o, a, b: o.searchsorted(a, b), (5,), (N, 3)),
    argsort_all=symbolic(lambda o, a: o.argsort(a, axis=None), (N, 3)),
    slogdet=symbolic(lambda o, a: o.slogdet(a), (N, 3, 3)),
    nancumsum=symbolic(lambda o, a: o.nancumsum(a), (N, 3)),
    cumsum=symbolic(lambda o, a: o.cumsum(a, 1), (N, 3)),
    matmul=symbolic(lambda o, a, b: o.matmul(a, b), (N, 2, 3), (3, N)),
    matmul_vector=symbolic(lambda o, a, b: o.matmul(a, b), (N, 3), (3,)),
    broadcast=symbolic(lambda o, a, b: o.add(a, b), (N, 1, 3), (4, N)),
    expand_dims=symbolic(lambda o, a: o.expand_dims(a, (0, -1)), (N, 3)),
    squeeze=symbolic(lambda o, a: o.squeeze(a), (N, 1, 3)),
    squeeze_axis=symbolic(lambda o, a: o.squeeze(a, 0), (N, 3)),
    transpose=symbolic(lambda o, a: o.transpose(a, (1, 0, 2)), (N, 2, 3)),
    split=symbolic(lambda o, a: o.split(a, 3, axis=1), (N, 6)),
    split_none=symbolic(lambda o, a: o.split(a, 3, axis=0), (N, 6)),
    tile=symbolic(lambda o, a: o.tile(a, (2, 3)), (N, 6)),
    pad=symbolic(lambda o, a: o.pad(a, ((1, 1), (0, 2))), (N, 6)),
    roll=symbolic(lambda o, a: o.roll(a, 2), (N, 6)),
    take=symbolic(lambda o, a: o.take(a, [0, 1], axis=0), (N, 6)),
    take_along=lambda k: k.ops.take_along_axis(
        k.KerasTensor((N, 6)), k.KerasTensor((N, 2), "int32"), axis=1
    ),
    top_k=symbolic(lambda o, a: o.top_k(a, 2), (N, 6)),
    in_top_k=lambda k: k.ops.in_top_k(k.KerasTensor((N,), "int32"), k.KerasTensor((N, 5)), 2),
    one_hot=symbolic(lambda o, a: o.one_hot(a, 4), (N,), dtype="int32"),
    bincount=symbolic(lambda o, a: o.bincount(a, minlength=3), (N,), dtype="int32"),
    flip=symbolic(lambda o, a: o.flip(a), (N, 3)),
    median=symbolic(lambda o, a: o.median(a, axis=1, keepdims=True), (N, 3)),
    quantile=symbolic(lambda o, a: o.quantile(a, [0.1, 0.9], axis=1), (N, 3)),
    histogram=symbolic(lambda o, a: o.histogram(a, bins=5), (N,)),
    meshgrid=symbolic(lambda o, a, b: o.meshgrid(a, b), (N,), (3,)),
    cross=symbolic(lambda o, a, b: o.cross(a, b), (N, 3), (N, 3)),
    kron=symbolic(lambda o, a, b: o.kron(a, b), (N, 3), (2, 2)),
    trace=symbolic(lambda o, a: o.trace(a), (N, 3, 3)),
    tril=symbolic(lambda o, a: o.tril(a), (N, 3, 3)),
    qr=symbolic(lambda o, a: o.qr(a), (N, 4, 3)),
    svd=symbolic(lambda o, a: o.svd(a), (N, 4, 3)),
    solve=symbolic(lambda o, a, b: o.solve(a, b), (N, 3, 3), (N, 3, 2)),
    norm=symbolic(lambda o, a: o.norm(a, axis=-1), (N, 3)),
    stft=symbolic(lambda o, a: o.stft(a, 16, 8, 16), (N, 100)),
    fft=symbolic(lambda o, a: o.rfft(a), (N, 100)),
    extract_sequences=symbolic(lambda o, a: o.extract_sequences(a, 16, 8), (N, 100)),
    map=symbolic(lambda o, a: o.map(lambda x: x * 2, a), (N, 3)),
    cond=symbolic(lambda o, a: o.cond(True, lambda: a, lambda: a * 2), (N, 3)),
    scan=symbolic(lambda o, a: o.scan(lambda c, x: (c, x), o.zeros((3,)), a), (N, 3)),
    moments=symbolic(lambda o, a: o.moments(a, axes=(0,)), (N, 3)),
    logsumexp=symbolic(lambda o, a: o.logsumexp(a, axis=1), (N, 3)),
    digitize=symbolic(lambda o, a: o.digitize(a, [0.0, 1.0]), (N, 3)),
    conv=symbolic(lambda o, a, b: o.conv(a, b, 2, "same"), (N, N, 8, 3), (3, 3, 3, 4)),
    max_pool=symbolic(lambda o, a: o.max_pool(a, 2, 2, "valid"), (N, N, 8, 3)),
    depth_to_space=symbolic(lambda o, a: o.nn.depth_to_space(a, 2), (N, N, 8, 4)),
    unravel=symbolic(lambda o, a: o.unravel_index(a, (3, 4)), (N,), dtype="int32"),
)

# --- layers ---------------------------------------------------------------------------------------


def stft(**options: Any) -> Callable[[Any], Any]:
    """Return a function of `keras`: the spectrogram of a signal, and the shape for any batch."""

    def function(k: Any) -> Any:
        options_ = {"frame_length": 64, "frame_step": 32, "fft_length": 64, **options}
        layer = k.layers.STFTSpectrogram(**options_)
        return [
            layer(SIGNAL[..., None])[:, :3, :5],
            layer.compute_output_shape((N, 400, 1)),
            k.layers.STFTSpectrogram(**options_)(k.KerasTensor((N, 400, 1))),
        ]

    return function


cases(
    "stft",
    log=stft(),
    magnitude=stft(mode="magnitude"),
    real=stft(mode="real"),
    imag=stft(mode="imag"),
    angle=stft(mode="angle"),
    stft=stft(mode="stft"),
    psd=stft(mode="psd"),
    same=stft(padding="same", mode="magnitude"),
    hamming=stft(window="hamming", mode="magnitude"),
    periodic=stft(window="hann", periodic=True, mode="magnitude"),
    no_window=stft(window=None, mode="magnitude"),
    density=stft(scaling="density", mode="magnitude"),
    spectrum=stft(scaling="spectrum", mode="psd"),
    no_scaling=stft(scaling=None, mode="psd"),
    expand=stft(expand_dims=True, mode="magnitude"),
    longer_fft=stft(fft_length=128, mode="magnitude"),
    trainable=lambda k: (
        lambda layer: [
            layer.build((N, 400, 1)),
            [tuple(w.shape) for w in layer.trainable_weights],
            sorted(w.name for w in layer.weights),
        ]
    )(k.layers.STFTSpectrogram(frame_length=64, frame_step=32, fft_length=64, trainable=True)),
    config=lambda k: k.layers.STFTSpectrogram(frame_length=64, name="s").get_config(),
    bad_mode=lambda k: k.layers.STFTSpectrogram(mode="odd"),
    bad_length=lambda k: k.layers.STFTSpectrogram(frame_length=64, fft_length=32),
    bad_step=lambda k: k.layers.STFTSpectrogram(frame_length=64, frame_step=65),
    bad_window=lambda k: k.layers.STFTSpectrogram(window="odd"),
    bad_scaling=lambda k: k.layers.STFTSpectrogram(scaling="odd"),
    bad_padding=lambda k: k.layers.STFTSpectrogram(padding="odd"),
)


def batches() -> Iterator[Any]:
    """Yield the rows of X two by two."""
    yield X[:2]
    yield X[2:]


def learned(data: Callable[[Any], Any], **options: Any) -> Callable[[Any], Any]:
    """Return a function of `keras`: what Normalization learns from data."""

    def function(k: Any) -> Any:
        layer = k.layers.Normalization(**options)
        layer.adapt(data(k))
        return [layer.mean, layer.variance, layer(X), layer.built, len(layer.weights)]

    return function


def dataset_of(k: Any) -> Any:
    """Return a `PyDataset` of two batches."""

    class Halves(k.utils.PyDataset):  # type: ignore[misc,name-defined]
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> Any:
            return X[2 * index : 2 * index + 2]

    return Halves()


cases(
    "normalization",
    array=learned(lambda k: X),
    tensor=learned(lambda k: k.ops.convert_to_tensor(X)),
    list=learned(lambda k: X.tolist()),
    py_dataset=learned(dataset_of),
    generator=learned(lambda k: batches()),
    axis_none=learned(lambda k: X, axis=None),
    axis_zero=learned(lambda k: X, axis=0),
    invert=learned(lambda k: X, invert=True),
    given=lambda k: k.layers.Normalization(mean=1.0, variance=4.0)(X),
    given_list=lambda k: k.layers.Normalization(mean=[1.0] * 6, variance=[4.0] * 6)(X),
    mean_alone=lambda k: k.layers.Normalization(mean=1.0),
    unadapted=lambda k: k.layers.Normalization()(X),
    zero_variance=lambda k: (lambda la: (la.adapt(np.ones((3, 2), "float32")), la(np.eye(2)))[1])(
        k.layers.Normalization()
    ),
    config=lambda k: k.layers.Normalization(name="n", mean=1.0, variance=2.0).get_config(),
    adapted_config=lambda k: (lambda la: (la.adapt(X), la.get_config())[1])(
        k.layers.Normalization(name="n")
    ),
    bad_axis=lambda k: (lambda la: la.build((N, 3)))(k.layers.Normalization(axis=4)),
    free_axis=lambda k: (lambda la: la.build((N, N)))(k.layers.Normalization()),
    symbolic=lambda k: k.layers.Normalization(mean=1.0, variance=4.0)(k.KerasTensor((N, 3))),
)


def binned(adapt: Any = None, **options: Any) -> Callable[[Any], Any]:
    """Return a function of `keras`: the bins of X by Discretization."""

    def function(k: Any) -> Any:
        layer = k.layers.Discretization(**options)
        if adapt is not None:
            layer.adapt(adapt(k))
        return [layer(X[:2, :3]), layer.bin_boundaries]

    return function


cases(
    "discretization",
    given=binned(bin_boundaries=[-0.5, 0.0, 0.5]),
    one_hot=binned(bin_boundaries=[-0.5, 0.0, 0.5], output_mode="one_hot"),
    multi_hot=binned(bin_boundaries=[-0.5, 0.0, 0.5], output_mode="multi_hot"),
    count=binned(bin_boundaries=[-0.5, 0.0, 0.5], output_mode="count"),
    adapted=binned(lambda k: X, num_bins=4, epsilon=0.01),
    adapted_list=binned(lambda k: X.ravel().tolist(), num_bins=3),
    adapted_dataset=binned(dataset_of, num_bins=3, epsilon=0.01),
    integers=lambda k: k.layers.Discretization(bin_boundaries=[0, 2])(np.array([[-1, 0, 2, 3]])),
    dtype=lambda k: k.layers.Discretization(bin_boundaries=[0.0], dtype="int64")(X[:1]),
    config=lambda k: k.layers.Discretization(bin_boundaries=[0.0, 1.0], name="d").get_config(),
    config_bins=lambda k: k.layers.Discretization(num_bins=3, name="d").get_config(),
    nothing=lambda k: k.layers.Discretization(),
    both=lambda k: k.layers.Discretization(bin_boundaries=[0.0], num_bins=2),
    negative=lambda k: k.layers.Discretization(num_bins=-1),
    bad_mode=lambda k: k.layers.Discretization(num_bins=2, output_mode="odd"),
    sparse_int=lambda k: k.layers.Discretization(num_bins=2, sparse=True),
    adapt_given=binned(lambda k: X, bin_boundaries=[0.0]),
    unadapted=lambda k: k.layers.Discretization(num_bins=2)(X),
    shape=lambda k: k.layers.Discretization(bin_boundaries=[0.0]).compute_output_shape((N, 3)),
    symbolic=lambda k: k.layers.Discretization(bin_boundaries=[0.0], output_mode="one_hot")(
        k.KerasTensor((N, 3))
    ),
    symbolic_count=lambda k: k.layers.Discretization(bin_boundaries=[0.0], output_mode="count")(
        k.KerasTensor((N, 3))
    ),
)

AUGMENTATION: dict[str, dict[str, Any]] = {
    "MixUp": {}, "CutMix": {}, "RandomErasing": {}, "RandomCrop": {"height": 4, "width": 5},
    "RandomFlip": {}, "RandomRotation": {"factor": 0.1}, "RandomZoom": {"height_factor": 0.1},
    "RandomTranslation": {"height_factor": 0.1, "width_factor": 0.1}, "CenterCrop":
    {"height": 4, "width": 5}, "RandomContrast": {"factor": 0.2}, "RandomBrightness":
    {"factor": 0.2}, "RandomGrayscale": {}, "RandomHue": {"factor": 0.2}, "RandomSaturation":
    {"factor": 0.2}, "RandomColorJitter": {}, "RandomPosterization": {"factor": 4},
    "RandomSharpness": {"factor": 0.5}, "RandomShear": {"x_factor": 0.1}, "RandomInvert": {},
    "RandomGaussianBlur": {}, "RandomPerspective": {}, "RandomElasticTransform": {},
    "RandomColorDegeneration": {"factor": 0.5}, "RandAugment": {}, "AugMix": {},
    "AutoContrast": {}, "Equalization": {}, "Solarization": {}, "MaxNumBoundingBoxes":
    {"max_number": 3}, "Resizing": {"height": 4, "width": 5}, "Rescaling": {"scale": 2.0},
}  # fmt: skip


def inference(name: str) -> Callable[[Any], Any]:
    """Return a function of `keras`: a layer on pictures outside training."""

    def function(k: Any) -> Any:
        layer = getattr(k.layers, name)(**AUGMENTATION[name])
        result = layer(IMAGES, training=False)
        one = layer(IMAGES[0], training=False)
        return [result[:1, :2, :2], tuple(one.shape), str(result.dtype)]

    return function


def shapes(name: str) -> Callable[[Any], Any]:
    """Return a function of `keras`: the shapes and dtypes that a layer on pictures names."""

    def function(k: Any) -> Any:
        layer = getattr(k.layers, name)(**AUGMENTATION[name])
        known = layer(k.KerasTensor((N, 8, 8, 3)))
        return [known, layer.compute_output_shape((N, 8, 8, 3))]

    return function


for _name in AUGMENTATION:
    if _name != "MaxNumBoundingBoxes":
        case(f"inference/{_name}")(inference(_name))
        case(f"shapes/{_name}")(shapes(_name))

cases(
    "augmentation",
    crop_small=lambda k: k.layers.RandomCrop(10, 12)(IMAGES, training=False),
    crop_exact=lambda k: k.layers.RandomCrop(8, 8)(IMAGES, training=True),
    crop_train=lambda k: tuple(k.layers.RandomCrop(4, 5)(IMAGES, training=True).shape),
    crop_dict=lambda k: sorted(
        k.layers.RandomCrop(4, 5)({"images": IMAGES, "labels": np.arange(4)}, training=False)
    ),
    erasing_factor=lambda k: k.layers.RandomErasing(factor=2.0),
    erasing_scale=lambda k: type(k.layers.RandomErasing(scale=(0.5, 0.1))).__name__,
    erasing_none=lambda k: k.layers.RandomErasing(factor=0.0)(IMAGES, training=True)[0, 0],
    cutmix_factor=lambda k: k.layers.CutMix(factor=-1.0),
    cutmix_labels=lambda k: tuple(
        k.layers.CutMix()({"images": IMAGES, "labels": np.eye(4, dtype="float32")}, training=True)[
            "labels"
        ].shape
    ),
    mixup_labels=lambda k: {
        key: [tuple(v.shape), str(v.dtype)]
        for key, v in k.layers.MixUp()(
            {"images": IMAGES, "labels": np.eye(4, dtype="float32")}, training=True
        ).items()
    },
    mixup_alpha=lambda k: type(k.layers.MixUp(alpha=-1.0)).__name__,
    flip_mode=lambda k: type(k.layers.RandomFlip("odd")).__name__,
    rotation_mode=lambda k: k.layers.RandomRotation(0.1, fill_mode="odd"),
    contrast=lambda k: k.layers.RandomContrast(2.0),
    data_format=lambda k: k.layers.RandomFlip(data_format="odd"),
    bounding_boxes=lambda k: k.layers.RandomCrop(4, 5)(
        {"images": IMAGES, "bounding_boxes": {"boxes": np.ones((4, 1, 4)), "labels": [[1]] * 4}},
        training=False,
    ),
    uint8=lambda k: str(k.layers.RandomFlip()(IMAGES.astype("uint8"), training=True).dtype),
    uint8_kept=lambda k: str(
        k.layers.RandomFlip(dtype="uint8")(IMAGES.astype("uint8"), training=True).dtype
    ),
)

# --- the bar of an epoch --------------------------------------------------------------------------


TIMES = r"\b(\d+(:\d\d)+|(\d+h\d+m|\d+m\d+s|\d+(\.\d+)?[mu]?s)(/(step|epoch))?)(?!\S)"


def bar(steps: Any, updates: list[Any], **options: Any) -> Callable[[Any], Any]:
    """Return a function of `keras`: what Progbar prints, without times."""

    def function(k: Any) -> Any:
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            shown = k.utils.Progbar(steps, **options)
            for update in updates:
                shown.update(*update)
        words = re.sub(r"\x1b\[[0-9;]*m|[━─]+|\x08+|\r", " ", text.getvalue())
        words = re.sub(TIMES, "T", words)
        return words.split()

    return function


TWO = [(1, [("loss", 2.0), ("a", 1.0)]), (2, [("loss", 4.0), ("a", 3.0)])]
cases(
    "progbar",
    plain=bar(2, TWO, verbose=2),
    stateful=bar(2, TWO, verbose=2, stateful_metrics=["a"]),
    stateful_all=bar(2, TWO, verbose=2, stateful_metrics=["a", "loss"]),
    far=bar(5, [(1, [("x", 1.0)]), (4, [("x", 3.0)]), (5, [("x", 0.0)])], verbose=2),
    small=bar(1, [(1, [("x", 1e-5), ("y", 12345.678), ("z", 0.0)])], verbose=2),
    silent=bar(2, TWO, verbose=0),
)

# --- configs --------------------------------------------------------------------------------------

REQUIRED: dict[str, dict[str, Any]] = {
    **AUGMENTATION, "Dense": {"units": 3}, "EinsumDense": {"equation": "ab,bc->ac",
    "output_shape": 3}, "Embedding": {"input_dim": 5, "output_dim": 2}, "Activation":
    {"activation": "relu"}, "ActivityRegularization": {"l1": 0.1}, "Dropout": {"rate": 0.5},
    "AlphaDropout": {"rate": 0.5}, "GaussianDropout": {"rate": 0.5}, "GaussianNoise":
    {"stddev": 0.5}, "SpatialDropout1D": {"rate": 0.5}, "SpatialDropout2D": {"rate": 0.5},
    "SpatialDropout3D": {"rate": 0.5}, "RepeatVector": {"n": 3}, "Reshape": {"target_shape": [2]},
    "Permute": {"dims": [2, 1]}, "MultiHeadAttention": {"num_heads": 2, "key_dim": 4},
    "GroupQueryAttention": {"head_dim": 4, "num_query_heads": 4, "num_key_value_heads": 2},
    "HashedCrossing": {"num_bins": 4}, "Hashing": {"num_bins": 4}, "CategoryEncoding":
    {"num_tokens": 4}, "Discretization": {"num_bins": 3}, "IntegerLookup": {"vocabulary": [1, 2]},
    "StringLookup": {"vocabulary": ["a"]}, "TextVectorization": {"vocabulary": ["a"]},
    "Pipeline": {"layers": []}, "ReversibleEmbedding": {"input_dim": 5, "output_dim": 2},
    **{f"{cell}{kind}": {"units": 3} for cell in ("LSTM", "GRU") for kind in ("", "Cell")},
    **{f"SimpleRNN{kind}": {"units": 3} for kind in ("", "Cell")},
    **{f"{kind}Conv{n}D{turn}": {"filters": 3, "kernel_size": 2} for n in (1, 2, 3)
       for kind in ("", "Separable") for turn in ("", "Transpose")},
    **{f"DepthwiseConv{n}D": {"kernel_size": 2} for n in (1, 2, 3)},
    **{f"AveragePooling{n}D": {"pool_size": 2} for n in (1, 2, 3)}, "Dot": {"axes": 1},
    **{f"Adaptive{kind}Pooling{n}D": {"output_size": 2} for n in (1, 2, 3)
       for kind in ("Average", "Max")},
    **{f"ConvLSTM{n}D": {"filters": 3, "kernel_size": 2} for n in (1, 2, 3)},
    "SpecificityAtSensitivity": {"sensitivity": 0.5}, "SensitivityAtSpecificity":
    {"specificity": 0.5}, "PrecisionAtRecall": {"recall": 0.5}, "RecallAtPrecision":
    {"precision": 0.5}, "MeanIoU": {"num_classes": 2}, "OneHotMeanIoU": {"num_classes": 2},
    "OneHotIoU": {"num_classes": 2, "target_class_ids": [0]}, "IoU": {"num_classes": 2,
    "target_class_ids": [0]}, "BinaryIoU": {"target_class_ids": [0]}, "MeanRelativeError":
    {"normalizer": [1.0]}, "ExponentialDecay": {"initial_learning_rate": 0.1, "decay_steps": 3,
    "decay_rate": 0.5}, "InverseTimeDecay": {"initial_learning_rate": 0.1, "decay_steps": 3,
    "decay_rate": 0.5}, "PiecewiseConstantDecay": {"boundaries": [1], "values": [0.1, 0.2]},
    "PolynomialDecay": {"initial_learning_rate": 0.1, "decay_steps": 3}, "CosineDecay":
    {"initial_learning_rate": 0.1, "decay_steps": 3}, "CosineDecayRestarts":
    {"initial_learning_rate": 0.1, "first_decay_steps": 3},
}  # fmt: skip
WITHOUT = frozenset(
    ("Layer Wrapper InputLayer Lambda RNN StackedRNNCells TimeDistributed Bidirectional "
     "SpectralNormalization InputSpec TorchModuleWrapper JaxLayer FlaxLayer TFSMLayer Loss "
     "Metric Optimizer "
     "LossScaleOptimizer LearningRateSchedule Initializer Regularizer Constraint "
     "MeanMetricWrapper").split()
)  # fmt: skip


def config(family: str, name: str) -> Callable[[Any], Any]:
    """Return a function of `keras`: the config of an object of a class."""

    def function(k: Any) -> Any:
        place = k
        for part in family.split("."):
            place = getattr(place, part)
        made = getattr(place, name)(**REQUIRED.get(name, {}))
        stored = k.saving.serialize_keras_object(made)
        return {"module": stored["module"], "registered": stored["registered_name"],
                **{key: v for key, v in stored["config"].items() if key != "name"}}  # fmt: skip

    return function


def add_configs(names: dict[str, list[str]]) -> None:
    """Add a case for each class of a family: family -> names of its classes."""
    for family, own in names.items():
        for name in own:
            if name not in WITHOUT:
                case(f"config {family}/{name}")(config(family, name))
