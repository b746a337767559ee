"""Assets: files that layers keep in addition to their weights, such as vocabularies.

A layer has them if it defines `save_assets(folder)` and `load_assets(folder)`; in an archive they
are in `assets/`, each layer's at the layer's path.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kerasish.errors import levels_to_user
from kerasish.saving.paths import places

if TYPE_CHECKING:
    from kerasish.engine.layer.layer import Layer
    from kerasish.engine.model.model import Model
    from kerasish.saving.formats.archive import Archive

FOLDER = "assets"
_MOST_BYTES = 2**30


@contextmanager
def written_assets(model: Model) -> Iterator[list[tuple[str, str]]]:
    """Let the parts of `model` write their assets; yield (name in the archive, file) pairs."""
    with tempfile.TemporaryDirectory() as root:
        for place in places(model):
            if hasattr(place.owner, "save_assets"):
                folder = os.path.join(root, FOLDER, *place.path.split("/"))
                os.makedirs(folder, exist_ok=True)
                place.owner.save_assets(folder)
        results = [
            os.path.join(where, name) for where, _, names in os.walk(root) for name in sorted(names)
        ]
        yield [(os.path.relpath(path, root).replace(os.sep, "/"), path) for path in results]


def warn_of_assets(model: Model, path: str) -> None:
    """Warn where a format without assets leaves some out."""
    with written_assets(model) as assets:
        dropped = [name for name, _ in assets]
    if dropped:
        warnings.warn(
            f"{path}: this format holds no assets such as vocabularies; these are left out: "
            f"{dropped}. Files that end in .keras hold them.",
            stacklevel=levels_to_user(),
        )


def load_assets(model: Layer, archive: Archive) -> None:
    """Let the parts of `model` read their assets from an archive.

    Raises:
        ValueError: a part cannot read what is there.
    """
    readers = [p for p in places(model) if hasattr(p.owner, "load_assets")]
    folders = tuple(f"{FOLDER}/{p.path}/" if p.path else f"{FOLDER}/" for p in readers)
    names = [n for n in archive.names() if n.startswith(folders) and not n.endswith("/")]
    if not names:
        return
    with tempfile.TemporaryDirectory() as root:
        _unpack(archive, names, root)
        for place in readers:
            folder = os.path.join(root, FOLDER, *place.path.split("/"))
            if os.path.isdir(folder):
                _load(place, folder, archive.where(f"{FOLDER}/{place.path}"))


def _unpack(archive: Archive, names: list[str], root: str) -> None:
    left = _MOST_BYTES
    for name in names:
        content = archive.read(name)
        left -= len(content)
        if left < 0:
            raise ValueError(f"{archive.where(FOLDER)}: more than {_MOST_BYTES} bytes; refused.")
        path = os.path.join(root, *name.split("/"))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)


def _load(place: Any, folder: str, where: str) -> None:
    try:
        place.owner.load_assets(folder)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{where}: {type(place.owner).__name__} could not load its assets: {error}"
        ) from error
