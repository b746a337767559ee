"""The table that `model.summary()` prints."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kerasish import tree
from kerasish.engine.functional.input_layer import InputLayer
from kerasish.engine.layer.operation import to_specs
from kerasish.graph.work import count_flops, specs_of
from kerasish.ops import dtypes
from kerasish.ops.shapes import Spec
from kerasish.tables import Style, html_table, plain_style, terminal_style
from kerasish.typing import Shape, Structure

if TYPE_CHECKING:
    from kerasish.engine.layer.interface import LayerLike
    from kerasish.engine.model.model import Model


def _shape_text(layer: LayerLike) -> str:
    try:
        if isinstance(layer, InputLayer):
            return str(layer.batch_shape)
        shape = tree.map_structure(lambda t: t.shape, layer.output)
    except (ValueError, AttributeError):
        nodes = layer.inbound_nodes
        if not nodes:
            return "?" if not layer.built else "(built)"
        shape = tree.map_structure(lambda t: t.shape, nodes[0].outputs)
    return _plain(shape)


def _plain(shape: Shape) -> str:
    if tree.is_shape(shape):
        return str(tuple(shape))
    if isinstance(shape, dict):
        return ", ".join(f"{k}: {_plain(v)}" for k, v in shape.items())
    return ", ".join(_plain(s) for s in shape)


def count(variables: Sequence[Any]) -> int:
    """Return the number of elements of some variables."""
    return sum(int(np.prod(v.shape)) for v in {id(v): v for v in variables}.values())


def size_text(variables: Sequence[Any]) -> str:
    """Return the memory of some variables in B, KB, MB or GB (1024 each)."""
    unique = {id(v): v for v in variables}.values()
    total = float(
        sum(np.prod(v.shape) * dtypes.array_dtype(v.stored_dtype).itemsize for v in unique)
    )
    for unit in ("B", "KB", "MB", "GB"):
        if total < 1024 or unit == "GB":
            break
        total /= 1024
    return f"{total:.2f} {unit}"


def _connections(layer: LayerLike) -> str:
    names = []
    for node in layer.inbound_nodes:
        for t in node.inputs:
            if t.history is not None:
                operation, node_index, tensor_index = t.history
                names.append(f"{operation.name}[{node_index}][{tensor_index}]")
    return ", ".join(names) or "-"


def work_of(layer: LayerLike, graph: Any, batch_size: int) -> tuple[int, int] | None:
    """Return (FLOPs, values) of a layer's calls on a batch; None where sizes are not known."""
    calls = [n for n in graph.nodes if n.operation is layer] if graph is not None else []
    calls = calls or list(layer.inbound_nodes)[:1]
    if isinstance(layer, InputLayer) or not calls:
        return None
    flops = values = 0
    for node in calls:
        specs = to_specs((node.args, node.kwargs))
        args, kwargs = _with_batch(specs, batch_size)
        if any(None in spec.shape for spec in specs_of((args, kwargs))):
            return None
        result = count_flops(layer, args, kwargs)
        flops, values = flops + result[0], values + result[1]
    return flops, values


def _with_batch(structure: Structure, batch_size: int) -> Any:
    def sized(x: Any) -> Any:
        if not isinstance(x, Spec) or not x.shape or x.shape[0] is not None:
            return x
        return Spec((batch_size, *x.shape[1:]), x.dtype)

    return tree.map_plain(sized, structure)


def _short(number: float, unit: str, step: int = 1000) -> str:
    """Return a number with a thousand's prefix.

    Example:
        >>> _short(1234567, "FLOPs"), _short(2048, "B", 1024)
        ('1.23 MFLOPs', '2.00 KB')
    """
    for prefix in ("", "K", "M", "G", "T"):
        if number < step or prefix == "T":
            break
        number /= step
    return f"{number:.0f} {unit}" if not prefix else f"{number:.2f} {prefix}{unit}"


def _is_chain(model: Model) -> bool:
    if model.is_sequential or model.layer_graph is None:
        return True
    uses = [len(o.inbound_nodes) for o in model.layer_graph.operations]
    many = any(len(n.inputs) > 1 for n in model.layer_graph.nodes)
    return not many and len(model.outputs) == 1 and len(model.inputs) == 1 and max(uses) == 1


def _rows(
    layers: Sequence[Any],
    chain: bool,
    expand: bool,
    show_trainable: bool,
    work: Any = None,
    indent: str = "",
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
        if work is not None:
            result = work(layer)
            size = dtypes.array_dtype(getattr(layer, "compute_dtype", None)).itemsize
            cells.append("-" if result is None else _short(result[1] * size, "B", 1024))
            cells.append("-" if result is None else _short(result[0], "").strip())
        if not chain:
            cells.append(_connections(layer))
        if show_trainable:
            own = getattr(layer, "weights", [])
            cells.append("-" if not own else "Y" if getattr(layer, "trainable", True) else "N")
        rows.append(cells)
        if expand and hasattr(layer, "layers"):
            rows.extend(_rows(layer.layers, chain, expand, show_trainable, work, indent + "  └ "))
    return rows


def _wrap(text: str, width: int) -> list[str]:
    parts = []
    while len(text) > width:
        cut = text.rfind(" ", 0, width + 1)
        cut = cut if cut > width // 2 else width
        parts.append(text[:cut].rstrip())
        text = text[cut:].lstrip()
    return [*parts, text]


_NUMBERS = ("Param #", "Bytes", "FLOPs")


class SummaryTable(NamedTuple):
    """What a summary shows of a model.

    Attributes:
        name: the model's name.
        titles: of the columns.
        rows: the cells of each layer.
        notes: the lines below the table.
    """

    name: str
    titles: list[str]
    rows: list[list[str]]
    notes: list[str]


def _table(
    titles: list[str], rows: list[list[str]], line_length: int, style: Style = plain_style
) -> list[str]:
    free = line_length - 3 * len(titles) - 1
    need = [max(len(r[i]) for r in [titles, *rows]) for i in range(len(titles))]
    if sum(need) <= free:
        extra = free - sum(need)
        widths = [n + extra // len(need) for n in need]
    else:
        widths = [max(8, n * free // sum(need)) for n in need]

    def rule(left: str, middle: str, right: str, dash: str) -> str:
        return left + middle.join(dash * (w + 2) for w in widths) + right

    def lines(cells: list[str], bar: str, head: bool = False) -> list[str]:
        wrapped = [_wrap(c, w) for c, w in zip(cells, widths)]
        height = max(map(len, wrapped))
        filled = [w + [""] * (height - len(w)) for w in wrapped]
        numeric = [i for i, title in enumerate(titles) if title in _NUMBERS]
        out = []
        for row in zip(*filled):
            cells_ = [
                style("title" if head else titles[i], c.rjust(w) if i in numeric else c.ljust(w))
                for i, (c, w) in enumerate(zip(row, widths))
            ]
            out.append(f"{bar} " + f" {bar} ".join(cells_) + f" {bar}")
        return out

    text = [rule("┏", "┳", "┓", "━"), *lines(titles, "┃", True), rule("┡", "╇", "┩", "━")]
    for i, row in enumerate(rows):
        text.extend(lines(row, "│"))
        text.append(rule("├", "┼", "┤", "─") if i + 1 < len(rows) else rule("└", "┴", "┘", "─"))
    return text


def _range(layers: list[Any], layer_range: Any) -> list[Any]:
    if layer_range is None:
        return layers
    if len(layer_range) != 2:
        raise ValueError(f"summary: layer_range is (first, last), got {layer_range!r}.")
    results = []
    for pattern in layer_range:
        hits = [i for i, layer in enumerate(layers) if re.match(pattern, layer.name)]
        if not hits:
            raise ValueError(f"summary: no layer's name matches {pattern!r}.")
        results.append(hits)
    return layers[min(results[0]) : max(results[1]) + 1]


def print_summary(
    model: Model,
    line_length: int | None = None,
    positions: Any = None,
    print_fn: Any = None,
    expand_nested: bool = False,
    show_trainable: bool = False,
    layer_range: Any = None,
    batch_size: int | None = None,
) -> None:
    """Print the table of a model's layers; see `Model.summary`."""
    if batch_size is not None and (not isinstance(batch_size, int) or batch_size < 1):
        raise ValueError(f"summary: batch_size is a number >= 1, got {batch_size!r}.")
    if line_length is None and batch_size is not None:
        line_length = 100
    elif line_length is None:
        import shutil

        line_length = max(60, min(100, shutil.get_terminal_size((88, 24)).columns - 2))
    table = summary_table(model, expand_nested, show_trainable, layer_range, batch_size)
    style = terminal_style() if print_fn is None else plain_style
    text = [
        style("title", f'Model: "{table.name}"'),
        *_table(table.titles, table.rows, line_length, style),
        *table.notes,
    ]
    (print_fn or print)("\n".join(text))


def summary_table(
    model: Model,
    expand_nested: bool = False,
    show_trainable: bool = False,
    layer_range: Any = None,
    batch_size: int | None = None,
) -> SummaryTable:
    """Return what `Model.summary` shows; its arguments mean the same here."""
    chain = _is_chain(model)
    titles = ["Layer (type)", "Output Shape", "Param #"]
    titles += [] if batch_size is None else ["Bytes", "FLOPs"]
    titles += [] if chain else ["Connected to"]
    titles += ["Trainable"] if show_trainable else []
    layers = (
        model.layer_graph.operations
        if model.layer_graph is not None and not chain
        else model.layers
    )
    layers = _range(list(layers), layer_range)
    work = batch_size and functools.cache(lambda x: work_of(x, model.layer_graph, batch_size))
    rows = _rows(layers, chain, expand_nested, show_trainable, work)
    train, rest = model.trainable_weights, model.non_trainable_weights
    every = [*train, *rest]
    parts = [("Total params", every), ("Trainable params", train), ("Non-trainable params", rest)]
    slots = [] if model.optimizer is None else list(model.optimizer.variables)
    if slots:
        parts[0] = ("Total params", [*every, *slots])
        parts.append(("Optimizer params", slots))
    notes = [f" {name}: {count(v):,} ({size_text(v)})" for name, v in parts]
    notes += _dtype_line(every)
    if work is not None:
        notes.append(_batch_line(layers, work, batch_size))
    return SummaryTable(model.name, titles, rows, notes)


def summary_html(model: Model) -> str:
    """Return the summary as a table for notebooks."""
    table = summary_table(model)
    kind = type(model).__name__
    return html_table(
        f'{kind} "{table.name}"', table.titles, table.rows, table.notes, numeric=_NUMBERS
    )


def _dtype_line(variables: Sequence[Any]) -> list[str]:
    """Return a line with the memory of each dtype, where there are several."""
    kinds: dict[str, list[Any]] = {}
    for v in variables:
        kinds.setdefault(v.stored_dtype, []).append(v)
    if len(kinds) < 2:
        return []
    return [" By dtype: " + ", ".join(f"{kind} {size_text(v)}" for kind, v in kinds.items())]


def _batch_line(layers: Any, work: Any, batch_size: Any) -> str:
    """Return the sums over all layers whose sizes are known."""
    results = [(layer, work(layer)) for layer in layers]
    flops = sum(w[0] for _, w in results if w is not None)
    size = sum(
        w[1] * dtypes.array_dtype(getattr(layer, "compute_dtype", None)).itemsize
        for layer, w in results
        if w is not None
    )
    unknown = [x.name for x, w in results if w is None and not isinstance(x, InputLayer)]
    rest = f" (not counted: {', '.join(unknown)})" if unknown else ""
    return (
        f" Batch of {batch_size}: {_short(flops, 'FLOPs')} forward, {_short(size, 'B', 1024)} of "
        f"layer outputs{rest}"
    )
