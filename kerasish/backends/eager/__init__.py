"""The eager engine: every op is applied at once, on NumPy or on CuPy."""

from kerasish.backends.eager.engine import Eager as Eager
