"""Iterators over pictures in files: in folders, and in the rows of a table."""

from __future__ import annotations

import os
from collections.abc import Iterator as Iterates
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish.preprocessing.iterators import ImageIterator, split_bounds
from kerasish.preprocessing.labels import (
    CLASS_MODES,
    DIRECTORY_MODES,
    FRAME_MODES,
    LabelRows,
    batch_targets,
    check_mode,
    classes_of_rows,
    number_classes,
)
from kerasish.typing import Array, PathLike
from kerasish.utils.images import INTERPOLATIONS, MODES, img_to_array, load_img

if TYPE_CHECKING:
    from kerasish.preprocessing.generator import ImageDataGenerator

FORMATS = (".png", ".jpg", ".jpeg", ".bmp", ".ppm", ".tif", ".tiff")
_CHANNELS = {"grayscale": 1, "rgb": 3, "rgba": 4}


class FileIterator(ImageIterator):
    """Batches of pictures in files.

    Args:
        generator, data_format, save_to_dir, save_prefix, save_format, dtype: as for
            `ImageIterator`.
        filepaths: the files.
        batch_size, shuffle, seed: as for `Iterator`.
        target_size, color_mode, interpolation, keep_aspect_ratio: as for `utils.load_img`.
    """

    class_mode: str | None = None
    classes: Any = None
    class_indices: dict[str, int]

    def __init__(
        self,
        generator: ImageDataGenerator | None,
        filepaths: list[str],
        batch_size: int,
        shuffle: bool,
        seed: int | None,
        data_format: str | None,
        save_to_dir: PathLike | None,
        save_prefix: str,
        save_format: str,
        dtype: str | None,
        target_size: tuple[int, int],
        color_mode: str,
        interpolation: str,
        keep_aspect_ratio: bool,
    ) -> None:
        who = type(self).__name__
        if color_mode not in MODES:
            raise ValueError(f"{who}: color_mode is one of {list(MODES)}, got {color_mode!r}.")
        if interpolation not in INTERPOLATIONS:
            raise ValueError(
                f"{who}: interpolation is one of {INTERPOLATIONS}, got {interpolation!r}."
            )
        super().__init__(
            len(filepaths), batch_size, shuffle, seed, generator, data_format, save_to_dir,
            save_prefix, save_format, dtype,
        )  # fmt: skip
        self.filepaths, self.samples = filepaths, len(filepaths)
        height, width = target_size
        self.target_size = (int(height), int(width))
        self.color_mode, self.interpolation = color_mode, interpolation
        self.keep_aspect_ratio = keep_aspect_ratio
        channels = (_CHANNELS[color_mode],)
        first = self.data_format == "channels_first"
        self.image_shape = channels + self.target_size if first else self.target_size + channels

    @property
    def labels(self) -> Any:
        """What each picture's target is made from: class numbers, or values of a table."""
        return self.classes

    def _load(self, path: str) -> Array:
        image = load_img(
            path, self.color_mode, self.target_size, self.interpolation, self.keep_aspect_ratio
        )
        return img_to_array(image, self.data_format, self.dtype)

    def _get_batches_of_transformed_samples(self, index_array: Array) -> Any:
        files = (self._load(self.filepaths[i]) for i in index_array)
        batch = self._transformed(files, len(index_array))
        self._save(batch, index_array)
        if self.class_mode is None:
            return batch
        classes = getattr(self, "class_indices", {})
        targets = batch_targets(
            self.class_mode, self.labels, index_array, batch, len(classes), self.dtype
        )
        weights = getattr(self, "sample_weight", None)
        return (batch, targets) if weights is None else (batch, targets, weights[index_array])


class DirectoryIterator(FileIterator):
    """Batches of a folder's pictures, one sub-folder per class.

    Args:
        directory: the folder; files in folders of a class folder belong to its class.
        image_data_generator: transforms the pictures; None: they stay as they are.
        target_size: (height, width) to which pictures are resized.
        color_mode: "grayscale", "rgb" or "rgba".
        classes: names of the classes' folders in the order of their numbers; None: all sub-folders,
            sorted.
        class_mode: "categorical" (one-hot targets), "binary" or "sparse" (class numbers), "input"
            (the pictures themselves) or None (no targets).
        batch_size: pictures in a batch, 1 or more.
        shuffle: whether each epoch has a new order.
        seed: as for `Iterator`.
        data_format: the position of the channel axis; None: `config.image_data_format()`.
        save_to_dir, save_prefix, save_format: as for `ImageDataGenerator.flow`.
        follow_links: whether to go into folders that links lead to.
        subset: "training" or "validation", by the generator's `validation_split`, for each class
            separately; None: all.
        interpolation: "nearest", "bilinear", "bicubic", "box", "hamming" or "lanczos".
        keep_aspect_ratio: whether to crop the middle instead of distorting.
        dtype: dtype of the batches; None: `floatx()`.

    Attributes:
        class_indices: class name -> number.
        classes: the number of each picture's class.
        filenames: the files, seen from the folder.
        filepaths: their full paths.
        samples: number of pictures.

    Raises:
        ValueError: an argument is unknown, or a class has no folder.
        FileNotFoundError: there is no such folder.
    """

    def __init__(
        self,
        directory: PathLike,
        image_data_generator: ImageDataGenerator | None,
        target_size: tuple[int, int] = (256, 256),
        color_mode: str = "rgb",
        classes: Sequence[str] | None = None,
        class_mode: str | None = "categorical",
        batch_size: int = 32,
        shuffle: bool = True,
        seed: int | None = None,
        data_format: str | None = None,
        save_to_dir: PathLike | None = None,
        save_prefix: str = "",
        save_format: str = "png",
        follow_links: bool = False,
        subset: str | None = None,
        interpolation: str = "nearest",
        keep_aspect_ratio: bool = False,
        dtype: str | None = None,
    ) -> None:
        who, self.directory = type(self).__name__, os.fspath(directory)
        check_mode(class_mode, DIRECTORY_MODES, who)
        if not os.path.isdir(self.directory):
            raise FileNotFoundError(f"{who}: there is no folder {self.directory!r}.")
        entries = sorted(entry.name for entry in os.scandir(self.directory) if entry.is_dir())
        names = list(classes) if classes else entries
        missing = [name for name in names if name not in entries]
        if missing:
            raise ValueError(
                f"{who}: the classes {missing} have no folder in {self.directory!r}, which has "
                f"{entries}."
            )
        self.class_mode, self.subset, self.split = class_mode, subset, None
        self.class_indices, self.num_classes = number_classes(names), len(names)
        self.filenames: list[str] = []
        numbers: list[int] = []
        for name in names:
            files = list(_pictures_in(os.path.join(self.directory, name), follow_links))
            kept = files[split_bounds(subset, image_data_generator, len(files), who)]
            self.filenames += [os.path.relpath(path, self.directory) for path in kept]
            numbers += [self.class_indices[name]] * len(kept)
        self.classes = np.array(numbers, "int32")
        super().__init__(
            image_data_generator, [os.path.join(self.directory, f) for f in self.filenames],
            batch_size, shuffle, seed, data_format, save_to_dir, save_prefix, save_format, dtype,
            target_size, color_mode, interpolation, keep_aspect_ratio,
        )  # fmt: skip
        print(f"Found {self.samples} images belonging to {self.num_classes} classes.")


def _pictures_in(folder: str, follow_links: bool) -> Iterates[str]:
    """Yield the paths of a folder's pictures, in the order of their folders and names."""
    for place, _, names in sorted(os.walk(folder, followlinks=follow_links)):
        for name in sorted(names):
            if name.lower().endswith(FORMATS):
                yield os.path.join(place, name)


class DataFrameIterator(FileIterator):
    """Batches of the pictures that a table names.

    Args:
        dataframe: a data frame, or a dict of columns: column name -> as many values as pictures.
        directory: the folder that file names are seen from; None: they are paths.
        image_data_generator: transforms the pictures; None: they stay as they are.
        x_col: the column of the files' names.
        y_col: the column, or columns, of the targets.
        weight_col: the column of the sample weights; None: there are none.
        target_size: (height, width) to which pictures are resized.
        color_mode: "grayscale", "rgb" or "rgba".
        classes: the classes in the order of their numbers, rows of others are left out; None: all
            in the column, sorted.
        class_mode: "categorical" (one-hot targets; a list in a row names several classes), "binary"
            or "sparse" (class numbers), "raw" (the values of `y_col`), "multi_output" (a target for
            each column of `y_col`), "input" (the pictures themselves) or None (no targets).
        batch_size: pictures in a batch, 1 or more.
        shuffle: whether each epoch has a new order.
        seed: as for `Iterator`.
        data_format: the position of the channel axis; None: `config.image_data_format()`.
        save_to_dir, save_prefix, save_format: as for `ImageDataGenerator.flow`.
        subset: "training" or "validation", by the generator's `validation_split`; None: all.
        interpolation, keep_aspect_ratio: as for `DirectoryIterator`.
        dtype: dtype of the batches; None: `floatx()`.
        validate_filenames: whether to leave out, with a warning, rows whose file is missing or is
            no picture by its name.

    Attributes:
        class_indices: class name -> number, where there are classes.
        classes: the number, or list of numbers, of each picture's class.
        filenames: the files, as the table names them.
        filepaths: their paths.
        samples: number of pictures.
        sample_weight: the weights, or None.

    Raises:
        ValueError: an argument is unknown, a column is missing or does not fit.
        TypeError: file names or classes are no texts.
    """

    def __init__(
        self,
        dataframe: Any,
        directory: PathLike | None = None,
        image_data_generator: ImageDataGenerator | None = None,
        x_col: str = "filename",
        y_col: str | Sequence[str] = "class",
        weight_col: str | None = None,
        target_size: tuple[int, int] = (256, 256),
        color_mode: str = "rgb",
        classes: Sequence[str] | None = None,
        class_mode: str | None = "categorical",
        batch_size: int = 32,
        shuffle: bool = True,
        seed: int | None = None,
        data_format: str | None = "channels_last",
        save_to_dir: PathLike | None = None,
        save_prefix: str = "",
        save_format: str = "png",
        subset: str | None = None,
        interpolation: str = "nearest",
        keep_aspect_ratio: bool = False,
        dtype: str | None = "float32",
        validate_filenames: bool = True,
    ) -> None:
        who = type(self).__name__
        check_mode(class_mode, FRAME_MODES, who)
        self.class_mode, self.subset = class_mode, subset
        self.directory = "" if directory is None else os.fspath(directory)
        rows = LabelRows(dataframe, who)
        rows.take(x_col, weight_col, [] if class_mode in ("input", None) else y_col)
        rows.check_texts(x_col)
        if validate_filenames:
            rows.keep([self._is_picture(name) for name in rows.columns[x_col]], x_col)
        if class_mode in CLASS_MODES:
            column = y_col if isinstance(y_col, str) else y_col[0]
            names, kept = classes_of_rows(rows.columns[column], classes, class_mode, column, who)
            rows.keep(kept, None)
            self.class_indices = number_classes(names)
        part = split_bounds(subset, image_data_generator, rows.count(), who)
        columns = {name: values[part] for name, values in rows.columns.items()}
        self.filenames = list(columns[x_col])
        self.sample_weight = None if weight_col is None else np.asarray(columns[weight_col])
        self._targets: Any = None
        if class_mode in CLASS_MODES:
            number = self.class_indices
            self.classes = [
                number[row] if isinstance(row, str) else [number[one] for one in row]
                for row in columns[column]
            ]
        elif class_mode == "multi_output":
            self._targets = [np.array(columns[name]) for name in y_col]
        elif class_mode == "raw":
            names = [y_col] if isinstance(y_col, str) else list(y_col)
            values = [np.array(columns[name]) for name in names]
            self._targets = values[0] if isinstance(y_col, str) else np.stack(values, axis=1)
        super().__init__(
            image_data_generator, [os.path.join(self.directory, f) for f in self.filenames],
            batch_size, shuffle, seed, data_format, save_to_dir, save_prefix, save_format, dtype,
            target_size, color_mode, interpolation, keep_aspect_ratio,
        )  # fmt: skip
        known = getattr(self, "class_indices", None)
        more = "" if known is None else f" belonging to {len(known)} classes"
        print(f"Found {self.samples} validated image filenames{more}.")

    def _is_picture(self, name: str) -> bool:
        path = os.path.join(self.directory, name)
        return name.lower().endswith(FORMATS) and os.path.isfile(path)

    @property
    def labels(self) -> Any:
        """What each picture's target is made from: class numbers, or values of the table."""
        return self.classes if self._targets is None else self._targets
