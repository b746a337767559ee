"""Boxes and masks drawn into pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasish import config
from kerasish.errors import ShapeError
from kerasish.ops.images.boxes import convert_format
from kerasish.typing import Array
from kerasish.utils.images import pillow

_FONT_PIXELS = 12  # height of letters at font_scale 1


def as_pictures(images: Array, data_format: str | None, what: str) -> Array:
    """Return a batch of pictures as a NumPy array with channels last.

    Raises:
        ShapeError: it has not 4 axes.
    """
    pictures = np.asarray(images)
    if pictures.ndim != 4:
        raise ShapeError(
            f"{what}: expected pictures (n, height, width, channels), got {pictures.shape}."
        )
    first = config.standardize_data_format(data_format) == "channels_first"
    return pictures.transpose(0, 2, 3, 1) if first else pictures


def draw_bounding_boxes(
    images: Array,
    bounding_boxes: dict[str, Any] | Sequence[int],
    bounding_box_format: str,
    class_mapping: dict[Any, Any] | None = None,
    color: Sequence[int] = (128, 128, 128),
    line_thickness: int = 2,
    text_thickness: int = 1,
    font_scale: float = 1.0,
    data_format: str | None = None,
) -> Array:
    """Return pictures with boxes and the names of their classes drawn on them.

    Args:
        images: (n, height, width, channels), numbers from 0 to 255.
        bounding_boxes: a dict of "boxes" (n, k, 4), "labels" (n, k; -1 for no box) and, if there
            are any, "confidences" (n, k).
        bounding_box_format: "xyxy", "yxyx", "xywh", "center_xywh", "rel_xyxy" ...
        class_mapping: class number -> name; None draws no names.
        color: red, green, blue, 0 to 255.
        line_thickness: pixels.
        text_thickness: pixels of the letters' outline.
        font_scale: size of the letters; 1 is about 12 pixels.
        data_format: the place of the channels; None: the process's.

    Shape: as `images`, channels last, uint8.

    Raises:
        ShapeError: `images` has not 4 axes.
        TypeError, ValueError: `bounding_boxes` is no dict, or lacks "boxes" or "labels".

    Example:
        >>> import numpy as np
        >>> boxes = {"boxes": np.array([[[2, 2, 9, 9]]]), "labels": np.array([[0]])}
        >>> draw_bounding_boxes(np.zeros((1, 16, 16, 3)), boxes, "xyxy").shape
        (1, 16, 16, 3)
    """
    pictures = as_pictures(images, data_format, "draw_bounding_boxes").astype("uint8")
    if not isinstance(bounding_boxes, dict):
        kind = type(bounding_boxes).__name__
        raise TypeError(f"draw_bounding_boxes: bounding_boxes is a dict, got {kind}.")
    missing = [key for key in ("boxes", "labels") if key not in bounding_boxes]
    if missing:
        raise ValueError(f"draw_bounding_boxes: bounding_boxes lacks {missing}.")
    height, width = pictures.shape[1:3]
    corners = np.asarray(
        convert_format(bounding_boxes["boxes"], bounding_box_format, "xyxy", height, width)
    )
    labels = np.asarray(bounding_boxes["labels"])
    shares = bounding_boxes.get("confidences")
    result = pictures.copy()
    for i, picture in enumerate(result):
        for j, (box, label) in enumerate(zip(corners[i], labels[i])):
            if label < 0:
                continue
            _draw_frame(picture, box, color, max(1, int(line_thickness)))
            if class_mapping is not None:
                name = str(class_mapping.get(int(label), int(label)))
                text = name if shares is None else f"{name} {float(np.asarray(shares)[i][j]):.2f}"
                _write(picture, text, box, color, font_scale, text_thickness)
    return result


def _draw_frame(picture: Array, box: Array, color: Any, thick: int) -> None:
    height, width, channels = picture.shape
    x1, y1, x2, y2 = (round(float(v)) for v in box)
    half = thick // 2
    ink = np.asarray(color, "uint8")[:channels]

    def fill(top: int, bottom: int, left: int, right: int) -> None:
        rows = slice(max(top, 0), max(min(bottom, height), 0))
        columns = slice(max(left, 0), max(min(right, width), 0))
        picture[rows, columns] = ink

    for y in (y1, y2):
        fill(y - half, y - half + thick, x1 - half, x2 - half + thick)
    for x in (x1, x2):
        fill(y1 - half, y2 - half + thick, x - half, x - half + thick)


def _write(picture: Array, text: str, box: Array, color: Any, scale: float, thick: int) -> None:
    from PIL import ImageDraw, ImageFont

    channels = picture.shape[-1]
    page = pillow().fromarray(picture[..., 0] if channels == 1 else picture)
    size = max(6.0, _FONT_PIXELS * float(scale))
    ink = tuple(int(c) for c in color)
    place = (float(box[0]), max(0.0, float(box[1]) - size - 2))
    ImageDraw.Draw(page).text(
        place, text, fill=ink[0] if channels == 1 else ink, font=ImageFont.load_default(size=size),
        stroke_width=max(0, int(thick) - 1),
    )  # fmt: skip
    picture[...] = np.asarray(page).reshape(picture.shape)


def draw_segmentation_masks(
    images: Array,
    segmentation_masks: Array,
    num_classes: int | None = None,
    color_mapping: dict[Any, Any] | None = None,
    alpha: float = 0.8,
    blend: bool = True,
    ignore_index: int = -1,
    data_format: str | None = None,
) -> Array:
    """Return pictures with each class of a mask painted in a separate color.

    Args:
        images: (n, height, width, channels), numbers from 0 to 255.
        segmentation_masks: class numbers, (n, height, width) or (n, height, width, 1); 0 is the
            background.
        num_classes: None: the largest number of the masks.
        color_mapping: class number -> (red, green, blue); None: default colors.
        alpha: the share of the color in the mixture, 0 to 1.
        blend: whether to mix at all; False paints the color itself.
        ignore_index: a number that is not painted.
        data_format: the place of the channels; None: the process's.

    Shape: as `images`, channels last, uint8.

    Raises:
        ShapeError: `images` has not 4 axes.
        TypeError: the masks are no integers.

    Example:
        >>> import numpy as np
        >>> masks = np.zeros((1, 8, 8), "int32")
        >>> draw_segmentation_masks(np.zeros((1, 8, 8, 3)), masks, num_classes=2).shape
        (1, 8, 8, 3)
    """
    pictures = as_pictures(images, data_format, "draw_segmentation_masks").astype("uint8")
    masks = np.asarray(segmentation_masks)
    if masks.dtype.kind not in "iub":
        raise TypeError(f"draw_segmentation_masks: masks are integers, got dtype {masks.dtype}.")
    if masks.ndim == 4:
        masks = masks[:, 0] if masks.shape[1] == 1 and masks.shape[-1] != 1 else masks[..., 0]
    count = int(masks.max(initial=0)) if num_classes is None else int(num_classes)
    colors = color_mapping or {k + 1: color for k, color in enumerate(palette(count))}
    painted = pictures.astype("float32")
    share = float(alpha) if blend else 1.0
    for number, color in colors.items():
        if number == ignore_index:
            continue
        where = masks == number
        ink = np.asarray(color, "float32")[: pictures.shape[-1]]
        painted[where] = (1 - share) * painted[where] + share * ink
    return np.clip(painted, 0, 255).astype("uint8")


def palette(count: int) -> list[tuple[int, int, int]]:
    """Return `count` colors around the color circle, neighbors far from each other.

    Example:
        >>> palette(2)
        [(230, 46, 46), (46, 83, 230)]
    """
    import colorsys

    results = []
    for k in range(count):
        hue = (k * 0.6333333) % 1.0
        red, green, blue = colorsys.hsv_to_rgb(hue, 0.8, 0.9)
        results.append((round(red * 255), round(green * 255), round(blue * 255)))
    return results
