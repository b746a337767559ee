"""The eager engine: every op is applied at once, on NumPy or, where data lies on a GPU, on CuPy."""

from kerasish.backends.eager.engine import Eager as Eager
from kerasish.backends.eager.gpu import EagerOnGPU as EagerOnGPU
from kerasish.backends.eager.gpu import engine_of as engine_of


def make() -> Eager:
    """Return the eager engine of the CPU, which hands over to those of the GPUs."""
    return Eager(elsewhere=engine_of)
