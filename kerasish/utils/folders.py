"""Data sets of files in folders, with one sub-folder per class."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerasish import config, ops
from kerasish.data import Dataset
from kerasish.typing import Array, PathLike, SeedLike, Structure
from kerasish.utils.arrays import to_categorical
from kerasish.utils.batches import dataset_of_files
from kerasish.utils.images import img_to_array, load_img, smart_resize

_PICTURES = (".bmp", ".gif", ".jpeg", ".jpg", ".png")
_LABEL_MODES = ("int", "binary", "categorical", None)
_SUBSETS = ("training", "validation", "both", None)


def _dataset(
    load: Callable[[str], Any],
    paths: Sequence[str],
    labels: Array,
    batch_size: int | None,
    shuffle: bool,
    seed: int | None,
    collate: Callable[[list[Any]], Any] | None,
) -> Dataset:
    paths = list(paths)

    def load_file(number: int) -> Structure:
        x = load(paths[number])
        return x if labels is None else (x, labels[number])

    dataset = dataset_of_files(load_file, collate, paths, batch_size, shuffle, seed)
    dataset.file_paths = paths
    return dataset


def image_dataset_from_directory(
    directory: PathLike,
    labels: str | Sequence[int] = "inferred",
    label_mode: str | None = "int",
    class_names: Sequence[str] | None = None,
    color_mode: str = "rgb",
    batch_size: int | None = 32,
    image_size: tuple[int, int] = (256, 256),
    shuffle: bool = True,
    seed: int | None = None,
    validation_split: float | None = None,
    subset: str | None = None,
    interpolation: str = "bilinear",
    follow_links: bool = False,
    crop_to_aspect_ratio: bool = False,
    pad_to_aspect_ratio: bool = False,
    data_format: str | None = None,
    format: str = "tf",
    verbose: bool = True,
) -> Dataset | tuple[Dataset, ...]:
    """Return a Dataset of the images (bmp, gif, jpeg, png) in a folder with a sub-folder per class.

    They are read in several threads. Attributes of the result: `class_names`, which data sets made
    of it by `map` and others keep, and `file_paths`.

    Args:
        directory: the folder.
        labels: "inferred" from the sub-folders, None, or one class number for each file in the
            order of the sorted paths.
        label_mode: "int"; "binary", 0.0 or 1.0 of two classes; "categorical", one-hot; None.
        class_names: the sub-folders to read, in the order of class numbers; None: all, sorted.
        color_mode: "grayscale", "rgb" or "rgba".
        batch_size: images per batch; None: single images.
        image_size: (height, width) of the results.
        shuffle: whether the images have a new order in each epoch.
        seed: the seed of the orders and the split; None: drawn.
        validation_split: the share of the files for validation, 0 < share < 1; None: all files.
        subset: "training", "validation" or "both", which gives a pair; with validation_split;
            None: all files.
        interpolation: as for `ops.image.resize`.
        follow_links: whether to enter sub-folders that are links.
        crop_to_aspect_ratio: whether to crop the middle instead of distorting.
        pad_to_aspect_ratio: whether to pad instead of distorting.
        data_format: the position of the channel axis; None: `config.image_data_format()`.
        format: accepted; elements are arrays with a method `numpy`, for any value.
        verbose: whether to print how many files were found.

    Shape: x (batch, *image_size, channels) floating, 0..255.

    Raises:
        ValueError: an argument is invalid, or there is no image in the folder.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> from kerasish.utils import save_img
        >>> folder = Path(tempfile.mkdtemp())
        >>> for name in ("cat", "dog"):
        ...     (folder / name).mkdir()
        ...     save_img(folder / name / "0.png", np.zeros((8, 8, 3)))
        >>> data = image_dataset_from_directory(folder, image_size=(4, 4), verbose=False)
        >>> data.class_names, next(iter(data))[0].shape
        (['cat', 'dog'], (2, 4, 4, 3))
    """
    data_format = config.standardize_data_format(data_format)
    if crop_to_aspect_ratio and pad_to_aspect_ratio:
        raise ValueError("Only one of crop_to_aspect_ratio and pad_to_aspect_ratio can be true.")

    def load(path: str) -> Array:
        picture = img_to_array(load_img(path, color_mode), "channels_last")
        if picture.shape[:2] != tuple(image_size):
            if crop_to_aspect_ratio:
                picture = smart_resize(picture, image_size, interpolation)
            else:
                picture = np.asarray(
                    ops.image.resize(
                        picture, image_size, interpolation, data_format="channels_last",
                        pad_to_aspect_ratio=pad_to_aspect_ratio,
                    )
                )  # fmt: skip
        return picture.transpose(2, 0, 1) if data_format == "channels_first" else picture

    return make_folders(
        load, directory, _PICTURES, labels, label_mode, class_names, batch_size, shuffle, seed,
        validation_split, subset, follow_links, verbose,
    )  # fmt: skip


def text_dataset_from_directory(
    directory: PathLike,
    labels: str | None = "inferred",
    label_mode: str | None = "int",
    class_names: Sequence[str] | None = None,
    batch_size: int | None = 32,
    max_length: int | None = None,
    shuffle: bool = True,
    seed: int | None = None,
    validation_split: float | None = None,
    subset: str | None = None,
    follow_links: bool = False,
    format: str = "tf",
    verbose: bool = True,
) -> Structure:
    """Return a Dataset of the texts (*.txt, UTF-8) in a folder with a sub-folder per class.

    Args:
        directory: the folder.
        labels, label_mode, class_names: as for `image_dataset_from_directory`.
        batch_size: texts per batch; None: single texts.
        max_length: the number of characters that are kept of each text; None: all.
        shuffle: whether the texts have a new order in each epoch.
        seed: the seed of the orders and the split; None: drawn.
        validation_split, subset, follow_links: as for `image_dataset_from_directory`.
        format: accepted; elements are arrays with a method `numpy`, for any value.
        verbose: whether to print how many files were found.

    Raises:
        ValueError: an argument is invalid, or there is no text in the folder.

    Example:
        >>> data = text_dataset_from_directory("reviews", batch_size=8)  # doctest: +SKIP
        >>> data.class_names  # doctest: +SKIP
        ['bad', 'good']
    """

    def load(path: str) -> str:
        with open(path, encoding="utf-8") as file:
            return file.read(max_length if max_length is not None else -1)

    return make_folders(
        load, directory, (".txt",), labels, label_mode, class_names, batch_size, shuffle, seed,
        validation_split, subset, follow_links, verbose,
    )  # fmt: skip


def make_folders(
    load: Callable[[str], Any], directory: PathLike, endings: tuple[str, ...],
    labels: str | Sequence[int] | None,
    label_mode: str | None, class_names: Sequence[str] | None, batch_size: int | None,
    shuffle: bool,
    seed: int | None, validation_split: float | None, subset: str | None, follow_links: bool,
    verbose: bool, collate: Callable[[list[Any]], Any] | None = None,
) -> Dataset | tuple[Dataset, ...]:  # fmt: skip
    """Return the files of a folder as one data set, or as two; see the functions above."""
    _check(labels, label_mode, class_names, shuffle, seed, validation_split, subset)
    root = os.fspath(directory)
    if labels is None or label_mode is None:  # then files may be anywhere in the folder
        labels, label_mode = labels if class_names else None, None
    inferred = labels == "inferred" if isinstance(labels, str) else False
    names, paths, numbers = _index(root, endings, inferred, class_names, follow_links)
    if not inferred and labels is not None:
        if len(labels) != len(paths):
            raise ValueError(
                f"labels: expected one for each of the {len(paths)} files in {root}, got "
                f"{len(labels)}."
            )
        numbers = np.asarray(labels)
        names = [str(n) for n in sorted(set(numbers.tolist()))]
    if verbose:
        of = f" of {len(names)} classes" if label_mode and names else ""
        print(f"Found {len(paths)} files{of}.")
    if not paths:
        raise ValueError(f"No file that ends in {' or '.join(endings)} in {root}.")
    encoded = _encode(numbers, label_mode, len(names))
    order = np.arange(len(paths))
    if shuffle:
        if seed is None:
            seed = config.next_seed()
        np.random.RandomState(seed % 2**32).shuffle(order)  # noqa: NPY002 (Keras's split)

    def part(rows: Array) -> Dataset:
        chosen = None if encoded is None else encoded[rows]
        dataset = _dataset(
            load, [paths[i] for i in rows], chosen, batch_size, shuffle, seed, collate
        )
        dataset.class_names = names if label_mode else None
        return dataset

    if not validation_split:
        return part(order)
    cut = len(paths) - int(validation_split * len(paths))
    parts = {"training": order[:cut], "validation": order[cut:]}
    if verbose:
        print(f"Using {cut} for training and {len(paths) - cut} for validation.")
    for name in parts if subset == "both" else (subset,):
        if not len(parts[name or ""]):
            raise ValueError(f"validation_split={validation_split} leaves no file for {name}.")
    if subset == "both":
        return part(parts["training"]), part(parts["validation"])
    return part(parts[subset or ""])


def _check(
    labels: str | Sequence[int] | None,
    label_mode: str | None,
    class_names: Sequence[str] | None,
    shuffle: bool,
    seed: SeedLike | None,
    split: float | None,
    subset: str | None,
) -> None:
    if isinstance(labels, str) and labels != "inferred":
        raise ValueError(f"labels: expected 'inferred', None or a list, got {labels!r}.")
    if label_mode not in _LABEL_MODES:
        raise ValueError(f"label_mode: expected one of {_LABEL_MODES}, got {label_mode!r}.")
    if class_names is not None and not isinstance(labels, str):
        raise ValueError("class_names can only be given with labels='inferred'.")
    if split is not None and not 0 < split < 1:
        raise ValueError(f"validation_split: expected a number between 0 and 1, got {split!r}.")
    if subset not in _SUBSETS or (split is None) != (subset is None):
        raise ValueError(
            "validation_split and subset ('training', 'validation' or 'both') go together, got "
            f"{split!r} and {subset!r}."
        )
    if split is not None and shuffle and seed is None and subset != "both":
        raise ValueError(
            "With validation_split and shuffle=True give a seed, so that the two subsets do not "
            "overlap."
        )


def _index(
    root: str,
    endings: tuple[str, ...],
    by_class: bool,
    class_names: Sequence[str] | None,
    follow_links: bool,
) -> tuple[list[str], list[str], Any]:
    """Return the classes' names, the files' paths in order, and their classes' numbers."""
    if not os.path.isdir(root):
        raise ValueError(f"directory: there is no folder {root!r}.")
    if not by_class:
        paths = _files(root, endings, follow_links)
        return [], paths, np.zeros(len(paths), "int32")
    result = sorted(
        entry.name for entry in os.scandir(root) if entry.is_dir() and entry.name[0] != "."
    )
    names = result if class_names is None else list(class_names)
    if set(names) != set(result):
        raise ValueError(f"class_names: {names} are not the sub-folders of {root}: {result}.")
    paths, numbers = [], []
    for number, name in enumerate(names):
        files = _files(os.path.join(root, name), endings, follow_links)
        paths.extend(files)
        numbers.extend([number] * len(files))
    return names, paths, np.array(numbers, "int32")


def _files(folder: str, endings: tuple[str, ...], follow_links: bool) -> list[str]:
    results = []
    for where, folders, files in sorted(os.walk(folder, followlinks=follow_links)):
        folders.sort()
        results.extend(
            os.path.join(where, name) for name in sorted(files) if name.lower().endswith(endings)
        )
    return results


def _encode(numbers: Array, label_mode: str | None, classes: int) -> Array:
    if label_mode is None:
        return None
    if label_mode == "int":
        return np.asarray(numbers, "int32")
    if label_mode == "categorical":
        return to_categorical(numbers, classes).astype(config.floatx())
    if classes != 2:
        raise ValueError(f"label_mode='binary' is for two classes, the folder has {classes}.")
    return np.asarray(numbers, config.floatx())[:, None]
