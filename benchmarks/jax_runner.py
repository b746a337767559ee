"""Plain JAX: one jit-ed train step with Adam written by hand, and the loop around it."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.jax_models import MODELS
from benchmarks.workloads import LEARNING_RATE, Workload


def adam(params: Any, grads: Any, moments: Any, count: Any) -> tuple[Any, Any]:
    """One Adam update: (new params, new moments). Source: Kingma & Ba 2014, end of section 2."""
    first, second = moments
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, grads)
    rate = LEARNING_RATE * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
    params = jax.tree.map(
        lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-7), params, first, second
    )
    return params, (first, second)


def make_step(apply: Callable[..., Any]) -> Callable[..., Any]:
    """The jit-ed train step: (carry, x, y) -> carry, whose old buffers are given away."""

    def loss_of(params: Any, state: Any, x: Any, y: Any, key: Any) -> Any:
        logits, state = apply(params, state, x, key, True)
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1)
        return -picked.mean(), (logits, state)

    @partial(jax.jit, donate_argnums=0)
    def step(carry: Any, x: Any, y: Any) -> Any:
        params, state, moments, count, key, total, right = carry
        key, use = jax.random.split(key)
        grad_of = jax.value_and_grad(loss_of, has_aux=True)
        (loss, (logits, state)), grads = grad_of(params, state, x, y, use)
        count = count + 1
        params, moments = adam(params, grads, moments, count)
        right = right + (logits.argmax(-1) == y).mean()
        return params, state, moments, count, key, total + loss, right

    return step


class JaxRunner:
    """Shuffle and gather with NumPy, one jit-ed call per step, wait for the device at the end."""

    def __init__(self, api: str, device: str) -> None:
        self.device = jax.devices("gpu" if device == "gpu" else "cpu")[0]

    def build(self, workload: Workload, x: np.ndarray, y: np.ndarray) -> None:
        """Make parameters, Adam's moments and the step."""
        init, apply = MODELS[workload.name]
        params, state = jax.device_put(init(np.random.default_rng(1)), self.device)
        zeros = partial(jax.tree.map, jnp.zeros_like)
        moments = (zeros(params), zeros(params))
        # One array for each slot: a donated buffer may not appear twice.
        total, right = jnp.zeros(()), jnp.zeros(())
        self.carry = (params, state, moments, jnp.zeros(()), jax.random.key(1), total, right)
        self.step = make_step(apply)
        self.forward = jax.jit(lambda params, state, x: apply(params, state, x, None, False)[0])
        self.batch, self.x, self.y = workload.batch, x, y
        self.rng = np.random.default_rng(2)

    def run(self, steps: int) -> dict[str, float]:
        """Train `steps` steps in shuffled order."""
        return self._train(steps, shuffle=True)

    def run_batches(self, steps: int) -> dict[str, float]:
        """Train `steps` steps, batches sliced in order."""
        return self._train(steps, shuffle=False)

    def _train(self, steps: int, shuffle: bool) -> dict[str, float]:
        start = time.perf_counter()
        x, y, batch, step_of = self.x, self.y, self.batch, self.step
        order = self.rng.permutation(steps * batch) if shuffle else None
        carry = (*self.carry[:5], jnp.zeros(()), jnp.zeros(()))
        for step in range(steps):
            low, high = step * batch, (step + 1) * batch
            rows = slice(low, high) if order is None else order[low:high]
            carry = step_of(carry, x[rows], y[rows])
        self.carry = jax.block_until_ready(carry)
        loss = float(carry[5]) / steps
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "call_seconds": seconds, "loss": loss}

    def single_calls(self) -> dict[str, Callable[[], Any]]:
        """Ways to ask for one row's output, by name; each returns a NumPy array."""
        row, forward = self.x[:1], self.forward
        return {"call": lambda: np.asarray(forward(self.carry[0], self.carry[1], row))}

    def count_parameters(self) -> int:
        """Number of trainable parameters."""
        return int(sum(leaf.size for leaf in jax.tree.leaves(self.carry[0])))
