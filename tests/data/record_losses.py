"""Record what Keras makes of the losses' and metrics' cases: `python tests/data/record_losses.py`.

Needs Keras 3 with PyTorch; writes losses.json and metrics.json beside this file.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "torch"
HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "shared"))

import keras  # noqa: E402 (the backend is chosen above)
import loss_cases  # noqa: E402
import metric_cases  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402


def rounded(x: Any) -> Any:
    """Return numbers with seven digits, as JSON holds them."""
    if isinstance(x, dict):
        return {k: rounded(v) for k, v in x.items()}
    array = np.asarray(x.detach().numpy() if hasattr(x, "detach") else x, np.float64)
    return [float(f"{v:.7g}") for v in array.ravel()] if array.ndim else float(f"{array:.7g}")


def losses() -> dict[str, Any]:
    """Return the facts of all losses: values, reductions, weighted ones, one gradient."""
    facts = {}
    for name, arguments, kinds in loss_cases.LOSSES:
        for kind in kinds:
            true, pred = loss_cases.inputs(kind)
            made = {r: getattr(keras.losses, name)(reduction=r, **arguments)
                    for r in loss_cases.REDUCTIONS}  # fmt: skip
            values = made["none"](true, pred)
            fact = {r: rounded(loss(true, pred)) for r, loss in made.items()}
            weights = loss_cases.weights_for(tuple(values.shape))
            if weights is not None:
                fact["weighted"] = {
                    r: rounded(loss(true, pred, sample_weight=weights)) for r, loss in made.items()
                }
            x = torch.tensor(pred, requires_grad=True)
            made["sum"](true, x).backward()
            fact["gradient"] = rounded(x.grad)
            facts[loss_cases.name_of(name, arguments, kind)] = fact
    return facts


def metrics() -> dict[str, Any]:
    """Return the facts of all metrics after three batches, plain and weighted."""
    facts = {}
    for name, arguments, kinds in metric_cases.METRICS:
        for kind in kinds:
            fact = {}
            for weighted in (False, True):
                metric = getattr(keras.metrics, name)(**arguments)
                for true, pred, weights in metric_cases.batches(kind):
                    metric.update_state(true, pred, sample_weight=weights if weighted else None)
                fact["weighted" if weighted else "plain"] = rounded(metric.result())
            facts[metric_cases.name_of(name, arguments, kind)] = fact
    return facts


def write(name: str, facts: dict[str, Any]) -> None:
    """Write one fact a line."""
    lines = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in facts.items())
    (HERE / name).write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    write("losses.json", losses())
    write("metrics.json", metrics())
