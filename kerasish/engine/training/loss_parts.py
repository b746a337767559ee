"""Which loss of `compile` belongs to which part of a model's result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kerasish.errors import UnknownKeyError
from kerasish.typing import Structure

if TYPE_CHECKING:
    from kerasish.losses.loss import Loss

Path = tuple[Any, ...]


def is_one(given: Structure) -> bool:
    """Return whether what `compile` was given is one loss, not a structure of losses."""
    if isinstance(given, dict):
        return "class_name" in given
    return not isinstance(given, (list, tuple))


def spread(
    given: Structure, y_pred: Structure, outputs: Sequence[Any], path: Path = ()
) -> Iterator[tuple[Path, Any]]:
    """Yield (path, loss) for each loss in a structure: the loss reads the result at that path.

    A structure is built like the result; or it is a dict by the names of the layers, or a list in
    the outputs' order. A list where the result has none holds several losses of that place; each
    gets all that is there, an array or a structure of arrays.

    Args:
        given: the losses, without weights.
        y_pred: the part of the result at `path`.
        outputs: the outputs (`engine.outputs.Output`) in it.

    Raises:
        UnknownKeyError: a name that no output has.

    Example:
        >>> from kerasish.engine.training.outputs import list_outputs
        >>> y = {"a": (1, 2), "b": 3}
        >>> list(spread({"a": ["whole", ("x", None)], "b": "z"}, y, list_outputs(y, [])))
        [(('a',), 'whole'), (('a', 0), 'x'), (('b',), 'z')]
    """
    if given is None:
        return
    if is_one(given):
        yield path, given
        return
    leaf = not isinstance(y_pred, (dict, list, tuple))
    if isinstance(given, dict):
        for key, part in given.items():
            place = _place(key, y_pred, outputs, path, len(given) == 1)
            yield from _enter(part, y_pred, outputs, path, place)
    elif not leaf and len(given) == len(outputs) and all(map(is_one, given)):
        for output, part in zip(outputs, given):
            yield from spread(part, None, [output], output.path)
    elif leaf or not isinstance(y_pred, type(given)):
        for part in given:
            yield from spread(part, y_pred, outputs, path)
    elif len(given) != len(y_pred):
        raise ValueError(f"loss: {len(given)} entries for {len(y_pred)} outputs.")
    else:
        for i, part in enumerate(given):
            yield from _enter(part, y_pred, outputs, path, (i,))


def _place(key: str, y_pred: Structure, outputs: Sequence[Any], path: Path, single: bool) -> Path:
    """Return the way from `path` to what a key of a dict of losses means."""
    if isinstance(y_pred, dict) and key in y_pred:
        return (key,)
    for output in outputs:
        if key == output.layer and key:
            return tuple(output.path[len(path) :])
    if single and len(outputs) == 1 and outputs[0].path == path and not outputs[0].layer:
        return ()
    keys = list(y_pred) if isinstance(y_pred, dict) else []
    names = [k for k in keys if isinstance(k, str)] or [o.layer or o.label for o in outputs]
    raise UnknownKeyError.of("output in loss", key, [n for n in names if n])


def _enter(
    part: Loss | Callable[..., Any] | str | Sequence[Any] | None,
    y_pred: Structure,
    outputs: Sequence[Any],
    path: Path,
    place: Path,
) -> Iterator[tuple[Path, Any]]:
    for key in place:
        y_pred = y_pred[key]
    path = (*path, *place)
    inside = [o for o in outputs if o.path[: len(path)] == path]
    return spread(part, y_pred, inside, path)
