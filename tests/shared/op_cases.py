"""The cases of tests/ops/test_as_keras.py, which tests/data/record/ops.py records."""

from __future__ import annotations

import itertools

import numpy as np

CASES: list = []


def case(names, *args, **kwargs):
    for name in names.split():
        CASES.append((name, args, kwargs))


def products(**choices):
    for values in itertools.product(*choices.values()):
        yield dict(zip(choices, values))


rng = np.random.default_rng(7)
F = rng.normal(size=(3, 4)).astype("float32")
H = F.astype("float16")
I = rng.integers(-3, 4, (3, 4)).astype("int32")  # noqa: E741
B = I > 0
U = np.abs(I).astype("uint8")
P = np.abs(F) + np.float32(0.1)
T = rng.normal(size=(2, 3, 4)).astype("float32")
V, W = (rng.normal(size=5).astype("float32") for _ in range(2))
ODD = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5], "float32")
GAPS = F.copy()
GAPS[0, 1] = GAPS[2] = np.nan
COUNTS = np.array([1, 2, 2, 5, 0], "int32")


def activations():
    rows = "relu relu6 leaky_relu elu selu celu gelu silu hard_sigmoid hard_silu hard_tanh \
        hard_shrink soft_shrink tanh_shrink softsign softplus sigmoid log_sigmoid squareplus \
        sparse_plus sparse_sigmoid softmax log_softmax glu rms_normalization layer_normalization \
        normalize"
    for x in (F * 3, H):
        case(rows, x)
    case("gelu", F, approximate=False)
    case("threshold", F, 0.3, 7.0)
    case("leaky_relu", F, negative_slope=0.5)
    case("elu celu", F, alpha=0.3)
    case("squareplus", F, b=2)
    for axis in (0, 1, (1, 2), None):
        case("softmax log_softmax", T, axis=axis)
    for kept in products(axes=(0, 1, (1, 2), (0, -1)), keepdims=(False, True)):
        case("moments", T, **kept)
    for chosen in products(axis=(0, 1, -1), order=(1, 2, 3)):
        case("normalize", T, **chosen)
    gamma, beta, variance = V[:4], W[:4], np.abs(V[:4])
    case("layer_normalization", T, gamma, beta)
    case("layer_normalization", T, T[0], None, axis=(1, 2))
    case("layer_normalization", T, V[:3], None, axis=1)
    case("rms_normalization", T, gamma)
    case("batch_normalization", T, gamma, variance, -1, beta, gamma)
    case("batch_normalization", T, gamma, variance, 2)
    case("batch_normalization", T, gamma[:3], variance[:3], 1, beta[:3])


def losses():
    p = rng.uniform(size=(5, 4)).astype("float32")
    p /= p.sum(-1, keepdims=True)
    logits = rng.normal(size=(5, 4)).astype("float32") * 5
    numbers = np.array([0, 1, 2, 3, 1])
    target = np.eye(4, dtype="float32")[numbers]
    for from_logits, output in ((False, p), (True, logits)):
        case("categorical_crossentropy", target, output, from_logits=from_logits)
        case("categorical_crossentropy", target, output, from_logits=from_logits, axis=0)
        case("binary_crossentropy", target, output, from_logits=from_logits)
        case("sparse_categorical_crossentropy", numbers, output, from_logits=from_logits)
        case("sparse_categorical_crossentropy", numbers[:, None], output, from_logits=from_logits)
        strange = np.array([0, -1, 7, 1, 2])
        case("sparse_categorical_crossentropy", strange, output, from_logits=from_logits)
    case("one_hot multi_hot", numbers, 4)
    case("one_hot", numbers, 4, axis=0, dtype="int32")
    case("one_hot", np.array([-1, 9]), 4)
    case("multi_hot", np.array([[0, 1], [2, 2]]), 4)
    case("in_top_k", numbers, logits, 2)
    case("psnr", p, logits, 2.0)
    query = rng.normal(size=(2, 5, 4, 3)).astype("float32")
    key, value = (rng.normal(size=(2, 6, 2, 3)).astype("float32") for _ in range(2))
    mask = rng.integers(0, 2, (2, 1, 5, 6)).astype(bool)
    bias = rng.normal(size=(2, 4, 5, 6)).astype("float32")
    case("dot_product_attention", query, key, value)
    case("dot_product_attention", query, key, value, is_causal=True)
    case("dot_product_attention", query, key, value, mask=mask)
    case("dot_product_attention", query, key, value, bias=bias, scale=0.3)


def elementwise():
    unary = "abs exp2 deg2rad rad2deg fabs sinc isposinf isneginf isreal nan_to_num real imag \
        conj angle copy count_nonzero nansum nanprod nanmax nanmin nanmean nanvar nanstd nanmedian \
        nancumsum nancumprod diff ravel trapezoid sign square floor ceil trunc cumsum"
    for x in (F, H, I, B, U, ODD):
        chosen = unary.replace("sign", "") if x.dtype == bool else unary
        case(chosen, x)
    # At infinity Keras, SciPy and PyTorch give NaN; the limit is in test_rare_functions.py.
    for x in (F, H, I, B, U, ODD[[0, 3, 4, 5]]):
        case("i0", x)
    for x in (F, I, B, U):
        case("tril triu diag diagonal trace fliplr flipud prod median average unique nonzero", x)
    case("ptp", I)
    case("erf erfc expm1 log1p sqrt rsqrt reciprocal log log2 log10 exp cbrt logsumexp", P)
    case("sin cos tan arctan sinh cosh tanh arcsinh", F)
    case("arcsin arccos arctanh", F / 4)
    case("arccosh", P + 1)
    pairs = ((F, P), (I, F), (I, I + 5), (H, H), (ODD, ODD[::-1].copy()), (I, 2.5), (2, F), (U, I))
    binary = "add subtract multiply divide maximum minimum arctan2 logaddexp logaddexp2 fmax fmin \
        fmod heaviside hypot divide_no_nan isclose allclose nextafter outer isin equal less \
        greater_equal mod"
    for x, y in pairs:
        case(binary, x, y)
    for x, y in ((P, F), (F, 2), (2.0, I), (I, 2), (U, 3), (H, 2.0)):
        case("power floor_divide", x, y)
    case("power", B, B)
    case("gcd lcm append kron", I, I + 5)
    case("ldexp", F, I)
    for dtype in ("int8", "bool", "float16"):
        case("cast", F * 100, dtype)
    for dtype in ("uint8", "int32", "int8", "float16"):
        case("saturate_cast", np.array([-1.0, 300.0, 2e10, 1.5], "float32"), dtype)
    for decimals in (0, 1, -1):
        case("round", F * 100, decimals)
        case("round", I * 7, decimals)
    for low, high in ((-0.5, 0.5), (0, 2), (0, 2.5)):
        case("clip", F, low, high)
        case("clip", I, low, high)
    case("where", B, F, 1.0)
    case("where", B, I, 1.0)
    case("where", B, 1, 2)
    case("select", [F > 0, I > 0], [F, F * 2], 5.0)
    z = (F + 1j * P).astype("complex64")
    case("real imag conj angle isreal view_as_real", z)
    case("view_as_complex", F[:, :2])
    case("polar", P, F)
    for dtype in ("int32", "uint8", "float16"):
        case("view", F, dtype=dtype)


def statistics():
    for axis, keepdims in itertools.product((None, 0, 1, (0, 1)), (False, True)):
        case("nansum nanmax nanmin nanmean nanvar nanstd nanprod nanmedian", GAPS,
             axis=axis, keepdims=keepdims)  # fmt: skip
        case("ptp median prod sum mean var std max min", F, axis=axis, keepdims=keepdims)
        case("any all", B, axis=axis, keepdims=keepdims)
    for axis in (None, 0, 1):
        case(
            "nanargmax nanargmin nancumsum nancumprod cumsum cumprod argmax argmin", GAPS, axis=axis
        )
        case("average count_nonzero cumsum cumprod argmax argmin", I, axis=axis)
        case("average", F, axis=axis, weights=P)
    case("average", F, axis=1, weights=V[:4])
    case("max", F, initial=9.0)
    case("min", F, axis=1, initial=-9.0, keepdims=True)
    methods = ("linear", "lower", "higher", "midpoint", "nearest")
    for method, axis, keepdims in itertools.product(methods, (None, 0, 1, (0, 2)), (False, True)):
        kept = {"axis": axis, "method": method, "keepdims": keepdims}
        case("quantile", T, 0.3, **kept)
        case("quantile", T, [0.17, 0.52, 0.88], **kept)
        case("nanquantile", np.where(np.float32(1) < T, np.float32(np.nan), T), 0.31, **kept)
    case("percentile nanpercentile", F, 30.0)
    case("quantile", GAPS, 0.5, axis=1)
    case("bincount", COUNTS)
    case("bincount", COUNTS, minlength=9)
    case("bincount", COUNTS, weights=V)
    case("corrcoef", F)
    for mode in ("valid", "same", "full"):
        case("correlate", V, W[:3], mode=mode)
        case("correlate", W[:2], V, mode=mode)
    ordered = np.sort(V)
    case("searchsorted", ordered, W)
    case("searchsorted", ordered, F, side="right")
    case("digitize", F, ordered)
    case("sort argsort", F)
    case("sort argsort", I, axis=0)
    case("top_k", F, 2)
    for options in ({}, {"return_index": True}, {"return_inverse": True, "return_counts": True},
                    {"axis": 0}, {"size": 3}, {"size": 20, "fill_value": -9}):  # fmt: skip
        case("unique", I, **options)


def shapes():
    for size in (1, 3, 8):
        case("hanning hamming blackman bartlett", size)
        case("kaiser", size, 3.5)
    case("meshgrid", V, W[:3])
    case("meshgrid", V, W[:3], COUNTS[:2], indexing="ij")
    for ends in ((0, 1), (0, 10, 5), (1.5, 3)):
        case("linspace logspace", *ends)
    case("linspace", 0, 1, 5, endpoint=False, retstep=True)
    case("linspace", V, W, 5, axis=-1)
    case("linspace", 0, 10, 5, dtype="int32")
    case("linspace", 0, 1, 1)
    case("geomspace", 1.0, 1000.0, 4)
    case("logspace", 0, 2, 3, base=2)
    case("vander", V)
    case("vander", COUNTS, 3, increasing=True)
    case("diff", F, n=2)
    case("trapezoid", F, dx=0.5, axis=0)
    case("trapezoid", F, x=np.arange(4, dtype="float32") ** 2)
    case("unravel_index", np.array([0, 5, 11, -1], "int32"), (3, 4))
    for k in range(-2, 5):
        case("rot90", T, k=k)
        case("rot90", T, k=k, axes=(2, 0))
    for k in (-4, -2, 0, 1, 3, 5):
        case("diag tril triu trace", F, k)
        case("diagonal", T, k, 1, 2)
        case("diagflat", F[:2, :2], k)
    for parts in ([F, F], [V, V], [T, T], [I, F]):
        case("vstack hstack dstack", parts)
    case("array_split", V, 3)
    case("hsplit", F, 2)
    case("vsplit", F, 3)
    case("dsplit", T, 2)
    case("hsplit", V, [1, 3])
    case("split", F, [1], axis=1)
    for reps in ((2, 1), (2, 1, 2), 3):
        case("tile", F, reps)
    case("repeat", F, 2)
    case("repeat", F, 2, axis=1)
    case("repeat", F, np.array([1, 0, 2]), axis=0)
    for mode in ("reflect", "symmetric", "constant"):
        case("pad", F, ((1, 2), (0, 1)), mode=mode)
    case("pad", I, 1, constant_values=3)
    case("roll", F, 1)
    case("roll", F, (1, 2), axis=(0, 1))
    case("flip", F)
    case("flip", F, axis=1)
    case("moveaxis", T, (0, 1), (1, 2))
    case("swapaxes", T, 0, -1)
    case("expand_dims", F, (0, 2))
    case("stack", [F, F], axis=-1)
    case("unstack", F, axis=1)
    case("eye tri", 3, 4, 1)
    case("full", (2, 2), 3)
    case("full", (2, 2), V[:2])
    case("arange", 5)
    case("arange", 1, 2, 0.25)
    case("take", F, np.array([[0, 1], [2, 2]]), axis=1)
    case("take", F, np.array([0, 2, -1]))
    case("take_along_axis", F, np.array([[0], [1], [2]]), axis=1)
    case("rearrange", T, "a b c -> c (a b)")
    case("rearrange", T, "a b (c d) -> a d (b c)", d=2)


def places():
    case("slice", T, (0, 1, 2), (2, 2, 2))
    case("slice", T, (0, 5, 1), (1, 2, 3))
    case("slice_update", T, (0, 1, 2), np.ones((1, 2, 2), "float32"))
    case("slice_update", T, (1, 2, 3), np.ones((1, 2, 2), "float32"))
    rows, spots = np.array([[0], [2], [2]]), np.array([[0, 1], [2, 2], [2, 2]])
    case("scatter", rows, F, (5, 4))
    for how in ("add", "max", "min", "mul"):
        case("scatter_update", F, spots, V[:3], reduction=how)
        case("scatter_update", F, rows, T[0], reduction=how)
    case("scatter_update", F, spots[:2], V[:2])
    segments = "segment_sum segment_max segment_min segment_prod"
    case(segments, V, np.array([0, 0, 1, 1, 3]), num_segments=4)
    case(segments, V, np.array([0, 2, 2, -1, 7]), num_segments=4)
    case(segments, I, np.array([1, 3, 1]), num_segments=5)


def signals():
    a, b = (rng.normal(size=(2, 3, 8)).astype("float32") for _ in range(2))
    for n in (8, 7):
        case("fft fft2 ifft2 irfft", (a[..., :n], b[..., :n]))
        case("rfft", a[..., :n])
    for n in (5, 12):
        case("rfft", a, n)
    case("irfft", (a, b), 13)
    case("extract_sequences", a, 3, 2)
    x = rng.normal(size=(2, 50)).astype("float32")
    for options in ({}, {"window": "hamming"}, {"window": None}, {"center": False}):
        case("stft", x, 10, 4, 16, **options)
    spectrum = np.fft.rfft(rng.normal(size=(2, 9, 16)))
    pair = spectrum.real.astype("float32"), spectrum.imag.astype("float32")
    case("istft", pair, 10, 4, 16)
    case("istft", pair, 10, 4, 16, length=30, center=False)
    pictures = rng.normal(size=(2, 4, 8, 6)).astype("float32")
    case("unfold", pictures, 2)
    case("unfold", pictures, (2, 3), stride=2, padding=1)
    case("unfold", pictures, 2, dilation=2, padding=(0, 1), stride=(1, 2))
    case("fold", rng.normal(size=(2, 12, 35)).astype("float32"), (8, 6), 2)
    case("fold", rng.normal(size=(2, 12, 15)).astype("float32"), (8, 6), (2, 3), 1, 1, 2)
    for data_format in ("channels_last", "channels_first"):
        y = rng.normal(size=(2, 8, 4, 8)).astype("float32")
        case("depth_to_space space_to_depth", y, 2, data_format=data_format)


def pictures():
    x = rng.uniform(size=(2, 7, 5, 3)).astype("float32")
    first = np.moveaxis(x, -1, 1)
    for method in ("nearest", "bilinear", "bicubic", "lanczos3", "lanczos5"):
        for size, antialias in itertools.product(((3, 4), (14, 9)), (False, True)):
            case("image.resize", x, size, interpolation=method, antialias=antialias)
        fit = {"interpolation": method}
        case("image.resize", x, (4, 6), crop_to_aspect_ratio=True, **fit)
        case("image.resize", x, (4, 6), pad_to_aspect_ratio=True, fill_value=0.5, **fit)
        case("image.resize", first, (4, 6), data_format="channels_first", **fit)
    for method, antialias in itertools.product(("linear", "cubic", "lanczos3"), (True, False)):
        case("image.scale_and_translate", x, (2, 10, 8, 3), np.array([1.5, 0.8], "float32"),
             np.array([0.5, -1.0], "float32"), (1, 2), method, antialias=antialias)  # fmt: skip
    maps = np.array([[1, 0.1, 0.5, -0.2, 1, 1.2, 0, 0], [0.8, 0, -1.0, 0.1, 1.2, 0, 0, 0]], "f4")
    spots = rng.uniform(-9, 14, (2, 4, 6)).astype("float32")
    for mode in ("constant", "nearest", "wrap", "mirror", "reflect"):
        for method in ("nearest", "bilinear"):
            case("image.affine_transform", x, maps, interpolation=method, fill_mode=mode)
        for order in (0, 1):
            case(
                "image.map_coordinates", x[0, :, :, 0], spots, order, fill_mode=mode, fill_value=2.0
            )
    start = np.array([[0, 0], [4, 0], [0, 6], [4, 6]], "float32")
    end = start + rng.uniform(-1, 1, (2, 4, 2)).astype("float32")
    for method in ("nearest", "bilinear"):
        case("image.perspective_transform", x, np.stack([start, start]), end,
             interpolation=method, fill_value=0.3)  # fmt: skip
    case("image.rgb_to_grayscale image.rgb_to_hsv image.hsv_to_rgb", x)
    case("image.rgb_to_grayscale", first, data_format="channels_first")
    case("image.rgb_to_hsv", np.round(x * 2) / 2)
    y, z = (rng.uniform(size=(2, 16, 14, 3)).astype("float32") for _ in range(2))
    case("image.ssim", y, z)
    case("image.ssim", y, z * 0.1 + y, max_val=2.0, filter_size=5)
    case("image.crop_images", y, 2, 1, target_height=8, target_width=6)
    case("image.pad_images", y, 2, 3, target_height=20, target_width=20)
    for options in ({"size": 3}, {"size": (3, 2), "strides": 1},
                    {"size": 3, "strides": 2, "padding": "same"},
                    {"size": 2, "dilation_rate": 2, "strides": 1}):  # fmt: skip
        case("image.extract_patches", y, **options)
    case("image.extract_patches_3d", rng.uniform(size=(2, 6, 5, 4, 2)).astype("float32"), 2)


for make in (
    activations, losses, elementwise, statistics, shapes, places, signals, pictures,
):  # fmt: skip
    make()


def keyed():
    """Return {key: case}: the key is the op's name and how many cases of it came before."""
    counts: dict = {}
    made = {}
    for name, args, kwargs in CASES:
        number = counts[name] = counts.get(name, -1) + 1
        made[f"{name}-{number}"] = (name, args, kwargs)
    return made


def call(namespace, name, args, kwargs):
    """Return the results as a list of arrays."""
    found = namespace
    for part in name.split("."):
        found = getattr(found, part)
    y = found(*args, **kwargs)
    return [np.asarray(part) for part in (y if isinstance(y, (tuple, list)) else [y])]
