"""Layers of one's own with control flow inside: loops, branches, and parts computed again."""

from __future__ import annotations

from .draft import Draft

HEAD = """
@kerasish.saving.register_keras_serializable(package="fuzz", name="Block{number}")
class Block{number}(layers.Layer):
    def build(self, input_shape):
        self.w = self.add_weight(shape=(input_shape[-1],), initializer="uniform", name="w")

    def call(self, x):
{body}
"""
# The body of `call`: x in, the same shape out (mostly). Some branches do not read the weight.
BODIES = {
    "scan": """
        def body(carry, row):
            carry = ops.tanh(carry * 0.5 + row * self.w)
            return carry, carry * {f}
        last, rows = ops.scan(body, ops.zeros_like(x[:, 0]), ops.swapaxes(x, 0, 1), reverse={k})
        return ops.swapaxes(rows, 0, 1) + ops.expand_dims(last, 1)
""",
    "while": """
        def body(i, h):
            return i + 1, ops.sin(h * self.w) + x
        return ops.while_loop(lambda i, h: i < {n}, body, (0, x),
                              maximum_iterations={n})[1]
""",
    "while on data": """
        def body(h):
            return h * 0.5 * self.w
        return ops.while_loop(lambda h: ops.sum(ops.abs(h)) > {f}, body, (x * 4.0,),
                              maximum_iterations=7)[0] + x * self.w
""",
    "fori": """
        return ops.fori_loop(0, {n}, lambda i, h: ops.tanh(h * self.w + x), x)
""",
    "cond": """
        return ops.cond(ops.mean(x) > {f} - 0.5, lambda: ops.exp(x * 0.3) * self.w,
                        lambda: x - self.w)
""",
    "switch": """
        k = ops.cast(ops.sum(ops.cast(x > 0.2, "int32")) % 3, "int32")
        return ops.switch(k, [lambda a: a * self.w, lambda a: ops.tanh(a),
                              lambda a: a + self.w], x)
""",
    "cond in a loop": """
        def body(i, h):
            return ops.cond(i % 2 == 0, lambda: h * self.w + x, lambda: ops.tanh(h))
        return ops.fori_loop(0, {n} + 2, body, x)
""",
    "remat": """
        def inner(h):
            return ops.tanh(h * self.w) * ops.exp(-h * h)
        return kerasish.remat(inner)(x) + {f} * x
""",
    "scan twice": """
        def step(carry, row):
            return carry * 0.7 + row, ops.maximum(carry, row) * self.w
        _, rows = ops.scan(step, x[:, 0] * 0.0, ops.swapaxes(x, 0, 1))
        _, rows = ops.scan(step, rows[0], rows, reverse=True)
        return ops.swapaxes(rows, 0, 1)
""",
    "map": """
        return ops.map(lambda r: ops.tanh(r * self.w) - ops.mean(r, axis=-1, keepdims=True), x)
""",
    "softmax of weights": """
        return x * ops.softmax(self.w) + ops.mean(x * self.w, axis=-1, keepdims=True)
""",
    "rows": """
        return x * self.w + ops.mean(x * self.w, axis=0, keepdims=True)
""",
}


def add_block(draft: Draft) -> str:
    """Add a layer of one's own on a random value; return the new value's name."""
    many = [n for n in draft.floats() if len(draft.shape(n)) > 1 and draft.shape(n)[-1]]
    if not many:
        return ""
    number = len(draft.steps)
    kind = draft.pick(BODIES)
    body = BODIES[kind].strip("\n").format(
        f=draft.pick([0.25, 0.5, 2.0]), n=int(draft.rng.integers(1, 4)), k=draft.chance(0.5)
    )  # fmt: skip
    before = HEAD.format(number=number, body=body)
    layer = f"Block{number}(dtype={('mixed_bfloat16' if draft.chance(0.06) else None)!r})"
    return draft.add("{layer}({0})", (draft.recent(many),), layer=layer, before=before)
