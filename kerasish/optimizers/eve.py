"""Eve."""

from __future__ import annotations

from collections.abc import Sequence

from kerasish import ops
from kerasish.optimizers.optimizer import Optimizer, Updates
from kerasish.optimizers.options import LearningRate, Options, Unpack, with_options
from kerasish.tensor import Tensor, Variable
from kerasish.typing import Structure


class Eve(Optimizer):
    """Adam with its rate divided by d, the running mean of the loss's relative change.

    From the second step on, with f the loss: r = |f - f_before| / (min(f, f_before) - f_min),
    cut to [1 / c, c], and d = beta_3 * d + (1 - beta_3) * r. A flat loss quickens the steps, a
    jumping one slows them.

    Args:
        learning_rate: the step, >= 0.
        beta_1, beta_2: shares of themselves that the running means of g and g^2 keep per step.
        beta_3: the same for d.
        c: how far r may be from 1, > 1.
        loss_minimum: f_min, the least value that the loss can reach.
        epsilon: keeps the quotient finite.
        options: what every optimizer takes; see `Optimizer`.

    Source: Hayashi, Koushik & Neubig, Eve: a gradient based optimization method with locally and
        globally adaptive learning rates, 2016, arXiv 1611.01505 (algorithm 1).

    Example:
        >>> w = Variable([1.0])
        >>> Eve(0.1).apply([[3.0]], [w], loss=2.0)
        >>> round(float(w[0]), 4)
        0.9
    """

    elementwise = True
    needs_loss = True

    @with_options
    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        beta_3: float = 0.999,
        c: float = 10.0,
        loss_minimum: float = 0.0,
        epsilon: float = 1e-8,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(learning_rate, **options)
        if not c > 1:
            raise ValueError(f"Eve: c must be above 1, got {c!r}.")
        self.beta_1, self.beta_2, self.beta_3 = beta_1, beta_2, beta_3
        self.c, self.loss_minimum, self.epsilon = c, loss_minimum, epsilon

    def add_slots(self, variables: Sequence[Variable]) -> None:
        self._momentums, self._velocities = self.add_optimizer_variables(
            variables, ["momentum", "velocity"]
        )
        self._change = self.add_variable((), "ones", name="change")
        self._last_loss = self.add_variable((), name="last_loss")

    def shared_updates(self, loss: Tensor | None) -> Updates:
        if loss is None:
            raise ValueError("Eve needs the loss of the step: apply(gradients, loss=loss).")
        loss = ops.cast(ops.mean(loss), "float32")
        before, d = self._last_loss.value, self._change.value
        gap = ops.subtract(ops.minimum(loss, before), self.loss_minimum)
        change = ops.absolute(ops.subtract(loss, before))
        # A loss at its minimum: the quotient's limit is the upper bound.
        r = ops.divide(change, ops.maximum(gap, 1e-30))
        r = ops.clip(r, 1.0 / self.c, self.c)
        moved = ops.add(ops.multiply(d, self.beta_3), ops.multiply(r, 1 - self.beta_3))
        first = ops.equal(self.iterations, 0)
        return {self._change: ops.where(first, 1.0, moved), self._last_loss: loss}

    def coefficients(self, learning_rate: Tensor, dtype: str, shared: Updates) -> Structure:
        t = self._step(dtype)
        first = ops.subtract(1.0, ops.power(self.beta_1, t))
        second = ops.subtract(1.0, ops.power(self.beta_2, t))
        d = ops.cast(shared[self._change], dtype)
        return ops.divide(learning_rate, ops.multiply(first, d)), second

    def update(
        self, value: Tensor, gradient: Tensor, slots: list[Tensor], c: Structure
    ) -> tuple[Tensor, ...]:
        m, v = slots
        rate, start = c
        m = ops.add(m, ops.multiply(ops.subtract(gradient, m), 1 - self.beta_1))
        v = ops.add(v, ops.multiply(ops.subtract(ops.square(gradient), v), 1 - self.beta_2))
        scale = ops.add(ops.sqrt(ops.divide(v, start)), self.epsilon)
        return ops.subtract(value, ops.divide(ops.multiply(m, rate), scale)), m, v
