"""`ImageDataGenerator`: pictures transformed at random, for programs written for Keras 2."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kerasish import config
from kerasish.ops import dtypes
from kerasish.preprocessing import transforms
from kerasish.preprocessing.files import DataFrameIterator, DirectoryIterator
from kerasish.preprocessing.iterators import NumpyArrayIterator, warn_of_channels
from kerasish.typing import Array, PathLike

_EPSILON = 1e-6


class ImageDataGenerator:
    """Batches of pictures, each transformed at random whenever it is read.

    New programs take `utils.image_dataset_from_directory` and layers such as
    `layers.RandomRotation`, which run inside the model.

    Args:
        featurewise_center: whether to subtract the mean of the data given to `fit`, per channel.
        samplewise_center: whether to subtract each picture's own mean.
        featurewise_std_normalization: whether to divide by the standard deviation of the data
            given to `fit`, per channel; centers, too.
        samplewise_std_normalization: whether to divide by each picture's own standard deviation;
            centers, too.
        zca_whitening: whether to decorrelate the pixels, by the data given to `fit`.
        zca_epsilon: what is added to the singular values of the whitening.
        rotation_range: the largest angle in degrees, to either side.
        width_shift_range: the largest shift along the width: a float below 1 is a part of the
            width, other floats are pixels; an integer n draws whole pixels from -(n - 1) to n - 1;
            a list gives the sizes to draw from.
        height_shift_range: the same along the height. Keras 3.15, and so this class, moves
            pictures along the width by this one, and along the height by `width_shift_range`.
        brightness_range: the smallest and the largest factor of the brightness; None: unchanged.
        shear_range: the largest angle of the shear in degrees, to either side.
        zoom_range: the smallest and the largest factor; a number z means (1 - z, 1 + z).
        channel_shift_range: the largest number added to all channels, to either side.
        fill_mode: what is outside a picture: "constant", "nearest", "reflect" or "wrap".
        cval: value of the pixels outside for "constant".
        horizontal_flip: whether to swap left and right of every second picture, at random.
        vertical_flip: whether to swap top and bottom of every second picture, at random.
        rescale: factor of all values, after the transformations; None or 0: none.
        preprocessing_function: picture -> picture of the same shape, called before `rescale`.
        data_format: the position of the channel axis; None: `config.image_data_format()`.
        validation_split: the part of the data, from 0 to below 1, that `subset="validation"` takes.
        interpolation_order: order of the splines between pixels, 0 to 5; 1 is bilinear.
        dtype: dtype of the batches; None: `floatx()`.

    Attributes:
        mean, std: per channel, after `fit`; else None.
        zca_whitening_matrix: after `fit`; else None.

    Random numbers are drawn from NumPy's global generator, as in Keras: `np.random.seed`, or the
    argument `seed` of the methods, gives the same batches as there.

    Raises:
        ValueError: an argument is out of its range.

    Example:
        >>> generator = ImageDataGenerator(rotation_range=20, horizontal_flip=True, rescale=1 / 255)
        >>> batches = generator.flow(np.zeros((10, 8, 8, 3)), np.arange(10), batch_size=4, seed=1)
        >>> x, y = next(batches)
        >>> x.shape, len(batches)
        ((4, 8, 8, 3), 3)
    """

    def __init__(
        self,
        featurewise_center: bool = False,
        samplewise_center: bool = False,
        featurewise_std_normalization: bool = False,
        samplewise_std_normalization: bool = False,
        zca_whitening: bool = False,
        zca_epsilon: float = 1e-6,
        rotation_range: float = 0,
        width_shift_range: float | Sequence[float] = 0.0,
        height_shift_range: float | Sequence[float] = 0.0,
        brightness_range: Sequence[float] | None = None,
        shear_range: float = 0.0,
        zoom_range: float | Sequence[float] = 0.0,
        channel_shift_range: float = 0.0,
        fill_mode: str = "nearest",
        cval: float = 0.0,
        horizontal_flip: bool = False,
        vertical_flip: bool = False,
        rescale: float | None = None,
        preprocessing_function: Callable[[Array], Array] | None = None,
        data_format: str | None = None,
        validation_split: float = 0.0,
        interpolation_order: int = 1,
        dtype: str | None = None,
    ) -> None:
        who = "ImageDataGenerator"
        self.data_format = config.standardize_data_format(data_format)
        first = self.data_format == "channels_first"
        self.channel_axis, self.row_axis, self.col_axis = (1, 2, 3) if first else (3, 1, 2)
        self.dtype = dtypes.name_of(dtype or config.floatx())
        self.samplewise_center = samplewise_center
        self.samplewise_std_normalization = samplewise_std_normalization
        self.featurewise_center = featurewise_center
        self.featurewise_std_normalization = featurewise_std_normalization
        self.zca_whitening, self.zca_epsilon = zca_whitening, zca_epsilon
        self.rotation_range, self.shear_range = rotation_range, shear_range
        self.width_shift_range, self.height_shift_range = width_shift_range, height_shift_range
        self.channel_shift_range = channel_shift_range
        self.fill_mode, self.cval = fill_mode, cval
        self.horizontal_flip, self.vertical_flip = horizontal_flip, vertical_flip
        self.rescale, self.preprocessing_function = rescale, preprocessing_function
        self.interpolation_order = interpolation_order
        if fill_mode not in transforms.FILL_MODES:
            raise ValueError(
                f"{who}: fill_mode is one of {transforms.FILL_MODES}, got {fill_mode!r}."
            )
        if not 0 <= validation_split < 1:
            raise ValueError(
                f"{who}: validation_split is from 0 to below 1, got {validation_split!r}."
            )
        self.validation_split = validation_split
        if isinstance(zoom_range, (int, float, np.number)):
            zoom_range = (1 - float(zoom_range), 1 + float(zoom_range))
        self.zoom_range = transforms.pair(zoom_range, f"{who}: zoom_range")
        self.brightness_range = (
            None
            if brightness_range is None
            else transforms.pair(brightness_range, f"{who}: brightness_range")
        )
        self.mean: Array | None = None
        self.std: Array | None = None
        self.zca_whitening_matrix: Array | None = None
        self._check_statistics()

    def _check_statistics(self) -> None:
        """Turn on what other statistics need, as Keras does, with a warning."""
        changes = []
        if self.zca_whitening and self.featurewise_std_normalization:
            self.featurewise_std_normalization = False
            changes.append("zca_whitening turns featurewise_std_normalization off")
        for holder, needed in (
            ("zca_whitening", "featurewise_center"),
            ("featurewise_std_normalization", "featurewise_center"),
            ("samplewise_std_normalization", "samplewise_center"),
        ):
            if getattr(self, holder) and not getattr(self, needed):
                setattr(self, needed, True)
                changes.append(f"{holder} turns {needed} on")
        for change in changes:
            warnings.warn(f"ImageDataGenerator: {change}.", stacklevel=3)

    # --- batches --------------------------------------------------------------------------------

    def flow(
        self,
        x: Any,
        y: Any = None,
        batch_size: int = 32,
        shuffle: bool = True,
        sample_weight: Any = None,
        seed: int | None = None,
        save_to_dir: PathLike | None = None,
        save_prefix: str = "",
        save_format: str = "png",
        ignore_class_split: bool = False,
        subset: str | None = None,
    ) -> NumpyArrayIterator:
        """Return batches of arrays; see `NumpyArrayIterator`.

        Args:
            x: pictures with 4 axes, or (pictures, other inputs), where the others stay as they are.
            y: targets; None: the batches have none.
            batch_size: pictures in a batch, 1 or more.
            shuffle: whether each epoch has a new order.
            sample_weight: a weight for each picture, or None.
            seed: makes orders and transformations repeatable; None: they continue.
            save_to_dir: a folder to which each picture of a batch is written; None: none.
            save_prefix: how the names of these files begin.
            save_format: their format.
            ignore_class_split: whether a split may leave classes out of a part.
            subset: "training" or "validation", where the generator has a `validation_split`.

        Raises:
            ValueError: lengths or axes do not fit, or an argument is unknown.
        """
        return NumpyArrayIterator(
            x, y, self, batch_size, shuffle, sample_weight, seed, self.data_format, save_to_dir,
            save_prefix, save_format, subset, ignore_class_split, self.dtype,
        )  # fmt: skip

    def flow_from_directory(
        self,
        directory: PathLike,
        target_size: tuple[int, int] = (256, 256),
        color_mode: str = "rgb",
        classes: Sequence[str] | None = None,
        class_mode: str | None = "categorical",
        batch_size: int = 32,
        shuffle: bool = True,
        seed: int | None = None,
        save_to_dir: PathLike | None = None,
        save_prefix: str = "",
        save_format: str = "png",
        follow_links: bool = False,
        subset: str | None = None,
        interpolation: str = "nearest",
        keep_aspect_ratio: bool = False,
    ) -> DirectoryIterator:
        """Return batches of a folder's pictures, one sub-folder per class.

        Args:
            directory, target_size, color_mode, classes, class_mode, batch_size, shuffle, seed,
                save_to_dir, save_prefix, save_format, follow_links, subset, interpolation,
                keep_aspect_ratio: as for `DirectoryIterator`.

        Raises:
            ValueError: an argument is unknown, or a class has no folder.
            FileNotFoundError: there is no such folder.
        """
        return DirectoryIterator(
            directory, self, target_size, color_mode, classes, class_mode, batch_size, shuffle,
            seed, self.data_format, save_to_dir, save_prefix, save_format, follow_links, subset,
            interpolation, keep_aspect_ratio, self.dtype,
        )  # fmt: skip

    def flow_from_dataframe(
        self,
        dataframe: Any,
        directory: PathLike | None = None,
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
        save_to_dir: PathLike | None = None,
        save_prefix: str = "",
        save_format: str = "png",
        subset: str | None = None,
        interpolation: str = "nearest",
        validate_filenames: bool = True,
        **kwargs: Any,
    ) -> DataFrameIterator:
        """Return batches of the pictures that a table names.

        Args:
            dataframe, directory, x_col, y_col, weight_col, target_size, color_mode, classes,
                class_mode, batch_size, shuffle, seed, save_to_dir, save_prefix, save_format,
                subset, interpolation, validate_filenames: as for `DataFrameIterator`.
            kwargs: `keep_aspect_ratio` as there; `has_ext`, `sort` and `drop_duplicates` of older
                programs have no effect.

        Raises:
            ValueError: an argument is unknown, or a column does not fit.
            TypeError: file names or classes are no texts.
        """
        keep = bool(kwargs.pop("keep_aspect_ratio", False))
        for name in kwargs:
            if name not in ("has_ext", "sort", "drop_duplicates"):
                raise TypeError(f"flow_from_dataframe() got an unexpected argument {name!r}.")
            warnings.warn(f"flow_from_dataframe: {name!r} has no effect.", stacklevel=2)
        return DataFrameIterator(
            dataframe, directory, self, x_col, y_col, weight_col, target_size, color_mode, classes,
            class_mode, batch_size, shuffle, seed, self.data_format, save_to_dir, save_prefix,
            save_format, subset, interpolation, keep, self.dtype, validate_filenames,
        )  # fmt: skip

    # --- single pictures ------------------------------------------------------------------------

    def get_random_transform(
        self, img_shape: Sequence[int], seed: int | None = None
    ) -> dict[str, Any]:
        """Return parameters of a random transformation, as `apply_transform` takes them.

        Args:
            img_shape: the picture's shape, 3 sizes.
            seed: given to `np.random.seed` first; None: the random numbers continue.

        Returns:
            "theta", "tx", "ty", "shear", "zx", "zy", "flip_horizontal", "flip_vertical",
            "channel_shift_intensity" and "brightness".
        """
        if seed is not None:
            np.random.seed(seed)
        draw = np.random.uniform
        height, width = img_shape[self.row_axis - 1], img_shape[self.col_axis - 1]
        result: dict[str, Any] = {}
        rotation, shear = self.rotation_range, self.shear_range
        # The order of the draws is Keras's: one seed gives one transformation in both.
        result["theta"] = draw(-rotation, rotation) if rotation else 0
        result["tx"] = _draw_shift(self.height_shift_range, height)
        result["ty"] = _draw_shift(self.width_shift_range, width)
        result["shear"] = draw(-shear, shear) if shear else 0
        result["zx"], result["zy"] = (
            (1, 1) if self.zoom_range == (1, 1) else draw(*self.zoom_range, 2)
        )
        result["flip_horizontal"] = bool(np.random.random() < 0.5) and self.horizontal_flip
        result["flip_vertical"] = bool(np.random.random() < 0.5) and self.vertical_flip
        shift, bright = self.channel_shift_range, self.brightness_range
        result["channel_shift_intensity"] = draw(-shift, shift) if shift else None
        result["brightness"] = None if bright is None else draw(*bright)
        return result

    def apply_transform(self, x: Array, transform_parameters: Mapping[str, Any]) -> Array:
        """Return a picture transformed as the parameters say.

        Args:
            x: the picture, with 3 axes.
            transform_parameters: what `get_random_transform` gives; missing ones change nothing.

        Raises:
            ValueError: the shape does not fit.
            ImportError: "brightness" is given, and Pillow is not installed.
        """
        given = transform_parameters
        row, col, channel = self.row_axis - 1, self.col_axis - 1, self.channel_axis - 1
        x = transforms.apply_affine_transform(
            x, given.get("theta", 0), given.get("tx", 0), given.get("ty", 0), given.get("shear", 0),
            given.get("zx", 1), given.get("zy", 1), row, col, channel, self.fill_mode, self.cval,
            self.interpolation_order,
        )  # fmt: skip
        if given.get("channel_shift_intensity") is not None:
            x = transforms.apply_channel_shift(x, given["channel_shift_intensity"], channel)
        if given.get("flip_horizontal", False):
            x = np.flip(x, col)
        if given.get("flip_vertical", False):
            x = np.flip(x, row)
        if given.get("brightness") is not None:
            x = transforms.apply_brightness_shift(x, given["brightness"], False, self.data_format)
        return x

    def random_transform(self, x: Array, seed: int | None = None) -> Array:
        """Return a picture transformed at random.

        Args:
            x: the picture, with 3 axes.
            seed: given to `np.random.seed` first; None: the random numbers continue.
        """
        return self.apply_transform(x, self.get_random_transform(np.shape(x), seed))

    def standardize(self, x: Array) -> Array:
        """Return pictures with the generator's function, rescaling and statistics applied.

        Args:
            x: a picture or a batch; it stays as it is.
        """
        x = np.asarray(x)
        if self.preprocessing_function is not None:
            x = np.asarray(self.preprocessing_function(x.copy()))
        x = x.astype(self.dtype)
        if self.rescale:
            x *= self.rescale
        if self.samplewise_center:
            x -= np.mean(x, keepdims=True)
        if self.samplewise_std_normalization:
            x /= np.std(x, keepdims=True) + _EPSILON
        if self.featurewise_center and self._is_fitted(self.mean, "featurewise_center"):
            x -= self.mean
        if self.featurewise_std_normalization and self._is_fitted(
            self.std, "featurewise_std_normalization"
        ):
            x /= self.std + _EPSILON  # type: ignore[operator]
        if self.zca_whitening and self._is_fitted(self.zca_whitening_matrix, "zca_whitening"):
            size = int(np.prod(x.shape[-3:]))
            x = (x.reshape(-1, size) @ self.zca_whitening_matrix).reshape(x.shape)
        return x

    def _is_fitted(self, value: Array | None, what: str) -> bool:
        if value is None:
            warnings.warn(
                f"ImageDataGenerator: {what} is on, but the generator has seen no data, so it has "
                "no effect. Call fit(x_train) first.",
                stacklevel=3,
            )
        return value is not None

    def fit(
        self, x: Array, augment: bool = False, rounds: int = 1, seed: int | None = None
    ) -> None:
        """Compute mean, standard deviation and whitening of data, as far as they are turned on.

        Args:
            x: pictures, with 4 axes; `rescale` is applied to them first.
            augment: whether to compute them from randomly transformed pictures.
            rounds: how many transformations of each picture, with `augment`.
            seed: given to `np.random.seed` first; None: the random numbers continue.

        Raises:
            ValueError: x does not have 4 axes.
        """
        array = np.array(x, dtype=dtypes.array_dtype(self.dtype))
        if array.ndim != 4:
            raise ValueError(f"ImageDataGenerator.fit: expected 4 axes, got shape {array.shape}.")
        warn_of_channels(array, self.channel_axis, "ImageDataGenerator.fit")
        if seed is not None:
            np.random.seed(seed)
        if self.rescale:
            array *= self.rescale
        if augment:
            array = np.stack([self.random_transform(one) for _ in range(rounds) for one in array])
        axes = (0, self.row_axis, self.col_axis)
        if self.featurewise_center:
            self.mean = array.mean(axes, keepdims=True)[0]
            array = array - self.mean
        if self.featurewise_std_normalization:
            self.std = array.std(axes, keepdims=True)[0]
            array = array / (self.std + _EPSILON)
        if self.zca_whitening:
            count = len(array)
            u, s, _ = np.linalg.svd(array.reshape(count, -1).T, full_matrices=False)
            self.zca_whitening_matrix = (u * (np.sqrt(count) / (s + self.zca_epsilon))) @ u.T


def _draw_shift(given: Any, size: int) -> float:
    """Return a random shift in pixels."""
    if np.ndim(given) == 0 and not given:
        return 0.0
    if isinstance(given, (float, np.floating)):
        shift = np.random.uniform(-given, given)
    else:
        shift = np.random.choice(given) * np.random.choice([-1, 1])
    return shift * size if np.max(given) < 1 else shift
