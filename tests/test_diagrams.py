"""Diagrams, and models as SVG without Graphviz."""

from __future__ import annotations

import shutil
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import kerasish
from kerasish import layers, utils
from kerasish.diagrams import Arrow, Box, ranks, to_svg

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def two_ways(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    a, b = kerasish.Input((3,), name="a"), kerasish.Input((3,), name="b<&>")
    inner = kerasish.Sequential([kerasish.Input((4,)), layers.Dense(5, name="deep")], name="inner")
    x = layers.Concatenate(name="both")([layers.Dense(2, name="one")(a), layers.Dense(2)(b)])
    return kerasish.Model([a, b], inner(x))


def drawn(path):
    root = ET.fromstring(path.read_text("utf-8"))
    texts = [t.text for t in root.iter(f"{SVG}text")]
    paths = [p for p in root.iter(f"{SVG}path") if p.get("marker-end")]
    return root, texts, paths


def test_a_model_is_drawn_without_graphviz(two_ways, tmp_path):
    file = tmp_path / "model.svg"
    utils.plot_model(two_ways, file, show_shapes=True, show_layer_names=True)
    _, texts, paths = drawn(file)
    assert "both (Concatenate)" in texts and "b<&> (InputLayer)" in texts
    assert "Output shape: (None, 4)" in texts
    assert len(paths) == 5


@pytest.mark.parametrize("rankdir", ["TB", "LR"])
def test_models_inside_are_opened_up_and_boxes_do_not_overlap(two_ways, tmp_path, rankdir):
    file = tmp_path / "model.svg"
    utils.plot_model(two_ways, file, show_layer_names=True, expand_nested=True, rankdir=rankdir)
    root, texts, _ = drawn(file)
    assert "deep (Dense)" in texts and not any("inner (" in t for t in texts)
    corners = []
    for rect in root.iter(f"{SVG}rect"):
        if rect.get("fill") == "white" and rect.get("x"):
            corners.append([float(rect.get(k)) for k in ("x", "y", "width", "height")])
    x, y, w, h = np.array(corners).T
    assert len(x) == 6 and (x >= 0).all() and (y >= 0).all()
    assert (x + w).max() <= float(root.get("width")) and (y + h).max() <= float(root.get("height"))
    for i in range(len(x)):
        for j in range(i):
            apart = x[i] + w[i] <= x[j] or x[j] + w[j] <= x[i]
            assert apart or y[i] + h[i] <= y[j] or y[j] + h[j] <= y[i]


def test_rows_go_down_the_arrows():
    boxes = [Box(n, ("x",)) for n in range(5)]
    arrows = [Arrow(*ends) for ends in [(0, 1), (1, 2), (0, 2), (3, 4)]]
    rows = [[b.number for b in row] for row in ranks(boxes, arrows)]
    assert rows == [[0, 3], [1, 4], [2]]
    assert to_svg([("", [])]).startswith("<svg")
