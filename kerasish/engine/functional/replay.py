"""Calls of operations as configs of functional models describe them, created again."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from kerasish import registry, tree
from kerasish.engine.layer.operation import KerasTensor, OpCall, any_symbolic
from kerasish.engine.layer.operation_config import call_operation
from kerasish.typing import Structure


class Job(NamedTuple):
    """A call that a config describes: its operation's name, its number, arguments and settings."""

    name: str
    number: int
    node: Any
    settings: Any


def replay_all(jobs: list[Job], created: dict[str, Any], results: dict[Any, Any]) -> None:
    """Make the calls, each as soon as what it needs is there; add their results."""
    missing: dict[int, set[tuple[str, int]]] = {}
    waiting: dict[tuple[str, int], list[int]] = {}
    ready: deque[int] = deque()
    for i, job in enumerate(jobs):
        missing[i] = _needs(job.node) - results.keys()
        for place in missing[i]:
            waiting.setdefault(place, []).append(i)
        if not missing[i]:
            ready.append(i)
    while ready:
        i = ready.popleft()
        del missing[i]
        _replay(jobs[i], created, results)
        place = (jobs[i].name, jobs[i].number)
        for other in waiting.pop(place, ()):
            missing[other].discard(place)
            if not missing[other]:
                ready.append(other)
    if missing:
        names = sorted({jobs[i].name for i in missing})
        raise ValueError(f"The config's calls of {names} need tensors that no layer gives.")


def _needs(node: dict[str, Any]) -> set[tuple[str, int]]:
    """Return the calls, (name, number), whose results a call in a config takes."""
    if isinstance(node, list):
        parts = node if node and isinstance(node[0], list) else [node]
        results = {place_of(p)[:2] for p in parts}
        return results | (_tensors_in(parts[0][3]) if len(parts[0]) > 3 else set())
    return _tensors_in(node["args"]) | _tensors_in(node["kwargs"])


def _tensors_in(x: dict[str, Any] | int | Sequence[Any] | None) -> set[tuple[str, int]]:
    if isinstance(x, dict):
        if x.get("class_name") == "__keras_tensor__":
            return {place_of(x["config"]["keras_history"])[:2]}
        if "class_name" in x and "config" in x:
            return set()
        x = list(x.values())
    results: set[tuple[str, int]] = set()
    if isinstance(x, (list, tuple)):
        for part in x:
            results |= _tensors_in(part)
    return results


def place_of(place: Sequence[Any]) -> tuple[str, int, int]:
    """Return (layer's name, number of the call, number of the result) as a config says them."""
    name, number, index = place[:3]
    for n in (number, index):
        if type(n) is not int or n < 0:
            raise ValueError(f"The config refers to a result as {place[:3]!r}; integers do.")
    if not isinstance(name, str):
        raise ValueError(f"The config refers to a layer as {name!r}, which is no name.")
    return name, number, index


def _replay(job: Job, created: dict[str, Any], results: dict[Any, Any]) -> None:
    name, number, node, settings = job
    args, kwargs = read_node(node, results)
    operation = created[name]
    if isinstance(operation, OpCall):
        if not any_symbolic(args) and not any_symbolic(kwargs):
            raise ValueError(f"The config calls {name!r} on no tensor of the model.")
        results[name, number] = call_operation(operation, settings, args, kwargs)
    else:
        results[name, number] = operation(*args, **kwargs)


def read_node(node: dict[str, Any], results: dict[Any, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return (args, kwargs) of a call in a config."""
    if isinstance(node, list):  # Keras 2: [[name, node, tensor, kwargs], ...]
        parts = node if node and isinstance(node[0], list) else [node]
        tensors = [_result(p, results) for p in parts]
        kwargs = parts[0][3] if len(parts[0]) > 3 else {}
        return [tensors[0] if len(tensors) == 1 else tensors], read(kwargs, results)
    return read(node["args"], results), read(node["kwargs"], results)


def _result(place: Sequence[Any], results: dict[Any, Any]) -> KerasTensor:
    name, number, index = place_of(place)
    return tree.flatten(results[name, number])[index]


def read(x: dict[str, Any] | int | Sequence[Any] | None, results: dict[Any, Any]) -> Structure:
    """Return a serialized argument with its tensors in place."""
    if isinstance(x, dict):
        if x.get("class_name") == "__keras_tensor__":
            return _result(x["config"]["keras_history"], results)
        if "class_name" in x and "config" in x:
            return registry.deserialize_keras_object(x)
        return {k: read(v, results) for k, v in x.items()}
    if isinstance(x, list):
        return [read(v, results) for v in x]
    return x
