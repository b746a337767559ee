"""Random calls of every layer: the classes' own examples, with options changed by their names."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from layer_examples import EXAMPLES

from kerasish import activations, constraints, layers, registry, regularizers

from .draft import Draft

HOLDERS = {
    "TimeDistributed": ("layers.Dense(3)", "layers.Conv1D(2, 2)", "layers.BatchNormalization()",
                        "layers.LayerNormalization()", "layers.Flatten()", "layers.Dropout(0.4)"),
    "Bidirectional": ("layers.GRU(2)", "layers.LSTM(2, return_sequences=True)",
                      "layers.SimpleRNN(3)", "layers.GRU(2, return_sequences=True)"),
    "SpectralNormalization": ("layers.Dense(3)", "layers.Conv1D(2, 2)"),
    "RNN": ("layers.SimpleRNNCell(2)", "layers.GRUCell(2)", "layers.LSTMCell(3)",
            "layers.StackedRNNCells([layers.GRUCell(2), layers.LSTMCell(3)])",
            "layers.GRUCell(2, recurrent_dropout=0.3)", "layers.LSTMCell(2, dropout=0.3)"),
}  # fmt: skip
ACTIVATIONS = sorted(set(registry.BUILTINS["keras.activations"]) - {"glu"})
REGULARIZERS = ["l1", "l2", "l1_l2"]
CONSTRAINTS = ["max_norm", "non_neg", "unit_norm", "min_max_norm"]
assert callable(activations.get("tanh")) and regularizers.get("l2") and constraints.get("non_neg")
# Options that say where a thing runs, or name it, or ask for whole data.
LEFT = {"self", "name", "dtype", "trainable", "autocast", "seed", "kwargs", "args", "data_format",
        "weights", "activity_regularizer", "batch_input_shape", "lora_rank", "lora_alpha",
        "quantization_config", "value_range"}  # fmt: skip


def add_layer(draft: Draft, name: str = "") -> str:
    """Add a call of a random layer, or of the one named; return the value's name."""
    name = name or draft.pick(EXAMPLES)
    if draft.chance(0.1):
        again = add_again(draft)
        if again:
            return again
    for attempt in range(4):
        changes = max(0, 3 - attempt) if attempt else int(draft.rng.integers(0, 4))
        code = constructor(draft, name, changes)
        fed = inputs_for(draft, name, own=attempt > 2 or draft.chance(0.15))
        if not fed:
            continue
        created = draft.add(call_code(name, fed), fed, layer=code)
        if created:
            return created
    code = constructor(draft, name, 0)
    fed = inputs_for(draft, name, own=True, exact=True)
    return draft.add(call_code(name, fed), fed, layer=code)


def add_again(draft: Draft) -> str:
    """Call a layer that is there already with other values of its inputs' shapes."""
    created = [s for s in draft.steps if s.layer and not s.like and len(s.of) == 1]
    if not created:
        return ""
    step = draft.pick(created)
    shape = draft.shape(step.of[0])
    alike = [n for n in draft.floats() if draft.shape(n) == shape]
    if not alike:
        return ""
    return draft.add(step.code, (draft.pick(alike),), layer=step.layer, like=step.name)


def add_wide_convolution(draft: Draft) -> str:
    """Add a 3x3 convolution between numbers of channels that fill vectors, 1x1 ones around it."""
    value = value_of_rank(draft, 4)
    if not value or draft.dtype(value) != "float32":
        return ""
    pick, padding = draft.pick, repr(draft.pick(["same", "same", "valid"]))
    kind, channels = pick(["Conv2D", "Conv2D", "Conv2DTranspose"]), pick([16, 16, 32])
    options = (
        f"padding={padding}, use_bias={draft.chance(0.5)}, activation={pick([None, 'relu'])!r}"
    )
    first = draft.add("{layer}({0})", (value,), layer=f"layers.Conv2D({pick([16, 16, 32])}, 1)")
    wide = first and draft.add(
        "{layer}({0})", (first,), layer=f"layers.{kind}({channels}, 3, {options})"
    )
    if not wide:
        return first
    if draft.shape(wide) == draft.shape(first) and draft.chance(0.4):
        wide = draft.add("{0} + {1}", (wide, pick([first, wide]))) or wide
    return draft.add("{layer}({0})", (wide,), layer="layers.Conv2D(2, 1)") or wide


def call_code(name: str, fed: list[str]) -> str:
    """Return how a layer is called; the first result where it gives several is chosen later."""
    places = [f"{{{i}}}" for i in range(len(fed))]
    example = EXAMPLES[name]
    if not isinstance(example["shape"], list):
        inner = places[0]
    else:
        inner = ", ".join(places) if example.get("spread") else f"[{', '.join(places)}]"
    return f"one({{layer}}({inner}))"


# --- arguments --------------------------------------------------------------------------------


def constructor(draft: Draft, name: str, changes: int) -> str:
    """Return an expression that makes the layer: its example's arguments, some options changed."""
    args = EXAMPLES[name]["args"]
    written = {} if callable(args) else {k: repr(v) for k, v in args.items()}
    if name in HOLDERS:
        key = "cell" if name == "RNN" else "layer"
        written[key] = draft.pick(HOLDERS[name])
    known = options_of(getattr(layers, name))
    for _ in range(changes):
        free = [k for k in known if k not in LEFT and k not in ("layer", "cell")]
        if free:
            option = draft.pick(free)
            value = changed(draft, option, known[option], written.get(option))
            if value is not None:
                written[option] = value
    if "stddev" in written or "rate" in written or "seed" in known:
        written.setdefault("seed", str(int(draft.rng.integers(1, 99))))
    if draft.chance(0.04):
        written["dtype"] = draft.pick(["'mixed_bfloat16'", "'mixed_float16'", "'float64'"])
    if draft.chance(0.04):
        written["activity_regularizer"] = repr(draft.pick(REGULARIZERS))
    return f"layers.{name}({', '.join(f'{k}={v}' for k, v in written.items())})"


def options_of(cls: type) -> dict[str, Any]:
    """Return the constructor's arguments and their defaults."""
    result: dict[str, Any] = {}
    for kind in reversed(cls.__mro__):
        if kind is object or "__init__" not in vars(kind) or kind is layers.Layer:
            continue
        parameters = inspect.signature(kind.__init__).parameters.values()
        result.update({p.name: p.default for p in parameters})
    accepted = inspect.signature(cls.__init__).parameters
    if not any(p.kind is p.VAR_KEYWORD for p in accepted.values()):
        result = {k: v for k, v in result.items() if k in accepted}
    return result


def changed(draft: Draft, option: str, default: Any, now: str | None) -> str | None:
    """Return another value of an option, in code; None where nothing is known of it."""
    pick, number = draft.pick, lambda low, high: int(draft.rng.integers(low, high))
    if option.endswith("activation"):
        return repr(pick([None, *ACTIVATIONS]))
    if option.endswith("_regularizer"):
        return repr(pick(REGULARIZERS))
    if option.endswith("_constraint"):
        return repr(pick(CONSTRAINTS))
    if option == "padding":
        if now and now[0] == "'" or isinstance(default, str):
            return repr(pick(["valid", "same", "same"]))
        return repr(number(0, 3))
    if option in ("strides", "dilation_rate", "size", "pool_size", "kernel_size"):
        sizes = (number(1, 4), number(1, 4), number(1, 3))
        return repr(pick([sizes[0], sizes[0], sizes[:1], sizes[:2], sizes]))
    if option in ("axis", "axes"):
        return repr(pick([-1, 1, 2, -2, (1, 2)]))
    if option in ("units", "filters", "key_dim", "output_dim", "groups", "depth_multiplier",
                  "num_heads", "value_dim", "n", "output_size", "target_shape"):  # fmt: skip
        return repr(number(1, 5)) if option != "target_shape" else None
    if option in ("dropout", "recurrent_dropout", "rate"):
        return repr(pick([0.0, 0.2, 0.5]))
    if isinstance(default, bool):
        return repr(not default)
    if option in ("momentum", "epsilon"):
        return repr(pick([0.5, 0.1, 1e-5]))
    return None


# --- inputs -----------------------------------------------------------------------------------


def inputs_for(draft: Draft, name: str, own: bool, exact: bool = False) -> list[str]:
    """Return values that the layer may be called with, new inputs among them."""
    example = EXAMPLES[name]
    shapes = example["shape"] if isinstance(example["shape"], list) else [example["shape"]]
    dtype = example.get("dtype", "float32")
    if dtype != "float32":
        sizes = shapes[0][1:] if exact else [int(draft.rng.integers(1, 7)) for _ in shapes[0][1:]]
        return [draft.feed(sizes, dtype, example["high"])]
    alike = len(set(shapes)) == 1
    if own:
        ends = [s[1:] if exact else sized(draft, s[1:]) for s in shapes]
        if alike:
            ends = [ends[0]] * len(ends)
        return [draft.feed(e, opened=not exact and draft.chance(0.15)) for e in ends]
    first = value_of_rank(draft, len(shapes[0]))
    if not first:
        return []
    others = [n for n in draft.floats() if draft.shape(n) == draft.shape(first)]
    return [first, *(draft.pick(others) for _ in shapes[1:])]


def sized(draft: Draft, sizes: Any) -> tuple[int, ...]:
    """Return sizes near those of an example: mostly a little more or less."""
    moved = [max(1, s + int(draft.rng.integers(-1, 3))) if draft.chance(0.6) else s for s in sizes]
    return tuple(moved)


def value_of_rank(draft: Draft, rank: int) -> str:
    """Return a real value of a rank: one that is there, or one brought to it."""
    there = draft.floats(rank)
    if there and draft.chance(0.85):
        return draft.recent(there)
    many = draft.floats()
    if not many:
        return ""
    value = draft.recent(many)
    shape = draft.shape(value)
    if len(shape) == rank:
        return value
    if len(shape) > rank:
        kept, rest = shape[1 : rank - 1], shape[rank - 1 :]
        if None in rest:
            return ""
        target = (*kept, int(np.prod(rest))) if rank > 1 else ()
        known = tuple(-1 if s is None else s for s in target)
        return draft.add(f"ops.reshape({{0}}, {(-1, *known)!r})", (value,)) if rank > 1 else ""
    axis = draft.pick([-1, 1, 2])
    for _ in range(rank - len(shape)):
        value = draft.add(f"ops.expand_dims({{0}}, {axis})", (value,))
        if not value:
            return ""
    if draft.chance(0.7) and rank > 2:  # only sizes of 1 test little
        wide = draft.add(f"ops.repeat({{0}}, {int(draft.rng.integers(2, 5))}, axis=1)", (value,))
        value = wide or value
    return value
