"""The latest file of a folder that is whole."""

from __future__ import annotations

import os
import warnings
from typing import Any

from kerasish.saving.formats.archive import Archive
from kerasish.saving.formats.weights import file_path
from kerasish.saving.hdf5 import file as hdf5
from kerasish.typing import PathLike

_ENDINGS = (".keras", ".h5", ".hdf5")


def latest(folder: PathLike) -> str | None:
    """Return the path of the latest model or weight file in a folder that is whole, or None.

    Every array is read and compared with its checksum; a damaged file is passed over with a
    warning that says what is wrong with it.

    Args:
        folder: where `ModelCheckpoint` has put ".keras", ".weights.h5" or ".h5" files.

    Raises:
        OSError: the folder cannot be read.

    Example:
        >>> import kerasish, os, tempfile
        >>> model = kerasish.Sequential([kerasish.Input((3,)), kerasish.layers.Dense(2)])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(os.path.join(folder, "a.keras"))
        ...     os.path.basename(latest(folder))
        'a.keras'
    """
    path = file_path(folder)
    # Names that begin with a dot are saves that were cut off.
    names = [n for n in os.listdir(path) if n.endswith(_ENDINGS) and not n.startswith(".")]
    paths = [os.path.join(path, name) for name in names]
    for result in sorted(paths, key=lambda p: (os.stat(p).st_mtime_ns, p), reverse=True):
        try:
            check_complete(result)
        except (ValueError, OSError) as error:
            warnings.warn(f"{error} Took an older file.", stacklevel=2)
            continue
        return result
    return None


def check_complete(path: str) -> None:
    """Read all arrays of a model or weight file.

    Raises:
        ValueError: the file is damaged.
        OSError: it cannot be read.
    """
    if path.endswith(".keras"):
        with Archive(path) as archive:
            archive.config()
            with archive.weights() as file:
                _read_all(file, archive.where("its weights"))
        return
    with hdf5.opened(path, path) as file:
        _read_all(file, path)


def _read_all(root: Any, where: str) -> None:
    for path, item in hdf5.walk(root, where):
        if hdf5.is_array(item):
            hdf5.entry_of(item, path, where).read()
