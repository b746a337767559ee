"""Policies of the process, policies by path, and what is said of wrong ones."""

from __future__ import annotations

import pytest

from kerasish import dtype_policies
from kerasish.dtype_policies import DTypePolicy, DTypePolicyMap, set_dtype_policy


@pytest.fixture
def float32_again():
    yield
    set_dtype_policy("float32")


@pytest.mark.parametrize("name", ["float16", "mixed_bfloat16"])
def test_a_policy_without_a_name_is_the_process_s(name, float32_again):
    set_dtype_policy(name)
    assert DTypePolicy().name == dtype_policies.get(None).name == name
    assert DTypePolicyMap()["any/path"] == DTypePolicy(name)


def test_none_is_no_policy_to_set():
    before = dtype_policies.get(None)
    with pytest.raises(ValueError, match="None"):
        set_dtype_policy(None)
    assert dtype_policies.get(None) == before


@pytest.mark.parametrize("wrong", [3, DTypePolicy("float16"), ["float16"]])
def test_a_map_of_policies_wants_a_dict(wrong):
    with pytest.raises(TypeError, match="layer paths"):
        DTypePolicyMap(policy_map=wrong)


def test_maps_show_what_they_hold():
    created = DTypePolicyMap("float32", {"encoder/dense": "mixed_float16"})
    assert repr(created) == (
        "<DTypePolicyMap default_policy='float32', mapping=[('encoder/dense', 'mixed_float16')]>"
    )


@pytest.mark.parametrize("wrong", ["float15", "", "@mixed_float16!"])
def test_unknown_names_are_value_errors(wrong):
    with pytest.raises(ValueError, match="Unknown dtype"):
        DTypePolicy(wrong)
