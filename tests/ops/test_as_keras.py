"""The results of ops compared with those of Keras: recorded by tests/data/record/ops.py.

The cases are in tests/shared/op_cases.py. Where Keras's own backends differ, or one of them is
wrong, the case is not there but in a test of its own next to the op.
"""

from __future__ import annotations

import pathlib

import numpy as np
import pytest
from op_cases import call, keyed

from kerasish import ops

RECORDED = pathlib.Path(__file__).parent.parent / "data" / "ops.npz"


@pytest.fixture(scope="module")
def recorded():
    with np.load(RECORDED) as file:
        return dict(file)


CASES = keyed()  # "name of an op-number" -> a call


@pytest.mark.parametrize("op", dict.fromkeys(key.rpartition("-")[0] for key in CASES))
def test_as_keras(op, recorded):
    for key, chosen in CASES.items():
        if key.rpartition("-")[0] == op:
            check(key, chosen, recorded)


def check(key, chosen, recorded):
    found = call(ops, *chosen)
    expected = [recorded[f"{key}/{i}"] for i in range(len(found))]
    assert f"{key}/{len(found)}" not in recorded
    for ours, theirs in zip(found, expected):
        assert ours.shape == theirs.shape, key
        assert ours.dtype == theirs.dtype, key
        rough = ours.dtype == np.float16
        np.testing.assert_allclose(
            ours, theirs, rtol=1e-2 if rough else 3e-5, atol=1e-2 if rough else 3e-6, err_msg=key
        )


def test_every_record_belongs_to_a_case(recorded):
    assert {key.rpartition("/")[0] for key in recorded} == set(CASES)
