"""Each kernel on arrays of more than 2^32 elements, described and not held: run on the CPU.

The first and the last block of a launch run. The calls are in tests/shared/far_calls.py and
far_calls_windows.py.
"""

from __future__ import annotations

import far_calls
import far_calls_windows
import pytest
from cuda_on_cpu import Function
from far_arrays import far_like
from kernel_calls import CALLS

from kerasish.backends.eager.cuda import fused_metrics, kernels, update

FAR = {**far_calls.FAR_CALLS, **far_calls_windows.FAR_CALLS}
# One block each reads what few blocks wrote before, which is never so much.
NEVER = {
    "running_sums": fused_metrics.MOST_VALUES < kernels.FAR,
    "norm_of_parts": update.CHUNK * kernels.FAR > 2**43,  # a part for each chunk of all gradients
}


def test_each_kernel_has_a_case_or_a_reason():
    assert set(FAR) | set(NEVER) == set(CALLS)
    assert all(NEVER.values())


@pytest.mark.parametrize("kernel", FAR)
def test_more_than_2_to_the_32_elements(cuda, kernel):
    cuda.empty = far_like
    Function.most = 2
    FAR[kernel]()
    assert cuda.launches[kernel]
