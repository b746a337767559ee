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
    created = tree.map_structure(lambda x: x, {"b": 1, "a": 2})
    assert list(created) == ["b", "a"]
    assert tree.flatten({"b": 1, "a": 2}) == [2, 1]
    ordered = collections.OrderedDict(b=1, a=2)
    assert type(tree.map_structure(lambda x: x, ordered)) is collections.OrderedDict


def test_none_as_a_leaf_or_not():
    assert tree.map_structure(lambda x: x is None, [None, 1]) == [True, False]
    assert tree.map_structure(lambda x: x, [None, 1], none_is_leaf=False) == [None, 1]


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ([1, 2], [1], "2 parts and 1"),
        ({"a": 1}, {"b": 1}, "keys"),
        ([1, [2, 3]], [1, [2]], "at 1"),
        ({"a": [1]}, {"a": 1}, "at a: a list and a int"),
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


def test_deques_and_dicts_of_every_kind_keep_their_kind():
    ordered = collections.OrderedDict([("b", 1), ("a", 2)])
    filled = collections.defaultdict(list, {"b": 1, "a": 2})
    queue = collections.deque([3, 4], maxlen=5)
    assert [tree.flatten(x) for x in (ordered, filled, queue)] == [[1, 2], [2, 1], [3, 4]]
    doubled = [tree.map_structure(lambda x: 2 * x, x) for x in (ordered, filled, queue)]
    assert list(doubled[0].items()) == [("b", 2), ("a", 4)]
    assert (type(doubled[1]), doubled[1].default_factory) == (collections.defaultdict, list)
    assert (doubled[2], doubled[2].maxlen) == (collections.deque([6, 8]), 5)
    assert tree.pack_sequence_as(queue, [7, 8]) == collections.deque([7, 8])


def test_dicts_meet_by_their_keys_whatever_their_order():
    ordered = collections.OrderedDict([("b", 1), ("a", 2)])
    sums = tree.map_structure(lambda x, y: x + y, ordered, {"a": 10, "b": 20})
    assert list(sums.items()) == [("b", 21), ("a", 12)]
    above = tree.map_structure_up_to({"a": 0, "b": 0}, lambda x: x, ordered)
    assert above == {"a": 2, "b": 1}
    tree.assert_same_structure(ordered, {"a": 0, "b": 0})
    tree.assert_same_paths(ordered, {"a": 0, "b": 0})


@pytest.mark.parametrize("other", [[1, 2], collections.deque([1, 2]), Point(1, 2)])
def test_sequences_of_other_kinds_are_other_structures(other):
    with pytest.raises(ValueError, match="differ at 0: a tuple and a "):
        tree.assert_same_structure([(1, 2)], [other])
