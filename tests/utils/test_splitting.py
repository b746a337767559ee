"""Data sets cut so that both parts hold each class."""

from __future__ import annotations

import numpy as np
import pytest

from kerasish import utils

CLASSES = np.repeat([0, 1, 2], [60, 30, 10])


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("labels", [CLASSES, CLASSES[:, None], np.eye(3)[CLASSES]])
@pytest.mark.parametrize(
    ("sizes", "counts"),
    [
        ((0.8, None), ([48, 24, 8], [12, 6, 2])),
        ((None, 0.1), ([54, 27, 9], [6, 3, 1])),
        ((50, 10), ([30, 15, 5], [6, 3, 1])),
    ],
)
def test_each_class_keeps_its_share(sizes, counts, labels, shuffle):
    rows = np.arange(100)
    parts = utils.split_dataset(rows, *sizes, shuffle=shuffle, seed=1, stratify=labels)
    result = [np.array(list(part)) for part in parts]
    assert [np.bincount(CLASSES[part]).tolist() for part in result] == list(counts)
    assert not set(result[0]) & set(result[1])
    assert (np.diff(result[0]) > 0).all() is np.bool_(not shuffle)


def test_odd_shares_still_fill_the_parts():
    labels = np.repeat(np.arange(7), [1, 2, 3, 4, 5, 6, 7])[1:]
    left, right = utils.split_dataset(np.arange(27), 0.7, stratify=labels)
    assert len(left) == 19 and len(right) == 8
    for part in (left, right):
        assert set(labels[list(part)]) == set(range(1, 7))


def test_a_class_of_one_row_cannot_be_shared():
    with pytest.raises(ValueError, match="two samples of each class"):
        utils.split_dataset(np.arange(4), 0.5, stratify=[0, 0, 0, 1])
