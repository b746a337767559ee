"""The program of a seed."""

from __future__ import annotations

import collections

import numpy as np

from kerasish import config

from .blocks import add_block
from .draft import Draft
from .layers import add_layer, add_wide_convolution
from .ops import add_op, template
from .programs import Program
from .training import add_goal, optimizer_code

POLICIES = ("mixed_bfloat16", "mixed_float16", "float64")
# How programs end more often than chance would have it: reductions of products.
ENDS = (
    "ops.mean({x}, axis=-1)", "ops.mean({x}, axis=-1)", "ops.sum({x}, axis=-1)",
    "ops.mean({x}, axis={a})", "ops.max({x}, axis=-1)", "ops.softmax({x}) * {y}",
    "{x} * ops.sigmoid({y})", "ops.mean({x}, axis={a}, keepdims=True)",
    "ops.logsumexp({x}, axis=-1)",
)  # fmt: skip


TRAINED = ("layers.Dense", "layers.Conv", "layers.LSTM", "layers.GRU", "layers.SimpleRNN", "Block")


def program_of(seed: int, faults: collections.Counter[str] | None = None) -> Program:
    """Return the random program of a seed; what breaks on the way is counted in `faults`."""
    rng = np.random.default_rng(seed)
    draft = Draft(rng, faults)
    policy = draft.pick(POLICIES) if draft.chance(0.1) else "float32"
    before = config.dtype_policy()
    try:
        config.set_dtype_policy(policy)
        return _write(draft, seed, policy)
    finally:
        config.set_dtype_policy(before)


def _write(draft: Draft, seed: int, policy: str) -> Program:
    rank = int(draft.rng.integers(1, 4))
    draft.feed([int(s) for s in draft.rng.integers(1, 8, size=rank)], opened=draft.chance(0.15))
    for _ in range(int(draft.rng.integers(1, 7))):
        choice = draft.rng.random()
        if choice < 0.55:
            add_layer(draft)
        elif choice < 0.92:
            add_op(draft)
        elif choice < 0.98:
            add_block(draft)
        else:
            add_wide_convolution(draft)
    goals = [add_goal(draft, value) for value in _outputs(draft)]
    # Widened halves do not overflow where halves do: a scaled loss would skip other steps.
    unscaled = (("auto_scale_loss", "False"),) if policy == "mixed_float16" else ()
    rows = draft.pick([1, 2, 3, 4, 4, 5, 8])
    return Program(
        seed, tuple(draft.feeds), tuple(draft.steps), tuple(g for g in goals if g),
        optimizer_code(draft), policy, rows, draft.pick(range(1, rows + 1)),
        draft.pick(["", "", "", "sample", "class"]), draft.chance(0.4), unscaled,
    )  # fmt: skip


def _outputs(draft: Draft) -> list[str]:
    """Return up to three values that end the program, every leaf read by one of them."""
    result = []
    for leaf in draft.leaves():
        value = leaf
        if "float" not in draft.dtype(value):
            value = draft.add("ops.cast({0}, 'float32')", (value,)) or value
        result.append(value)
    while len(result) > 3 or (len(result) > 1 and draft.chance(0.5)):
        joined = _joined(draft, result[:2])
        if not joined:
            break
        result = [joined, *result[2:]]
    for at, value in enumerate(result):
        shape = draft.shape(value)
        trained = any(v.layer.startswith(TRAINED) for v in draft.steps)
        if (not trained or draft.chance(0.6)) and shape[-1] and len(shape) > 1:
            units, bias = draft.pick([1, 2, 3, 5]), draft.chance(0.5)
            dense = f"layers.Dense({units}, use_bias={bias})"
            created = draft.add("{layer}({0})", (value,), layer=dense)
            value = created or value
            if created and draft.chance(0.6):
                value = template(draft, draft.pick(ENDS)) or value
        result[at] = value
    kept = [v for v in dict.fromkeys(result) if "float" in draft.dtype(v)]
    # A template may have read a value that was to end the program, or another latest one.
    extra = [n for n in draft.leaves() if n not in kept and "float" in draft.dtype(n)]
    return [*kept, *extra][:4]


def _joined(draft: Draft, pair: list[str]) -> str:
    flat = []
    for value in pair:
        sizes = draft.shape(value)[1:]
        if None in sizes:
            value = draft.add(f"ops.mean({{0}}, axis={sizes.index(None) + 1})", (value,))
            if not value or None in draft.shape(value)[1:]:
                return ""
            sizes = draft.shape(value)[1:]
        flat.append(
            draft.add(f"ops.reshape({{0}}, (-1, {int(np.prod(sizes, dtype=int))}))", (value,))
        )
    return draft.add("ops.concatenate([{0}, {1}], axis=-1)", flat) if all(flat) else ""
