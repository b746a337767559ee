"""Models drawn as graphs: as SVG, in Graphviz's language, and where it is installed as pictures."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

from kerasish import tree
from kerasish.diagrams import BOXES, Arrow, Box, Cluster, Part, cluster_dot, quoted, to_dot, to_svg
from kerasish.engine import Functional, KerasTensor, Layer, Model, Sequential
from kerasish.engine.layer.interface import LayerLike
from kerasish.reprs import arguments_repr
from kerasish.typing import PathLike


class Dot:
    """A graph in Graphviz's language.

    Args:
        parts: its boxes, arrows and clusters.
        settings: attributes of the whole graph; None: it is a cluster for another graph.
        name: the graph's name.
    """

    def __init__(self, parts: list[Part], settings: dict[str, Any] | None, name: str) -> None:
        self.parts, self.settings, self.name = parts, settings, name

    def to_string(self) -> str:
        """Return the text."""
        if self.settings is None:
            return "\n".join(cluster_dot(Cluster(self.name, self.parts))) + "\n"
        return to_dot(self.name, self.parts, self.settings)

    def write(self, path: PathLike, format: str | None = None) -> None:
        """Write the text (.dot, .gv), or the picture that Graphviz's program `dot` makes of it.

        An .svg file is laid out by kerasish.

        Raises:
            ImportError: another picture is requested and Graphviz is not installed.
        """
        result = self.create(format=format or _ending(path))
        with open(path, "wb") as file:
            file.write(result)

    def create(self, prog: str | None = None, format: str = "svg") -> bytes:
        """Return what `write` would write, as bytes.

        Args:
            prog: the Graphviz program that lays it out; None: "dot". "svg" needs none.
        """
        if format in _TEXT:
            return self.to_string().encode()
        if format == "svg":
            return to_svg([("", self.parts)], (self.settings or {}).get("rankdir") == "LR").encode()
        program = shutil.which(prog or "dot")
        if program is None:
            raise ImportError(
                f"A .{format} file needs Graphviz's program `{prog or 'dot'}` (Debian, Ubuntu: apt "
                'install graphviz). Nothing is needed for to_file="model.svg" or "model.dot", and '
                "for to_file=None, which draws only in notebooks."
            )
        command = [program, f"-T{format}"]
        done = subprocess.run(command, input=self.to_string().encode(), check=True, stdout=-1)
        return done.stdout

    __repr__ = arguments_repr

    def _repr_svg_(self) -> str:
        return self.create().decode()


_TEXT = ("dot", "gv", "raw")


def _ending(path: PathLike) -> str:
    return os.path.splitext(os.fspath(path))[1].lstrip(".") or "png"


def _with_pydot(diagram: Dot) -> Any:
    """Return the graph as one of pydot's, or as it is where pydot is not installed."""
    try:
        pydot = importlib.import_module("pydot")
    except ImportError:
        return diagram
    if diagram.settings is None:
        graph = _cluster(pydot, diagram.name)
    else:
        graph = pydot.Dot(quoted(diagram.name), graph_type="digraph", **diagram.settings)
        graph.set_node_defaults(**BOXES)
    _add(graph, diagram.parts, pydot)
    return graph


def _add(graph: Any, parts: list[Part], pydot: Any) -> None:
    for part in parts:
        if isinstance(part, Arrow):
            graph.add_edge(pydot.Edge(str(part.start), str(part.end)))
        elif isinstance(part, Box):
            graph.add_node(pydot.Node(str(part.number), label=f"<{part.table()}>"))
        else:
            inner = _cluster(pydot, part.name)
            _add(inner, part.parts, pydot)
            graph.add_subgraph(inner)


def _cluster(pydot: Any, name: str) -> Any:
    result = pydot.Cluster(name, label=quoted(name))
    result.set_name(quoted(f"cluster_{name}"))  # names of models may hold what words may not
    return result


def model_to_dot(
    model: Model,
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
    """Return a model's layers and their connections as a graph: pydot's, where it is installed.

    Else one that has the same `to_string`, `write` and `create`.

    Args:
        model: a built model.
        show_shapes, show_dtype: whether to write the shapes and dtypes of inputs and outputs.
        show_layer_names: whether to write the layers' names next to their classes.
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

    Example:
        >>> import kerasish
        >>> layer = kerasish.layers.Dense(1, name="score")
        >>> model = kerasish.Sequential([kerasish.Input((4,)), layer])
        >>> "score" in model_to_dot(model).to_string()
        True
    """
    return _with_pydot(
        _dot(
            model, show_shapes, show_dtype, show_layer_names, rankdir, expand_nested, dpi, subgraph,
            show_layer_activations, show_trainable, splines, **kwargs,
        )
    )  # fmt: skip


def _dot(
    model: Model, show_shapes: bool, show_dtype: bool, show_layer_names: bool, rankdir: str,
    expand_nested: bool, dpi: int, subgraph: bool, show_layer_activations: bool,
    show_trainable: bool, splines: str, **kwargs: Any,
) -> Dot:  # fmt: skip
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
    parts = _parts_of(model, options, chosen)
    if subgraph:
        return Dot(parts, None, model.name)
    return Dot(parts, {"rankdir": rankdir, "dpi": dpi, "splines": splines}, "model")


def plot_model(
    model: Model,
    to_file: PathLike | None = "model.png",
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
) -> Dot:
    """Draw a model into a file, and return the drawing, which notebooks show; see `model_to_dot`.

    Args:
        model: a built model.
        to_file: the file; .svg, .dot and .gv need nothing else, all other endings Graphviz's
            `dot`. None: no file.
        show_shapes, show_dtype, show_layer_names, rankdir, expand_nested, dpi: as there.
        show_layer_activations, show_trainable, splines, kwargs: as there.

    Example:
        >>> import kerasish, os, tempfile
        >>> model = kerasish.Sequential([kerasish.Input((3,)), kerasish.layers.Dense(2)])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     drawn = plot_model(model, os.path.join(folder, "model.svg"), show_shapes=True)
        ...     print(os.listdir(folder))
        ['model.svg']

    Returns:
        The drawing, with `_repr_svg_`.

    Raises:
        ValueError: the model is not built yet.
        ImportError: the file needs Graphviz, which is not installed.
    """
    drawn = _dot(
        model, show_shapes, show_dtype, show_layer_names, rankdir, expand_nested, dpi, False,
        show_layer_activations, show_trainable, splines, **kwargs,
    )  # fmt: skip
    if to_file is not None:
        drawn.write(os.fspath(to_file), format=_ending(to_file))
    return drawn


def _chosen(model: Model, layer_range: Sequence[str] | None) -> set[int]:
    layers = list(_parts(model))
    if layer_range is None:
        return {id(layer) for layer in layers}
    names = [layer.name for layer in layers]
    missing = [name for name in layer_range if name not in names]
    if missing or len(layer_range) != 2:
        raise ValueError(f"layer_range: expected two of the layers {names}, got {layer_range}.")
    first, last = sorted(names.index(name) for name in layer_range)
    return {id(layer) for layer in layers[first : last + 1]}


def _parts(model: Model) -> Iterator[Any]:
    """Yield the layers of a model, and the ops of a functional one, in order."""
    yield from model.operations if _is_graph(model) else model.layers


def _is_graph(model: Model) -> bool:
    return isinstance(model, Functional) or (
        isinstance(model, Model) and not isinstance(model, Sequential) and bool(model.operations)
    )


def _parts_of(model: Model, options: dict[str, Any], chosen: set[int]) -> list[Part]:
    results: list[Part] = []
    for part in _parts(model):
        if id(part) not in chosen:
            continue
        if options["nested"] and isinstance(part, Model):
            inner = _parts_of(part, options, {id(p) for p in _parts(part)})
            results.append(Cluster(part.name, inner))
        else:
            results.append(Box(id(part), tuple(_texts(part, options))))
    return [*results, *(Arrow(id(a), id(b)) for a, b in _ends(model, options, chosen))]


def _ends(model: Model, options: dict[str, Any], chosen: set[int]) -> list[tuple[Any, Any]]:
    """Return the layers at both ends of each arrow."""
    return [
        (_edge(source, options, -1), _edge(target, options, 0))
        for source, target in _arrows(model)
        if id(source) in chosen and id(target) in chosen
    ]


def _edge(part: Any, options: dict[str, Any], index: int) -> Any:
    """Return the layer at which arrows to (0) or from (-1) a part end: inside expanded models."""
    while options["nested"] and isinstance(part, Model) and list(_parts(part)):
        part = list(_parts(part))[index]
    return part


def _arrows(model: Model) -> list[tuple[Any, Any]]:
    if not _is_graph(model):
        layers = list(_parts(model)) if isinstance(model, Sequential) else []
        return list(zip(layers, layers[1:]))
    inside = {id(part) for part in _parts(model)}
    results: dict[tuple[int, int], tuple[Any, Any]] = {}
    for part in _parts(model):
        for node in part.inbound_nodes:
            for t in tree.flatten((node.args, node.kwargs)):
                if not isinstance(t, KerasTensor) or t.history is None:
                    continue
                source = t.history.operation
                if id(source) in inside:
                    results[id(source), id(part)] = (source, part)
    return list(results.values())


def _texts(part: Any, options: dict[str, Any]) -> list[str]:
    """Return the title of a layer's box, and the text below it."""
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


def _described(part: LayerLike, side: str, what: str) -> str:
    """Return the shapes or dtypes on one side of a layer, those of its first call."""
    if not part.inbound_nodes:
        return "?"
    node = part.inbound_nodes[0]
    given = node.outputs if side == "output" else (node.args, node.kwargs)
    tensors = [t for t in tree.flatten(given) if isinstance(t, KerasTensor)]
    return ", ".join(str(getattr(t, what)) for t in tensors) or "-"
