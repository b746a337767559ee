"""Linear algebra: Keras's `ops.linalg` namespace."""

from kerasish.ops.algebra.decomposition import cholesky as cholesky
from kerasish.ops.algebra.decomposition import cholesky_inverse as cholesky_inverse
from kerasish.ops.algebra.decomposition import eig as eig
from kerasish.ops.algebra.decomposition import eigh as eigh
from kerasish.ops.algebra.decomposition import lu_factor as lu_factor
from kerasish.ops.algebra.decomposition import qr as qr
from kerasish.ops.algebra.decomposition import svd as svd
from kerasish.ops.algebra.norms import matrix_rank as matrix_rank
from kerasish.ops.algebra.norms import norm as norm
from kerasish.ops.algebra.solving import det as det
from kerasish.ops.algebra.solving import inv as inv
from kerasish.ops.algebra.solving import lstsq as lstsq
from kerasish.ops.algebra.solving import pinv as pinv
from kerasish.ops.algebra.solving import solve as solve
from kerasish.ops.algebra.solving import solve_triangular as solve_triangular
from kerasish.ops.arrays.core import jvp as jvp
