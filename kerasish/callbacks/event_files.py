"""Event files for TensorBoard: what tensorboardX does not provide for our models."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish.callbacks.layer_graph import LayerNode
from kerasish.typing import Array

if TYPE_CHECKING:
    from kerasish.engine.model.model import Model

_FLUSH_SECONDS = 5  # after which events are in the file; all of them are once a writer is closed


def open_writer(folder: str) -> Any:
    """Return a tensorboardX writer into `folder`.

    Raises:
        ImportError: tensorboardX is not installed; the message says what to install.
    """
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise ImportError(
            "TensorBoard's event files are written by the package tensorboardX: "
            "pip install tensorboardX (or kerasish[tensorboard])"
        ) from error
    # Writers opened in one second would otherwise share a name, and the later wipe the earlier;
    # and readers take files in the order of their names.
    count = len(list(Path(folder).glob("events.out.tfevents.*")))
    suffix = f".{count:06d}.{secrets.token_hex(4)}"
    return SummaryWriter(folder, filename_suffix=suffix, flush_secs=_FLUSH_SECONDS)


def event_sizes(folder: str, runs: Iterable[str]) -> dict[str, int]:
    """Return "run/name" -> size in bytes of the event files of the given runs in a folder."""
    results = {}
    for run in runs:
        for path in Path(folder, run).glob("events.out.tfevents.*"):
            results[f"{run}/{path.name}"] = path.stat().st_size
    return results


def cut_back(folder: str, runs: Iterable[str], sizes: Mapping[str, int]) -> list[str]:
    """Truncate the event files of runs to `sizes`; return those that are shorter than that.

    Files that are not in `sizes` are removed.
    """
    now = event_sizes(folder, runs)
    for name, size in now.items():
        if name not in sizes:
            os.remove(Path(folder, name))
        elif size > sizes[name]:
            os.truncate(Path(folder, name), sizes[name])
    return [name for name, size in sizes.items() if now.get(name, 0) < size]


def add_graph(writer: Any, nodes: Iterable[LayerNode]) -> None:
    """Write the layers as the run's graph."""
    from tensorboardX.proto.attr_value_pb2 import AttrValue
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.graph_pb2 import GraphDef
    from tensorboardX.proto.node_def_pb2 import NodeDef
    from tensorboardX.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboardX.proto.versions_pb2 import VersionDef

    results = []
    for node in nodes:
        shapes = [
            TensorShapeProto(
                dim=[TensorShapeProto.Dim(size=-1 if size is None else size) for size in shape]
            )
            for shape in node.shapes
        ]
        attrs = {"_output_shapes": AttrValue(list=AttrValue.ListValue(shape=shapes))}
        results.append(NodeDef(name=node.name, op=node.kind, input=node.inputs, attr=attrs))
    graph = GraphDef(node=results, versions=VersionDef(producer=22))
    writer.file_writer.add_event(Event(graph_def=graph.SerializeToString()))


def add_settings(writer: Any, settings: Mapping[str, Any], results: Mapping[str, float]) -> None:
    """Write hyperparameters, and the names and numbers by which TensorBoard compares runs."""
    from tensorboardX.summary import hparams

    plain = {
        k: v if isinstance(v, (bool, int, float, str)) else str(v) for k, v in settings.items()
    }
    for summary in hparams(plain, dict(results)):
        writer.file_writer.add_summary(summary)
    for name, value in results.items():
        writer.add_scalar(name, value)


def add_weight_picture(writer: Any, tag: str, weight: Array, step: int) -> None:
    """Write a weight as gray images: one for a vector or matrix, one per channel of a kernel.

    Weights with more than four axes are skipped.
    """
    w = np.atleast_1d(np.squeeze(np.asarray(weight, "float32")))
    if w.ndim > 4:
        return
    if w.ndim == 1:
        w = w[None]
    if w.ndim == 2:
        tiles = w[None] if w.shape[0] <= w.shape[1] else w.T[None]
    elif w.ndim == 3:
        tiles = np.moveaxis(w, -1, 0)
    else:
        tiles = w.reshape(*w.shape[:2], -1).transpose(2, 0, 1)
    low, high = float(tiles.min()), float(tiles.max())
    scaled = (tiles - low) / (high - low or 1.0)
    writer.add_image(tag, np.hstack([*scaled[:64]])[None], step)


def add_config(writer: Any, model: Model) -> None:
    """Write the model's config as text."""
    try:
        described = json.dumps(json.loads(model.to_json()), indent=2)
    except (NotImplementedError, TypeError, ValueError) as error:
        described = f"(no config: {error})"
    writer.add_text("keras", f"```\n{described}\n```", 0)
