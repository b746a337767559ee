"""Muon."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from kerasish import ops
from kerasish.optimizers.optimizer import Optimizer, Updates
from kerasish.optimizers.options import LearningRate, OptionsWithoutDecay, Unpack, with_options
from kerasish.tensor import Tensor, Variable
from kerasish.typing import Structure


class Muon(Optimizer):
    """Matrices step along their momentum made orthogonal; all else takes Adam's steps.

    X <- a X + (b A + c A^2) X with A = X X^T, a few times over, drives the singular values of
    the scaled momentum towards 1.

    Args:
        learning_rate: the step, >= 0.
        adam_beta_1, adam_beta_2, epsilon: Adam's, for variables that are not matrices.
        adam_weight_decay: weight decay of those.
        weight_decay: weight decay of matrices.
        exclude_layers: regular expressions; variables whose path has a match take Adam's steps;
            None: none.
        exclude_embeddings: whether variables of embeddings take Adam's steps.
        muon_a, muon_b, muon_c: the polynomial.
        adam_lr_ratio: the factor of the learning rate for Adam's steps.
        momentum: the share of itself that the momentum keeps per step.
        ns_steps: how often the polynomial is applied, >= 0.
        nesterov: look ahead by the momentum.
        rms_rate: scale steps to this root mean square, so that Adam's learning rates fit; None:
            scale by sqrt(max(1, rows / columns)).
        options: what every optimizer takes; see `Optimizer`.

    Source: Jordan et al., Muon: an optimizer for hidden layers in neural networks, 2024; Liu et
        al., Muon is scalable for LLM training, 2025, arXiv 2502.16982.

    Example:
        >>> Muon().ns_steps
        5
    """

    @with_options
    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        adam_beta_1: float = 0.9,
        adam_beta_2: float = 0.999,
        adam_weight_decay: float | None = 0.004,
        epsilon: float = 1e-7,
        weight_decay: float | None = 0.004,
        *,
        exclude_layers: Sequence[str] | None = None,
        exclude_embeddings: bool = True,
        muon_a: float = 3.4445,
        muon_b: float = -4.775,
        muon_c: float = 2.0315,
        adam_lr_ratio: float = 1,
        momentum: float = 0.95,
        ns_steps: int = 5,
        nesterov: bool = True,
        rms_rate: float | None = 0.2,
        **options: Unpack[OptionsWithoutDecay],
    ) -> None:
        super().__init__(learning_rate, weight_decay, **options)
        self.adam_beta_1, self.adam_beta_2 = adam_beta_1, adam_beta_2
        self.adam_weight_decay, self.epsilon = adam_weight_decay, epsilon
        self.exclude_layers = list(exclude_layers or [])
        self.exclude_embeddings = exclude_embeddings
        self.muon_a, self.muon_b, self.muon_c = muon_a, muon_b, muon_c
        self.adam_lr_ratio, self.momentum = adam_lr_ratio, momentum
        self.ns_steps, self.nesterov, self.rms_rate = ns_steps, nesterov, rms_rate

    def add_slots(self, variables: Sequence[Variable]) -> None:
        for variable in variables:
            self.add_optimizer_variables([variable], "momentum")
            if self._takes_adam(variable):
                self.add_optimizer_variables([variable], "velocity")

    def _takes_adam(self, variable: Variable) -> bool:
        if len(variable.shape) != 2:
            return True
        if self.exclude_embeddings and "embedding" in variable.path.lower():
            return True
        return any(re.search(pattern, variable.path) for pattern in self.exclude_layers)

    def _decay(self, variable: Variable) -> float:
        adam = self._takes_adam(variable)
        return (self.adam_weight_decay if adam else self.weight_decay) or 0.0

    def coefficients(self, learning_rate: Tensor, dtype: str, shared: Updates) -> Structure:
        t = self._step(dtype)
        second = ops.sqrt(ops.subtract(1.0, ops.power(self.adam_beta_2, t)))
        first = ops.subtract(1.0, ops.power(self.adam_beta_1, t))
        adam = ops.multiply(learning_rate, ops.divide(second, first))
        return learning_rate, ops.multiply(adam, self.adam_lr_ratio)

    def update(
        self, value: Tensor, gradient: Tensor, slots: list[Tensor], c: Structure
    ) -> tuple[Tensor, ...]:
        rate, adam_rate = c
        if len(slots) == 2:
            return self._adam(value, gradient, slots, adam_rate)
        m = ops.add(ops.multiply(slots[0], self.momentum), gradient)
        ahead = ops.add(ops.multiply(m, self.momentum), gradient) if self.nesterov else m
        step = ops.multiply(self._orthogonal(ahead), self._scale(value.shape))
        return ops.subtract(value, ops.multiply(step, rate)), m

    def _adam(
        self, value: Tensor, gradient: Tensor, slots: list[Tensor], rate: Tensor
    ) -> tuple[Tensor, ...]:
        m, v = slots
        m = ops.add(m, ops.multiply(ops.subtract(gradient, m), 1 - self.adam_beta_1))
        v = ops.add(v, ops.multiply(ops.subtract(ops.square(gradient), v), 1 - self.adam_beta_2))
        step = ops.divide(ops.multiply(m, rate), ops.add(ops.sqrt(v), self.epsilon))
        return ops.subtract(value, step), m, v

    def _scale(self, shape: tuple[int, ...]) -> float:
        if self.rms_rate is not None:
            return math.sqrt(max(shape)) * self.rms_rate
        return math.sqrt(max(1.0, shape[0] / shape[1]))

    def _orthogonal(self, x: Tensor) -> Tensor:
        tall = x.shape[0] > x.shape[1]
        x = ops.transpose(x) if tall else x
        x = ops.divide(x, ops.add(ops.sqrt(ops.sum(ops.square(x))), 1e-7))
        for _ in range(self.ns_steps):
            a = ops.matmul(x, ops.transpose(x))
            b = ops.add(ops.multiply(a, self.muon_b), ops.multiply(ops.matmul(a, a), self.muon_c))
            x = ops.add(ops.multiply(x, self.muon_a), ops.matmul(b, x))
        return ops.transpose(x) if tall else x
