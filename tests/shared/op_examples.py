"""An op's examples as arguments, and the results of calling it."""

from __future__ import annotations

import numpy as np

from kerasish.ops import dtypes
from kerasish.tensor import prepare


def make(part, rng, dtype="float32"):
    """Return the array of an example's input: from a shape, an array or a function of rng."""
    if callable(part):
        array = np.asarray(part(rng))
    elif isinstance(part, tuple):
        array = np.asarray(rng.normal(size=part))
    else:
        array = np.asarray(part)
    return array.astype(dtypes.array_dtype(dtype)) if array.dtype == np.float64 else array


def arguments(op, example, dtype="float32", seed=3):
    rng = np.random.default_rng(seed)
    parts, attrs = example
    return [make(part, rng, dtype) for part in parts], dict(attrs)


def call(op, arrays, attrs):
    return op(list(arrays), **attrs) if op.variadic else op(*arrays, **attrs)


def results(found):
    return found if isinstance(found, tuple) else (found,)


def bound(op, arrays, attrs):
    """Return (values, attrs) as a kernel gets them."""
    args, attrs = op.bind((list(arrays),) if op.variadic else arrays, attrs)
    tensors, attrs = prepare(op, args[0] if op.variadic else args, attrs)
    return [t.value for t in tensors], attrs
