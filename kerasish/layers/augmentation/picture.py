"""What all layers on pictures share: batches or single ones, labels, masks, boxes, draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kerasish import config, ops, random
from kerasish.engine.layer.layer import Layer
from kerasish.errors import ShapeError
from kerasish.layers.options import LayerOptions
from kerasish.ops.images import boxes as box_ops
from kerasish.random import SeedGenerator
from kerasish.signatures import Unpack
from kerasish.tensor import Tensor
from kerasish.typing import AnyTensor, FloatOrTuple, SeedLike, Shape, Structure


def read_interval(
    value: Any, bounds: tuple[float, float], who: str, name: str = "factor"
) -> tuple[Any, Any]:
    """Return (least, most) of a factor given as one number or as two.

    One number f means the interval from -f (cut off at the bounds), or from the lower bound.
    """
    low, high = bounds
    pair = isinstance(value, (list, tuple))
    numbers = list(value) if pair else [value]
    good = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in numbers)
    if not good or len(numbers) != (2 if pair else 1):
        raise ValueError(f"{who}: {name} must be a number or a pair of them, got {value!r}.")
    if max(numbers) > high or min(numbers) < low:
        raise ValueError(f"{who}: {name} must be in [{low}, {high}], got {value!r}.")
    if pair:
        return min(numbers), max(numbers)
    return max(-abs(value), low), abs(value)


def read_range(value: object, who: str) -> list[Any]:
    """Return the least and the largest value that a pixel can have, sorted."""
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise ValueError(f"{who}: value_range must be two numbers, got {value!r}.")
    return sorted(value)


def rescale(x: Tensor, old: Sequence[float], new: Sequence[float]) -> Tensor:
    """Return x with the interval `old` mapped onto `new`."""
    if tuple(old) == tuple(new):
        return x
    return (x - old[0]) / (old[1] - old[0]) * (new[1] - new[0]) + new[0]


def one_of(value: str, known: tuple[str, ...], who: str, name: str) -> str:
    """Return the value if it is known, else raise."""
    if value not in known:
        raise ValueError(f"{who}: {name} must be one of {known}, got {value!r}.")
    return value


class PictureLayer(Layer):
    """Pictures (n, h, w, c) or one (h, w, c), or a dict of them with labels, masks and boxes.

    Subclasses say what is drawn (`draw`), what happens to a batch (`alter`), and if boxes move,
    how (`move_boxes`).

    Args:
        seed: of the drawn numbers; None: drawn.
        data_format: "channels_last" or "channels_first"; None: the default.
        bounding_box_format: how boxes are written, see `utils.bounding_boxes.convert_format`.
    """

    draws = True  # whether anything is drawn
    always = False  # whether the pictures change outside of training, too
    mask_rule = "same"  # segmentation masks: "same", "nearest", or as the "pictures"
    moves = False  # whether boxes move
    interpolation = "bilinear"

    def __init__(
        self,
        *,
        seed: int | None = None,
        data_format: str | None = None,
        bounding_box_format: str | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.data_format = config.standardize_data_format(data_format)
        self.bounding_box_format = bounding_box_format
        self.built = True
        if self.draws:
            self.seed = seed
            self.generator = SeedGenerator(seed)

    # --- for subclasses -----------------------------------------------------------------------

    def draw(self, images: Tensor, seed: SeedLike | None) -> dict[str, Any]:
        """Return what is drawn for a batch (n, h, w, c): a dict."""
        return {"input_shape": tuple(images.shape)}

    def alter(self, images: Tensor, transformation: Structure, interpolation: str) -> Tensor:
        """Return a batch of pictures changed as the transformation says."""
        return images

    def move_boxes(
        self, corners: Tensor, transformation: Structure, size: tuple[Any, ...]
    ) -> tuple[Any, Any]:
        """Return (boxes (n, k, 4) as x1, y1, x2, y2 in pixels, the (height, width) they are in)."""
        return corners, size

    def _uniform(self, shape: Shape, interval: Sequence[float], seed: SeedLike) -> Tensor:
        return random.uniform(shape, interval[0], interval[1], dtype="float32", seed=seed)

    def _happens(self, rows: int, interval: Sequence[float], seed: SeedLike) -> Tensor:
        """Return (n,) booleans, true with a probability that is itself drawn."""
        probability = self._uniform((rows,), interval, seed)
        return ops.less(self._uniform((rows,), (0.0, 1.0), seed), probability)

    @property
    def _first(self) -> bool:
        return self.data_format == "channels_first"

    @property
    def _channel_axis(self) -> int:
        return -3 if self._first else -1

    def _size(self, shape: Shape) -> tuple[int, int]:
        """Return (height, width) of pictures of a shape."""
        return tuple(shape[-2:] if self._first else shape[-3:-1])

    def _cast(self, x: AnyTensor) -> Tensor:
        return ops.cast(x, self.compute_dtype)

    def _rows(self, x: AnyTensor) -> Tensor:
        """Return numbers (n,) as (n, 1, 1, 1) in the compute dtype."""
        x = ops.convert_to_tensor(x)
        x = x if x.dtype == "bool" else self._cast(x)
        return ops.reshape(x, (x.shape[0] if x.shape else 1, 1, 1, 1))

    # --- Keras's methods ------------------------------------------------------------------------

    def get_random_transformation(
        self, data: dict[str, Any] | Tensor, training: bool = True, seed: SeedLike | None = None
    ) -> dict[str, Any] | Tensor | None:
        """Return what is drawn for the data: what the transform methods take."""
        if not (training or self.always):
            return None
        images = ops.convert_to_tensor(data["images"] if isinstance(data, dict) else data)
        images = ops.expand_dims(images, 0) if self._single(images) else images
        return self.draw(images, self._seed(seed))

    def _seed(self, seed: SeedLike | None) -> Any:
        return getattr(self, "generator", None) if seed is None else seed

    def _single(self, images: Tensor) -> bool:
        if len(images.shape) not in (3, 4):
            raise ShapeError(
                f"{self.display_name()}: expected pictures of rank 3 or 4, got shape "
                f"{images.shape}."
            )
        return len(images.shape) == 3

    def _batched(self, f: Callable[[Any], Any], images: Tensor) -> Tensor:
        single = self._single(images)
        y = f(ops.expand_dims(images, 0) if single else images)
        return ops.squeeze(y, 0) if single else y

    def _idle(self, transformation: Structure, training: bool) -> bool:
        return not (training or self.always) or self.draws and transformation is None

    def transform_images(
        self, images: AnyTensor, transformation: Structure = None, training: bool = True
    ) -> Tensor:
        """Return pictures changed as a transformation says."""
        x = self._cast(ops.convert_to_tensor(images))
        if self._idle(transformation, training):
            return x
        return self._batched(lambda x: self.alter(x, transformation, self.interpolation), x)

    def transform_labels(
        self, labels: Tensor, transformation: Structure = None, training: bool = True
    ) -> Tensor:
        """Return the labels of changed pictures."""
        return labels

    def transform_segmentation_masks(
        self, segmentation_masks: AnyTensor, transformation: Structure = None, training: bool = True
    ) -> AnyTensor:
        """Return the masks of changed pictures: where pixels move, theirs do as well."""
        if self.mask_rule == "same" or self._idle(transformation, training):
            return segmentation_masks
        x = ops.convert_to_tensor(segmentation_masks)
        x = self._cast(x) if self.mask_rule == "pictures" else x
        return self._batched(lambda x: self.alter(x, transformation, "nearest"), x)

    def transform_bounding_boxes(
        self,
        bounding_boxes: dict[str, Any],
        transformation: Structure = None,
        training: bool = True,
    ) -> dict[str, Any]:
        """Return the boxes {"boxes": (n, k, 4), "labels": (n, k)} of changed pictures."""
        if not self.moves or self._idle(transformation, training):
            return bounding_boxes
        size = self._size(transformation["input_shape"])
        result = self._moved(self._checked(bounding_boxes), transformation, size)
        return box_ops.convert_format(
            result[0], "xyxy", self.bounding_box_format or "xyxy", *result[1]
        )

    def _moved(
        self, bounding_boxes: dict[str, Any], transformation: Structure, size: tuple[Any, ...]
    ) -> tuple[Any, Any]:
        name = self.bounding_box_format or "xyxy"
        shapes = {k: bounding_boxes[k].shape for k in ("boxes", "labels")}
        rows = (1, *shapes["boxes"]) if len(shapes["boxes"]) == 2 else shapes["boxes"]
        wide = {
            "boxes": ops.reshape(bounding_boxes["boxes"], rows),
            "labels": ops.reshape(bounding_boxes["labels"], rows[:2]),
        }
        boxes = box_ops.convert_format(wide, name, "xyxy", *size)
        corners, size = self.move_boxes(boxes["boxes"], transformation, size)
        result = box_ops.clip_to_image_size({**boxes, "boxes": corners}, *size)
        flat = {k: ops.reshape(result[k], shape) for k, shape in shapes.items()}
        return {**bounding_boxes, **flat}, size

    def _checked(self, bounding_boxes: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(bounding_boxes, dict) or not {"boxes", "labels"} <= set(bounding_boxes):
            raise ValueError(
                f"{self.display_name()}: bounding_boxes must be a dict with 'boxes' and 'labels', "
                f"got {bounding_boxes!r}."
            )
        boxes, labels = (ops.convert_to_tensor(bounding_boxes[k]) for k in ("boxes", "labels"))
        if len(boxes.shape) not in (2, 3) or boxes.shape[-1] != 4:
            raise ShapeError(
                f"{self.display_name()}: boxes must have the shape (k, 4) or (n, k, 4), got "
                f"{boxes.shape}."
            )
        return {**bounding_boxes, "boxes": boxes, "labels": labels}

    def transform_single_image(
        self, image: Tensor, transformation: Structure, training: bool = True
    ) -> Tensor:
        """Return one picture (h, w, c) changed."""
        return self._of_one(self.transform_images, image, transformation, training)

    def transform_single_label(
        self, label: Tensor, transformation: Structure, training: bool = True
    ) -> Tensor:
        """Return one picture's label."""
        return self._of_one(self.transform_labels, label, transformation, training)

    def transform_single_segmentation_mask(
        self, segmentation_mask: AnyTensor, transformation: Structure, training: bool = True
    ) -> Tensor:
        """Return one picture's mask."""
        rule = self.transform_segmentation_masks
        return self._of_one(rule, segmentation_mask, transformation, training)

    def transform_single_bounding_box(
        self, bounding_box: dict[str, Any], transformation: Structure, training: bool = True
    ) -> dict[str, Any]:
        """Return one picture's boxes {"boxes": (k, 4), "labels": (k,)}."""
        boxes = self._checked(bounding_box)
        wide = {k: ops.expand_dims(v, 0) for k, v in boxes.items()}
        result = self.transform_bounding_boxes(wide, transformation, training)
        return {k: ops.squeeze(v, 0) for k, v in result.items()}

    def _of_one(
        self, rule: Callable[..., Any], value: AnyTensor, transformation: Structure, training: bool
    ) -> Tensor:
        wide = ops.expand_dims(ops.convert_to_tensor(value), 0)
        return ops.squeeze(rule(wide, transformation, training), 0)

    def call(self, data: dict[str, Any] | Tensor, training: bool = True) -> dict[str, Any] | Tensor:
        """Change pictures, and the other entries of a dict."""
        transformation = self.get_random_transformation(data, training=training)
        if not isinstance(data, dict):
            return self.transform_images(data, transformation, training)
        if "images" not in data:
            raise ValueError(
                f'{self.display_name()}: a dict must hold "images", got {sorted(data)}.'
            )
        if "bounding_boxes" in data and not self.bounding_box_format:
            raise ValueError(
                f'{self.display_name()}: got "bounding_boxes", but no bounding_box_format: give '
                "one to the "
                f"layer, such as bounding_box_format='xyxy'; known are {box_ops.FORMATS}."
            )
        single = self._single(ops.convert_to_tensor(data["images"]))
        rules = self._rules(single)
        return {
            key: rules[key](value, transformation, training) if key in rules else value
            for key, value in data.items()
        }

    def _rules(self, single: bool) -> dict[str, Any]:
        if single:
            return {
                "images": self.transform_single_image,
                "labels": self.transform_single_label,
                "segmentation_masks": self.transform_single_segmentation_mask,
                "bounding_boxes": self.transform_single_bounding_box,
            }
        return {
            "images": self.transform_images,
            "labels": self.transform_labels,
            "segmentation_masks": self.transform_segmentation_masks,
            "bounding_boxes": lambda boxes, *rest: self.transform_bounding_boxes(
                self._checked(boxes), *rest
            ),
        }

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        result = super().get_config()
        result["data_format"] = self.data_format
        if self.bounding_box_format is not None:
            result["bounding_box_format"] = self.bounding_box_format
        return result


class FactorLayer(PictureLayer):
    """A layer with a factor and a range of values.

    Attributes:
        bounds: the bounds of the factor.
        any_range: whether the range of values is kept as given, unchecked.
    """

    bounds: tuple[float, float]
    any_range = False

    def __init__(
        self,
        factor: FloatOrTuple,
        value_range: Sequence[float] = (0, 255),
        data_format: str | None = None,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(seed=seed, data_format=data_format, **kwargs)
        self.factor = read_interval(factor, self.bounds, self.display_name())
        self.value_range: Any = value_range
        if not self.any_range:
            self.value_range = read_range(value_range, self.display_name())
