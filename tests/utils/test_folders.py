"""Files of a folder as batches: where they may lie."""

from __future__ import annotations

from kerasish import utils


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
