"""Where each part of a model is stored in a weight file: Keras's path rules.

A part is a layer or an optimizer. Its path is made of attribute names; the layers of a model, and
the items of a list or dict, are counted by class in snake case, so that names chosen by the
user do not matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from kerasish.engine.layer.interface import LayerLike
from kerasish.engine.layer.layer import Layer
from kerasish.engine.model.model import Model
from kerasish.naming import to_snake_case
from kerasish.optimizers.optimizer import Optimizer
from kerasish.random import SeedGenerator

SEEDS = "seed_generators"  # the group of a layer's random states
# Attributes that Keras does not search, or that Keras does not have.
_SKIPPED = {
    "layer_graph", "graph_layers", "_stack", "_functional", "inputs_structure", "outputs_structure",
    "inbound_nodes", "_arguments", "_losses", "_weights", "_policy",
    "_build_shapes", "input_spec",
    "_slots", "_variables", "_trainable_variables", "_places", "_averages", "_accumulators",
}  # fmt: skip
# By class name, since the names are those of Keras's files, not of the classes here.
# Public name -> name of the class in paths and .h5 files, where they differ.
INNER_NAMES = {"GroupQueryAttention": "GroupedQueryAttention"}
# Attributes that Keras calls by other names.
_OTHER_ATTRIBUTES = {
    "GroupQueryAttention": {
        f"{part}_dense": f"_{part}_dense" for part in ("query", "key", "value", "output")
    },
}


class PartPath(NamedTuple):
    """A part of the model and its path, "" for the model itself."""

    path: str
    owner: LayerLike | Optimizer

    @property
    def group(self) -> str:
        """The path of the group that holds the part's own variables."""
        return f"{self.path}/vars" if self.path else "vars"


def seed_places(collected: list[PartPath]) -> list[tuple[str, list[Any]]]:
    """Return (group, states of the seed generators) of each layer that has any.

    Keras keeps no such states, and reads past these groups.

    Args:
        collected: what `places` returned.
    """
    seen = _Seen()
    results = []
    for path, owner in collected:
        parts = owner._parts() if isinstance(owner, Layer) else []
        states = [p.state for p in parts if isinstance(p, SeedGenerator) and seen.add(p)]
        if states:
            results.append((f"{path}/{SEEDS}" if path else SEEDS, states))
    return results


def _name_in_paths(kind: type) -> str:
    return to_snake_case(INNER_NAMES.get(kind.__name__, kind.__name__))


def places(model: Layer) -> list[PartPath]:
    """Return all parts of `model`, itself first, each at the first path that leads to it."""
    results: list[PartPath] = []
    _visit("", model, results, _Seen())
    return results


class _Seen:
    """What was visited. It keeps the objects: an id belongs to one only while that one lives."""

    def __init__(self) -> None:
        self._held: dict[int, Any] = {}

    def add(self, value: object) -> bool:
        """Note an object; return whether it is new."""
        if id(value) in self._held:
            return False
        self._held[id(value)] = value
        return True


def _visit_any(path: str, value: Any, collected: list[PartPath], seen: _Seen) -> None:
    (_visit if _is_part(value) else _visit_many)(path, value, collected, seen)


def _visit(path: str, owner: LayerLike | Optimizer, collected: list[PartPath], seen: _Seen) -> None:
    if not seen.add(owner):
        return
    collected.append(PartPath(path, owner))
    for name, value in _attributes(owner):
        _visit_any(f"{path}/{name}" if path else name, value, collected, seen)


def _visit_many(
    path: str,
    many: dict[str, Any] | set[Any] | Sequence[Any],
    collected: list[PartPath],
    seen: _Seen,
) -> None:
    if not seen.add(many):
        return
    counts: dict[str, int] = {}
    for value in many.values() if isinstance(many, dict) else list(many):
        if not _is_part(value) and not _is_container(value):
            continue
        name = _name_in_paths(type(value)) if _is_part(value) else "container"
        number = counts.get(name, 0)
        counts[name] = number + 1
        inner = f"{path}/{name}_{number}" if number else f"{path}/{name}"
        _visit_any(inner, value, collected, seen)


def _attributes(owner: LayerLike | Optimizer) -> Iterator[tuple[str, Any]]:
    """Yield the attributes that hold parts: public names first, in the alphabet's order."""
    held = {k: v for k, v in vars(owner).items() if k not in _SKIPPED and not k.startswith("__")}
    others = _OTHER_ATTRIBUTES.get(type(owner).__name__, {})
    held = {others.get(k, k): v for k, v in held.items()}
    if isinstance(owner, Model):
        held["optimizer"] = owner.optimizer
        if owner.layer_graph is not None or owner.is_sequential:
            yield "layers", owner.layers
        else:
            held["layers"] = owner.layers
    for name in sorted(held, key=lambda n: (n.startswith("_"), n)):
        if _is_part(held[name]) or _is_container(held[name]):
            yield name, held[name]


def _is_part(value: object) -> bool:
    return isinstance(value, (Layer, Optimizer))


def _is_container(value: object) -> bool:
    return isinstance(value, (list, tuple, dict, set))
