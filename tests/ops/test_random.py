"""Philox's published words, and distributions against their laws."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.stats as stats
from scipy.special import erfinv

import kerasish
from kerasish import config, ops
from kerasish import random as keras_random
from kerasish.backends.eager.numpy_kernels import KERNELS
from kerasish.errors import DTypeError, ShapeError
from kerasish.ops import random as drawn
from kerasish.ops.op import REGISTRY
from kerasish.ops.shapes import Spec
from kerasish.random import SeedGenerator

N = 40_000

# The known answers of Random123 1.14 for philox4x32-10: counter, key, words.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_philox_gives_the_published_words(counter, key, words):
    result = drawn.philox(np, [np.uint64(c) for c in counter], [np.uint64(k) for k in key])
    assert tuple(map(int, result)) == words


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 4 * 8192, 4 * 8192 + 7, 100_001])
@pytest.mark.parametrize("state", [(0, 0), (7, 3), (0xFFFFFFFF, 0xFFFFFFFF)])
def test_bits_are_words_of_counted_blocks(state, count):
    state = np.array(state, "uint32")
    bits = KERNELS["random_bits"](state, shape=(count,))
    np.testing.assert_array_equal(bits, REGISTRY["random_bits"].kernel(np, state, shape=(count,)))
    for e in {0, count // 2, count - 1} - {-1} if count else ():
        counter = [np.uint64(c) for c in (e // 4, 0, state[1], 0)]
        block = drawn.philox(np, counter, [np.uint64(state[0]), np.uint64(0)])
        assert int(bits[e]) == int(block[e % 4])


def test_any_shape_holds_the_same_words():
    flat = ops.convert_to_numpy(drawn.random_bits([5, 6], (24,)))
    assert flat.dtype == np.uint32
    np.testing.assert_array_equal(drawn.random_bits([5, 6], (2, 3, 4)).numpy().ravel(), flat)
    np.testing.assert_array_equal(drawn.random_bits([5, 6], (7,)), flat[:7])
    assert int(drawn.random_bits([5, 6], ())) == flat[0]


def test_floats_are_the_top_bits():
    bits = drawn.random_bits([1, 2], (1000,)).numpy()
    u = drawn.unit([1, 2], (1000,)).numpy()
    np.testing.assert_array_equal(u, (bits >> 8).astype("float32") * np.float32(2**-24))
    pairs = drawn.random_bits([1, 2], (1000, 2)).numpy().astype("uint64")
    wide = drawn.unit([1, 2], (1000,), "float64").numpy()
    np.testing.assert_array_equal(wide, ((pairs[:, 0] >> 5) * 2**26 + (pairs[:, 1] >> 6)) * 2**-53)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_uniform_stays_below_one(dtype):
    u = keras_random.uniform((N,), dtype=dtype, seed=1)
    assert u.dtype == dtype
    numbers = u.numpy().astype("float64")
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert stats.kstest(numbers, "uniform").pvalue > (1e-3 if dtype[-2:] in ("32", "64") else 0)
    assert abs(numbers.mean() - 0.5) < 0.02


def test_normal_is_box_mullers():
    u = drawn.unit([3, 4], (2, 3)).numpy().astype("float64")
    radius, angle = np.sqrt(-2 * np.log(1 - u[0])), 2 * np.pi * u[1]
    expected = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
    np.testing.assert_allclose(
        drawn.normal([3, 4], (2, 3)).numpy().ravel(), expected, rtol=1e-4, atol=1e-5
    )
    np.testing.assert_array_equal(
        drawn.normal([3, 4], (5,)).numpy(), drawn.normal([3, 4], (6,)).numpy()[:5]
    )


LAWS = {
    "uniform": (lambda s: keras_random.uniform((N,), -1, 3, seed=s), stats.uniform(-1, 4)),
    "normal": (lambda s: keras_random.normal((N,), 2.0, 3.0, seed=s), stats.norm(2, 3)),
    "normal64": (lambda s: keras_random.normal((N,), dtype="float64", seed=s), stats.norm()),
    "truncated": (
        lambda s: keras_random.truncated_normal((N,), 1.0, 2.0, seed=s),
        stats.truncnorm(-2, 2, 1, 2),
    ),
    "gamma .3": (lambda s: keras_random.gamma((N,), 0.3, "float64", seed=s), stats.gamma(0.3)),
    "gamma 1": (lambda s: keras_random.gamma((N,), 1.0, seed=s), stats.gamma(1)),
    "gamma 7": (lambda s: keras_random.gamma((N,), 7.0, seed=s), stats.gamma(7)),
    "beta": (lambda s: keras_random.beta((N,), 2.0, 0.7, seed=s), stats.beta(2, 0.7)),
}  # fmt: skip


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("seed", [0, 1])
def test_continuous_laws(name, seed):
    draw, law = LAWS[name]
    assert stats.kstest(draw(seed).numpy().astype("float64"), law.cdf).pvalue > 1e-3


def chi_squared(found, law):
    """Return the p-value of integers under a discrete law, rare ones put together."""
    values = np.arange(found.min(), found.max() + 1)
    expected = law.pmf(values) * found.size
    often = expected >= 5
    seen = np.array([(found == v).sum() for v in values])
    rest = found.size - expected[often].sum()
    groups = np.append(seen[often], found.size - seen[often].sum())
    laws = np.append(expected[often], rest)
    keep = laws > 1
    statistic = ((groups - laws)[keep] ** 2 / laws[keep]).sum()
    return stats.chi2.sf(statistic, keep.sum() - 1)


TRIALS = [(1, 0.3), (10, 0.5), (16, 0.9), (17, 0.2), (1000, 0.01), (5000, 0.4)]


@pytest.mark.parametrize(("count", "p"), TRIALS)
def test_binomial_law(count, p):
    result = keras_random.binomial((20_000,), count, p, seed=3).numpy()
    assert result.dtype == np.float32
    assert chi_squared(result, stats.binom(count, p)) > 1e-3


def test_binomial_of_several_laws_at_once():
    counts, p = np.array([[5.0], [400.0]]), np.array([0.1, 0.5, 1.0])
    result = keras_random.binomial((4000, 2, 3), counts, p, seed=1).numpy()
    np.testing.assert_allclose(result.mean(0), counts * p, rtol=0.05)
    np.testing.assert_allclose(result.var(0), counts * p * (1 - p), rtol=0.1)


RANGES = [(0, 3, "int32"), (-5, 6, "int64"), (250, 256, "uint8"), (0, 2**40, "int64")]


@pytest.mark.parametrize(("low", "high", "dtype"), RANGES)
def test_randint_law(low, high, dtype):
    result = keras_random.randint((N,), low, high, dtype, seed=2)
    assert result.dtype == dtype
    numbers = result.numpy().astype("int64")
    assert numbers.min() >= low
    assert numbers.max() < high
    if high - low < 100:
        assert chi_squared(numbers, stats.randint(low, high)) > 1e-3
    else:
        assert stats.kstest(numbers / high, "uniform").pvalue > 1e-3


def test_categorical_law():
    p = np.array([[0.1, 0.2, 0.7], [0.5, 0.5, 0.0]])
    with np.errstate(divide="ignore"):
        result = keras_random.categorical(np.log(p), N, seed=5)
    assert (result.shape, result.dtype) == ((2, N), "int32")
    for row, law in zip(result.numpy(), p):
        share = np.bincount(row, minlength=3) / N
        np.testing.assert_allclose(share, law, atol=0.01)
        assert (share[law == 0] == 0).all()


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_shuffle_moves_whole_slices(axis):
    x = np.arange(24).reshape(4, 6)
    y = keras_random.shuffle(x, axis, seed=1).numpy()
    assert (y != x).any()
    order = sorted(map(tuple, np.moveaxis(y, axis, 0)))
    assert order == sorted(map(tuple, np.moveaxis(x, axis, 0)))
    orders = {tuple(keras_random.shuffle(np.arange(3), seed=s).tolist()) for s in range(60)}
    assert orders == set(itertools.permutations(range(3)))


@pytest.mark.parametrize("rate", [0.0, 0.25, 0.9, 1.0])
def test_dropout_keeps_the_mean(rate):
    x = np.ones((200, 100), "float32")
    y = keras_random.dropout(x, rate, seed=4).numpy()
    assert abs((y == 0).mean() - rate) < 0.01
    if rate < 1:
        np.testing.assert_allclose(y[y != 0], 1 / (1 - rate), rtol=1e-6)
    bits = drawn.random_bits([4, 0], x.shape).numpy()
    np.testing.assert_array_equal(y == 0, bits.astype("int64") < round(rate * 2**32))


def test_dropout_noise_shape_and_gradient():
    x = np.ones((6, 5, 4), "float32")
    y = keras_random.dropout(x, 0.5, (None, 1, 4), seed=1).numpy()
    assert (y == y[:, :1]).all()
    assert 0 < (y[:, 0] == 0).mean() < 1
    slope = kerasish.grad(lambda a: ops.sum(keras_random.dropout(a, 0.5, seed=1)))(x)
    np.testing.assert_array_equal(slope, keras_random.dropout(x, 0.5, seed=1))


def test_infinite_inputs_are_dropped_too():
    y = keras_random.dropout(np.full(100, np.inf, "float32"), 0.5, seed=1).numpy()
    assert set(y) == {0.0, np.inf}


CALLS = {
    "uniform": lambda seed: keras_random.uniform((5,), seed=seed),
    "normal": lambda seed: keras_random.normal((5,), seed=seed),
    "truncated_normal": lambda seed: keras_random.truncated_normal((5,), seed=seed),
    "randint": lambda seed: keras_random.randint((5,), 0, 1000, seed=seed),
    "categorical": lambda seed: keras_random.categorical(np.zeros((1, 99)), 5, seed=seed),
    "shuffle": lambda seed: keras_random.shuffle(np.arange(50), seed=seed),
    "dropout": lambda seed: keras_random.dropout(np.ones(50, "float32"), 0.5, seed=seed),
    "gamma": lambda seed: keras_random.gamma((5,), 2.0, seed=seed),
    "beta": lambda seed: keras_random.beta((5,), 2.0, 3.0, seed=seed),
    "binomial": lambda seed: keras_random.binomial((9,), 100, 0.5, seed=seed),
}


@pytest.mark.parametrize("name", CALLS)
def test_where_the_numbers_come_from(name):
    def numbers(seed):
        return CALLS[name](seed).numpy().tolist()

    assert numbers(3) == numbers(3)
    assert numbers(3) != numbers(4)
    generator = SeedGenerator(3)
    first, second = numbers(generator), numbers(generator)
    assert first == numbers(3)
    assert first != second
    assert generator.state.numpy().tolist() == [3, 2]
    config.set_seed(1)
    a, b = numbers(None), numbers(None)
    config.set_seed(1)
    assert [numbers(None), numbers(None)] == [a, b]
    assert a != b


def test_seed_generators():
    g = SeedGenerator(2**32 + 5, name="mine")
    assert g.state.dtype == "uint32"
    assert g.state.shape == (2,)
    assert not g.state.trainable
    assert g.state.path == "mine/seed_generator_state"
    assert g.next().numpy().tolist() == [5, 1]
    assert g.next(ordered=False).numpy().tolist() == [5, 2]
    again = SeedGenerator.from_config(g.get_config())
    assert again.next().numpy().tolist() == [5, 1]
    config.set_seed(9)
    seeds = [SeedGenerator().seed for _ in range(3)]
    config.set_seed(9)
    assert [SeedGenerator().seed for _ in range(3)] == seeds
    with pytest.raises(ValueError, match=r"1\.5"):
        SeedGenerator(1.5)
    with pytest.raises(ValueError, match="str"):
        keras_random.normal((2,), seed="one")


def test_steps_without_a_seed_draw_new_numbers_each_time():
    """Each run of a step moves the common generator on, and a new seed starts it again."""
    step = kerasish.backends.eager.Eager().compile(lambda: keras_random.uniform((4,)))
    runs = []
    for _ in range(2):
        config.set_seed(5)
        runs.append([step().numpy().tolist() for _ in range(3)])
    assert runs[0] == runs[1]
    assert runs[0][0] != runs[0][1] != runs[0][2]


def test_unknown_sizes():
    op = REGISTRY["random_bits"]
    attrs = op.canonical([(2,)], {"shape": (None, 3)})
    assert op.shape(Spec((2,), "uint32"), **attrs) == Spec((None, 3), "uint32")


def test_errors():
    with pytest.raises(DTypeError, match="floating"):
        keras_random.normal((2,), dtype="int32")
    with pytest.raises(DTypeError, match="integer"):
        keras_random.randint((2,), 0, 1, "float32")
    with pytest.raises(ValueError, match="below maxval"):
        keras_random.randint((2,), 5, 5)
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        keras_random.dropout(np.ones(2), 1.5)
    with pytest.raises(ShapeError, match="noise_shape"):
        keras_random.dropout(np.ones((2, 2)), 0.5, (2,))
    with pytest.raises(ShapeError, match=r"\(n, classes\)"):
        keras_random.categorical(np.ones(3), 2)
    with pytest.raises(ShapeError, match="the state has the shape"):
        drawn.random_bits([1, 2, 3], (2,))


def test_single_precision_erfinv():
    x = np.linspace(-1, 1, 20_001).astype("float32")
    with np.errstate(all="ignore"):
        result = KERNELS["erfinv"](x)
        outside = KERNELS["erfinv"](np.array([1.5, np.nan], "float32"))
    np.testing.assert_allclose(
        result[1:-1], erfinv(x[1:-1].astype("float64")), rtol=2e-6, atol=1e-9
    )
    assert result[[0, -1]].tolist() == [-np.inf, np.inf]
    assert np.isnan(outside).all()
