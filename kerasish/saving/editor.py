"""KerasFileEditor: look into a weight file, compare it with a model, and change it."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerasish.engine.model.model import Model
from kerasish.errors import UnknownNameError
from kerasish.reprs import arguments_repr
from kerasish.saving.files.atomic import replacing
from kerasish.saving.files.source import Groups
from kerasish.saving.formats.archive import WEIGHTS, Archive
from kerasish.saving.formats.weights import file_path, parts_of
from kerasish.saving.hdf5 import file as hdf5
from kerasish.saving.hdf5 import writer as hdf5_output
from kerasish.typing import PathLike


class KerasFileEditor:
    """The weights of a `.keras` or `.weights.h5` file, by object, open to changes.

    An object is a layer or an optimizer, named by its path in the file ("layers/dense_1"), or by
    the path's end where that is clear.

    Args:
        filepath: the file; it is read and not changed, `save` writes another.

    Raises:
        ValueError: the ending is another one, or the file is damaged.

    Example:
        >>> import kerasish, os, tempfile
        >>> model = kerasish.Sequential([kerasish.Input((3,)), kerasish.layers.Dense(2)])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "model.weights.h5")
        ...     model.save_weights(path)
        ...     KerasFileEditor(path).summary()
        layers/dense
            0  (3, 2)  float32
            1  (2,)  float32
    """

    def __init__(self, filepath: PathLike) -> None:
        path = file_path(filepath)
        self.filepath = path
        if path.endswith(".weights.h5"):
            with hdf5.opened(path, path) as file:
                self._take(hdf5.read_groups(file, path))
        elif path.endswith(".keras"):
            with Archive(path) as archive, archive.weights() as file:
                self._take(hdf5.read_groups(file, archive.where(WEIGHTS)))
        else:
            raise ValueError(
                f"KerasFileEditor: the name must end in .keras or .weights.h5, got {path!r}."
            )

    def _take(self, groups: Groups) -> None:
        self.weights_dict: dict[str, dict[str, Any]] = {}
        self._names: dict[str, str | None] = {}
        for path, group in groups.items():
            if path.split("/")[-1] != "vars":
                continue  # random states: of a training, not of the weights
            inner = path[: -len("vars")].rstrip("/")
            self.weights_dict[inner] = {key: group[key] for key in group}
            self._names[inner] = group.name

    # --- looking ------------------------------------------------------------------------------

    def summary(self) -> None:
        """Print the objects that have weights, with shapes and dtypes."""
        for path, weights in self.weights_dict.items():
            if weights:
                print(path or "(the model itself)")
            for key, array in sorted(weights.items(), key=lambda item: _order(item[0])):
                print(f"    {key}  {array.shape}  {array.dtype.name}")

    def compare(self, reference_model: Model) -> dict[str, Any]:
        """Print where the file and a model differ; return the numbers of matches and errors.

        Args:
            reference_model: a built model.
        """
        lines: list[str] = []
        matches = 0
        seen = set()
        for path, _, arrays in parts_of(reference_model):
            inner = path[: -len("vars")].rstrip("/")
            seen.add(inner)
            stored = self.weights_dict.get(inner, {})
            for key, value in arrays.items():
                expected = tuple(np.shape(value))
                got = stored.get(key)
                if got is None:
                    lines.append(f"missing in the file: {inner}/{key} {expected}")
                elif got.shape != expected:
                    lines.append(f"shape: {inner}/{key} is {got.shape}, in the model {expected}")
                else:
                    matches += 1
        for path, weights in self.weights_dict.items():
            if path not in seen:
                lines.extend(f"only in the file: {path}/{k} {a.shape}" for k, a in weights.items())
        print("\n".join(lines) if lines else "The file fits the model.")
        status = "error" if lines else "success"
        return {"status": status, "error_count": len(lines), "match_count": matches}

    # --- changing -----------------------------------------------------------------------------

    def rename_object(
        self, object_name: str, new_name: str, source_name: str | None = None
    ) -> None:
        """Give an object, with all inside it, another name.

        Args:
            object_name: its path, or the end of it.
            new_name: the new last part of its path.
            source_name: only below the object called so.
        """
        old = self._find(object_name, source_name)
        parent = old.rpartition("/")[0]
        new = f"{parent}/{new_name}" if parent else new_name
        if new in self.weights_dict:
            raise ValueError(f"KerasFileEditor: there is already an object {new!r}.")
        for which in (self.weights_dict, self._names):
            moved = {_moved(path, old, new): value for path, value in which.items()}
            which.clear()
            which.update(moved)  # type: ignore[arg-type]

    def delete_object(self, object_name: str, source_name: str | None = None) -> None:
        """Take an object out, with all inside it."""
        old = self._find(object_name, source_name)
        for path in [p for p in self.weights_dict if p == old or p.startswith(f"{old}/")]:
            del self.weights_dict[path]
            self._names.pop(path, None)

    def add_object(self, object_path: str, weights: dict[str, Any]) -> None:
        """Put a new object in.

        Args:
            object_path: its whole path.
            weights: "0", "1" ... -> array.
        """
        path = object_path.strip("/")
        if path in self.weights_dict:
            raise ValueError(f"KerasFileEditor: there is already an object {path!r}.")
        self.weights_dict[path] = {str(k): np.asarray(v) for k, v in weights.items()}
        self._names[path] = path.rpartition("/")[2]

    def delete_weight(
        self, object_name: str, weight_name: str, source_name: str | None = None
    ) -> None:
        """Take one weight of an object out."""
        weights = self.weights_dict[self._find(object_name, source_name)]
        if str(weight_name) not in weights:
            raise UnknownNameError.of(f"weight of {object_name!r}", str(weight_name), weights)
        del weights[str(weight_name)]

    def add_weights(
        self, object_name: str, weights: dict[str, Any], source_name: str | None = None
    ) -> None:
        """Put weights into an object; those of the same names are replaced."""
        place = self.weights_dict[self._find(object_name, source_name)]
        place.update({str(k): np.asarray(v) for k, v in weights.items()})

    def _find(self, name: str, source: str | None) -> str:
        name = name.strip("/")
        known = [p for p in self.weights_dict if source is None or source in p.split("/")[:-1]]
        if name in known:
            return name
        results = [p for p in known if p.endswith(f"/{name}")]
        if not results:
            raise UnknownNameError.of(f"object in {self.filepath!r}", name, known)
        if len(results) > 1:
            raise ValueError(
                f"KerasFileEditor: {name!r} may be any of {results}; give the whole path."
            )
        return results[0]

    # --- saving -------------------------------------------------------------------------------

    def save(self, filepath: PathLike) -> None:
        """Write the weights to a `.weights.h5` file."""
        path = file_path(filepath)
        if not path.endswith(".weights.h5"):
            raise ValueError(
                f"KerasFileEditor.save: the name must end in .weights.h5, got {path!r}."
            )
        parts = (
            (f"{inner}/vars" if inner else "vars", self._names.get(inner), weights)
            for inner, weights in self.weights_dict.items()
        )
        with replacing(path) as temporary, hdf5_output.creating(temporary) as output:
            output.put_groups(parts)

    def resave_weights(self, filepath: PathLike) -> None:
        """Write the weights to a `.weights.h5` file; the same as `save`."""
        self.save(filepath)

    __repr__ = arguments_repr


def _order(key: str) -> tuple[int, str]:
    return (int(key), "") if key.isdigit() else (2**31, key)


def _moved(path: str, old: str, new: str) -> str:
    if path == old:
        return new
    return new + path[len(old) :] if path.startswith(f"{old}/") else path
