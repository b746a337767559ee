"""Gradients of functions composed of ops, to the second order, against central differences."""

from __future__ import annotations

import numpy as np
import pytest

from kerasish import ops
from kerasish.testing import gradient_check

rng = np.random.default_rng(11)
X = rng.permutation(np.linspace(-2.0, 2.0, 12)).reshape(3, 4)  # no two elements are equal
P = np.abs(X) + 0.3
V, W = rng.normal(size=5), rng.normal(size=5)
PICTURE = rng.permutation(np.linspace(0.05, 0.95, 40)).reshape(1, 5, 4, 2)
COLORS = rng.permutation(np.linspace(0.05, 0.95, 18)).reshape(1, 2, 3, 3)
MAP = np.array([[1, 0.13, 0.52, -0.21, 1, 1.17, 0, 0]])
IDS = np.array([0, 1, 0])
GAPS = np.where(X > 1.2, np.nan, X)

CASES = {
    "amax": (lambda x: ops.amax(x, 1), [X]),
    "append": (lambda x, y: ops.append(x, y) ** 2, [V, W]),
    "average": (lambda x, w: ops.average(x, 1, w), [X, P]),
    "corrcoef": (ops.corrcoef, [X]),
    "correlate": (lambda x, y: ops.correlate(x, y, "full"), [V, W[:3]]),
    "cumprod": (lambda x: ops.cumprod(x, 1), [np.where(np.abs(X) < 0.2, 0.0, X)]),
    "cumsum": (lambda x: ops.cumsum(x, 0) ** 2, [X]),
    "diag": (lambda x: ops.diag(x, 1) ** 2, [V]),
    "diagonal": (lambda x: ops.diagonal(x, -1) ** 2, [X]),
    "diff": (lambda x: ops.diff(x, 2) ** 2, [X]),
    "divide_no_nan": (ops.divide_no_nan, [X, P]),
    "exp2": (ops.exp2, [X]),
    "fft": (lambda a, b: ops.fft((a, b)), [X, P]),
    "fmax": (ops.fmax, [X, X[::-1] + 0.1]),
    "geomspace": (lambda a, b: ops.geomspace(a, b, 4), [np.array(1.5), np.array(7.0)]),
    "hypot": (ops.hypot, [X, P]),
    "irfft": (lambda a, b: ops.irfft((a, b), 5), [X, P]),
    "kron": (ops.kron, [X[:2, :2], P[:1]]),
    "linspace": (lambda a, b: ops.linspace(a, b, 4) ** 2, [V, W]),
    "logaddexp2": (ops.logaddexp2, [X, P]),
    "logsumexp": (lambda x: ops.logsumexp(x, 1), [X]),
    "max": (lambda x: ops.max(x, 0, initial=0.1) ** 2, [X]),
    "median": (lambda x: ops.median(x, 1) ** 2, [X]),
    "nanmean": (lambda x: ops.nanmean(ops.where(GAPS == GAPS, x, np.nan)) ** 2, [X]),
    "nanvar": (lambda x: ops.nanvar(ops.where(GAPS == GAPS, x, np.nan)), [X]),
    "outer": (ops.outer, [V, W]),
    "polar": (lambda r, t: ops.view_as_real(ops.polar(r, t)), [P, X]),
    "prod": (lambda x: ops.prod(x, 1), [np.where(np.abs(X) < 0.2, 0.0, X)]),
    "psnr": (lambda a, b: ops.psnr(a, b, 2.0), [X, P]),
    "ptp": (lambda x: ops.ptp(x, 1) ** 2, [X]),
    "quantile": (lambda x: ops.quantile(x, [0.2, 0.6], 1) ** 2, [X]),
    "rearrange": (lambda x: ops.rearrange(x, "a (b c) -> c b a", b=2) ** 2, [X]),
    "repeat": (lambda x: ops.repeat(x, 2, 1) ** 2, [X]),
    "rfft": (lambda x: ops.rfft(x, 6), [X]),
    "roll": (lambda x: ops.roll(x, 3) ** 2, [X]),
    "rot90": (lambda x: ops.rot90(x) ** 2, [X]),
    "segment_min": (lambda x: ops.segment_min(x, IDS, 2) ** 2, [X]),
    "segment_prod": (lambda x: ops.segment_prod(x, IDS, 2), [P]),
    "select": (lambda x: ops.select([X > 1, X > 0], [x, x * 2], 0.5) ** 2, [X]),
    "sinc": (ops.sinc, [X]),
    "sort": (lambda x: ops.sort(x, 0) ** 2, [X]),
    "split": (lambda x: ops.split(x, 2, 1)[0] ** 2, [X]),
    "std": (lambda x: ops.std(x, 1), [X]),
    "stft": (lambda x: ops.stft(x, 4, 2, 4), [rng.normal(size=(2, 9))]),
    "tile": (lambda x: ops.tile(x, (2, 1, 2)) ** 2, [X]),
    "top_k": (lambda x: ops.top_k(x, 2)[0] ** 2, [X]),
    "trapezoid": (lambda y, x: ops.trapezoid(y, x), [X, np.sort(P, -1)]),
    "tril": (lambda x: ops.tril(x) ** 2, [X]),
    "vander": (lambda x: ops.vander(x, 3), [V]),
    "var": (lambda x: ops.var(x, 0), [X]),
    "unfold": (lambda x: ops.unfold(x, 2, stride=2, padding=1) ** 2, [PICTURE]),
    "fold": (lambda x: ops.fold(x, 3, 2) ** 2, [rng.normal(size=(1, 4, 4))]),
    "depth_to_space": (lambda x: ops.depth_to_space(x, 2) ** 2, [rng.normal(size=(1, 2, 3, 4))]),
    "resize": (lambda x: ops.image.resize(x, (3, 6), "bicubic", True) ** 2, [PICTURE]),
    "resize_nearest": (lambda x: ops.image.resize(x, (3, 6), "nearest") ** 2, [PICTURE]),
    "affine": (lambda x, m: ops.image.affine_transform(x, m, fill_mode="reflect"), [PICTURE, MAP]),
    "map_coordinates": (
        lambda x, c: ops.image.map_coordinates(x, c, 1),
        [X, np.array([[0.3, 1.6], [2.2, 0.7]])],
    ),
    "rgb_to_hsv": (lambda x: ops.image.rgb_to_hsv(x), [COLORS]),
    "hsv_to_rgb": (lambda x: ops.image.hsv_to_rgb(x), [COLORS]),
    "sobel": (lambda x: ops.image.sobel_edges(x) ** 2, [PICTURE]),
    "extract_patches": (lambda x: ops.image.extract_patches(x, 2, padding="same") ** 2, [PICTURE]),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients(name):
    function, inputs = CASES[name]
    gradient_check(function, inputs)
