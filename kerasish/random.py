"""Random tensors: Keras's `random` module.

`seed` determines the numbers. An int: a pure function of it, the same numbers at every
call. A `SeedGenerator`: its state, which moves on. None: the process's own sequence, which
`kerasish.utils.set_random_seed` (or `config.set_seed`) restarts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasish import config, ops
from kerasish.ops import random as drawn
from kerasish.ops.op import function
from kerasish.registry import add_builtins
from kerasish.reprs import arguments_repr
from kerasish.signatures import Configured
from kerasish.tensor import (
    Tensor,
    Variable,
    convert,
    current_scope,
    name_scope,
    to_numpy,
    using_scope,
)
from kerasish.typing import AnyTensor, Array, DTypeLike, SeedLike, Shape, ShapeLike, TensorLike

_ONE_DRAW = np.array([0, 1], "uint32")


def _state_of(seed: int) -> Array:
    """Return the first state of a seed; bits beyond 32 go to the counter of draws."""
    seed = int(seed.__index__())
    return np.array([seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF], "uint32")


class SeedGenerator(Configured):
    """A source of random states: a seed, and a counter of draws that each use moves on.

    The state is a variable, so that a compiled step draws new numbers each time, and a resumed
    run continues where it stopped.

    Args:
        seed: an integer, or None for one of the process's sequence.
        name: the first part of the state's path; None: made from the class's name.

    Example:
        >>> generator = SeedGenerator(1)
        >>> a, b = normal((2,), seed=generator), normal((2,), seed=generator)
        >>> bool((a == b).numpy().any())
        False
    """

    def __init__(self, seed: int | None = None, name: str | None = None, **kwargs: Any) -> None:
        kwargs.pop("backend", None)  # Keras's word for its multi-backend tests
        if kwargs:
            raise ValueError(f"SeedGenerator() got an unexpected argument {next(iter(kwargs))!r}.")
        if seed is None:
            seed = config.next_seed()
        if isinstance(seed, bool) or not hasattr(seed, "__index__"):
            raise ValueError(f"SeedGenerator: seed must be an integer or None, got {seed!r}.")
        self.seed = int(seed)
        self.name = name or "seed_generator"
        with name_scope(self.name):
            first = _state_of(self.seed)
            self.state = Variable(first, trainable=False, name="seed_generator_state")
        self.state.holds_seed = True

    def next(self, ordered: bool = True) -> Tensor:
        """Return the present state, a uint32 tensor [seed, draw], and move on by one draw.

        Args:
            ordered: accepted for compatibility with Keras; draws are always in order.
        """
        state = self.state.value
        self.state.assign(ops.add(state, _ONE_DRAW))
        return state

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"seed": self.seed}

    __repr__ = arguments_repr


# The generator of steps that name none; made when the first of them asks for it.
_shared: list[SeedGenerator] = []


def _shared_seed() -> int:
    """Return its seed: it depends only on the process's seed, not on earlier draws."""
    seed = config.seed()
    return config.next_seed() if seed is None else seed * 0x9E3779B9 + 0x7F4A7C15 & 0xFFFFFFFF


def _restart() -> None:
    for generator in _shared:
        with using_scope(None):
            generator.state.assign(_state_of(_shared_seed()))


config.when_seeded(_restart)


def _shared_generator() -> SeedGenerator:
    """Return the process's generator, or inside `config.seeded` that of the block."""
    stream = config.seed_stream()
    if stream is not None:
        if "generator" not in stream.kept:
            stream.kept["generator"] = SeedGenerator(None, "shared_seed_generator")
        return stream.kept["generator"]
    if not _shared:
        _shared.append(SeedGenerator(_shared_seed(), "shared_seed_generator"))
    return _shared[0]


def shared_state() -> np.ndarray | None:
    """Return the state of the process's generator, None as long as no step has used it."""
    stream = config.seed_stream()
    result = stream.kept.get("generator") if stream is not None else next(iter(_shared), None)
    return None if result is None else np.asarray(to_numpy(result.state))


def set_shared_state(state: np.ndarray | None) -> None:
    """Let the process's generator continue at a state of `shared_state`."""
    if state is not None:
        with using_scope(None):
            _shared_generator().state.assign(state)


def draw_seed(seed: SeedLike | None) -> AnyTensor:
    """Return the state [seed, draw] of `seed` (an int, a SeedGenerator or None)."""
    if isinstance(seed, SeedGenerator):
        return seed.next()
    if seed is None:
        if current_scope() is None:
            return _state_of(config.next_seed())
        # Inside a step: a variable, else a compiled step would draw the same numbers each time.
        return _shared_generator().next()
    if isinstance(seed, bool) or not hasattr(seed, "__index__"):
        if getattr(seed, "shape", None) == (2,):
            return convert(seed, "uint32")
        raise ValueError(
            f"seed must be an integer, a SeedGenerator or None, got {type(seed).__name__}."
        )
    return _state_of(seed)


def uniform(
    shape: Shape,
    minval: float = 0.0,
    maxval: float = 1.0,
    dtype: DTypeLike | None = None,
    seed: SeedLike | None = None,
) -> Tensor:
    """Return numbers uniform in [minval, maxval).

    Args:
        shape: shape of the result.
        minval: the lower bound, which may occur.
        maxval: the upper bound, which does not occur.
        dtype: dtype of the result; None: the default float.
        seed: an integer or a `SeedGenerator`; None: the shared random state.

    Example:
        >>> uniform((2,), seed=7).shape
        (2,)
    """
    return drawn.uniform(draw_seed(seed), shape, minval, maxval, dtype)


def normal(
    shape: Shape,
    mean: float = 0.0,
    stddev: float = 1.0,
    dtype: DTypeLike | None = None,
    seed: SeedLike | None = None,
) -> Tensor:
    """Return normal numbers.

    Args:
        shape: shape of the result.
        mean: the mean.
        stddev: the standard deviation, > 0.
        dtype: dtype of the result; None: the default float.
        seed: an integer or a `SeedGenerator`; None: the shared random state.

    Example:
        >>> normal((2, 3), seed=0).shape
        (2, 3)
    """
    return drawn.normal(draw_seed(seed), shape, mean, stddev, dtype)


def truncated_normal(
    shape: ShapeLike,
    mean: float = 0.0,
    stddev: float = 1.0,
    dtype: DTypeLike | None = None,
    seed: SeedLike | None = None,
) -> Tensor:
    """Return normal numbers within two `stddev` of `mean`.

    Args:
        shape: shape of the result.
        mean: the mean.
        stddev: the standard deviation, > 0.
        dtype: dtype of the result; None: the default float.
        seed: an integer or a `SeedGenerator`; None: the shared random state.

    Example:
        >>> truncated_normal((2, 3), seed=0).shape
        (2, 3)
    """
    return drawn.truncated_normal(draw_seed(seed), shape, mean, stddev, dtype)


def randint(
    shape: Shape, minval: int, maxval: int, dtype: DTypeLike = "int32", seed: SeedLike | None = None
) -> Tensor:
    """Return integers uniform in [minval, maxval).

    Args:
        shape: shape of the result.
        minval: the lower bound, which may occur.
        maxval: the upper bound, which does not occur.
        dtype: an integer dtype.
        seed: an integer or a `SeedGenerator`; None: the shared random state.

    Example:
        >>> set(randint((100,), 0, 3, seed=1).tolist()) == {0, 1, 2}
        True
    """
    return drawn.randint(draw_seed(seed), shape, minval, maxval, dtype)


@function
def categorical(
    logits: TensorLike, num_samples: int, dtype: DTypeLike = "int32", seed: SeedLike | None = None
) -> Tensor:
    """Return, for each row of logits (n, classes), classes drawn by softmax(logits).

    Args:
        logits: logarithms of probabilities, up to a constant per row.
        num_samples: draws per row, >= 1.
        dtype: an integer dtype.
        seed: an integer or a `SeedGenerator`; None: the shared random state.

    Shape: (n, classes) -> (n, num_samples).

    Example:
        >>> categorical([[0.0, 1.0]], 4, seed=0).shape
        (1, 4)
    """
    return drawn.categorical(draw_seed(seed), logits, num_samples, dtype)


@function
def shuffle(x: TensorLike, axis: int = 0, seed: SeedLike | None = None) -> Tensor:
    """Return x's slices along `axis` in random order.

    Args:
        x: tensor or array.
        axis: the axis whose slices change places.
        seed: an integer or a `SeedGenerator`; None: the shared random state.

    Example:
        >>> sorted(shuffle([3, 1, 2], seed=0).tolist())
        [1, 2, 3]
    """
    return drawn.shuffle(draw_seed(seed), x, axis)


@function
def dropout(
    inputs: TensorLike,
    rate: float,
    noise_shape: Sequence[int] | None = None,
    seed: SeedLike | None = None,
) -> Tensor:
    """Return the inputs, a share `rate` of them zero and the others divided by 1 - rate.

    Args:
        inputs: tensor or array.
        rate: share of the inputs dropped, 0 <= rate <= 1.
        noise_shape: shape of the mask, which broadcasts to the inputs'; None sizes are theirs.
        seed: an integer or a `SeedGenerator`; None: the shared random state.

    Example:
        >>> dropout([1.0, 2.0, 3.0], 0.5, seed=0).shape
        (3,)
    """
    return drawn.dropout(draw_seed(seed), inputs, rate, noise_shape)


def gamma(
    shape: Shape, alpha: float, dtype: DTypeLike | None = None, seed: SeedLike | None = None
) -> Tensor:
    """Return gamma numbers of shape `alpha` and scale 1; no gradient flows to alpha.

    Args:
        shape: shape of the result.
        alpha: the shape parameter, > 0.
        dtype: dtype of the result; None: the default float.
        seed: an integer or a `SeedGenerator`; None: the shared random state.

    Example:
        >>> gamma((2,), 2.0, seed=0).shape
        (2,)
    """
    return drawn.gamma(draw_seed(seed), shape, alpha, dtype)


def beta(
    shape: Shape,
    alpha: TensorLike,
    beta: TensorLike,
    dtype: DTypeLike | None = None,
    seed: SeedLike | None = None,
) -> Tensor:
    """Return beta numbers in [0, 1]; no gradient flows to `alpha` and `beta`.

    Args:
        shape: shape of the result.
        alpha: the first parameter, > 0.
        beta: the second parameter, > 0.
        dtype: dtype of the result; None: the default float.
        seed: an integer or a `SeedGenerator`; None: the shared random state.

    Example:
        >>> beta((2,), 2.0, 3.0, seed=0).shape
        (2,)
    """
    return drawn.beta(draw_seed(seed), shape, alpha, beta, dtype)


def binomial(
    shape: ShapeLike,
    counts: TensorLike,
    probabilities: TensorLike,
    dtype: DTypeLike | None = None,
    seed: SeedLike | None = None,
) -> Tensor:
    """Return how many of `counts` trials succeed, each with probability `probabilities`.

    Args:
        shape: shape of the result.
        counts: the number of trials, >= 0; broadcasts to the shape.
        probabilities: from 0 to 1; broadcasts to the shape.
        dtype: dtype of the result; None: the default float.
        seed: an integer or a `SeedGenerator`; None: the shared random state.

    Example:
        >>> binomial((2,), 10, 0.5, seed=0).shape
        (2,)
    """
    return drawn.binomial(draw_seed(seed), shape, counts, probabilities, dtype)


add_builtins("keras.random", {"SeedGenerator": SeedGenerator})
