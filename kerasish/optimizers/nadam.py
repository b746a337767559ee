"""Nadam."""

from __future__ import annotations

from collections.abc import Sequence

from kerasish import ops
from kerasish.optimizers.moments import MomentsOptimizer
from kerasish.optimizers.optimizer import Updates
from kerasish.tensor import Tensor, Variable
from kerasish.typing import Structure

_WARMUP = 0.96  # how fast the momentum reaches beta_1: section 2 of the paper


class Nadam(MomentsOptimizer):
    """Adam with Nesterov's momentum.

    With u(t) = beta_1 * (1 - 0.96^t / 2) and p the product of all u so far, m^ is
    u(t+1) * m / (1 - p * u(t+1)) + (1 - u(t)) * g / (1 - p).

    Args:
        learning_rate: the step, >= 0.
        beta_1: the share of itself that the running mean m of g keeps per step.
        beta_2: the same for the running mean of g^2.
        epsilon: keeps the quotient finite.
        options: what every optimizer takes; see `Optimizer`.

    Source: Dozat, Incorporating Nesterov momentum into Adam, ICLR workshop 2016.

    Example:
        >>> Nadam().beta_1
        0.9
    """

    elementwise = True

    def add_slots(self, variables: Sequence[Variable]) -> None:
        super().add_slots(variables)
        self._u_product = self.add_variable((), "ones", name="u_product")

    def _u(self, t: Tensor) -> Tensor:
        faded = ops.power(_WARMUP, t)
        return ops.multiply(ops.subtract(1.0, ops.multiply(faded, 0.5)), self.beta_1)

    def shared_updates(self, loss: Tensor | None) -> Updates:
        product = ops.multiply(self._u_product.value, self._u(self._step("float32")))
        return {self._u_product: product}

    def coefficients(self, learning_rate: Tensor, dtype: str, shared: Updates) -> Structure:
        t = self._step(dtype)
        now, after = self._u(t), self._u(ops.add(t, 1.0))
        product = ops.cast(shared[self._u_product], dtype)
        future = ops.subtract(1.0, ops.multiply(product, after))
        of_m = ops.divide(ops.multiply(learning_rate, after), future)
        of_g = ops.divide(
            ops.multiply(learning_rate, ops.subtract(1.0, now)), ops.subtract(1.0, product)
        )
        return of_m, of_g, ops.subtract(1.0, ops.power(self.beta_2, t))

    def update(
        self, value: Tensor, gradient: Tensor, slots: list[Tensor], c: Structure
    ) -> tuple[Tensor, ...]:
        m, v = slots
        of_m, of_g, start = c
        m = ops.add(m, ops.multiply(ops.subtract(gradient, m), 1 - self.beta_1))
        v = ops.add(v, ops.multiply(ops.subtract(ops.square(gradient), v), 1 - self.beta_2))
        step = ops.add(ops.multiply(m, of_m), ops.multiply(gradient, of_g))
        scale = ops.add(ops.sqrt(ops.divide(v, start)), self.epsilon)
        return ops.subtract(value, ops.divide(step, scale)), m, v
