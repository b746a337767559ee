"""The ops that the static engine has no native code for, and why."""

from __future__ import annotations

DECOMPOSITION = "LAPACK's decompositions are NumPy's to call"
ANY_PLACE = "reads or writes at places that are data, in more axes than a row's number"
# Ops that NumPy computes in a compiled step, at least for some of their examples: why.
WITHOUT_NATIVE_CODE = {
    **dict.fromkeys(
        ("eig", "eigh", "inv", "lu_factor", "pinv", "qr", "singular_values", "slogdet",
         "solve_matrix", "svd_full", "svd_reduced", "swaps", "cholesky_lower", "det"),
        DECOMPOSITION,
    ),
    **dict.fromkeys(("conj", "imag", "real", "join_parts"), "complex numbers are NumPy's"),
    **dict.fromkeys(("reduce_sum", "reduce_prod"), "of no elements: a constant that is written"),
    "reinterpret": "the bits of one dtype read as another",
    **dict.fromkeys(
        ("add_along_axis", "add_at", "combine_at", "pick_along_axis", "read_at", "write_at"),
        ANY_PLACE,
    ),
    "add_rows": "rows along another axis than the first",
    "take_rows": "rows along another axis than the first",
    "argmax": "along another axis than the last",
    "argmin": "along another axis than the last",
    "argsort": "sorting is NumPy's",
    "searchsorted": "a search for each number",
    "running_sum": "each number needs the one before it",
    "fourier": "Fourier transforms are NumPy's",
    "matmul": "products of two vectors without rows",
}  # fmt: skip
