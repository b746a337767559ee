"""Models drawn as graphs: as SVG, in Graphviz's language, and where it is installed as pictures."""

from __future__ import annotations

import html
import os
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

from kerasish import tree
from kerasish.engine import Functional, KerasTensor, Layer, Model, Sequential
from kerasish.utils.layout import Box, to_svg


class Dot:
    """A graph in Graphviz's language.

    Args:
        lines: its statements, without the braces around them.
        kind: "digraph", or "subgraph" inside another graph.
        name: the graph's name.
        picture: the same as SVG, for machines without Graphviz.
    """

    def __init__(
        self, lines: list[str], kind: str = "digraph", name: str = "model", picture: str = ""
    ) -> None:
        self.lines, self.kind, self.name, self.picture = lines, kind, name, picture

    def to_string(self) -> str:
        """Return the text."""
        inside = "\n".join(f"  {line}" for line in self.lines)
        return f"{self.kind} {_quoted(self.name)} {{\n{inside}\n}}\n"

    def write(self, path: Any, format: str | None = None) -> None:
        """Write the text (.dot, .gv), or the picture that Graphviz's program `dot` makes of it.

        Without Graphviz an .svg file is laid out by kerasish.

        Raises:
            ImportError: another picture is wanted and Graphviz is not installed.
        """
        ending = format or os.path.splitext(os.fspath(path))[1].lstrip(".") or "png"
        if ending in ("dot", "gv", "raw"):
            with open(path, "w", encoding="utf-8") as file:
                file.write(self.to_string())
            return
        program = shutil.which("dot")
        if program is None and ending == "svg" and self.picture:
            with open(path, "w", encoding="utf-8") as file:
                file.write(self.picture)
            return
        if program is None:
            raise ImportError(
                f"A .{ending} file needs Graphviz's program `dot` (Debian, Ubuntu: apt install "
                "graphviz); .svg and .dot files need nothing."
            )
        command = [program, f"-T{ending}", "-o", os.fspath(path)]
        subprocess.run(command, input=self.to_string().encode(), check=True)


def model_to_dot(
    model: Any,
    show_shapes: bool = False,
    show_dtype: bool = False,
    show_layer_names: bool = True,
    rankdir: str = "TB",
    expand_nested: bool = False,
    dpi: int = 200,
    subgraph: bool = False,
    show_layer_activations: bool = False,
    show_trainable: bool = False,
    splines: str = "ortho",
    **kwargs: Any,
) -> Dot:
    """Return a model's layers and their connections as a graph.

    Args:
        model: a built model.
        show_shapes, show_dtype: whether to write the shapes and dtypes of inputs and outputs.
        show_layer_names: whether to write the layers' names beside their classes.
        rankdir: "TB" draws from top to bottom, "LR" from left to right.
        expand_nested: whether to draw what is inside models inside the model.
        dpi: dots an inch of the picture.
        subgraph: whether to return a cluster for another graph.
        show_layer_activations: whether to write the layers' activation functions.
        show_trainable: whether to write whether training changes a layer.
        splines: how Graphviz draws the arrows.
        kwargs: `layer_range`: [first, last] names of the layers to draw.

    Raises:
        ValueError: the model is not built yet, or layer_range names no layer.
    """
    layer_range = kwargs.pop("layer_range", None)
    if kwargs:
        raise TypeError(f"model_to_dot: unknown arguments {sorted(kwargs)}.")
    if not model.built:
        raise ValueError(f"model_to_dot: build {model.name!r} first, or call it on data.")
    options = {
        "shapes": show_shapes, "dtype": show_dtype, "names": show_layer_names,
        "nested": expand_nested, "activations": show_layer_activations,
        "trainable": show_trainable,
    }  # fmt: skip
    chosen = _chosen(model, layer_range)
    lines = [
        f"graph [rankdir={rankdir}, dpi={dpi}, splines={splines}];",
        'node [shape=plaintext, fontname="Helvetica"];',
        *_lines(model, options, chosen),
    ]
    if subgraph:
        lines[0] = f"label={_quoted(model.name)};"
        return Dot(lines, "subgraph", f"cluster_{model.name}")
    boxes, arrows = _boxes(model, options, chosen)
    return Dot(lines, picture=to_svg(boxes, arrows, rankdir == "LR"))


def plot_model(
    model: Any,
    to_file: Any = "model.png",
    show_shapes: bool = False,
    show_dtype: bool = False,
    show_layer_names: bool = False,
    rankdir: str = "TB",
    expand_nested: bool = False,
    dpi: int = 200,
    show_layer_activations: bool = False,
    show_trainable: bool = False,
    splines: str = "ortho",
    **kwargs: Any,
) -> None:
    """Draw a model into a file; see `model_to_dot`.

    Args:
        model: a built model.
        to_file: the file; .svg, .dot and .gv need nothing else, all other endings Graphviz's `dot`.
        show_shapes, show_dtype, show_layer_names, rankdir, expand_nested, dpi: as there.
        show_layer_activations, show_trainable, splines, kwargs: as there.
    """
    drawn = model_to_dot(
        model, show_shapes, show_dtype, show_layer_names, rankdir, expand_nested, dpi, False,
        show_layer_activations, show_trainable, splines, **kwargs,
    )  # fmt: skip
    drawn.write(to_file)


def _chosen(model: Any, layer_range: Any) -> set[int]:
    layers = list(_parts(model))
    if layer_range is None:
        return {id(layer) for layer in layers}
    names = [layer.name for layer in layers]
    missing = [name for name in layer_range if name not in names]
    if missing or len(layer_range) != 2:
        raise ValueError(f"layer_range: expected two of the layers {names}, got {layer_range}.")
    first, last = sorted(names.index(name) for name in layer_range)
    return {id(layer) for layer in layers[first : last + 1]}


def _parts(model: Any) -> Iterator[Any]:
    """Yield the layers of a model, and the ops of a functional one, in order."""
    yield from model.operations if _is_graph(model) else model.layers


def _is_graph(model: Any) -> bool:
    return isinstance(model, Functional) or (
        isinstance(model, Model) and not isinstance(model, Sequential) and bool(model.operations)
    )


def _lines(model: Any, options: dict[str, Any], chosen: set[int]) -> list[str]:
    lines = []
    for part in _parts(model):
        if id(part) not in chosen:
            continue
        if options["nested"] and isinstance(part, Model):
            inner = _lines(part, options, {id(p) for p in _parts(part)})
            lines.append(f"subgraph {_quoted(f'cluster_{part.name}')} {{")
            lines += [f"  label={_quoted(part.name)};", *(f"  {line}" for line in inner), "}"]
        else:
            lines.append(f"{_id(part)} [label=<{_table(part, options)}>];")
    for source, target in _ends(model, options, chosen):
        lines.append(f"{_id(source)} -> {_id(target)};")
    return lines


def _ends(model: Any, options: dict[str, Any], chosen: set[int]) -> list[tuple[Any, Any]]:
    """Return the layers at both ends of each arrow."""
    return [
        (_edge(source, options, -1), _edge(target, options, 0))
        for source, target in _arrows(model)
        if id(source) in chosen and id(target) in chosen
    ]


def _boxes(
    model: Any, options: dict[str, Any], chosen: set[int]
) -> tuple[list[Box], list[tuple[int, int]]]:
    """Return a model's boxes and arrows, models inside it opened up if they are to be."""
    boxes: list[Box] = []
    arrows = [(id(a), id(b)) for a, b in _ends(model, options, chosen)]
    for part in _parts(model):
        if id(part) not in chosen:
            continue
        if options["nested"] and isinstance(part, Model):
            inner = _boxes(part, options, {id(p) for p in _parts(part)})
            boxes, arrows = boxes + inner[0], arrows + inner[1]
        else:
            boxes.append(Box(id(part), tuple(_texts(part, options))))
    return boxes, arrows


def _edge(part: Any, options: dict[str, Any], index: int) -> Any:
    """Return the layer at which arrows to (0) or from (-1) a part end: inside expanded models."""
    while options["nested"] and isinstance(part, Model) and list(_parts(part)):
        part = list(_parts(part))[index]
    return part


def _arrows(model: Any) -> list[tuple[Any, Any]]:
    if not _is_graph(model):
        layers = list(_parts(model)) if isinstance(model, Sequential) else []
        return list(zip(layers, layers[1:]))
    inside = {id(part) for part in _parts(model)}
    found: dict[tuple[int, int], tuple[Any, Any]] = {}
    for part in _parts(model):
        for node in part._inbound_nodes:
            for t in tree.flatten((node.args, node.kwargs)):
                if not isinstance(t, KerasTensor) or t._keras_history is None:
                    continue
                source = t._keras_history.operation
                if id(source) in inside:
                    found[id(source), id(part)] = (source, part)
    return list(found.values())


def _table(part: Any, options: dict[str, Any]) -> str:
    title, *texts = _texts(part, options)
    rows = [f'<tr><td bgcolor="#e8eef7"><b>{html.escape(title)}</b></td></tr>']
    for text in texts:
        name, _, value = text.partition(": ")
        rows.append(f"<tr><td>{name}: <b>{html.escape(value)}</b></td></tr>")
    return f'<table border="0" cellborder="1" cellspacing="0">{"".join(rows)}</table>'


def _texts(part: Any, options: dict[str, Any]) -> list[str]:
    """Return the title of a layer's box, and what stands below it."""
    kind = type(part).__name__
    texts = [f"{part.name} ({kind})" if options["names"] else kind]
    activation = getattr(part, "activation", None)
    if options["activations"] and activation is not None:
        name = getattr(activation, "__name__", type(activation).__name__)
        texts.append(f"Activation: {name}")
    if options["shapes"]:
        texts.append(f"Input shape: {_described(part, 'input', 'shape')}")
        texts.append(f"Output shape: {_described(part, 'output', 'shape')}")
    if options["dtype"]:
        texts.append(f"Output dtype: {_described(part, 'output', 'dtype')}")
    if options["trainable"] and isinstance(part, Layer):
        texts.append(f"Trainable: {bool(part.trainable)}")
    return texts


def _described(part: Any, side: str, what: str) -> str:
    """Return the shapes or dtypes on one side of a layer, those of its first call."""
    if not part._inbound_nodes:
        return "?"
    node = part._inbound_nodes[0]
    given = node.outputs if side == "output" else (node.args, node.kwargs)
    tensors = [t for t in tree.flatten(given) if isinstance(t, KerasTensor)]
    return ", ".join(str(getattr(t, what)) for t in tensors) or "-"


def _id(part: Any) -> str:
    return str(id(part))


def _quoted(text: str) -> str:
    return '"' + text.replace('"', "'") + '"'
