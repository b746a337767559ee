"""Batch renormalization: what training sees of a batch is tied to the running moments."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kerasish import ops

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

LIMITS = ("rmin", "rmax", "dmax")


def check_clipping(clipping: dict[str, Any] | None, who: str) -> dict[str, float]:
    """Return the limits of the corrections by name, checked.

    Raises:
        ValueError: a name that is not in LIMITS, rmin > rmax, or dmax < 0.
    """
    limits = dict(clipping or {})
    unknown = sorted(set(limits) - set(LIMITS))
    if unknown:
        raise ValueError(f"{who}: renorm_clipping takes {list(LIMITS)}, got {unknown}.")
    rmin, rmax, dmax = (limits.get(name) for name in LIMITS)
    if rmin is not None and rmax is not None and rmin > rmax:
        raise ValueError(f"{who}: renorm_clipping needs rmin <= rmax, got {rmin} and {rmax}.")
    if dmax is not None and dmax < 0:
        raise ValueError(f"{who}: renorm_clipping needs dmax >= 0, got {dmax}.")
    return limits


def corrections(
    mean: Tensor, stddev: Tensor, running: tuple[Any, Any], epsilon: float, limits: dict[str, float]
) -> tuple[Any, Any]:
    """Return r = stddev / s and d = (mean - m) / s for the running moments (m, s), clipped.

    Gradients take them for constants. Source: Ioffe, arXiv 1702.03275, algorithm 1.
    """
    at, width = running[0], ops.maximum(running[1], math.sqrt(epsilon))
    r = ops.divide(stddev, width)
    d = ops.divide(ops.subtract(mean, at), width)
    if limits.get("rmin") is not None:
        r = ops.maximum(r, limits["rmin"])
    if limits.get("rmax") is not None:
        r = ops.minimum(r, limits["rmax"])
    if limits.get("dmax") is not None:
        d = ops.clip(d, -limits["dmax"], limits["dmax"])
    return ops.stop_gradient(r), ops.stop_gradient(d)
