"""Batches on their way to a GPU whose streams run late and in adversarial order."""

from __future__ import annotations

import numpy as np
import pytest
from queued_cupy import Machine

from kerasish.backends.eager.feeding import Feeder, size_class
from kerasish.devices import Device

# Elements of float32: one for each of 64 size classes.
SIZES = sorted({size_class(int(512 * 1.06**k)) // 4 for k in range(120)})[:64]


def _batches(count, shapes, seed):
    rng = np.random.default_rng(seed)
    order = rng.integers(0, shapes, count)
    return (np.full((SIZES[k] // 2, 2), i, "float32") for i, k in enumerate(order))


def _wrong(machine, feeder, batches):
    """Return how many batches arrive wrong at a kernel that reads them."""
    pairs = []
    for batch in batches:
        pairs.append((int(batch[0, 0]), batch.shape, machine.read(feeder.feed(batch))))
    machine.drain()
    return sum(
        found[0].shape != shape or not (found[0] == number).all() for number, shape, found in pairs
    )


def test_all_of_ten_thousand_batches_arrive_with_1_to_64_shapes():
    wrong = total = 0
    for shapes in range(1, 65):
        machine = Machine(shapes)
        count = 157 if shapes < 64 else 10_000 - total
        wrong += _wrong(machine, Feeder(machine, Device("gpu")), _batches(count, shapes, shapes))
        total += count
    assert (wrong, total) == (0, 10_000)


@pytest.mark.slow
@pytest.mark.parametrize("shapes", [1, 2, 16, 17, 24, 40, 64])
def test_all_of_ten_thousand_batches_arrive(shapes):
    machine = Machine(shapes)
    feeder = Feeder(machine, Device("gpu"))
    assert _wrong(machine, feeder, _batches(10_000, shapes, shapes)) == 0


def test_what_a_feeder_sent_last_arrives_when_it_is_gone():
    wrong = 0
    for seed in range(60):
        machine = Machine(seed)
        pairs = []
        for number in range(4):  # another feeder takes over the memory of the one before
            feeder = Feeder(machine, Device("gpu"))
            for k in range(3):
                batch = np.full(SIZES[k], number * 3 + k, "float32")
                pairs.append((number * 3 + k, machine.read(feeder.feed(batch))))
            del feeder, batch
        machine.drain()
        wrong += sum((found[0] != number).any() for number, found in pairs)
    assert wrong == 0


def test_another_current_stream_takes_memory_of_its_own():
    machine = Machine(5)
    feeder = Feeder(machine, Device("gpu"))
    pairs = []
    for i in range(300):
        machine.current = machine.streams[0] if i % 3 else machine.cuda.Stream()
        batch = np.full(SIZES[i % 5], i, "float32")
        pairs.append((i, machine.read(feeder.feed(batch))))
    machine.drain()
    assert all((found[0] == number).all() for number, found in pairs)


def test_batches_are_not_waited_for():
    machine = Machine(1)
    feeder = Feeder(machine, Device("gpu"))
    batches = list(_batches(64, 1, 0))
    feeder.feed(batches[0])
    feeder.feed(batches[1])
    assert machine.waits == 0
    for batch in batches[2:]:
        feeder.feed(batch)
    assert machine.waits == 62  # each for the copy of two batches before, and nothing else


def test_sizes_that_differ_little_share_buffers():
    machine = Machine(0)
    feeder = Feeder(machine, Device("gpu"))
    for rows in range(1000, 1020):
        feeder.feed(np.zeros((rows, 100), "float32"))
    assert len(feeder._lanes) == 1


@pytest.mark.parametrize("count", [1, 511, 512, 513, 4095, 4096, 4097, 10**6, 2**31 + 1])
def test_a_size_class_holds_its_arrays_and_little_more(count):
    size = size_class(count)
    assert count <= size <= max(512, count * 9 / 8 + 64)
    assert size % 64 == 0 and size_class(size) == size
