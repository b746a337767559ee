"""Tracing: what a function did becomes a graph that computes the same."""

from __future__ import annotations

import numpy as np
import pytest
from graph_examples import EXAMPLES, mlp_step

from kerasish import ops
from kerasish.errors import TraceError
from kerasish.graph.interpret import interpret
from kerasish.graph.ir import Graph, GraphError, Node, Value, verify
from kerasish.graph.trace import TensorRef, trace
from kerasish.ops.op import REGISTRY
from kerasish.tensor import Variable


@pytest.mark.parametrize("name", EXAMPLES)
def test_interpreted_trace_equals_call(name):
    function, arguments = EXAMPLES[name]
    traced = trace(function, *arguments)
    verify(traced.graph)
    expected = function(*arguments)
    many = expected if isinstance(expected, tuple) else (expected,)
    for got, want in zip(interpret(traced.graph, arguments), many, strict=True):
        np.testing.assert_array_equal(got, want.numpy())


def test_variables_become_inputs_and_assignments_outputs():
    step, arguments = mlp_step()
    traced = trace(step, *arguments)
    assert traced.arguments == 2
    assert len(traced.variables) == len(traced.updated) == 3
    before = [v.numpy().copy() for v in traced.variables]
    result = interpret(traced.graph, [*arguments, *before])
    for v, array in zip(traced.variables, before, strict=True):
        np.testing.assert_array_equal(v.numpy(), array)  # tracing assigns nothing
    loss = step(*arguments)
    # The call computes composed functions by one kernel, which rounds in another way.
    np.testing.assert_allclose(result[0], loss.numpy(), rtol=1e-6)
    for v, new in zip(traced.updated, result[1:], strict=True):
        np.testing.assert_allclose(new, v.numpy(), rtol=1e-6)


def test_assigned_value_is_read_back():
    v = Variable(1.0)

    def step(x):
        v.assign(x)
        return v.value * 2.0

    traced = trace(step, np.float32(3.0) * np.ones((), "float32"))
    assert [n.op.name for n in traced.graph.nodes] == ["multiply"]
    assert traced.variables == ()


def test_structure_of_results_is_kept():
    traced = trace(lambda x: {"a": x, "b": (x + 1, "text", 3)}, np.ones(2, "float32"))
    assert isinstance(traced.structure["a"], TensorRef)
    assert traced.structure["b"][1:] == ("text", 3)


def test_python_branch_names_line_and_way_out():
    def branches(x):
        if ops.sum(x) > 0:
            return x
        return -x

    with pytest.raises(TraceError, match=r"test_trace\.py:\d+.*ops\.cond"):
        trace(branches, np.ones(3, "float32"))


def test_numpy_on_a_traced_tensor_raises():
    with pytest.raises(TraceError, match="no numbers yet"):
        trace(lambda x: np.asarray(x + 1), np.ones(3, "float32"))


def test_variable_made_while_tracing_raises():
    with pytest.raises(TraceError, match="build"):
        trace(lambda x: Variable(x * 2), np.ones(3, "float32"))


def test_leaked_tensor_raises_afterwards():
    kept = []
    trace(lambda x: kept.append(x * 2), np.ones(3, "float32"))
    with pytest.raises(RuntimeError, match="finished trace"):
        ops.add(kept[0], 1.0)


def test_verify_finds_broken_graphs():
    x, y = Value((2,), "float32"), Value((2,), "float32")
    add = REGISTRY["add"]
    with pytest.raises(GraphError, match="before it is computed"):
        verify(Graph([x], {}, [Node(add, [x, y], {}, [Value((2,), "float32")])], []))
    with pytest.raises(GraphError, match="shape rule"):
        verify(Graph([x, y], {}, [Node(add, [x, y], {}, [Value((3,), "float32")])], []))
    with pytest.raises(GraphError, match="never computed"):
        verify(Graph([x], {}, [], [y]))


def test_graph_prints_readably():
    text = str(trace(lambda x: ops.sum(x + 1.0), np.ones((2, 3), "float32")).graph)
    assert text.splitlines() == [
        "graph(%0: f32[2,3])",
        "  %1: f32[] = constant 1.",
        "  %2: f32[2,3] = add(%0, %1)",
        "  %3: f32[] = reduce_sum(%2; axis=(0, 1), keepdims=False)",
        "  return %3",
    ]
