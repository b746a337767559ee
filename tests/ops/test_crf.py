"""Conditional random fields against the sums and maxima over all sequences of tags."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kerasish import autodiff, backends
from kerasish.ops.networks import crf
from kerasish.tensor import Tensor

N, STEPS, KINDS = 5, 4, 3
MASKS = {
    "all": None,
    "right": [[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]],
    "left": [[1, 1, 1, 1], [0, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1], [0, 0, 0, 0]],
    "holes": [[1, 0, 1, 1], [0, 1, 0, 1], [1, 0, 0, 1], [0, 1, 1, 0], [1, 1, 0, 1]],
}


def numbers():
    rng = np.random.default_rng(1)
    return (
        rng.normal(size=(N, STEPS, KINDS)), rng.normal(size=(KINDS, KINDS)),
        rng.normal(size=KINDS), rng.normal(size=KINDS),
    )  # fmt: skip


def by_force(mask, edges):
    """Return, for each row, {tags at the steps that count: score}."""
    x, between, start, end = numbers()
    counts = np.ones((N, STEPS), int) if mask is None else np.array(mask)
    result = []
    for row in range(N):
        steps = np.flatnonzero(counts[row])
        scores = {}
        for tags in itertools.product(range(KINDS), repeat=len(steps)):
            score = sum(x[row, s, t] for s, t in zip(steps, tags))
            score += sum(between[a, b] for a, b in zip(tags, tags[1:]))
            if edges and len(tags):
                score += start[tags[0]] + end[tags[-1]]
            scores[tags] = score
        result.append((steps, scores))
    return result


@pytest.fixture(params=["eager", "static"])
def run(request):
    if request.param == "eager":
        return lambda f, *args: f(*args)
    return lambda f, *args: backends.get("static").compile(f)(*args)


@pytest.mark.parametrize("edges", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_against_all_paths(mask, edges, run):
    x, between, start, end = (Tensor(v) for v in numbers())
    given = MASKS[mask]
    count = None if given is None else Tensor(np.array(given) == 1)
    rest = (start, end) if edges else (None, None)
    gold = Tensor(np.random.default_rng(2).integers(0, KINDS, (N, STEPS)).astype("int32"))

    def everything(x, between):
        tags, best = crf.crf_decode(x, between, count, *rest)
        norm = crf.crf_log_norm(x, between, count, *rest)
        return norm, tags, best, crf.crf_log_likelihood(x, gold, between, count, *rest)

    norm, tags, best, likelihood = (np.asarray(v) for v in run(everything, x, between))
    for row, (steps, scores) in enumerate(by_force(given, edges)):
        values = np.array(list(scores.values()))
        total = np.log(np.exp(values).sum())
        assert norm[row] == pytest.approx(total)
        assert best[row] == pytest.approx(values.max())
        assert scores[tuple(tags[row, steps].tolist())] == pytest.approx(values.max())
        assert not tags[row, np.setdiff1d(np.arange(STEPS), steps)].any()
        chosen = scores[tuple(np.asarray(gold)[row, steps].tolist())]
        assert likelihood[row] == pytest.approx(chosen - total)


def test_gradients_are_marginals():
    """d log Z / d potentials are the probabilities of the tags."""
    x, between, *_ = (Tensor(v) for v in numbers())
    slopes = autodiff.grad(lambda x: crf.crf_log_norm(x, between).sum())(x)
    for row, (_, scores) in enumerate(by_force(None, False)):
        values = np.array(list(scores.values()))
        share = np.exp(values) / np.exp(values).sum()
        for step in range(STEPS):
            for tag in range(KINDS):
                chosen = [t[step] == tag for t in scores]
                assert np.asarray(slopes)[row, step, tag] == pytest.approx(share[chosen].sum())


def test_shapes_that_do_not_fit():
    with pytest.raises(ValueError, match=r"\(tags, tags\)"):
        crf.crf_log_norm(np.zeros((2, 3, 4)), np.zeros((3, 3)))
    with pytest.raises(ValueError, match=r"mask must have the shape \(2, 3\)"):
        crf.crf_decode(np.zeros((2, 3, 4)), np.zeros((4, 4)), np.ones((2, 2)))
    with pytest.raises(ValueError, match=r"tags must have the shape \(2, 3\)"):
        crf.crf_score(np.zeros((2, 3, 4)), np.zeros((2, 2)), np.zeros((4, 4)))
