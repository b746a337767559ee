"""The loop ops: each has machine code, and computes what the op of its name does."""

from __future__ import annotations

import numpy as np
import pytest

from kerasish.backends.static.codegen.description import KernelBuilder
from kerasish.backends.static.codegen.loop_ops import LOOP_OPS
from kerasish.errors import UnknownNameError
from kerasish.ops.op import REGISTRY

SIMPLE = sorted(n for n, o in LOOP_OPS.items() if o.gives != "special" and n != "c_function")


@pytest.mark.parametrize("op", SIMPLE)
def test_every_loop_op_has_machine_code(apply_op, op):
    about = LOOP_OPS[op]
    x = np.full(5, 4, "int32") if about.takes == "integers" else np.full(5, 0.5, "float32")
    count = REGISTRY[op].arity if op in REGISTRY else 1
    got = apply_op(op, [x] * count, out="bool" if about.gives == "bool" else str(x.dtype))
    expected = REGISTRY[op].kernel(np, *[x] * count) if op in REGISTRY else x
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_a_c_function_must_be_known():
    k = KernelBuilder()
    k.output(k.op("c_function", k.input("float32"), function="asinnh"))
    with pytest.raises(UnknownNameError, match="asinh"):
        k.build()
