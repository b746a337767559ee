"""Pictures of graphs name what is in them and parse."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from graph_examples import mlp_step

import kerasish
from kerasish import layers
from kerasish.graph.draw import write_picture
from kerasish.graph.passes import optimize
from kerasish.graph.passes.fuse import fuse_loops
from kerasish.graph.trace import trace


def test_dot_and_svg(tmp_path):
    step, arguments = mlp_step()
    graph = fuse_loops(optimize(trace(step, *arguments).graph))
    for ending in ("dot", "svg"):
        write_picture([("one", graph), ("two", graph)], str(tmp_path / f"graph.{ending}"))
    dot = (tmp_path / "graph.dot").read_text("utf-8")
    assert dot.count("matmul") == 10
    assert dot.startswith("digraph") and 'subgraph "cluster_two"' in dot
    numbers = re.findall(r"^ +(\d+) \[", dot, re.MULTILINE)
    assert len(numbers) == len(set(numbers)) > 20
    root = ElementTree.fromstring((tmp_path / "graph.svg").read_text("utf-8"))
    texts = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("matmul") == 10 and {"one", "two"} <= set(texts)


def test_model_draws_before_and_after(tmp_path):
    kerasish.config.set_backend("static")
    model = kerasish.Sequential([layers.Input((3,)), layers.Dense(2)])
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match="first"):
        model.plot_graph(str(tmp_path / "none.svg"))
    model.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)
    model.plot_graph(str(tmp_path / "graph.svg"))
    model.plot_graph(str(tmp_path / "graph.dot"))
    text = (tmp_path / "graph.svg").read_text()
    assert "traced" in text
    assert "fused" in text
    ElementTree.fromstring(text)
    report = model.memory_report()["train"]
    assert 0 < report["planned"] <= report["unshared"]


def test_other_suffix(tmp_path):
    with pytest.raises(ValueError, match="svg"):
        write_picture([], str(tmp_path / "graph.bmp"))
