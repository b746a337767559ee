"""Files of a folder as batches: where they may be."""

from __future__ import annotations

from kerasish import utils
from kerasish.data import Dataset


def test_without_labels_files_may_lie_anywhere(tmp_path):
    for place in ("a/one.txt", "b/two.txt", "three.txt"):
        path = tmp_path / place
        path.parent.mkdir(exist_ok=True)
        path.write_text(path.stem)

    def texts(**options):
        batches = utils.text_dataset_from_directory(tmp_path, verbose=False, **options)
        return sorted(str(t) for batch in batches for t in batch)

    assert texts(label_mode=None) == texts(labels=None) == ["one", "three", "two"]
    assert texts(label_mode=None, class_names=["a", "b"]) == ["one", "two"]


def test_folders_give_a_dataset(tmp_path):
    for number in range(9):
        path = tmp_path / "ab"[number % 2] / f"{number}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"text {number}")
    data = utils.text_dataset_from_directory(tmp_path, batch_size=2, seed=1, verbose=False)
    assert isinstance(data, Dataset)
    later = data.map(lambda text, label: (text, label * 10)).take(3)
    assert later.class_names == data.class_names == ["a", "b"]
    texts, labels = next(iter(later))
    assert texts.numpy().dtype == object
    assert [int(t[-1]) % 2 for t in texts.numpy()] == (labels.numpy() // 10).tolist()
    iterator = iter(data)
    next(iterator)
    place, rest = iterator.state(), [x.tolist() for x, _ in iterator]
    again = iter(data)
    again.restore(place)
    assert [x.tolist() for x, _ in again] == rest
    orders = [[t for x, _ in data for t in x.tolist()] for _ in range(2)]
    assert orders[0] != orders[1] and sorted(orders[0]) == sorted(orders[1])
    assert data[0][0].tolist() == next(iter(data.take(1)))[0].tolist()
