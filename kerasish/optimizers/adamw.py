"""Adam with weight decay."""

from __future__ import annotations

from kerasish.optimizers.adam import Adam
from kerasish.optimizers.options import LearningRate, OptionsWithoutDecay, Unpack, with_options


class AdamW(Adam):
    """Adam after taking rate * weight_decay * w off each variable.

    Args:
        learning_rate: the step, >= 0.
        weight_decay: the share of w, times the learning rate, taken off every step, >= 0.
        beta_1: the share of itself that the mean of gradients keeps per step, 0 <= beta_1 < 1.
        beta_2: the same for the mean of their squares.
        epsilon: keeps the quotient finite.
        amsgrad: divide by the largest mean of squares so far.
        options: what every optimizer takes; see `Optimizer`.

    Source: Loshchilov & Hutter, Decoupled weight decay regularization, ICLR 2019.

    Example:
        >>> AdamW().weight_decay
        0.004
    """

    @with_options
    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        weight_decay: float = 0.004,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        **options: Unpack[OptionsWithoutDecay],
    ) -> None:
        if weight_decay is None:
            raise ValueError("AdamW: weight_decay must be a number; use Adam for none.")
        super().__init__(
            learning_rate, beta_1, beta_2, epsilon, amsgrad, weight_decay=weight_decay, **options
        )
