"""Write metrics.npz: what Keras's metrics give for tests/shared/metric_cases.py, after 3 batches.

Each case is counted plain, with weights, with a mask, and with both.
"""

from __future__ import annotations

import os
from typing import Any

os.environ["KERAS_BACKEND"] = "torch"

import facts
import keras
import metric_cases as cases
import numpy as np
import torch


def counted(name: str, arguments: dict[str, Any], kind: str, way: str) -> np.ndarray:
    """Return the result of a metric that has seen all batches."""
    metric = getattr(keras.metrics, name)(**cases.given(arguments, keras.losses))
    for true, pred, weights, mask in cases.batches(kind, way):
        x = torch.tensor(pred)
        if mask is not None:
            x._keras_mask = torch.tensor(mask)
        args = (x,) if name in cases.OF_VALUES else (torch.tensor(true), x)
        metric.update_state(*args, sample_weight=weights)
    result = metric.result()
    return np.array(keras.ops.convert_to_numpy(result))


def main() -> None:
    """Write metrics.npz."""
    found: dict[str, Any] = {"keras": keras.__version__}
    for name, arguments, kinds in cases.METRICS:
        for kind in kinds:
            fact = found[cases.name_of(name, arguments, kind)] = {}
            for way in cases.ways(kind):
                try:
                    fact[way] = counted(name, arguments, kind, way)
                except (ValueError, TypeError, RuntimeError, IndexError) as error:
                    print(f"{name} {arguments} {kind}, {way}: no answer: {str(error)[:150]}")
    print(f"{len(found) - 1} cases of metrics, {facts.write('metrics', found)} bytes")


if __name__ == "__main__":
    main()
