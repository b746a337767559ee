"""Weights over several files: an index, `NAME.weights.json`, and shards of bounded size.

The index is replaced last and in one step, and no shard that the old index names is written over:
after any failure, the index at the path and its shards belong together.
"""

from __future__ import annotations

import os
import re
import uuid
import warnings
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import numpy as np

from kerasish.engine.model.model import Model
from kerasish.errors import levels_to_user
from kerasish.saving.files.atomic import flush_folder, replacing, save_error
from kerasish.saving.files.lock import holding
from kerasish.saving.files.source import Groups, PartArrays
from kerasish.saving.files.temporary import temporary
from kerasish.saving.formats.json_text import read_json, write_json
from kerasish.saving.formats.weights import parts_of
from kerasish.saving.hdf5 import file as hdf5
from kerasish.saving.hdf5 import writer as hdf5_output

ENDING = ".weights.json"
SAVE = "save_id"  # the same in the index and in its shards
_MOST_SHARDS = 500
_Parts = Iterable[tuple[str, str | None, dict[str, Any]]]


def index_path(path: str) -> str:
    """Return the path of the index that belongs to the path a user gave."""
    if path.endswith(ENDING):
        return path
    result = os.path.splitext(path)[0].removesuffix(".weights") + ENDING
    warnings.warn(
        f"Weights over several files need an index: {result!r}, not {path!r}",
        stacklevel=levels_to_user(),
    )
    return result


def save_shards(model: Model, path: str, max_shard_size: float) -> None:
    """Write a model's weights as shards.

    Args:
        model: the model.
        path: the index, "NAME.weights.json".
        max_shard_size: how much a shard may hold, in GiB.

    Raises:
        ValueError: a single array is larger.
        OSError: something could not be written; the old index and its shards are as they were.
    """
    limit = float(max_shard_size) * 2**30
    if not limit > 0:
        raise ValueError(f"save_weights: max_shard_size must be positive, got {max_shard_size!r}.")
    with ExitStack() as stack:
        try:
            stack.enter_context(holding(path))  # the shards of two savers have the same names
        except OSError as error:
            raise save_error(path, error) from error
        _save_held(model, path, limit)


def _save_held(model: Model, path: str, limit: float) -> None:
    written: list[str] = []
    text = ""
    try:
        text = write_json(_write_shards(parts_of(model), path, limit, written))
        with replacing(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
    except BaseException as error:
        if text and _holds(path, text):
            raise  # the new index is in its place: its shards stay
        for name in written:
            with suppress(OSError):  # the first error is the one to report
                os.remove(name)
        if isinstance(error, OSError):
            raise save_error(path, error) from error
        raise
    _tidy(path, {os.path.basename(name) for name in written})


def _holds(path: str, text: str) -> bool:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(len(text) + 1) == text
    except (OSError, UnicodeDecodeError):
        return False


def _write_shards(parts: _Parts, path: str, limit: float, written: list[str]) -> dict[str, Any]:
    mark = _fresh_mark(path)
    save = uuid.uuid4().hex
    where: dict[str, Any] = {}
    total, number = 0, 0
    filled = 0.0
    with ExitStack() as stack:
        output: Any = None
        for group, name, arrays in parts:
            for key, value in arrays.items():
                size = np.asarray(value).nbytes
                if size > limit:
                    raise ValueError(
                        f"save_weights: {group}/{key} has {size} bytes, a shard may hold "
                        f"{limit:.0f}; give a larger max_shard_size (in GiB)."
                    )
                if output is None or filled + size > limit:
                    stack.close()
                    if number >= _MOST_SHARDS:
                        raise ValueError(
                            f"save_weights: more than {_MOST_SHARDS} shards; give a larger "
                            "max_shard_size (in GiB)."
                        )
                    shard = _shard_path(path, number, mark)
                    written.append(shard)
                    output = stack.enter_context(_shard(shard, save))
                    number, filled = number + 1, 0.0
                output.put_groups([(group, name, {key: value})])
                names = where.setdefault(f"/{group}", [])
                if os.path.basename(shard) not in names:
                    names.append(os.path.basename(shard))
                filled, total = filled + size, total + size
    places = {group: names[0] if len(names) == 1 else names for group, names in where.items()}
    return {"metadata": {"total_size": total, SAVE: save}, "weight_map": places}


@contextmanager
def _shard(path: str, save: str) -> Iterator[Any]:
    with replacing(path) as temporary, hdf5_output.creating(temporary) as output:
        output.file.attrs[SAVE] = save
        yield output


def _base(path: str) -> str:
    return os.path.basename(path).removesuffix(ENDING)


def _shard_path(path: str, number: int, mark: str) -> str:
    name = f"{_base(path)}_{number:05}{mark}.weights.h5"
    return os.path.join(os.path.dirname(path), name)


def _fresh_mark(path: str) -> str:
    """Return what distinguishes new shards from those that the old index names."""
    try:
        with open(path, "rb") as file:
            old = _shards_of(read_json(file.read(), path), path)
    except (OSError, ValueError):
        return "b" if os.path.exists(path) else ""
    return "b" if any(re.search(r"_\d{5}\.weights\.h5$", name) for name in old) else ""


def _tidy(path: str, names: set[str]) -> None:
    """Remove shards that no index names; remaining ones are not an error."""
    folder = os.path.dirname(path) or "."
    first = os.path.join(folder, f"{_base(path)}_00000.weights.h5")
    ours = re.compile(rf"{re.escape(_base(path))}_\d{{5}}b?\.weights\.h5")
    with suppress(OSError):
        for name in os.listdir(folder):
            there = os.path.join(folder, name)
            if ours.fullmatch(name) and name not in names and there != first:
                os.remove(there)
        if os.path.basename(first) not in names and names:
            # Keras opens the first shard under this name before it reads the index.
            with temporary(first) as link:
                os.link(os.path.join(folder, min(names)), link)
                os.replace(link, first)
        flush_folder(folder)


# --- reading ----------------------------------------------------------------------------------


@contextmanager
def opened_shards(path: str) -> Iterator[Groups]:
    """Yield the groups of all shards that an index names.

    While another save replaces them they are read again.

    Raises:
        ValueError: the index or a shard is damaged, or they do not belong together.
        OSError: one of them is missing or cannot be read.
    """
    with ExitStack() as stack:
        text, result = b"", None
        while result is None:
            before, text = text, _read_index(path)
            try:
                result = _open_all(text, path, stack)
            except (ValueError, OSError):
                if before == text:
                    raise  # it is no save that is in the way
                stack.close()
        yield result


def _read_index(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(2**28 + 1)


def _open_all(text: bytes, path: str, stack: ExitStack) -> Groups:
    index = read_json(text, path)
    names = _shards_of(index, path)
    if len(names) > _MOST_SHARDS:
        raise ValueError(f"{path}: names {len(names)} shards, more than {_MOST_SHARDS}.")
    save = index.get("metadata", {}).get(SAVE) if isinstance(index.get("metadata"), dict) else None
    held: dict[str, Groups] = {}
    for name in sorted(names):
        shard = os.path.join(os.path.dirname(path), name)
        if not os.path.exists(shard):
            raise FileNotFoundError(f"{path}: its shard {name!r} is missing.")
        root = stack.enter_context(hdf5.opened(shard, shard))
        if save is not None and hdf5.text_attribute(root, SAVE, shard) != save:
            raise ValueError(f"{path}: the shard {name!r} belongs to another save.")
        held[name] = hdf5.read_groups(root, shard)
    return _merged(index["weight_map"], held, path)


def _shards_of(index: dict[str, Any], path: str) -> set[str]:
    """Return the shards' names; each must be a file next to the index."""
    places = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(places, dict):
        raise ValueError(f"{path}: no index of weights (there is no weight_map).")
    result = set()
    for names in places.values():
        for name in names if isinstance(names, list) else [names]:
            if (
                not isinstance(name, str)
                or re.search(r"[/\\:\0]", name)
                or not name.endswith(".weights.h5")
            ):
                raise ValueError(f"{path}: {name!r} is no shard next to the index; refused.")
            result.add(name)
    return result


def _merged(places: dict[str, Any], held: dict[str, Groups], path: str) -> Groups:
    results: Groups = {}
    for place, names in places.items():
        key = place.strip("/")
        for name in names if isinstance(names, list) else [names]:
            part = held[name].get(key)
            if part is None:
                raise ValueError(f"{path}: the shard {name!r} does not hold {key!r}.")
            whole = results.setdefault(key, PartArrays(part.name, {}))
            twice = whole.entries.keys() & part.entries.keys()
            if twice:
                raise ValueError(f"{path}: two shards hold {key}/{min(twice)}.")
            whole.entries.update(part.entries)
    return results
