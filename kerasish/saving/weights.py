"""Weights alone: `.weights.h5` files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

from kerasish.saving import hdf5_output
from kerasish.saving.match import match
from kerasish.saving.paths import places
from kerasish.saving.source import Groups


def parts_of(model: Any) -> Iterator[tuple[str, str | None, dict[str, Any]]]:
    """Yield (group, name, arrays) of each part of `model`, as weight files hold them."""
    for place in places(model):
        arrays: dict[str, Any] = {}
        place.owner.save_own_variables(arrays)
        name = getattr(place.owner, "name", None)
        yield place.group, name if isinstance(name, str) else None, arrays


def write_weights(model: Any, path: Any) -> None:
    """Write all weights, and the optimizer's variables, to a new HDF5 file."""
    with hdf5_output.creating(path) as output:
        output.put_groups(parts_of(model))


def put_weights(
    model: Any, groups: Groups, where: str, skip_mismatch: bool = False, by: str | None = None
) -> None:
    """Put what a file holds into `model`: all, or, after an error, nothing."""
    _build_optimizer(model, groups)
    match(places(model), groups, where, by).run(skip_mismatch)


def _build_optimizer(model: Any, groups: Groups) -> None:
    """Make the optimizer's slots if the file has values for them."""
    optimizer = getattr(model, "optimizer", None)
    state = groups.get("optimizer/vars")
    if optimizer is None or optimizer.built or state is None or not model.built:
        return
    if len(state) > len(optimizer.variables):
        optimizer.build(model.trainable_variables)


def file_path(filepath: Any) -> str:
    """Return a path as text."""
    try:
        return os.fspath(filepath)  # type: ignore[no-any-return]
    except TypeError:
        raise ValueError(f"Expected the path of a file, got {filepath!r}.") from None


def may_write(path: str, overwrite: bool) -> bool:
    """Return whether a file may be written: it is new, or overwriting it is allowed.

    Raises:
        FileExistsError: it exists, must not be overwritten, and nobody is there to be asked.
    """
    if overwrite or not os.path.exists(path):
        return True
    if not sys.stdin or not sys.stdin.isatty():
        raise FileExistsError(f"{path!r} exists already; overwrite=True replaces it.")
    answer = input(f"{path!r} exists already. Overwrite it? [y/n] ")
    return answer.strip().lower() in ("y", "yes")
