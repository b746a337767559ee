"""CTC: the loss against a sum over all paths, its gradient, and the decoders."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kerasish import ops
from kerasish.errors import ShapeError
from kerasish.testing import gradient_check

rng = np.random.default_rng(2)


def read(path, blank=0):
    """Return the labels of a path of classes."""
    merged = [c for c, _ in itertools.groupby(path)]
    return tuple(c for c in merged if c != blank)


def probabilities(logits):
    """Return {labels: probability} of all labels that the logits (steps, classes) may mean."""
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    total: dict = {}
    for path in itertools.product(range(logits.shape[1]), repeat=len(logits)):
        labels = read(path)
        total[labels] = total.get(labels, 0) + np.prod([p[t, c] for t, c in enumerate(path)])
    return total


@pytest.mark.parametrize("labels", [(1,), (1, 2), (1, 1), (2, 1, 2), ()])
def test_loss_is_the_sum_over_all_paths(labels):
    logits = rng.normal(size=(1, 5, 3))
    target = np.zeros((1, 3), "int32")
    target[0, : len(labels)] = labels
    result = ops.ctc_loss(target, logits, [len(labels)], [5]).item()
    assert result == pytest.approx(-np.log(probabilities(logits[0])[labels]), rel=1e-6)


def test_steps_behind_the_length_do_not_count():
    logits = rng.normal(size=(1, 6, 3))
    result = ops.ctc_loss([[1, 2]], logits, [2], [4]).item()
    assert result == pytest.approx(ops.ctc_loss([[1, 2]], logits[:, :4], [2], [4]).item())


def test_gradient_of_the_loss():
    logits = rng.normal(size=(2, 4, 3))
    gradient_check(lambda x: ops.ctc_loss([[1, 2], [2, 0]], x, [2, 1], [4, 3]), [logits], order=1)


def test_greedy_decoding():
    classes = np.array([[1, 1, 0, 1, 2, 2], [0, 2, 0, 0, 1, 1]])
    logits = np.eye(3)[classes] * 5
    labels, scores = ops.ctc_decode(logits, [6, 5])
    assert labels.tolist() == [[[1, 1, 2, -1, -1, -1], [2, 1, -1, -1, -1, -1]]]
    assert scores.tolist() == [[-30.0], [-25.0]]
    labels, _ = ops.ctc_decode(logits, [6, 5], merge_repeated=False)
    assert labels.tolist()[0][0] == [1, 1, 1, 2, 2, -1]


def test_beam_search_finds_the_likeliest_labels():
    logits = rng.normal(size=(2, 5, 3))
    labels, scores = ops.ctc_decode(logits, [5, 5], "beam_search", beam_width=200, top_paths=3)
    for row in range(2):
        best = sorted(probabilities(logits[row]).items(), key=lambda item: -item[1])[:3]
        for path, (expected, p) in enumerate(best):
            result = [c for c in labels.numpy()[path, row] if c >= 0]
            assert tuple(result) == expected
            assert scores.numpy()[row, path] == pytest.approx(np.log(p), rel=1e-5)


def test_errors():
    with pytest.raises(ShapeError, match="labels"):
        ops.ctc_loss([1], np.zeros((1, 2, 3)), [1], [2])
    with pytest.raises(ValueError, match="beam_search"):
        ops.ctc_decode(np.zeros((1, 2, 3)), [2], "best")


def test_vectorize():
    def powers(a, b, n=2):
        return ops.sum(a) * b, a**n

    f = ops.vectorize(powers, excluded={"n"}, signature="(k),()->(),(k)")
    a, b = rng.normal(size=(3, 1, 4)), rng.normal(size=2)
    first, second = f(a, b, n=3)
    np.testing.assert_allclose(first, a.sum(-1) * b)
    np.testing.assert_allclose(second, np.broadcast_to(a**3, (3, 2, 4)))
    with pytest.raises(ValueError, match="takes 2 arguments"):
        f(a)
    with pytest.raises(ValueError, match="no signature"):
        ops.vectorize(powers, signature="k->k")(a)
    assert ops.vectorize(lambda: 3)() == 3
