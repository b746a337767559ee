"""Written by docs/op_signatures.py: change the ops, not this file."""
from kerasish.ops import cholesky as cholesky
from kerasish.ops import cholesky_inverse as cholesky_inverse
from kerasish.ops import det as det
from kerasish.ops import eig as eig
from kerasish.ops import eigh as eigh
from kerasish.ops import inv as inv
from kerasish.ops import jvp as jvp
from kerasish.ops import lstsq as lstsq
from kerasish.ops import lu_factor as lu_factor
from kerasish.ops import matrix_rank as matrix_rank
from kerasish.ops import norm as norm
from kerasish.ops import pinv as pinv
from kerasish.ops import qr as qr
from kerasish.ops import solve as solve
from kerasish.ops import solve_triangular as solve_triangular
from kerasish.ops import svd as svd
