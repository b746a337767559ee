"""What users call: save and load whole models and weights, in any format."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kerasish import registry
from kerasish.engine.model.model import Model
from kerasish.errors import MissingFileError
from kerasish.optimizers.division import gathered
from kerasish.saving.formats import legacy
from kerasish.saving.formats.archive import (
    Archive,
    load_archive,
    load_into,
    save_archive,
    save_folder,
)
from kerasish.saving.formats.assets import warn_of_assets
from kerasish.saving.formats.json_text import described, read_json, restore, write_json
from kerasish.saving.formats.shards import ENDING, index_path, opened_shards, save_shards
from kerasish.saving.formats.tensors import load_tensors, save_tensors
from kerasish.saving.formats.weights import (
    file_path,
    load_hdf5_weights,
    may_write,
    put_weights,
    save_hdf5_weights,
)
from kerasish.tracebacks import hides_frames, keyword_hint
from kerasish.typing import PathLike

_LEGACY = (".h5", ".hdf5")


class WeightFormat(NamedTuple):
    """How weights are kept in a file of one format.

    Attributes:
        save: `save(model, path)` writes the file; after an error the old file is there unchanged.
        load: `load(model, path, skip_mismatch, by)` puts all weights into the model, or, after an
            error, none.
    """

    save: Callable[[Any, str], None]
    load: Callable[[Any, str, bool, str | None], None]


# By the ending of the file's name.
WEIGHT_FORMATS: dict[str, WeightFormat] = {
    ".weights.h5": WeightFormat(save_hdf5_weights, load_hdf5_weights),
    ".safetensors": WeightFormat(save_tensors, load_tensors),
}


def _format_of(path: str) -> WeightFormat | None:
    """Return the format that the file's name ends in."""
    return next((result for end, result in WEIGHT_FORMATS.items() if path.endswith(end)), None)


@hides_frames
def save_model(
    model: Model,
    filepath: PathLike,
    overwrite: bool = True,
    zipped: bool | None = None,
    **kwargs: Any,
) -> None:
    """Save a model: architecture, weights, optimizer and compile settings.

    The file is complete or not there at all: a failure leaves what was there before.

    Args:
        model: the model.
        filepath: "NAME.keras"; "NAME.h5" for Keras's older format.
        overwrite: whether a file that exists is replaced; False asks, or raises.
        zipped: False writes a folder instead of one file; None: by the name.

    Raises:
        ValueError: the name ends in something else.
        OSError: the file could not be written.

    Example:
        >>> import kerasish, os, tempfile
        >>> model = kerasish.Sequential([kerasish.Input((3,)), kerasish.layers.Dense(2)])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "model.keras")
        ...     save_model(model, path)
        ...     load_model(path).count_params()
        8
    """
    path = file_path(filepath)
    include_optimizer = kwargs.pop("include_optimizer", True)
    save_format = kwargs.pop("save_format", None)
    if kwargs:
        hint = keyword_hint(save_model, kwargs)
        raise ValueError(f"save_model: unexpected argument(s) {sorted(kwargs)}.{hint}")
    if save_format not in (None, "keras", "h5"):
        raise ValueError(f'save_model: save_format is "keras" or "h5", got {save_format!r}.')
    if path.endswith(".weights.h5"):
        raise ValueError(
            f"save_model: {path!r} names a file of only weights; use model.save_weights, or a "
            "name that ends in .keras."
        )
    if not path.endswith((".keras", *_LEGACY)) and zipped is not False:
        raise ValueError(
            f"save_model: the name must end in .keras (or .h5, the older format), got {path!r}. "
            "zipped=False writes a folder of any name; model.export writes a file for serving."
        )
    with gathered(model, "save()") as writes:
        if not writes or not may_write(path, overwrite):
            return
        if path.endswith(_LEGACY):
            legacy.save_legacy(model, path, include_optimizer)
            warn_of_assets(model, path)
        elif zipped is False:
            save_folder(model, path)
        else:
            save_archive(model, path)


@hides_frames
def load_model(
    filepath: PathLike,
    custom_objects: Mapping[str, Any] | None = None,
    compile: bool = True,
    safe_mode: bool = True,
) -> Model:
    """Return the model that a file holds; no code from the file is run.

    Args:
        filepath: a `.keras` file or folder, or a legacy `.h5` file, of kerasish or of Keras.
        custom_objects: name -> class or function that the file may name; None: none.
        compile: whether to compile the model as it was, its optimizer where it stopped.
        safe_mode: whether functions in the file must be registered.

    Raises:
        ValueError: the file is damaged, or names something unknown.
        OSError: it cannot be read.

    Example:
        >>> import kerasish, os, tempfile
        >>> model = kerasish.Sequential([kerasish.Input((3,)), kerasish.layers.Dense(2)])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "model.keras")
        ...     model.save(path)
        ...     print(load_model(path).output_shape)
        (None, 2)
    """
    path = file_path(filepath)
    if path.endswith(".weights.h5"):
        raise ValueError(
            f"load_model: {path!r} holds only weights; make the model, then model.load_weights."
        )
    if not os.path.exists(path):
        raise MissingFileError.of("load_model", path)
    if path.endswith(_LEGACY):
        return legacy.load_legacy(path, custom_objects, compile, safe_mode)
    if path.endswith(".keras") or os.path.isdir(path):
        return load_archive(path, custom_objects, compile, safe_mode)
    raise ValueError(f"load_model: the name must end in .keras or .h5, got {path!r}.")


@hides_frames
def save_weights(
    model: Model,
    filepath: PathLike,
    overwrite: bool = True,
    max_shard_size: int | None = None,
    **kwargs: Any,
) -> None:
    """Save a model's weights, and its optimizer's variables, to a `.weights.h5` file.

    Args:
        model: the model or layer.
        filepath: "NAME.weights.h5", or "NAME.safetensors"; "NAME.weights.json" with
            max_shard_size.
        overwrite: whether a file that exists is replaced.
        max_shard_size: write several files of at most this many GiB, and an index of them;
            None: one file.

    Raises:
        ValueError: another ending, or the model has no weights yet.
        OSError: the file could not be written; what was there before is unchanged.

    Example:
        >>> import kerasish, os, tempfile
        >>> model = kerasish.Sequential([kerasish.Input((3,)), kerasish.layers.Dense(2)])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_weights(model, os.path.join(folder, "model.weights.h5"))
        ...     print(os.listdir(folder))
        ['model.weights.h5']
    """
    path = file_path(filepath)
    if kwargs:
        hint = keyword_hint(save_weights, kwargs)
        raise ValueError(f"save_weights: unexpected argument(s) {sorted(kwargs)}.{hint}")
    if max_shard_size is not None and not path.endswith(".safetensors"):
        path = index_path(path)
        _need_built(model, "save_weights")
        with gathered(model, "save_weights()") as writes:
            if writes and may_write(path, overwrite):
                save_shards(model, path, max_shard_size)
        return
    result = _format_of(path)
    if result is None:
        first, *others = WEIGHT_FORMATS
        raise ValueError(
            f"save_weights: the name must end in {first} (or {', '.join(others)}), got {path!r}."
        )
    _need_built(model, "save_weights")
    with gathered(model, "save_weights()") as writes:
        if writes and may_write(path, overwrite):
            result.save(model, path)


@hides_frames
def load_weights(
    model: Model,
    filepath: PathLike,
    skip_mismatch: bool = False,
    *,
    by: str | None = None,
    by_name: bool = False,
    **kwargs: Any,
) -> None:
    """Put the weights of a file into a model: all of them, or, after an error, none.

    Args:
        model: the model, built.
        filepath: a `.weights.h5`, `.keras` or legacy `.h5` file, or a `.weights.json` with its
            shards, of kerasish or of Keras; or a `.safetensors` file.
        skip_mismatch: load what fits and warn about the rest, instead of an error.
        by: None: by position, and layers whose names are in another order are an error;
            "position": names do not matter; "name": only by the layers' names.
        by_name: the same as by="name", for legacy files.

    Raises:
        ValueError: a table of what is missing, extra, moved or of another shape; or the file is
            damaged.

    Example:
        >>> import kerasish, os, tempfile
        >>> model = kerasish.Sequential([kerasish.Input((3,)), kerasish.layers.Dense(2)])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "model.weights.h5")
        ...     model.save_weights(path)
        ...     load_weights(model, path)
    """
    path = file_path(filepath)
    if kwargs:
        hint = keyword_hint(load_weights, kwargs)
        raise ValueError(f"load_weights: unexpected argument(s) {sorted(kwargs)}.{hint}")
    by = "name" if by_name else by
    if by not in (None, "position", "name"):
        raise ValueError(f'load_weights: by is None, "position" or "name", got {by!r}.')
    if not os.path.exists(path):
        raise MissingFileError.of("load_weights", path)
    _need_built(model, "load_weights")
    result = _format_of(path)
    if path.endswith(".keras") or os.path.isdir(path):
        with Archive(path) as archive:
            load_into(model, archive, skip_mismatch, by)
    elif result is not None:
        result.load(model, path, skip_mismatch, by)
    elif path.endswith(ENDING):
        with opened_shards(path) as groups:
            put_weights(model, groups, path, skip_mismatch, by)
    elif path.endswith(_LEGACY):
        legacy.load_legacy_weights(model, path, skip_mismatch, by)
    else:
        raise ValueError(
            f"load_weights: the name must end in {', '.join(WEIGHT_FORMATS)}, .keras or .h5, got "
            f"{path!r}."
        )


def _need_built(model: Model, who: str) -> None:
    if not model.built:
        raise ValueError(
            f"{who}: {model.display_name()} has no weights yet: call it on data, or "
            "build(input_shape), first."
        )


@hides_frames
def model_to_json(model: Model, **kwargs: Any) -> str:
    """Return a model's architecture as JSON.

    Args:
        model: a Sequential or functional model, or one with `get_config`.

    Example:
        >>> import kerasish, json
        >>> model = kerasish.Sequential([kerasish.Input((3,)), kerasish.layers.Dense(2)])
        >>> json.loads(model_to_json(model))["class_name"]
        'Sequential'
    """
    return write_json(described(model))


@hides_frames
def model_from_json(json_string: str, custom_objects: dict[str, Any] | None = None) -> Model:
    """Return the model whose architecture `to_json` gave; its weights are new.

    Args:
        json_string: what `to_json` returned.
        custom_objects: name -> class or function, for names that are not registered; None: none.

    Example:
        >>> import kerasish
        >>> model = kerasish.Sequential([kerasish.Input((3,)), kerasish.layers.Dense(2)])
        >>> model_from_json(model.to_json()).output_shape
        (None, 2)
    """
    config = read_json(json_string, "model_from_json")
    return restore(
        lambda: registry.deserialize_keras_object(config, custom_objects), "model_from_json"
    )
