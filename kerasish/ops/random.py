"""Random numbers: one op that makes bits, and distributions composed of ops on these bits.

Counter-based: the numbers are a pure function of a state of two words, so that they are the same
in every engine and on every device, bit for bit, and a graph may compute them anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kerasish.errors import DTypeError, ShapeError
from kerasish.ops import dtypes
from kerasish.ops.basic.arithmetic import (
    add,
    divide,
    floor,
    mod,
    multiply,
    negative,
    square,
    subtract,
)
from kerasish.ops.basic.bits import right_shift
from kerasish.ops.basic.comparison import equal, greater_equal, less, less_equal, logical_and
from kerasish.ops.basic.conversion import as_tensor, cast, stop_gradient
from kerasish.ops.basic.creation import arange, zeros
from kerasish.ops.basic.error_function import erfinv
from kerasish.ops.basic.examples import integers
from kerasish.ops.basic.exponentials import log, power, sqrt
from kerasish.ops.basic.indexing import take_rows
from kerasish.ops.basic.movement import broadcast_to, concatenate, reshape, sizes
from kerasish.ops.basic.reduce import argmax, argsort, reduce_max, reduce_sum
from kerasish.ops.basic.reshaping import expand_dims
from kerasish.ops.basic.selection import get_item, where
from kerasish.ops.basic.statistics import clip
from kerasish.ops.basic.trigonometry import cos, sin
from kerasish.ops.op import function, op
from kerasish.ops.shapes import Shape, Spec
from kerasish.typing import AnyTensor, Array, ArrayModule, DTypeLike, ShapeLike, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

# --- bits -----------------------------------------------------------------------------------------

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
MASK = 0xFFFFFFFF


def philox(xp: ArrayModule, counter: Array, key: Array) -> tuple[Any, Any, Any, Any]:
    """Return the four words of Philox4x32-10 at `counter` (four words) under `key` (two words).

    Words are uint64 arrays (or scalars of NumPy) with values below 2**32; they broadcast.

    Source: Salmon, Moraes, Dror, Shaw, Parallel random numbers: as easy as 1, 2, 3, SC 2011.
    """
    mask, half = xp.uint64(MASK), xp.uint64(32)
    a, b = (xp.uint64(m) for m in MULTIPLIERS)
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        first, second = c0 * a, c2 * b
        c0, c1, c2, c3 = (
            (second >> half) ^ c1 ^ k0,
            second & mask,
            (first >> half) ^ c3 ^ k1,
            first & mask,
        )
        k0, k1 = (k0 + xp.uint64(KEY_STEPS[0])) & mask, (k1 + xp.uint64(KEY_STEPS[1])) & mask
    return c0, c1, c2, c3


def _bits_canonical(shapes: list[Shape], attrs: dict[str, Any]) -> dict[str, Any]:
    shape = sizes(attrs["shape"], "random_bits")
    if any(s is not None and s < 0 for s in shape):
        raise ShapeError(f"random_bits: sizes must be >= 0, got {shape}.")
    if shapes[0] not in ((2,), (None,)):
        raise ShapeError(f"random_bits: the state has the shape (2,), got {shapes[0]}.")
    return {"shape": shape}


@op(
    "random",
    lambda state, shape: Spec(shape, "uint32"),
    None,
    canonical=_bits_canonical,
    examples=[
        ((integers(0, 99, 2, dtype="uint32"),), {"shape": (3, 5)}),
        ((integers(0, 99, 2, dtype="uint32"),), {"shape": ()}),
        ((integers(0, 99, 2, dtype="uint32"),), {"shape": (2, 0)}),
    ],
)
def random_bits(xp: ArrayModule, state: Array, *, shape: Shape) -> Array:
    """Uniform 32-bit words: element e, in C order, is word e % 4 of block e // 4, where block i is
    Philox4x32-10 of the counter (i % 2**32, i // 2**32, draw, 0) under the key (seed, 0).

    Args:
        state: uint32 [seed, draw].

    Shape: (2,) -> shape, uint32.
    """
    count = math.prod(shape)
    state = state.astype(xp.uint64)
    blocks = xp.arange((count + 3) // 4, dtype=xp.uint64)
    zero = xp.zeros((), xp.uint64)
    counter = (blocks & xp.uint64(MASK), blocks >> xp.uint64(32), state[1], zero)
    words = philox(xp, counter, (state[0], zero))
    return xp.stack(words, -1).astype(xp.uint32).reshape(-1)[:count].reshape(shape)


def split(state: TensorLike, count: int) -> list[Any]:
    """Return `count` states that have nothing to do with each other, drawn from `state`."""
    words = random_bits(state, (count, 2))
    return [get_item(words, i) for i in range(count)]


# --- uniform --------------------------------------------------------------------------------------

_KEPT = {"float16": 11, "bfloat16": 8, "float32": 24}  # the bits that a dtype holds exactly


def unit(state: TensorLike, shape: ShapeLike, dtype: DTypeLike | None = None) -> Tensor:
    """Return numbers uniform in [0, 1): the top bits of a word (float64: 53 bits of two words).

    float32: (bits >> 8) * 2**-24; float16: (bits >> 21) * 2**-11; bfloat16: (bits >> 24) * 2**-8;
    float64: ((a >> 5) * 2**26 + (b >> 6)) * 2**-53 with a, b = random_bits(state, (*shape, 2)).
    """
    shape, dtype = sizes(shape, "random"), _float(dtype)
    if dtype == "float64":
        bits = random_bits(state, (*shape, 2))
        high = right_shift(get_item(bits, (..., 0)), 5)
        low = right_shift(get_item(bits, (..., 1)), 6)
        whole = add(multiply(cast(high, dtype), 2.0**26), cast(low, dtype))
        return multiply(whole, 2.0**-53)
    kept = _KEPT[dtype]
    # Below 2**24: as int32, which hardware converts faster than uint32.
    bits = cast(right_shift(random_bits(state, shape), 32 - kept), "int32")
    return multiply(cast(bits, dtype), 2.0**-kept)


def _float(dtype: DTypeLike | None) -> str:
    name = dtypes.name_of(dtype)
    if not dtypes.is_float(name):
        raise DTypeError(f"Random numbers of this distribution are floating, not {name}.")
    return name


def uniform(
    state: TensorLike,
    shape: ShapeLike,
    minval: float = 0.0,
    maxval: float = 1.0,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """Return minval + (maxval - minval) * u with u uniform in [0, 1).

    Example:
        >>> [f"{u:.4f}" for u in uniform([0, 0], (3,)).tolist()]
        ['0.3990', '0.8805', '0.7357']
    """
    u = unit(state, shape, dtype)
    if isinstance(minval, (int, float)) and isinstance(maxval, (int, float)):
        if (minval, maxval) == (0, 1):
            return u
        return add(multiply(u, float(maxval - minval)), float(minval))
    low = cast(minval, u.dtype)
    return add(multiply(u, subtract(cast(maxval, u.dtype), low)), low)


def bernoulli(state: TensorLike, shape: ShapeLike, p: float) -> Tensor:
    """Return True with probability p: where a word is below round(p * 2**32)."""
    threshold = round(p * 2.0**32)
    bits = random_bits(state, shape)
    if threshold > MASK:
        return greater_equal(bits, 0)
    return less(bits, cast(threshold, "uint32"))


# --- normal ---------------------------------------------------------------------------------------


def normal(
    state: TensorLike,
    shape: ShapeLike,
    mean: float = 0.0,
    stddev: float = 1.0,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """Return mean + stddev * z with z standard normal.

    Box and Muller: with n elements, h = ceil(n / 2) and (u, v) = unit(state, (2, h)), element
    i < h is sqrt(-2 log(1 - u[i])) * cos(2 pi v[i]), element h + i the same with sin.

    Source: Box & Muller, Ann. Math. Statist. 29 (1958), 610-611.
    """
    dtype = _float(dtype)
    wide = dtype if dtype == "float64" else "float32"
    z = cast(_standard_normal(state, sizes(shape, "random"), wide), dtype)
    if isinstance(mean, (int, float)) and isinstance(stddev, (int, float)):
        if stddev != 1:
            z = multiply(z, float(stddev))
        return z if mean == 0 else add(z, float(mean))
    return add(multiply(z, cast(stddev, dtype)), cast(mean, dtype))


def _standard_normal(state: AnyTensor, shape: Shape, dtype: str) -> Tensor:
    if None in shape:
        # Sizes not known: only shape and dtype are asked for, no number is drawn.
        return unit(state, shape, dtype)
    count = math.prod(shape)
    half = (count + 1) // 2
    u = unit(state, (2, half), dtype)
    radius = sqrt(multiply(log(subtract(1.0, get_item(u, 0))), -2.0))
    angle = multiply(get_item(u, 1), 2 * math.pi)
    both = concatenate([multiply(radius, cos(angle)), multiply(radius, sin(angle))])
    both = both if count == 2 * half else get_item(both, slice(0, count))
    return reshape(both, shape)


def truncated_normal(
    state: TensorLike,
    shape: ShapeLike,
    mean: float = 0.0,
    stddev: float = 1.0,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """Return mean + stddev * z with z normal inside [-2, 2]: sqrt(2) erfinv(u), u uniform."""
    dtype = _float(dtype)
    wide = dtype if dtype == "float64" else "float32"
    edge = math.erf(2 / math.sqrt(2))
    u = uniform(state, shape, -edge, edge, wide)
    z = cast(clip(multiply(erfinv(u), math.sqrt(2)), -2.0, 2.0), dtype)
    return add(multiply(z, cast(stddev, dtype)), cast(mean, dtype))


# --- integers --------------------------------------------------------------------------------


def randint(
    state: TensorLike, shape: ShapeLike, minval: int, maxval: int, dtype: DTypeLike = "int32"
) -> Tensor:
    """Return integers uniform in [minval, maxval): minval + (bits * (maxval - minval) >> 32).

    Ranges beyond 2**32 take 64 bits modulo the range.
    """
    name = dtypes.name_of(dtype)
    if not dtypes.is_integer(name):
        raise DTypeError(f"randint: an integer dtype was expected, got {name}.")
    shape = sizes(shape, "randint")
    known = isinstance(minval, int) and isinstance(maxval, int)
    if known and not minval < maxval:
        raise ValueError(f"randint: minval must be below maxval, got {minval} and {maxval}.")
    low = cast(minval, "int64")
    span = cast(subtract(cast(maxval, "int64"), low), "uint64")
    if known and maxval - minval > 2**32:
        words = cast(random_bits(state, (*shape, 2)), "uint64")
        high = multiply(get_item(words, (..., 0)), cast(2**32, "uint64"))
        drawn = mod(add(high, get_item(words, (..., 1))), span)
    else:
        drawn = right_shift(multiply(cast(random_bits(state, shape), "uint64"), span), 32)
    return cast(add(cast(drawn, "int64"), low), name)


@function
def categorical(state: Any, logits: Any, num_samples: int, dtype: DTypeLike = "int32") -> Tensor:
    """Return, for each row of logits (n, classes), `num_samples` classes drawn by softmax(logits).

    The largest logit + Gumbel noise. Source: Gumbel, 1954.

    Shape: (n, classes) -> (n, num_samples).
    """
    logits = as_tensor(logits)
    if len(logits.shape) != 2:
        raise ShapeError(f"categorical: expected logits (n, classes), got shape {logits.shape}.")
    name = logits.dtype if logits.dtype in ("float32", "float64") else "float32"
    logits = cast(logits, name)
    rows, classes = logits.shape
    u = unit(state, (rows, num_samples, classes), name)
    # 1 - u is in (0, 1]; the half step keeps both logarithms finite.
    noise = negative(log(negative(log(subtract(1.0 - 2.0**-25, multiply(u, 1 - 2.0**-24))))))
    return cast(argmax(add(expand_dims(logits, 1), noise), -1), dtypes.name_of(dtype))


@function
def shuffle(state: TensorLike, x: TensorLike, axis: int = 0) -> Tensor:
    """Return x's slices along `axis` in random order: the order that sorts random words."""
    x = as_tensor(x)
    if not x.shape:
        raise ShapeError("shuffle: a tensor without axes has nothing to shuffle.")
    return take_rows(x, argsort(random_bits(state, (x.shape[axis],))), axis)


@function
def dropout(
    state: TensorLike, inputs: TensorLike, rate: float, noise_shape: Sequence[int] | None = None
) -> Tensor:
    """Return inputs / (1 - rate), zero where a random word is below round(rate * 2**32).

    Args:
        rate: share of the inputs dropped, 0 <= rate <= 1.
        noise_shape: shape of the mask, which broadcasts to the inputs'; None sizes are theirs.
    """
    x = as_tensor(inputs)
    if not 0 <= rate <= 1:
        raise ValueError(f"dropout: rate must be in [0, 1], got {rate}.")
    if rate == 0:
        return x
    shape = x.shape
    if noise_shape is not None:
        given = tuple(noise_shape)
        if len(given) != len(shape):
            raise ShapeError(f"dropout: noise_shape {given} must have the axes of {shape}.")
        shape = tuple(s if n is None else n for n, s in zip(given, shape))
    if rate == 1:
        return multiply(x, 0)
    dropped = bernoulli(state, shape, rate)
    return where(dropped, 0, multiply(x, 1 / (1 - rate)))


# --- gamma and what is made of it ----------------------------------------------------------------

# Tries of the rejection method. Each one fails with probability < 0.05; an element whose tries
# all fail (< 2e-8, less than a step of float32's uniform numbers) becomes the mode.
GAMMA_TRIES = 6


@function
def gamma(
    state: TensorLike, shape: ShapeLike, alpha: TensorLike, dtype: DTypeLike | None = None
) -> Tensor:
    """Return gamma numbers of shape `alpha` > 0 and scale 1; no gradient flows to alpha.

    Below 1, alpha + 1 is drawn and multiplied by uniform ** (1 / alpha).

    Source: Marsaglia & Tsang, ACM Trans. Math. Softw. 26 (2000), 363-372.
    """
    dtype, shape = _float(dtype), sizes(shape, "random")
    wide = dtype if dtype == "float64" else "float32"
    alpha = broadcast_to(cast(stop_gradient(alpha), wide), shape)
    first, second, third = split(state, 3)
    z = normal(first, (GAMMA_TRIES, *shape), dtype=wide)
    u = subtract(1.0, unit(second, (GAMMA_TRIES, *shape), wide))
    boosted = where(less(alpha, 1.0), add(alpha, 1.0), alpha)
    d = subtract(boosted, 1 / 3)
    root = add(divide(multiply(z, 1 / 3), sqrt(d)), 1.0)
    v = multiply(root, square(root))
    safe = where(greater_equal(0.0, v), 1.0, v)
    bound = add(multiply(square(z), 0.5), multiply(d, add(subtract(1.0, safe), log(safe))))
    accepted = logical_and(less(0.0, v), less(log(u), bound))
    # The first accepted try: scores fall from try to try.
    score = reshape(arange(GAMMA_TRIES, 0, -1), (-1, *[1] * len(shape)))
    scores = where(accepted, score, 0)
    best = reduce_max(scores, 0)
    chosen = reduce_sum(where(logical_and(accepted, equal(scores, best)), v, 0.0), 0)
    drawn = multiply(d, where(less(0, best), chosen, 1.0))
    w = subtract(1.0, unit(third, shape, wide))
    drawn = where(less(alpha, 1.0), multiply(drawn, power(w, divide(1.0, alpha))), drawn)
    return cast(stop_gradient(drawn), dtype)


@function
def beta(
    state: TensorLike,
    shape: ShapeLike,
    alpha: TensorLike,
    beta: TensorLike,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """Return beta numbers a / (a + b) with a, b gamma of shapes `alpha` and `beta`."""
    dtype = _float(dtype)
    wide = dtype if dtype == "float64" else "float32"
    first, second = split(state, 2)
    a, b = gamma(first, shape, alpha, wide), gamma(second, shape, beta, wide)
    tiny = 1e-300 if wide == "float64" else 1e-37
    return cast(divide(a, add(add(a, b), tiny)), dtype)


# Up to this number, trials are counted one by one.
FEW_TRIALS = 16
MOST_TRIALS = 2**24


@function
def binomial(
    state: Any, shape: ShapeLike, counts: Any, probabilities: Any, dtype: DTypeLike | None = None
) -> Tensor:
    """Return how many of `counts` trials succeed, each with its probability.

    The middle one of n uniform numbers is drawn (it is beta distributed): if it is below p, so
    is the half under it, and the rest is the same question for n / 2 trials; the last 16 are
    counted.

    Source: Devroye, Non-uniform random variate generation, 1986, X.4.4.
    """
    dtype, shape = _float(dtype), sizes(shape, "random")
    most = _largest(counts)
    rounds = max(0, math.ceil(math.log2(max(most, 1) / FEW_TRIALS)) + 1) if most > 16 else 0
    states = split(state, rounds + 1)
    n = broadcast_to(cast(counts, "float64"), shape)
    p = broadcast_to(cast(probabilities, "float64"), shape)
    total = zeros(shape, "float64")
    for each in states[:-1]:
        large = less(float(FEW_TRIALS), n)
        k = add(floor(multiply(n, 0.5)), 1.0)
        rest = subtract(n, k)
        middle = beta(
            each, shape, where(large, k, 1.0), where(large, add(rest, 1.0), 1.0), "float64"
        )
        below = less_equal(middle, p)
        under = divide(subtract(p, middle), where(less(middle, 1.0), subtract(1.0, middle), 1.0))
        over = divide(p, where(less(0.0, middle), middle, 1.0))
        total = where(logical_and(large, below), add(total, k), total)
        p = where(large, clip(where(below, under, over), 0.0, 1.0), p)
        n = where(large, where(below, rest, subtract(k, 1.0)), n)
    u = unit(states[-1], (FEW_TRIALS, *shape), "float32")
    trial = reshape(arange(FEW_TRIALS), (-1, *[1] * len(shape)))
    success = logical_and(less(cast(trial, "float64"), n), less(cast(u, "float64"), p))
    return cast(add(total, reduce_sum(cast(success, "float64"), 0)), dtype)


def _largest(counts: Any) -> int:
    """Return a bound on `counts`: their largest, where they are numbers already."""
    numbers = counts if isinstance(counts, (list, tuple)) else [counts]
    if all(isinstance(n, (int, float)) for n in numbers):
        return int(max(numbers, default=0))
    if type(counts).__module__ == "numpy":
        return int(counts.max()) if counts.size else 0
    return MOST_TRIALS


__all__ = [
    "bernoulli", "beta", "binomial", "categorical", "dropout", "gamma", "normal", "philox",
    "randint", "random_bits", "shuffle", "split", "truncated_normal", "uniform", "unit",
]  # fmt: skip
