"""Linear algebra: Keras's `ops.linalg` namespace."""

from kerasish.ops.algebra.decomposition import *
from kerasish.ops.algebra.norms import *
from kerasish.ops.algebra.solving import *
from kerasish.ops.arrays.core import jvp as jvp
