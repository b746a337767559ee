"""Write losses.npz: what Keras's losses give for tests/shared/loss_cases.py, in float64.

Kept of each case: the value and the gradient by predictions of each reduction, plain, with
weights, with a mask, and with both.
"""

from __future__ import annotations

import os
from typing import Any

os.environ["KERAS_BACKEND"] = "torch"

import facts
import keras
import loss_cases as cases
import numpy as np
import torch

keras.config.set_floatx("float64")


def value_and_gradient(loss: Any, true: Any, pred: Any, weights: Any, mask: Any) -> Any:
    """Return a loss's value, and the gradient of its sum with a wave."""
    x = torch.tensor(pred, dtype=torch.float64, requires_grad=True)
    if mask is not None:
        x._keras_mask = torch.tensor(mask)
    value = loss(true, x, sample_weight=weights)
    if not value.requires_grad:
        return [value.numpy(), np.zeros(pred.shape)]
    (value * torch.tensor(cases.wave(value.shape))).sum().backward()
    return [value.detach().numpy(), x.grad.numpy()]


def fact_of(name: str, arguments: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return what Keras gives for a case, by reduction."""
    true, pred = cases.inputs(kind)
    found: dict[str, Any] = {}
    made = getattr(keras.losses, name)
    shape = tuple(made(reduction="none", **arguments)(true, pred).shape)
    for reduction in cases.REDUCTIONS:
        loss = made(reduction=reduction, **arguments)
        kept: dict[str, Any] = {}
        found[reduction] = kept
        for words, weights, mask in cases.ways(shape):
            try:
                kept[words] = value_and_gradient(loss, true, pred, weights, mask)
            except RuntimeError as error:
                # PyTorch multiplies weights by the mask of ignored classes in place.
                print(f"{name} {arguments} {kind}, {words}: no answer: {str(error)[:150]}")
    return found


def main() -> None:
    """Write losses.npz."""
    found: dict[str, Any] = {"keras": keras.__version__}
    for name, arguments, kinds in cases.LOSSES:
        for kind in kinds:
            found[cases.name_of(name, arguments, kind)] = fact_of(name, arguments, kind)
    print(f"{len(found) - 1} cases of losses, {facts.write('losses', found)} bytes")


if __name__ == "__main__":
    main()
