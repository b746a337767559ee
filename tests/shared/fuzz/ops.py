"""Random ops between layers: templates with random axes, and every element-wise op there is."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerasish import ops as ops_module
from kerasish.ops.op import REGISTRY

from .draft import Draft

# {x}, {y}: values of one shape; {a}, {b}: axes of features; {n}, {m}: small numbers;
# {k}: True or False; {w}: the last size of x; {c}: a constant as wide as x.
UNARY = (
    "ops.mean({x}, axis={a}, keepdims={k})", "ops.sum({x}, axis={a}, keepdims={k})",
    "ops.max({x}, axis={a}, keepdims={k})", "ops.min({x}, axis={a}, keepdims={k})",
    "ops.mean({x}, axis=({a}, {b}))", "ops.sum({x}, axis=({a}, {b}), keepdims={k})",
    "ops.var({x}, axis={a}, keepdims={k})", "ops.std({x} * 2.0, axis={a})",
    "ops.prod({x}, axis={a}, keepdims={k})", "ops.logsumexp({x}, axis={a}, keepdims={k})",
    "ops.softmax({x}, axis={a})", "ops.log_softmax({x}, axis={a})", "ops.cumsum({x}, axis={a})",
    "ops.cumprod({x}, axis={a})", "ops.sort({x}, axis={a})", "ops.flip({x}, axis={a})",
    "ops.roll({x}, {n}, axis={a})", "ops.swapaxes({x}, {a}, {b})", "ops.moveaxis({x}, {a}, {b})",
    "ops.expand_dims({x}, axis={a})", "ops.squeeze({x}, axis={a})",
    "ops.repeat({x}, {n}, axis={a})", "ops.concatenate([{x}, {y}], axis={a})",
    "ops.stack([{x}, {y}], axis={a})", "ops.split({x}, {n}, axis={a})[0]", "{x}[:, {m}:]",
    "{x}[:, ::-1]", "{x}[..., ::{n}]", "{x}[..., {m}]", "{x}[:, None]", "{x}[..., -{n}:]",
    "ops.take({x}, [0, {m}, 0], axis={a})", "ops.pad({x}, [[0, 0]] * {r1} + [[{m}, {n}]])",
    "ops.pad({x}, [[0, 0]] * {r1} + [[{m}, {m}]], mode='reflect')",
    "ops.normalize({x}, axis={a})", "ops.norm({x}, axis={a}, keepdims={k})",
    "ops.top_k({x}, {n})[0]", "ops.clip({x}, -0.5, 0.7)", "ops.where({x} > 0.1, {x}, {y})",
    "ops.where(ops.greater({x}, {y}), {x} * 2.0, {y} - 1.0)", "ops.maximum({x}, {y})",
    "ops.minimum({x}, {y} * 0.5)", "{x} + {y}", "{x} * {y}", "{x} - {y}", "{x} / ({y} * {y} + 1.0)",
    "{x} * 1e3 * 1e-3", "({x} + 0.5) - 0.25", "{x} * 0.0 + {y}", "-(-{x})", "{x} ** 2",
    "ops.abs({x}) ** 0.5", "{x} * {c}", "{x} + {c}", "ops.matmul({x}, {mat})",
    "ops.matmul({x}, ops.swapaxes({y}, -1, -2))", "ops.einsum('...i,ij->...j', {x}, {mat})",
    "ops.tensordot({x}, {mat}, axes=1)", "ops.cast({x}, 'int32')", "ops.cast({x}, 'bfloat16')",
    "ops.cast({x}, 'float16')", "ops.cast({x}, 'float64')", "ops.stop_gradient({x}) + {y}",
    "ops.reshape({x}, (-1, {size}))", "ops.mean({x}, axis=-1)", "ops.sum({x}, axis=-1)",
    "ops.mean({x}, axis=-1, keepdims=True)", "{x} - ops.mean({x}, axis=-1, keepdims=True)",
    "{x} * ops.sum({y}, axis=0, keepdims=True)", "{x} - ops.mean({x}, axis=0, keepdims=True)",
    "{x} / (1.0 + ops.sum({x} * {x}))", "ops.mean({x}, 0) + ops.zeros_like({x})",
    "ops.diff({x}, axis={a})", "ops.tril({x})", "ops.tanh({x}) * ops.sigmoid({y})",
    "ops.one_hot(ops.argmax({x}, axis=-1), {w}) * {x}", "ops.median({x}, axis={a})",
    "ops.nan_to_num(ops.log({x}))",
    "ops.take_along_axis({x}, ops.argsort({y}, axis={a}), axis={a})",
    "ops.slice_update({x} * 1.0, [0, {m}], {y}[:, {m}:])" , "ops.logaddexp({x}, {y})",
    "ops.arctan2({x}, {y} + 2.0)", "ops.average({x}, axis={a})", "ops.hypot({x}, {y} + 2.0)",
    "ops.segment_sum({x}, ops.cast(ops.zeros_like({x}[:, 0]), 'int32'), num_segments=1) + {x}",
    "ops.rms_normalization({x})", "ops.layer_normalization({x}, axis=-1)", "ops.cross({x}, {y})",
    "ops.associative_scan(ops.add, {x}, axis={a})", "ops.vectorized_map(ops.square, {x})",
)  # fmt: skip
UNARY = tuple(t.strip() for t in UNARY)
OF_NUMBERS = ("ops.cast({x}, 'float32')", "ops.cast({x}, 'float32') * 0.25",
              "ops.one_hot({x} % 4, 4)")  # fmt: skip


def add_op(draft: Draft) -> str:
    """Add a random op on random values; return the new value's name."""
    for _ in range(6):
        whole = [n for n in draft.values if "float" not in draft.dtype(n)]
        if whole and draft.chance(0.4):
            value = draft.pick(whole)
            code = draft.pick(OF_NUMBERS).format(x="{0}")
            created = draft.add(code, (value,))
        elif draft.chance(0.4):
            created = elementwise(draft)
        else:
            created = template(draft)
        if created:
            return created
    return ""


def template(draft: Draft, text: str = "") -> str:
    """Add one of the templates above."""
    many = draft.floats()
    if not many:
        return ""
    x = draft.recent(many)
    shape = draft.shape(x)
    rank = len(shape)
    alike = [n for n in many if draft.shape(n) == shape and draft.dtype(n) == draft.dtype(x)]
    text = text or draft.pick(UNARY)
    of = [x, draft.pick(alike)] if "{y}" in text else [x]
    sizes = [s for s in shape[1:] if s is not None]
    small = lambda low, high: int(draft.rng.integers(low, high))  # noqa: E731
    wide = shape[-1] or 1
    seed = small(1, 99)
    code = text.format(
        x="{0}", y="{1}", a=draft.pick([-1, -1, *range(1, rank)]), b=draft.pick(range(1, rank + 1)),
        n=small(1, 4), m=small(0, 3), k=draft.pick([True, False]), w=wide, r1=rank - 1,
        size=int(np.prod(sizes)), c=constant(seed, (wide,)),
        mat=constant(seed, (wide, small(1, 5))),
    )  # fmt: skip
    return draft.add(code, of)


def constant(seed: int, shape: tuple[int, ...]) -> str:
    return f"np.random.default_rng({seed}).normal(size={shape!r}).astype('float32')"


# --- element-wise ops of the registry ------------------------------------------------------------

# How a value is brought into an op's domain: where the op's kernel gives numbers for all of it.
DOMAINS = (
    ("{}", -3.0, 3.0), ("ops.tanh({})", -0.97, 0.97), ("(ops.softplus({}) + 0.1)", 0.12, 4.0),
    ("(ops.softplus({}) + 1.1)", 1.12, 5.0),
)  # fmt: skip


def _elementwise() -> dict[str, tuple[str, int]]:
    """Return name -> (how arguments are brought into its domain, how many) of element-wise ops."""
    result = {}
    for name, op in sorted(REGISTRY.items()):
        if op.kind != "elementwise" or op.attr_names or getattr(ops_module, name, None) is None:
            continue
        for text, low, high in DOMAINS:
            grid = np.linspace(low, high, 41).astype("float32")
            values = [grid, grid[::-1].copy(), grid][: op.arity]
            if _finite(op, values):
                result[name] = (text, op.arity)
                break
    return result


def _finite(op: Any, values: list[np.ndarray]) -> bool:
    try:
        with np.errstate(all="ignore"):
            return bool(np.isfinite(op.kernel(np, *values)).all())
    except TypeError:
        return False


ELEMENTWISE = _elementwise()


def elementwise(draft: Draft) -> str:
    """Add an element-wise op of one or two values, brought into its domain."""
    many = draft.floats()
    if not many:
        return ""
    name = draft.pick(ELEMENTWISE)
    text, arity = ELEMENTWISE[name]
    x = draft.recent(many)
    alike = [n for n in many if draft.shape(n) == draft.shape(x)]
    of = [x, *(draft.pick(alike) for _ in range(arity - 1))]
    inner = ", ".join(text.format(f"{{{i}}}") for i in range(arity))
    return draft.add(f"ops.{name}({inner})", of)
