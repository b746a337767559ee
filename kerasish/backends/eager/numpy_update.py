"""New values of all variables of SGD, Adam and AdamW, in pieces that stay in the cache.

The same operations in the same order as the optimizers' own `update`, bit for bit; but a dozen
passes over arrays of megabytes, with as many temporaries, become a dozen over a piece in cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

PIECE = 65536  # elements
FLOATS = (np.dtype("float32"), np.dtype("float64"))
Arrays = Sequence[Any]


def update_by_rule(
    rule: str,
    settings: dict[str, Any],
    lists: Sequence[Arrays],
    rate: Any,
    steps: Any,
    decays: Sequence[float],
    factor: Any,
) -> list[list[Any]] | None:
    """Return [new values, new slots, ...], None where the rule is not known or dtypes differ.

    Args:
        rule: "sgd" or "adam"; settings: its numbers.
        lists: values, gradients, and each kind of slot.
        rate: the learning rate; steps: how many updates were made before, an int.
        decays: for each value the share of it, times the rate, that is taken off first.
        factor: gradients count so many times; None: once.
    """
    dtype = lists[0][0].dtype if lists[0] else None
    if dtype not in FLOATS or any(a.dtype != dtype for arrays in lists for a in arrays):
        return None
    kind = dtype.type
    own = kind(rate)
    with np.errstate(all="ignore"):
        change, slots = RULES[rule](settings, own, kind(steps) + kind(1), kind)
        if len(lists) != 2 + slots:
            return None
        scale = None if factor is None else kind(factor)
        found = [
            _update(change, arrays, own * kind(decay) if decay else None, scale)
            for arrays, decay in zip(zip(*lists), decays)
        ]
    return [list(arrays) for arrays in zip(*found)]


def _update(change: Callable[..., None], arrays: Arrays, decay: Any, scale: Any) -> list[Any]:
    """Return the new value and slots of one variable; `decay` is the share taken off first."""
    value, gradient, *slots = (np.ascontiguousarray(a).reshape(-1) for a in arrays)
    made = [np.empty_like(a) for a in (value, *slots)]
    spare = [np.empty(min(PIECE, max(value.size, 1)), value.dtype) for _ in range(3)]
    for start in range(0, value.size, PIECE):
        here = slice(start, start + PIECE)
        p, g = value[here], gradient[here]
        a, b, c = (x[: p.size] for x in spare)
        if scale is not None:
            g = np.multiply(g, scale, out=b)
        if decay is not None:
            np.multiply(p, decay, out=c)
            p = np.subtract(p, c, out=c)
        change(p, g, [s[here] for s in slots], [m[here] for m in made], a)
    return [m.reshape(old.shape) for m, old in zip(made, (arrays[0], *arrays[2:]))]


def _adam(settings: dict[str, Any], rate: Any, step: Any, kind: Any) -> tuple[Any, int]:
    beta_1, beta_2, epsilon = (settings[n] for n in ("beta_1", "beta_2", "epsilon"))
    one = kind(1)
    second = np.sqrt(one - np.power(kind(beta_2), step))
    c = rate * second / (one - np.power(kind(beta_1), step))
    fresh_1, fresh_2, small = kind(1 - beta_1), kind(1 - beta_2), kind(epsilon)

    def change(p: Any, g: Any, slots: Arrays, new: Arrays, spare: Any) -> None:
        (m, v), (to, to_m, to_v) = slots, new
        np.subtract(g, m, out=spare)
        np.multiply(spare, fresh_1, out=spare)
        np.add(m, spare, out=to_m)
        np.multiply(g, g, out=spare)
        np.subtract(spare, v, out=spare)
        np.multiply(spare, fresh_2, out=spare)
        np.add(v, spare, out=to_v)
        np.sqrt(to_v, out=spare)
        np.add(spare, small, out=spare)
        np.multiply(to_m, c, out=to)
        np.divide(to, spare, out=to)
        np.subtract(p, to, out=to)

    return change, 2


def _sgd(settings: dict[str, Any], rate: Any, step: Any, kind: Any) -> tuple[Any, int]:
    momentum, nesterov = kind(settings["momentum"]), settings["nesterov"]

    def change(p: Any, g: Any, slots: Arrays, new: Arrays, spare: Any) -> None:
        np.multiply(g, rate, out=spare)
        if not slots:
            np.subtract(p, spare, out=new[0])
            return
        np.multiply(slots[0], momentum, out=new[1])
        np.subtract(new[1], spare, out=new[1])
        if nesterov:
            np.multiply(new[1], momentum, out=new[0])
            np.add(p, new[0], out=new[0])
            np.subtract(new[0], spare, out=new[0])
        else:
            np.add(p, new[1], out=new[0])

    return change, int(settings["momentum"] != 0)


# Each returns what changes a piece, and how many slots a variable has.
RULES: dict[str, Callable[..., tuple[Any, int]]] = {"adam": _adam, "sgd": _sgd}
