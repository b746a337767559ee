"""Bounding boxes: their formats, areas, overlaps, and what happens to them when a picture moves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kerasish import config
from kerasish.errors import ShapeError
from kerasish.ops.basic.activation import as_float
from kerasish.ops.basic.arithmetic import add, divide, maximum, minimum, multiply, square, subtract
from kerasish.ops.basic.comparison import greater, less, logical_or, select
from kerasish.ops.basic.conversion import as_tensor, cast
from kerasish.ops.basic.creation import ones_like
from kerasish.ops.basic.exponentials import exp, log
from kerasish.ops.basic.movement import concatenate
from kerasish.ops.basic.reshaping import expand_dims, stack
from kerasish.ops.basic.selection import get_item
from kerasish.ops.basic.statistics import max as largest
from kerasish.ops.basic.statistics import min as least
from kerasish.ops.basic.trigonometry import arctan, cos, sin, tan
from kerasish.ops.op import function
from kerasish.ops.shapes import agree
from kerasish.typing import AnyTensor, Structure, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

FORMATS = (
    "xyxy", "yxyx", "xywh", "center_xywh", "center_yxhw",
    "rel_xyxy", "rel_yxyx", "rel_xywh", "rel_center_xywh",
)  # fmt: skip


def _check_format(name: str, what: str) -> str:
    if str(name).lower() not in FORMATS:
        raise ValueError(f"{what}: the format must be one of {FORMATS}, got {name!r}.")
    return name.lower()


def _rows_first(name: str) -> bool:
    return name.removeprefix("rel_").removeprefix("center_").startswith("y")


def _parts(boxes: AnyTensor) -> list[Any]:
    return [get_item(boxes, (..., i)) for i in range(4)]


def _to_corners(parts: list[Any], name: str) -> list[Any]:
    """Return x1, y1, x2, y2 of four numbers in a format, in that format's unit."""
    a, b, c, d = parts
    if _rows_first(name):  # rows are first, in the pair of sizes as well
        a, b, c, d = b, a, d, c
    if "center" in name:
        return [a - c / 2, b - d / 2, a + c / 2, b + d / 2]
    return [a, b, a + c, b + d] if name.endswith("wh") else [a, b, c, d]


def _from_corners(corners: list[Any], name: str) -> list[Any]:
    x1, y1, x2, y2 = corners
    c, d = (x2 - x1, y2 - y1) if name.endswith(("wh", "hw")) else (x2, y2)
    a, b = (x1 + c / 2, y1 + d / 2) if "center" in name else (x1, y1)
    return [b, a, d, c] if _rows_first(name) else [a, b, c, d]


@function
def convert_format(
    boxes: Structure,
    source: str,
    target: str,
    height: int | None = None,
    width: int | None = None,
    dtype: str = "float32",
) -> Any:
    """Return boxes in another format.

    Args:
        boxes: shape (..., 4), or a dict whose "boxes" are; a dict is returned as a new one.
        source: "xyxy", "yxyx", "xywh", "center_xywh", "center_yxhw" in pixels, or with "rel_"
            before it in shares of the picture (all but center_yxhw).
        target: likewise.
        height: of the picture, in pixels; needed between pixels and shares.
        width: likewise.
        dtype: of the result.

    Example:
        >>> convert_format([[10, 20, 30, 60]], "xyxy", "center_xywh").tolist()
        [[20.0, 40.0, 20.0, 40.0]]
    """
    if isinstance(boxes, dict):
        moved = convert_format(boxes["boxes"], source, target, height, width, dtype)
        return {**boxes, "boxes": moved}
    source, target = (_check_format(n, "convert_format") for n in (source, target))
    x = cast(as_tensor(boxes), dtype)
    if not agree(x.shape[-1], 4):
        raise ShapeError(f"convert_format: boxes must have the shape (..., 4), got {x.shape}.")
    relative = [name.startswith("rel_") for name in (source, target)]
    if any(relative) and (height is None or width is None):
        raise ValueError(
            f"convert_format: from {source!r} to {target!r} needs height and width, got "
            f"height={height}, width={width}."
        )
    if source == target:
        return x
    corners = stack(_to_corners(_parts(x), source), -1)
    if relative[0] != relative[1]:
        size = _size_of(height, width, x.dtype)
        corners = divide(corners, size) if relative[1] else multiply(corners, size)
    return stack(_from_corners(_parts(corners), target), -1)


def _size_of(height: Any, width: Any, dtype: str) -> Tensor:
    """Return (width, height, width, height); sizes of shape (n, 1, 1) give (n, 1, 4)."""
    h, w = (cast(as_tensor(s), dtype) for s in (height, width))
    if len(h.shape) == 0:
        return stack([w, h, w, h], -1)
    return concatenate([w, h, w, h], axis=-1)


@function
def clip_to_image_size(
    bounding_boxes: dict[str, Any],
    height: Any = None,
    width: Any = None,
    bounding_box_format: str = "xyxy",
) -> Any:
    """Return a dict of boxes cut off at the picture's edge; labels of empty ones become -1.

    Args:
        bounding_boxes: "boxes" (..., 4), and if there are any "labels" (...).
        height: of the picture, in pixels; with "rel_xyxy" not needed.
        width: likewise.
        bounding_box_format: "xyxy" or "rel_xyxy".
    """
    if bounding_box_format not in ("xyxy", "rel_xyxy"):
        raise ValueError(
            f"clip_to_image_size: expected 'xyxy' or 'rel_xyxy', got {bounding_box_format!r}."
        )
    boxes = as_float(bounding_boxes["boxes"])
    if bounding_box_format == "rel_xyxy":
        height = width = 1.0
    elif height is None or width is None:
        raise ValueError("clip_to_image_size: boxes in pixels need height and width.")
    boxes = minimum(maximum(boxes, 0), _size_of(height, width, boxes.dtype))
    results = {**bounding_boxes, "boxes": boxes}
    if bounding_boxes.get("labels") is not None:
        x1, y1, x2, y2 = _parts(boxes)
        labels = as_tensor(bounding_boxes["labels"])
        results["labels"] = select(
            greater((x2 - x1) * (y2 - y1), 0), labels, cast(-1, labels.dtype)
        )
    return results


@function
def crop(
    boxes: TensorLike,
    top: int,
    left: int,
    height: int,
    width: int,
    bounding_box_format: str = "xyxy",
) -> Tensor:
    """Return boxes (..., 4) as seen in the part of a picture that begins at (top, left)."""
    _only_corners(bounding_box_format, "crop")
    x = as_float(boxes)
    moved = subtract(x, cast(as_tensor([left, top, left, top]), x.dtype))
    return minimum(maximum(moved, 0), _size_of(height, width, x.dtype))


@function
def pad(
    boxes: TensorLike,
    top: int,
    left: int,
    height: Any = None,
    width: Any = None,
    bounding_box_format: str = "xyxy",
) -> Tensor:
    """Return boxes (..., 4) of a picture that got `top` rows above and `left` columns before."""
    _only_corners(bounding_box_format, "pad")
    x = as_float(boxes)
    return add(x, cast(as_tensor([left, top, left, top]), x.dtype))


def _only_corners(name: str, what: str) -> None:
    if name != "xyxy":
        raise ValueError(
            f"{what}: boxes must be in the format 'xyxy', got {name!r}: use convert_format."
        )


def around_points(xs: list[Any], ys: list[Any]) -> Tensor:
    """Return the smallest boxes (..., 4) around points given as lists of their x and y."""
    x, y = stack(xs, -1), stack(ys, -1)
    return stack([least(x, -1), least(y, -1), largest(x, -1), largest(y, -1)], -1)


def corners_of(boxes: TensorLike) -> tuple[list[Any], list[Any]]:
    """Return the xs and the ys of the four corners of boxes (..., 4)."""
    x1, y1, x2, y2 = _parts(boxes)
    return [x1, x2, x2, x1], [y1, y1, y2, y2]


@function
def affine_transform(
    boxes: TensorLike,
    angle: TensorLike,
    translate_x: TensorLike,
    translate_y: TensorLike,
    scale: TensorLike,
    shear_x: TensorLike,
    shear_y: TensorLike,
    height: int,
    width: int,
    center_x: Any = None,
    center_y: Any = None,
    bounding_box_format: str = "xyxy",
) -> Tensor:
    """Return the boxes around the corners of boxes that turn, move, grow and shear.

    Args:
        boxes: shape (n, boxes, 4), in pixels.
        angle: shape (n,), in degrees; likewise shear_x and shear_y.
        translate_x: shape (n,), as a share of the width; translate_y of the height.
        scale: shape (n,).
        height: of the picture, in pixels.
        width: likewise.
        center_x: of the turn, as a share of the width; None: 0.5; likewise center_y.
        bounding_box_format: "xyxy", the one there is.
    """
    _only_corners(bounding_box_format, "affine_transform")
    cx = multiply(0.5 if center_x is None else center_x, width - 1)
    cy = multiply(0.5 if center_y is None else center_y, height - 1)
    turn, slant_x, slant_y = (
        multiply(as_float(v), -math.pi / 180) for v in (angle, shear_x, shear_y)
    )
    # Turn, then slant: the inverse of this matrix is what a picture's pixels are read through.
    a = cos(turn - slant_y) / cos(slant_y)
    c = sin(turn - slant_y) / cos(slant_y)
    b = a * tan(slant_x) + sin(turn)
    d = cos(turn) + c * tan(slant_x)
    x0 = cx - multiply(translate_x, width - 1)
    y0 = cy - multiply(translate_y, height - 1)

    def wide(v: TensorLike) -> Tensor:
        return expand_dims(v, -1)

    xs, ys = corners_of(as_float(boxes))
    new_x, new_y = [], []
    for x, y in zip(xs, ys):
        dx, dy = x - wide(x0), y - wide(y0)
        new_x.append(add(multiply(wide(scale), wide(d) * dx - wide(b) * dy), wide(cx)))
        new_y.append(add(multiply(wide(scale), wide(c) * dx + wide(a) * dy), wide(cy)))
    return around_points(new_x, new_y)


# --- overlaps -----------------------------------------------------------------------------------


def _shared(a: list[Any], b: list[Any]) -> Tensor:
    across = maximum(minimum(a[2], b[2]) - maximum(a[0], b[0]), 0)
    down = maximum(minimum(a[3], b[3]) - maximum(a[1], b[1]), 0)
    return across * down


def _sizes(image_shape: Any, name: str, what: str) -> tuple[Any, Any]:
    if image_shape is None:
        if "rel" in name:
            raise ValueError(f"{what}: boxes in the format {name!r} need image_shape.")
        return None, None
    return image_shape[0], image_shape[1]


@function
def compute_iou(
    boxes1: Any,
    boxes2: Any,
    bounding_box_format: str,
    use_masking: bool = False,
    mask_val: int = -1,
    image_shape: Any = None,
) -> Tensor:
    """Return |a ∩ b| / |a ∪ b| for each pair of a box of boxes1 and one of boxes2.

    Args:
        boxes1: shape (m, 4) or (n, m, 4).
        boxes2: shape (k, 4) or (n, k, 4).
        bounding_box_format: one of those of `convert_format`.
        use_masking: whether pairs with a box of negative numbers get `mask_val`.
        mask_val: what these pairs get.
        image_shape: (height, width, channels), needed for shares.

    Shape: (m, k) or (n, m, k).
    """
    height, width = _sizes(image_shape, bounding_box_format, "compute_iou")
    first, second = (
        convert_format(b, bounding_box_format, "xyxy", height, width) for b in (boxes1, boxes2)
    )
    for boxes in (first, second):
        if len(boxes.shape) not in (2, 3):
            raise ShapeError(f"compute_iou: expected (m, 4) or (n, m, 4), got {boxes.shape}.")
    a = [expand_dims(p, -1) for p in _parts(first)]
    b = [expand_dims(p, -2) for p in _parts(second)]
    both = _shared(a, b)
    areas = [(p[2] - p[0]) * (p[3] - p[1]) for p in (a, b)]
    result = divide(both, areas[0] + areas[1] - both + config.epsilon())
    if not use_masking:
        return result
    empty = [less(largest(boxes, -1), 0) for boxes in (first, second)]
    masked = logical_or(expand_dims(empty[0], -1), expand_dims(empty[1], -2))
    return select(masked, cast(mask_val, result.dtype), result)


@function
def compute_ciou(
    boxes1: TensorLike, boxes2: TensorLike, bounding_box_format: str, image_shape: Any = None
) -> Tensor:
    """Return the overlap less the distance of the centers and the difference of the ratios.

    Shape: (..., 4), (..., 4) -> (...). Source: Zheng et al., AAAI 2020.
    """
    height, width = _sizes(image_shape, bounding_box_format, "compute_ciou")
    a, b = (
        _parts(convert_format(v, bounding_box_format, "xyxy", height, width))
        for v in (boxes1, boxes2)
    )
    small = config.epsilon()
    wide = [p[2] - p[0] for p in (a, b)]
    high = [p[3] - p[1] + small for p in (a, b)]
    both = _shared(a, b)
    iou = both / (wide[0] * high[0] + wide[1] * high[1] - both + 2 * small)
    hull = square(maximum(a[2], b[2]) - minimum(a[0], b[0])) + square(
        maximum(a[3], b[3]) - minimum(a[1], b[1])
    )
    apart = square((a[0] + a[2] - b[0] - b[2]) / 2) + square((a[1] + a[3] - b[1] - b[3]) / 2)
    ratio = square(arctan(wide[1] / high[1]) - arctan(wide[0] / high[0])) * (4 / math.pi**2)
    weight = ratio / (ratio - iou + (1 + small))
    return iou - (apart / (hull + small) + ratio * weight)


# --- offsets from anchors -----------------------------------------------------------------------


def _spread(variance: Any) -> Tensor:
    if variance is None:
        return ones_like(as_tensor([1.0, 1.0, 1.0, 1.0]))
    spread = as_float(variance)
    if spread.shape[-1] != 4:
        raise ShapeError(f"variance must have 4 numbers, got shape {spread.shape}.")
    return spread


def _centered(name: str, what: str) -> str:
    if name not in ("center_xywh", "center_yxhw"):
        raise ValueError(f"{what} must be 'center_xywh' or 'center_yxhw', got {name!r}.")
    return name


@function
def encode_box_to_deltas(
    anchors: TensorLike,
    boxes: TensorLike,
    anchor_format: str,
    box_format: str,
    encoding_format: str = "center_yxhw",
    variance: Sequence[float] | None = None,
    image_shape: Any = None,
) -> Tensor:
    """Return how boxes differ from anchors: moves in units of their size, logarithms of ratios.

    Args:
        anchors: shape (..., 4).
        boxes: shape (..., 4).
        anchor_format: one of those of `convert_format`; likewise box_format.
        encoding_format: "center_xywh" or "center_yxhw".
        variance: four numbers by which the result is divided, or None.
        image_shape: (height, width, channels), needed for shares.

    Source: Girshick et al., CVPR 2014.
    """
    kind = _centered(encoding_format, "encoding_format")
    height, width = (None, None) if image_shape is None else image_shape[:2]
    base = convert_format(anchors, anchor_format, kind, height, width)
    x = convert_format(boxes, box_format, kind, height, width)
    places, sizes = (slice(None, 2), slice(2, None))
    small = config.epsilon()
    unit = maximum(get_item(base, (..., sizes)), small)
    moves = (get_item(x, (..., places)) - get_item(base, (..., places))) / unit
    growth = log(maximum(get_item(x, (..., sizes)), small) / unit)
    return divide(concatenate([moves, growth], axis=-1), _spread(variance))


@function
def decode_deltas_to_boxes(
    anchors: Structure,
    boxes_delta: dict[Any, Any] | Tensor,
    anchor_format: str,
    box_format: str,
    encoded_format: str = "center_yxhw",
    variance: Sequence[Any] | None = None,
    image_shape: Any = None,
) -> dict[str, Any] | Tensor:
    """Return the boxes that `encode_box_to_deltas` made its numbers of.

    Args:
        anchors: shape (..., 4), or a dict of such, one for each level.
        boxes_delta: likewise.
        anchor_format: one of those of `convert_format`; likewise box_format.
        encoded_format: "center_xywh" or "center_yxhw".
        variance: four numbers by which the offsets are multiplied, or None.
        image_shape: (height, width, channels), needed for shares.
    """
    kind = _centered(encoded_format, "encoded_format")
    if isinstance(anchors, dict):
        rest = (anchor_format, box_format, kind, variance, image_shape)
        return {k: decode_deltas_to_boxes(v, boxes_delta[k], *rest) for k, v in anchors.items()}
    height, width = (None, None) if image_shape is None else image_shape[:2]
    base = convert_format(anchors, anchor_format, kind, height, width)
    deltas = multiply(as_float(boxes_delta), _spread(variance))
    places, sizes = (slice(None, 2), slice(2, None))
    unit = get_item(base, (..., sizes))
    center = get_item(deltas, (..., places)) * unit + get_item(base, (..., places))
    size = exp(get_item(deltas, (..., sizes))) * unit
    return convert_format(concatenate([center, size], axis=-1), kind, box_format, height, width)
