"""Many pictures side by side, with Matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasish.typing import Array, PathLike, Structure
from kerasish.visualization.drawing import as_pictures, draw_bounding_boxes, draw_segmentation_masks


def _pyplot() -> Any:
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("Galleries need Matplotlib: pip install 'kerasish[plot]'") from error
    return pyplot


def _bytes_of(
    images: Array, value_range: Sequence[float], data_format: str | None, what: str
) -> Array:
    """Return pictures as uint8 from 0 to 255."""
    low, high = value_range
    pictures = as_pictures(images, data_format, what).astype("float32")
    return np.clip((pictures - low) * (255.0 / (high - low)), 0, 255).astype("uint8")


def _grid(count: int, rows: int | None, cols: int | None) -> tuple[int, int]:
    if rows is None and cols is None:
        cols = int(np.ceil(np.sqrt(count)))
    if cols is None:
        cols = -(-count // int(rows or 1))
    return int(rows if rows is not None else -(-count // cols)), cols


def plot_image_gallery(
    images: Array,
    y_true: Sequence[int] | None = None,
    y_pred: Structure = None,
    label_map: Structure = None,
    rows: int | None = None,
    cols: int | None = None,
    value_range: Sequence[float] = (0, 255),
    scale: float = 2,
    path: PathLike | None = None,
    show: bool | None = None,
    transparent: bool = True,
    dpi: int = 60,
    legend_handles: Structure = None,
    data_format: str | None = None,
) -> None:
    """Show pictures in rows and columns, true and predicted classes beneath them.

    Args:
        images: (n, height, width, channels).
        y_true, y_pred: class numbers (n,); None: none.
        label_map: class number -> name; needed for `y_true` and `y_pred`; None: none.
        rows, cols: of the grid; None: about a square.
        value_range: the least and largest number of the pictures.
        scale: inches a picture.
        path: a file to write the gallery to; None: none.
        show: whether to open a window; None: where no `path` is given.
        transparent: whether the file's background is.
        dpi: dots an inch of the file.
        legend_handles: Matplotlib's patches for a legend; None: no legend.
        data_format: the place of the channels; None: the process's.

    Raises:
        ShapeError: `images` has not 4 axes.
        ValueError: classes without names, or both `path` and `show`.

    Example:
        >>> plot_image_gallery(images, labels, label_map={0: "cat", 1: "dog"})  # doctest: +SKIP
    """
    if path is not None and show:
        raise ValueError("plot_image_gallery: give path or show=True, not both.")
    if (y_true is not None or y_pred is not None) and label_map is None:
        raise ValueError("plot_image_gallery: y_true and y_pred need label_map={number: name}.")
    pictures = _bytes_of(images, value_range, data_format, "plot_image_gallery")
    rows, cols = _grid(len(pictures), rows, cols)
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(
        rows, cols, figsize=(cols * scale, rows * scale), squeeze=False, layout="constrained"
    )
    for i, place in enumerate(axes.ravel()):
        place.set_axis_off()
        if i >= len(pictures):
            continue
        picture = pictures[i]
        place.imshow(picture[..., 0] if picture.shape[-1] == 1 else picture, cmap="gray")
        said = [("true", y_true), ("predicted", y_pred)]
        lines = [
            f"{name}: {label_map.get(int(np.asarray(ys)[i]), '?')}"
            for name, ys in said
            if ys is not None
        ]
        if lines:
            place.set_title("\n".join(lines), fontsize=8)
    if legend_handles is not None:
        figure.legend(handles=legend_handles, loc="lower center")
    if path is not None:
        figure.savefig(path, transparent=transparent, dpi=dpi)
    if show or (show is None and path is None):
        pyplot.show()
    pyplot.close(figure)


def plot_bounding_box_gallery(
    images: Array,
    bounding_box_format: str,
    y_true: dict[str, Any] | None = None,
    y_pred: Structure = None,
    value_range: Sequence[float] = (0, 255),
    true_color: Sequence[int] = (0, 188, 212),
    pred_color: Sequence[int] = (255, 235, 59),
    line_thickness: int = 2,
    font_scale: float = 1.0,
    text_thickness: int | None = None,
    class_mapping: Structure = None,
    ground_truth_mapping: Structure = None,
    prediction_mapping: Structure = None,
    legend: bool = False,
    legend_handles: Structure = None,
    rows: int | None = None,
    cols: int | None = None,
    data_format: str | None = None,
    **kwargs: Any,
) -> None:
    """Show pictures with true and predicted boxes; see `draw_bounding_boxes`.

    Args:
        images: (n, height, width, channels).
        bounding_box_format: of the boxes.
        y_true, y_pred: dicts of "boxes", "labels" and perhaps "confidences"; None: none.
        value_range: the least and largest number of the pictures.
        true_color, pred_color: red, green, blue, 0 to 255.
        line_thickness: pixels of a box's lines.
        font_scale: size of the letters; 1 is about 12 pixels.
        text_thickness: pixels of the letters' outline; None: by the lines.
        class_mapping: class number -> name, for both; None: one for each, or no names.
        ground_truth_mapping, prediction_mapping: class number -> name; None: `class_mapping`.
        legend: whether to say which color is which.
        legend_handles: Matplotlib's entries of the legend; None: made here.
        rows: rows of pictures; None: by their number.
        cols: columns of pictures; None: by their number.
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.
        kwargs: for `plot_image_gallery`.

    Example:
        >>> plot_bounding_box_gallery(images, "xyxy", y_true=boxes)  # doctest: +SKIP
    """
    if legend and legend_handles is not None:
        raise ValueError("plot_bounding_box_gallery: give legend=True or legend_handles, not both.")
    pictures = _bytes_of(images, value_range, data_format, "plot_bounding_box_gallery")
    both = (
        (y_true, true_color, ground_truth_mapping or class_mapping),
        (y_pred, pred_color, prediction_mapping or class_mapping),
    )
    for boxes, color, names in both:
        if boxes is not None:
            pictures = draw_bounding_boxes(
                pictures, boxes, bounding_box_format, names, color, line_thickness,
                text_thickness or max(1, line_thickness // 2), font_scale, "channels_last",
            )  # fmt: skip
    if legend:
        legend_handles = _patches({"true": true_color, "predicted": pred_color})
    plot_image_gallery(
        pictures, rows=rows, cols=cols, legend_handles=legend_handles,
        data_format="channels_last", **kwargs,
    )  # fmt: skip


def _patches(colors: dict[str, Any]) -> list[Any]:
    _pyplot()
    from matplotlib.patches import Patch

    return [Patch(color=np.asarray(c) / 255.0, label=name) for name, c in colors.items()]


def plot_segmentation_mask_gallery(
    images: Array,
    num_classes: int,
    value_range: Sequence[float] = (0, 255),
    y_true: Array = None,
    y_pred: Structure = None,
    color_mapping: Structure = None,
    blend: bool = True,
    alpha: float = 0.8,
    ignore_index: int = -1,
    data_format: str | None = None,
    **kwargs: Any,
) -> None:
    """Show pictures, next to each its true and its predicted mask; see `draw_segmentation_masks`.

    Args:
        images: (n, height, width, channels).
        num_classes: how many classes the masks have.
        value_range: the least and largest number of the pictures.
        y_true, y_pred: masks; None: none.
        color_mapping, blend, alpha, ignore_index: as there.
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.
        kwargs: for `plot_image_gallery`.

    Example:
        >>> plot_segmentation_mask_gallery(images, 3, y_true=masks)  # doctest: +SKIP
    """
    what = "plot_segmentation_mask_gallery"
    pictures = _bytes_of(images, value_range, data_format, what)
    columns = [pictures]
    for masks in (y_true, y_pred):
        if masks is not None:
            columns.append(
                draw_segmentation_masks(
                    pictures, masks, num_classes, color_mapping, alpha, blend, ignore_index,
                    "channels_last",
                )
            )  # fmt: skip
    side_by_side = np.concatenate(columns, axis=2)
    plot_image_gallery(side_by_side, data_format="channels_last", **kwargs)
