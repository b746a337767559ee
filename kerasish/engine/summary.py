"""The table that `model.summary()` prints."""

from __future__ import annotations

import re
import shutil
from typing import Any

import numpy as np

from kerasish import tree
from kerasish.engine.functional import InputLayer
from kerasish.ops import dtypes


def _shape_text(layer: Any) -> str:
    try:
        if isinstance(layer, InputLayer):
            return str(layer.batch_shape)
        shape = tree.map_structure(lambda t: t.shape, layer.output)
    except (ValueError, AttributeError):
        nodes = getattr(layer, "_inbound_nodes", [])
        if not nodes:
            return "?" if not layer.built else "(built)"
        shape = tree.map_structure(lambda t: t.shape, nodes[0].outputs)
    return _plain(shape)


def _plain(shape: Any) -> str:
    if tree.is_shape(shape):
        return str(tuple(shape))
    if isinstance(shape, dict):
        return ", ".join(f"{k}: {_plain(v)}" for k, v in shape.items())
    return ", ".join(_plain(s) for s in shape)


def count(variables: Any) -> int:
    """Return the number of elements of some variables."""
    return sum(int(np.prod(v.shape)) for v in {id(v): v for v in variables}.values())


def size_text(variables: Any) -> str:
    """Return the memory of some variables in B, KB, MB or GB (1024 each)."""
    unique = {id(v): v for v in variables}.values()
    total = float(
        sum(np.prod(v.shape) * dtypes.array_dtype(v._leaf.dtype).itemsize for v in unique)
    )
    for unit in ("B", "KB", "MB", "GB"):
        if total < 1024 or unit == "GB":
            break
        total /= 1024
    return f"{total:.2f} {unit}"


def _connections(layer: Any) -> str:
    names = []
    for node in getattr(layer, "_inbound_nodes", []):
        for t in node.inputs:
            history = t._keras_history
            names.append(f"{history.operation.name}[{history.node_index}][{history.tensor_index}]")
    return ", ".join(names) or "-"


def _is_chain(model: Any) -> bool:
    if getattr(model, "_is_sequential", False) or model._graph is None:
        return True
    uses = [len(o._inbound_nodes) for o in model._graph.operations]
    many = any(len(n.inputs) > 1 for n in model._graph.nodes)
    return not many and len(model.outputs) == 1 and len(model.inputs) == 1 and max(uses) == 1


def _rows(
    layers: Any, chain: bool, expand: bool, show_trainable: bool, indent: str = ""
) -> list[list[str]]:
    rows = []
    for layer in layers:
        cells = [
            f"{indent}{layer.name} ({getattr(layer, 'class_name', type(layer).__name__)})",
            _shape_text(layer),
        ]
        if not hasattr(layer, "weights"):
            cells.append("0")
        elif layer.built or layer.weights:
            cells.append(f"{count(layer.weights):,}")
        else:
            cells.append("0 (unbuilt)")
        if not chain:
            cells.append(_connections(layer))
        if show_trainable:
            own = getattr(layer, "weights", [])
            cells.append("-" if not own else "Y" if getattr(layer, "trainable", True) else "N")
        rows.append(cells)
        if expand and hasattr(layer, "layers"):
            rows.extend(_rows(layer.layers, chain, expand, show_trainable, indent + "  └ "))
    return rows


def _wrap(text: str, width: int) -> list[str]:
    parts = []
    while len(text) > width:
        cut = text.rfind(" ", 0, width + 1)
        cut = cut if cut > width // 2 else width
        parts.append(text[:cut].rstrip())
        text = text[cut:].lstrip()
    return [*parts, text]


def _table(titles: list[str], rows: list[list[str]], line_length: int) -> list[str]:
    free = line_length - 3 * len(titles) - 1
    need = [max(len(r[i]) for r in [titles, *rows]) for i in range(len(titles))]
    if sum(need) <= free:
        extra = free - sum(need)
        widths = [n + extra // len(need) for n in need]
    else:
        widths = [max(8, n * free // sum(need)) for n in need]

    def rule(left: str, middle: str, right: str, dash: str) -> str:
        return left + middle.join(dash * (w + 2) for w in widths) + right

    def lines(cells: list[str], bar: str) -> list[str]:
        wrapped = [_wrap(c, w) for c, w in zip(cells, widths)]
        height = max(map(len, wrapped))
        filled = [w + [""] * (height - len(w)) for w in wrapped]
        numeric = titles.index("Param #")
        out = []
        for row in zip(*filled):
            cells_ = [
                c.rjust(w) if i == numeric else c.ljust(w)
                for i, (c, w) in enumerate(zip(row, widths))
            ]
            out.append(f"{bar} " + f" {bar} ".join(cells_) + f" {bar}")
        return out

    text = [rule("┏", "┳", "┓", "━"), *lines(titles, "┃"), rule("┡", "╇", "┩", "━")]
    for i, row in enumerate(rows):
        text.extend(lines(row, "│"))
        text.append(rule("├", "┼", "┤", "─") if i + 1 < len(rows) else rule("└", "┴", "┘", "─"))
    return text


def _range(layers: list[Any], layer_range: Any) -> list[Any]:
    if layer_range is None:
        return layers
    if len(layer_range) != 2:
        raise ValueError(f"summary: layer_range is (first, last), got {layer_range!r}.")
    found = []
    for pattern in layer_range:
        hits = [i for i, layer in enumerate(layers) if re.match(pattern, layer.name)]
        if not hits:
            raise ValueError(f"summary: no layer's name matches {pattern!r}.")
        found.append(hits)
    return layers[min(found[0]) : max(found[1]) + 1]


def print_summary(
    model: Any,
    line_length: int | None = None,
    positions: Any = None,
    print_fn: Any = None,
    expand_nested: bool = False,
    show_trainable: bool = False,
    layer_range: Any = None,
) -> None:
    """Print the table of a model's layers; see `Model.summary`."""
    if line_length is None:
        line_length = max(60, min(100, shutil.get_terminal_size((88, 24)).columns - 2))
    chain = _is_chain(model)
    titles = ["Layer (type)", "Output Shape", "Param #"]
    titles += [] if chain else ["Connected to"]
    titles += ["Trainable"] if show_trainable else []
    layers = model._graph.operations if model._graph is not None and not chain else model.layers
    layers = _range(list(layers), layer_range)
    rows = _rows(layers, chain, expand_nested, show_trainable)
    text = [f'Model: "{model.name}"', *_table(titles, rows, line_length)]
    train, rest = model.trainable_weights, model.non_trainable_weights
    every = [*train, *rest]
    parts = [("Total params", every), ("Trainable params", train), ("Non-trainable params", rest)]
    optimizer = getattr(model, "optimizer", None)
    slots = list(getattr(optimizer, "variables", [])) if optimizer is not None else []
    if slots:
        parts[0] = ("Total params", [*every, *slots])
        parts.append(("Optimizer params", slots))
    text += [f" {name}: {count(v):,} ({size_text(v)})" for name, v in parts]
    (print_fn or print)("\n".join(text))
