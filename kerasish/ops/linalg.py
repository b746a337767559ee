"""Linear algebra: Keras's `ops.linalg` namespace."""

from kerasish.ops.core import jvp as jvp
from kerasish.ops.decomposition import cholesky as cholesky
from kerasish.ops.decomposition import cholesky_inverse as cholesky_inverse
from kerasish.ops.decomposition import eig as eig
from kerasish.ops.decomposition import eigh as eigh
from kerasish.ops.decomposition import lu_factor as lu_factor
from kerasish.ops.decomposition import qr as qr
from kerasish.ops.decomposition import svd as svd
from kerasish.ops.norms import matrix_rank as matrix_rank
from kerasish.ops.norms import norm as norm
from kerasish.ops.solving import det as det
from kerasish.ops.solving import inv as inv
from kerasish.ops.solving import lstsq as lstsq
from kerasish.ops.solving import pinv as pinv
from kerasish.ops.solving import solve as solve
from kerasish.ops.solving import solve_triangular as solve_triangular
