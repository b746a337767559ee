"""The eager engine: every op runs immediately, on NumPy or, for data on a GPU, on CuPy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kerasish.backends.eager.engine import Eager as Eager
from kerasish.devices import Device
from kerasish.first_use import find, imports_on_first_use

with imports_on_first_use(__name__):
    from kerasish.backends.eager.gpu import EagerOnGPU as EagerOnGPU
    from kerasish.backends.eager.gpu import engine_of as engine_of


def make() -> Eager:
    """Return the eager engine of the CPU, which delegates to those of the GPUs."""
    return Eager(elsewhere=_engine_of)


def _engine_of(device: Device) -> Eager:
    engine: Eager = find("kerasish.backends.eager.gpu:engine_of")(device)
    return engine
