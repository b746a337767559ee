"""Adafactor."""

from __future__ import annotations

from collections.abc import Sequence

from kerasish import ops
from kerasish.optimizers.optimizer import Optimizer, Updates
from kerasish.optimizers.options import LearningRate, Options, Unpack, with_options
from kerasish.tensor import Tensor, Variable
from kerasish.typing import Structure


class Adafactor(Optimizer):
    """w - a * u: u is g / sqrt(v) clipped by its root mean square, v the outer product of the
    running means r (by row) and c (by column) of g^2.

    a = max(epsilon_2, rms(w)) * min(rate, 1 / sqrt(t)); the running means keep 1 - t^beta_2_decay.

    Args:
        learning_rate: the largest relative step, >= 0.
        beta_2_decay: how the running means lengthen, < 0.
        epsilon_1: added to g^2.
        epsilon_2: the smallest scale of a variable.
        clip_threshold: the largest root mean square of u.
        relative_step: accepted for compatibility: as in Keras, the rate of step t is never above
            1 / sqrt(t), for any value of this.
        options: what every optimizer takes; see `Optimizer`.

    Source: Shazeer & Stern, Adafactor: adaptive learning rates with sublinear memory cost, ICML
        2018.

    Example:
        >>> w = Variable([[1.0, 1.0]])
        >>> Adafactor(0.5).apply([[[4.0, 4.0]]], [w])
        >>> w.numpy().tolist()
        [[0.5, 0.5]]
    """

    @with_options
    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        beta_2_decay: float = -0.8,
        epsilon_1: float = 1e-30,
        epsilon_2: float = 1e-3,
        clip_threshold: float = 1.0,
        relative_step: bool = True,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(learning_rate, **options)
        self.beta_2_decay, self.clip_threshold = beta_2_decay, clip_threshold
        self.epsilon_1, self.epsilon_2 = epsilon_1, epsilon_2
        self.relative_step = relative_step

    def add_slots(self, variables: Sequence[Variable]) -> None:
        for variable, slots in zip(variables, self._slots):
            shape, name = variable.shape, variable.path.replace("/", "_")
            if len(shape) < 2:
                # Files of Keras hold two integers here.
                results = [self.add_variable((), dtype="int32", name=f"{name}_{x}") for x in "rc"]
            else:
                rows, columns = shape[:-1], (*shape[:-2], shape[-1])
                results = [
                    self.add_variable(rows, dtype=variable.dtype, name=f"{name}_r"),
                    self.add_variable(columns, dtype=variable.dtype, name=f"{name}_c"),
                ]
            slots.extend([*results, self.add_variable_from_reference(variable, "velocity")])

    def coefficients(self, learning_rate: Tensor, dtype: str, shared: Updates) -> Structure:
        t = self._step(dtype)
        learning_rate = ops.minimum(learning_rate, ops.rsqrt(t))
        return learning_rate, ops.subtract(1.0, ops.power(t, self.beta_2_decay))

    def update(
        self, value: Tensor, gradient: Tensor, slots: list[Tensor], c: Structure
    ) -> tuple[Tensor, ...]:
        rows, columns, v = slots
        rate, kept = c
        squares = ops.add(ops.square(gradient), self.epsilon_1)
        if len(value.shape) < 2:
            v = _blend(v, squares, kept)
        else:
            rows = _blend(rows, ops.mean(squares, axis=-1), kept)
            columns = _blend(columns, ops.mean(squares, axis=-2), kept)
            shares = ops.divide(rows, ops.mean(rows, axis=-1, keepdims=True))
            v = ops.multiply(ops.expand_dims(shares, -1), ops.expand_dims(columns, -2))
        u = ops.divide(gradient, ops.sqrt(v))
        limit = ops.maximum(ops.divide(_rms(u), self.clip_threshold), 1.0)
        size = ops.multiply(ops.maximum(_rms(value), self.epsilon_2), rate)
        return ops.subtract(value, ops.multiply(u, ops.divide(size, limit))), rows, columns, v


def _blend(mean: Tensor, new: Tensor, kept: Tensor) -> Tensor:
    return ops.add(ops.multiply(mean, kept), ops.multiply(new, ops.subtract(1.0, kept)))


def _rms(x: Tensor) -> Tensor:
    return ops.sqrt(ops.mean(ops.square(x)))
