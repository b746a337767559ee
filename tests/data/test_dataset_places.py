"""Iterators of every verb, saved at any place and restored in any: the rest has the same bits."""

from __future__ import annotations

import json
import threading

import pytest
from dataset_cases import CASES, flat, made, noisy, numbers, stream

from kerasish.data import Dataset
from kerasish.data.pipeline import DatasetIterator

pytestmark = pytest.mark.filterwarnings("ignore:The place in from_generator")


def threads():
    return [t for t in threading.enumerate() if t.name.startswith("kerasish-data")]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("number", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_the_rest_has_the_same_bits(name, number):
    """A place of one object, through JSON, in a new object: as in another process."""
    first = DatasetIterator(CASES[name]().node, number)
    everything, places = [], [json.dumps(first.state())]
    for element in first:
        everything.append(flat(element))
        places.append(json.dumps(first.state()))
    assert len(everything) >= 3
    for at, place in enumerate(places):
        iterator = DatasetIterator(CASES[name]().node, 0)
        iterator.restore(json.loads(place))
        rest = [flat(element) for element in iterator]
        assert rest == everything[at:], f"restored after {at} elements"
    assert not threads()


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_restored_place_can_be_saved_again(name):
    """Two interruptions, the second one soon after the first."""
    first = DatasetIterator(CASES[name]().node, 1)
    everything, places = [], []
    for element in first:
        everything.append(flat(element))
        places.append(first.state())
    for at in range(0, len(everything) - 1, 3):
        again = DatasetIterator(CASES[name]().node, 0)
        again.restore(places[at])
        assert flat(next(again)) == everything[at + 1]
        last = DatasetIterator(CASES[name]().node, 0)
        last.restore(again.state())
        assert [flat(e) for e in last] == everything[at + 2 :]


@pytest.mark.parametrize("name", CASES)
def test_passes_are_functions_of_their_number(name):
    dataset, again = CASES[name](), CASES[name]()
    again.restore_source(dataset.source_state())
    two = [[flat(e) for e in dataset] for _ in range(2)]
    later = [flat(e) for e in DatasetIterator(again.node, 1)]
    assert two[1] == later
    mixes = "shuffle" in name or name in ("repeat", "random_map", "random_map in threads")
    if mixes and name not in ("shuffle once",):
        assert two[0] != two[1]


def test_a_buffer_gives_the_order_of_numbers():
    """The order does not depend on whether elements can be read by number."""
    for buffer in (1, 2, 5, 22, 23, 24, 100):
        by_number = [flat(e) for e in numbers().shuffle(buffer, seed=4)]
        assert by_number == [flat(e) for e in stream().shuffle(buffer, seed=4)]
        drawn = [d.random_map(noisy, seed=1).shuffle(buffer, 4) for d in (numbers(), stream())]
        assert [flat(e) for e in drawn[0]] == [flat(e) for e in drawn[1]]
    assert by_number != [flat(e) for e in numbers()]


def test_a_state_of_another_pipeline_is_refused():
    iterator = iter(numbers().shuffle(5).batch(2))
    next(iterator)
    with pytest.raises(ValueError, match="the state does not fit"):
        iter(numbers().batch(2)).restore(iterator.state())
    with pytest.raises(ValueError, match="the state does not fit"):
        iter(stream().shuffle(5)).restore({"pass": 0})


def test_a_generator_is_read_again_with_a_warning():
    iterator = iter(Dataset.from_generator(made).batch(2))
    next(iterator)
    pass_on = iter(Dataset.from_generator(made).batch(2))
    with pytest.warns(UserWarning, match="restored by reading the elements before it"):
        pass_on.restore(iterator.state())
    assert flat(next(pass_on)) == flat(next(iterator))
