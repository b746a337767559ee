"""Structures: flatten, map, pack, and what is said when they differ."""

from __future__ import annotations

import collections

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerasish import tree

Point = collections.namedtuple("Point", "x y")

structures = st.recursive(
    st.one_of(st.integers(), st.none(), st.text(max_size=2)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=2), inner, max_size=3),
        st.builds(Point, inner, inner),
    ),
    max_leaves=12,
)


@given(structures)
def test_pack_undoes_flatten(structure):
    leaves = tree.flatten(structure)
    again = tree.pack_sequence_as(structure, leaves)
    assert again == structure
    assert type(again) is type(structure)
    assert [leaf for _, leaf in tree.flatten_with_path(structure)] == leaves
    tree.assert_same_structure(structure, again)
    tree.assert_same_paths(structure, again)


@given(structures)
def test_map_visits_the_leaves_in_order(structure):
    seen = []
    mapped = tree.map_structure(lambda leaf: seen.append(leaf) or (leaf, 0), structure)
    assert seen == tree.flatten(structure)
    assert tree.map_structure_up_to(structure, lambda pair: pair[0], mapped) == structure


def test_dicts_are_walked_by_sorted_keys_and_keep_their_order():
    made = tree.map_structure(lambda x: x, {"b": 1, "a": 2})
    assert list(made) == ["b", "a"]
    assert tree.flatten({"b": 1, "a": 2}) == [2, 1]
    ordered = collections.OrderedDict(b=1, a=2)
    assert type(tree.map_structure(lambda x: x, ordered)) is collections.OrderedDict


def test_none_as_a_leaf_or_not():
    assert tree.map_structure(lambda x: x is None, [None, 1]) == [True, False]
    assert tree.map_structure(lambda x: x, [None, 1], none_is_leaf=False) == [None, 1]


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ([1, 2], [1], "2 parts beside 1"),
        ({"a": 1}, {"b": 1}, "keys"),
        ([1, [2, 3]], [1, [2]], "at 1"),
        ({"a": [1]}, {"a": 1}, "at a: a list beside a int"),
    ],
)
def test_differences_are_named(a, b, message):
    with pytest.raises(ValueError, match=message):
        tree.assert_same_structure(a, b)
    with pytest.raises(ValueError, match="differ"):
        tree.map_structure(lambda x, y: x, a, b)


def test_pack_counts():
    with pytest.raises(ValueError, match="2 leaves, the sequence 3"):
        tree.pack_sequence_as([0, 0], [1, 2, 3])
    with pytest.raises(ValueError, match="at least one"):
        tree.map_structure(len)
    with pytest.raises(ValueError, match="paths"):
        tree.assert_same_paths({"a": 1}, {"b": 1})


def test_traverse_replaces_nodes():
    assert tree.traverse(lambda x: "list" if isinstance(x, list) else None, {"a": [1], "b": 2}) == {
        "a": "list",
        "b": 2,
    }
    assert tree.traverse(lambda x: tree.MAP_TO_NONE if x == 1 else None, [1, 2]) == [None, 2]
    assert tree.lists_to_tuples([[1], {"a": [2]}]) == ((1,), {"a": (2,)})


def test_shapes_are_leaves():
    assert tree.map_shape_structure(len, [(1, None), {"a": (3,)}]) == [2, {"a": 1}]
    with pytest.raises(ValueError, match="expected shapes"):
        tree.map_shape_structure(len, "abc")
    assert tree.is_nested(Point(1, 2))
