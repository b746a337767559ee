"""Only weights: `.weights.h5` files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from kerasish.engine.layer.layer import Layer
from kerasish.engine.model.model import Model
from kerasish.optimizers.optimizer import Optimizer
from kerasish.saving.files.atomic import replacing
from kerasish.saving.files.source import Groups
from kerasish.saving.hdf5 import file as hdf5_input
from kerasish.saving.hdf5 import writer as hdf5_output
from kerasish.saving.match import match, variables_of
from kerasish.saving.paths import PartPath, places, seed_places
from kerasish.typing import PathLike

_MOST_NAMED = 8


def parts_of(model: Layer) -> Iterator[tuple[str, str | None, dict[str, Any]]]:
    """Yield (group, name, arrays) of each part of `model`, as weight files hold them.

    Raises:
        ValueError: a weight of the model, or a variable of its optimizer, would not be in the file.
    """
    result = places(model)
    seeds = seed_places(result)
    written = [v for place in result for v in variables_of(place.owner)]
    check_complete(model, [*written, *(v for _, states in seeds for v in states)])
    _check_groups(result)
    for place in result:
        arrays: dict[str, Any] = {}
        place.owner.save_own_variables(arrays)
        name = place.owner.name
        yield place.group, name if isinstance(name, str) else None, arrays
    for group, states in seeds:
        yield group, None, {str(i): v.numpy() for i, v in enumerate(states)}


def check_complete(model: Layer, written: Iterable[Any], whole: bool = True) -> None:
    """Check that all of a model's variables are among those that a file will hold.

    Args:
        model: the model or layer.
        written: the variables that the file will hold.
        whole: whether the optimizer's variables and the seeds' states must be there, too.

    Raises:
        ValueError: one is not among them; the message names it.
    """
    optimizer = getattr(model, "optimizer", None) if whole else None
    required = list(model.variables if whole else model.weights)
    required.extend(optimizer.undivided_variables if optimizer is not None else [])
    kept = list(written)
    held = {id(v) for v in kept}
    missing = [v.path for v in required if id(v) not in held]
    if missing:
        shown = ", ".join(missing[:_MOST_NAMED]) + (" ..." if len(missing) > _MOST_NAMED else "")
        raise ValueError(
            f"{model.display_name()}: {len(missing)} of {len(required)} variables have no place in "
            f"the file ({len(kept)} have one): {shown}. Nothing was saved; a file that exists is "
            "unchanged. Keep layers and variables in attributes of layers, or in lists or dicts "
            "there; save as .keras if an .h5 file is refused."
        )


def _check_groups(group: list[PartPath]) -> None:
    """Check that no two parts share a place in the file."""
    known: dict[str, Any] = {}
    for place in group:
        other = known.setdefault(place.group, place.owner)
        if other is not place.owner:
            raise ValueError(
                f"Two parts have the same place {place.group!r} in the file: "
                f"{type(other).__name__} and {type(place.owner).__name__}. Nothing was saved; "
                "give the attribute that holds one of them another name."
            )


def write_weights(model: Layer, path: str) -> None:
    """Write all weights, and the optimizer's variables, to a new HDF5 file."""
    with hdf5_output.creating(path) as output:
        output.put_groups(parts_of(model))


def save_hdf5_weights(model: Layer, path: str) -> None:
    """Write a `.weights.h5` file in place of the one that is there."""
    with replacing(path) as temporary:
        write_weights(model, temporary)


def load_hdf5_weights(
    model: Layer, path: str, skip_mismatch: bool = False, by: str | None = None
) -> None:
    """Put the weights of a `.weights.h5` file into a model: all, or, after an error, none."""
    with hdf5_input.opened(path, path) as file:
        put_weights(model, hdf5_input.read_groups(file, path), path, skip_mismatch, by)


def put_weights(
    model: Layer, groups: Groups, where: str, skip_mismatch: bool = False, by: str | None = None
) -> None:
    """Put what a file holds into `model`: all, or, after an error, nothing."""
    _build_optimizer(model, groups)
    match(places(model), groups, where, by).run(skip_mismatch)


def _build_optimizer(model: Layer, groups: Groups) -> None:
    """Make the optimizer's slots if the file has values for them."""
    optimizer = getattr(model, "optimizer", None)
    state = groups.get("optimizer/vars")
    if optimizer is None or optimizer.built or state is None or not model.built:
        return
    if len(state) > len(optimizer.variables):
        optimizer.build(_variables_of_optimizer(model, len(state)))  # type: ignore[arg-type]


def renew_optimizer(model: Model, number: int) -> None:
    """Let the optimizer of a model just read have slots for all that it had in the file.

    It was built for what is trainable. Where a layer was frozen later than that, the file holds the
    slots of all, and training continues with these.

    Args:
        model: the model, compiled.
        number: how many variables of the optimizer the file holds.
    """
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None or not optimizer.built or len(optimizer.variables) == number:
        return
    variables = _variables_of_optimizer(model, number)
    if len(variables) != len(model.trainable_variables):
        model.optimizer = _copy(optimizer)
        model.optimizer.build(variables)


def _variables_of_optimizer(model: Model, number: int) -> list[Any]:
    """Return the variables for which an optimizer has this many variables, as far as is known."""
    trainable = list(model.trainable_variables)
    every = [v for v in model.variables if v.initially_trainable]
    if len(every) != len(trainable):
        trial = _copy(model.optimizer)
        trial.build(every)
        if len(trial.variables) == number:
            return every
    return trainable


def _copy(optimizer: Optimizer) -> Optimizer:
    return type(optimizer).from_config(optimizer.get_config())


def file_path(filepath: PathLike) -> str:
    """Return a path as text."""
    try:
        return os.fspath(filepath)
    except TypeError:
        raise ValueError(f"Expected the path of a file, got {filepath!r}.") from None


def may_write(path: str, overwrite: bool) -> bool:
    """Return whether a file may be written: it is new, or overwriting it is allowed.

    Raises:
        FileExistsError: it exists, must not be overwritten, and no terminal is there to ask.
    """
    if overwrite or not os.path.exists(path):
        return True
    if not sys.stdin or not sys.stdin.isatty():
        raise FileExistsError(f"{path!r} exists already; overwrite=True replaces it.")
    answer = input(f"{path!r} exists already. Overwrite it? [y/n] ")
    return answer.strip().lower() in ("y", "yes")
