"""Every pass on every example: sound graphs, equal numbers, nothing left to do the second time."""

from __future__ import annotations

import numpy as np
import pytest
from graph_examples import EXAMPLES, mlp_step

from kerasish.graph.interpret import interpret
from kerasish.graph.ir import verify
from kerasish.graph.passes import FUSION_PASSES, LEVELS, PASSES, gather, optimize
from kerasish.graph.trace import trace

EVERY = list(dict.fromkeys((*PASSES, *FUSION_PASSES)))


def graphs():
    for name, (function, arguments) in EXAMPLES.items():
        yield pytest.param(trace(function, *arguments).graph, arguments, id=name)
    step, arguments = mlp_step()
    traced = trace(step, *arguments)
    yield pytest.param(
        traced.graph, (*arguments, *(v.numpy() for v in traced.variables)), id="mlp_step"
    )


def assert_equal_numbers(before, after, arguments):
    for a, b in zip(interpret(before, arguments), interpret(after, arguments), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("step", EVERY, ids=lambda f: f.__name__)
@pytest.mark.parametrize(("graph", "arguments"), [*graphs()])
def test_pass(step, graph, arguments):
    after = verify(step(graph))
    assert_equal_numbers(graph, after, arguments)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("graph", "arguments"), [*graphs()])
def test_level(level, graph, arguments):
    after = verify(optimize(graph, level))
    assert_equal_numbers(graph, after, arguments)
    if level == "fast_run":
        assert str(optimize(after, level)) == str(after)


@pytest.mark.parametrize(("graph", "arguments"), [*graphs()])
def test_fused_after_everything(graph, arguments):
    assert_equal_numbers(graph, verify(gather(optimize(graph))), arguments)


def test_unknown_level():
    with pytest.raises(ValueError, match="fast_run"):
        optimize(trace(lambda x: x, np.ones(1, "float32")).graph, "fastest")
