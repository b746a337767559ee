"""Linear algebra: decompositions, solvers, norms; special functions."""
