"""The cases in which layers on pictures meet Keras's numbers; no framework in here."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

SHAPE = [2, 5, 6, 3]
FIRST = [2, 3, 5, 6]
BOXES = [[[1, 1, 3, 4], [0, 0, 5, 5]], [[2, 0, 6, 2], [1, 2, 4, 5]]]


def _levels(name: str, factor: Any, **more: Any) -> Any:
    yield name, {"factor": factor, **more}, None, {}
    yield name, {"factor": factor, "value_range": [0, 1], **more}, None, {"high": 1.0}
    if name not in ("RandomBrightness", "RandomContrast"):
        first = {"factor": factor, "data_format": "channels_first", **more}
        yield name, first, None, {"shape": FIRST}


def _colors() -> Any:
    for factor in ([0.3, 0.3], [-0.2, -0.2]):
        yield from _levels("RandomBrightness", factor)
        yield from _levels("RandomColorDegeneration", factor)
    yield "RandomContrast", {"factor": 0.5}, {"contrast_factor": [[[[0.5]]], [[[1.7]]]]}, {}
    yield "RandomContrast", {"factor": 0.5, "value_range": [0, 1]}, {
        "contrast_factor": [[[[0.5]]], [[[1.7]]]],
    }, {"high": 1.0}  # fmt: skip
    for factor in ([0.5, 0.5], [0.8, 0.8], [0.0, 0.0]):
        yield from _levels("RandomSaturation", factor)
    for turn in ([0.2, -0.3], [0.5, 0.0]):
        yield "RandomHue", {"factor": 0.5}, {"factor": turn}, {}
        first = {"factor": 0.5, "data_format": "channels_first"}
        yield "RandomHue", first, {"factor": turn}, {"shape": FIRST}
        yield "RandomHue", {"factor": 0.5, "value_range": [0, 1]}, {"factor": turn}, {"high": 1.0}
    yield "RandomGrayscale", {"factor": 1.0}, None, {}
    yield "RandomGrayscale", {"factor": 0.0}, None, {}
    yield "RandomInvert", {"factor": [1.0, 1.0]}, None, {}
    yield "RandomInvert", {}, {"apply_inversion": [True, False]}, {}
    for bits in (1, 3, 5, 8):
        yield from _levels("RandomPosterization", [bits, bits])
    for additions, thresholds in ((0.0, 128.0), (40.0, 90.0)):
        given = {"additions": [[[[additions]]]] * 2, "thresholds": [[[[thresholds]]]] * 2}
        yield "Solarization", {}, given, {}
        yield "Solarization", {"value_range": [0, 1]}, given, {"high": 1.0}
    yield "Solarization", {}, None, {}
    for factor in ([0.0, 0.0], [0.3, 0.3], [0.9, 0.9]):
        yield from _levels("RandomSharpness", factor)
    for sigma in ([0.5, 0.5], [1.0, 1.0]):
        blur = {"factor": [1.0, 1.0], "sigma": sigma}
        yield "RandomGaussianBlur", blur, None, {}
        yield "RandomGaussianBlur", {**blur, "kernel_size": [3, 5]}, None, {}
    yield "RandomGaussianBlur", {}, {
        "should_apply_blur": [True, False], "blur_factor": [0.6, 0.9],
    }, {}  # fmt: skip


def _histograms() -> Any:
    yield "AutoContrast", {}, None, {}
    yield "AutoContrast", {"value_range": [0, 1]}, None, {"high": 1.0}
    yield "AutoContrast", {}, None, {"high": 0.0}
    for bins in (256, 16):
        yield "Equalization", {"bins": bins}, None, {}
        yield "Equalization", {"bins": bins, "value_range": [0, 1]}, None, {"high": 1.0}
        yield "Equalization", {"bins": bins, "data_format": "channels_first"}, None, {
            "shape": FIRST,
        }  # fmt: skip
    yield "Equalization", {}, None, {"high": 0.0}
    name = "ContrastLimitedAdaptiveHistogramEqualization"
    yield name, {}, None, {"shape": [2, 16, 24, 3]}
    yield name, {"tile_grid_size": [2, 3], "clip_limit": 0.0}, None, {"shape": [1, 7, 10, 1]}
    yield name, {"tile_grid_size": [3, 2], "value_range": [0, 1]}, None, {
        "shape": [2, 9, 11, 2], "high": 1.0,
    }  # fmt: skip
    yield name, {"tile_grid_size": [2, 2], "data_format": "channels_first"}, None, {
        "shape": [2, 3, 8, 9],
    }  # fmt: skip


def _moving() -> Any:
    """Pictures with masks and boxes."""
    whole = {"boxes": BOXES, "masks": True}
    for mode in ("horizontal", "vertical", "horizontal_and_vertical"):
        given = {"flips": [[[[True]]], [[[False]]]], "input_shape": SHAPE}
        yield "RandomFlip", {"mode": mode}, given, whole
        yield "RandomFlip", {"mode": mode, "data_format": "channels_first"}, {
            **given, "input_shape": FIRST,
        }, {"shape": FIRST}  # fmt: skip
    for fill in ("reflect", "wrap", "constant", "nearest"):
        for method in ("nearest", "bilinear"):
            more = {"fill_mode": fill, "interpolation": method, "fill_value": 7.0}
            yield "RandomRotation", {"factor": [0.1, 0.1], **more}, None, {}
            yield "RandomTranslation", {
                "height_factor": [0.23, 0.23], "width_factor": [-0.31, -0.31], **more,
            }, None, {}  # fmt: skip
            yield "RandomZoom", {"height_factor": [0.23, 0.23], **more}, None, {}
            given = {"shear_factor": [[0.3, 0.1], [-0.2, 0.4]], "input_shape": SHAPE}
            yield "RandomShear", {"x_factor": 0.5, **more}, given, {}
    first = {"data_format": "channels_first"}
    yield "RandomRotation", {"factor": [0.2, 0.2], **first}, None, {"shape": FIRST}
    zoom = {"height_factor": [-0.2, -0.2], "width_factor": [0.3, 0.3]}
    yield "RandomZoom", {**zoom, **first}, None, {"shape": FIRST}
    yield "RandomRotation", {"factor": [0.05, 0.05]}, None, whole
    yield "RandomTranslation", {
        "height_factor": [0.2, 0.2], "width_factor": [0.5, 0.5], "fill_mode": "constant",
    }, None, whole  # fmt: skip
    yield "RandomZoom", {"height_factor": [0.3, 0.3], "width_factor": [-0.4, -0.4]}, None, whole
    given = {"shear_factor": [[0.3, 0.1], [-0.2, 0.4]], "input_shape": SHAPE}
    yield "RandomShear", {"x_factor": 0.5, "y_factor": 0.5}, given, whole
    end = [[[0, 0], [5.5, 0], [0, 4.5], [4.0, 3.0]], [[0, 0], [5, 0], [0, 4], [5, 4]]]
    start = [[[0, 0], [5, 0], [0, 4], [5, 4]]] * 2
    for chosen in ([True, True], [True, False]):
        given = {
            "apply_perspective": chosen, "start_points": start, "end_points": end,
            "input_shape": SHAPE,
        }  # fmt: skip
        yield "RandomPerspective", {}, given, whole
        yield "RandomPerspective", {"interpolation": "nearest", "fill_value": 3.0}, given, {}


def _framed() -> Any:
    whole = {"boxes": BOXES, "masks": True}
    for height, width in ((3, 4), (2, 3), (5, 6), (7, 4), (4, 9), (8, 8)):
        size = {"height": height, "width": width}
        yield "CenterCrop", size, None, whole
        yield "CenterCrop", {**size, "data_format": "channels_first"}, None, {"shape": FIRST}
        yield "Resizing", size, None, whole
        yield "Resizing", {**size, "crop_to_aspect_ratio": True}, None, whole
        yield "Resizing", {**size, "pad_to_aspect_ratio": True, "fill_value": 3.0}, None, {}
        for method in ("nearest", "bicubic", "lanczos3"):
            yield "Resizing", {**size, "interpolation": method, "antialias": True}, None, {}
        yield "Resizing", size, None, {"dtype": "uint8"}
        yield "RandomCrop", size, None, {"training": False}
    yield "RandomCrop", {"height": 3, "width": 4}, [1, 2], {}
    yield "RandomCrop", {"height": 7, "width": 4}, None, {}
    yield "RandomCrop", {"height": 5, "width": 6}, None, {"masks": True}
    yield "MaxNumBoundingBoxes", {"max_number": 3}, None, {"boxes": BOXES}
    yield "MaxNumBoundingBoxes", {"max_number": 1, "fill_value": 0}, None, {"boxes": BOXES}


def _mixing() -> Any:
    weight = {"mix_weight": [0.3, 0.8], "permutation_order": [1, 0]}
    yield "MixUp", {}, weight, {"labels": True}
    mask = np.zeros(SHAPE, bool)
    mask[0, 1:3, 2:5], mask[1, :2, 1:] = True, True
    given = {**weight, "batch_masks": mask.tolist()}
    yield "CutMix", {}, given, {"labels": True, "masks": True}
    given = {
        "apply_erasing": [True, False], "batch_masks": mask.tolist(), "fill_value": [[[[9.0]]]],
    }  # fmt: skip
    yield "RandomErasing", {}, given, {"labels": True, "masks": True}
    yield "RandomErasing", {"factor": [0.0, 0.0]}, None, {}


CASES = [
    case
    for family in (_colors, _histograms, _moving, _framed, _mixing)
    for case in family()
]  # fmt: skip


def name_of(case: Any) -> str:
    """Return the words under which a case's facts are kept."""
    return f"{case[0]} {json.dumps(case[1:])}"


def pictures(options: Any) -> np.ndarray:
    """Return the pictures of a case, whose numbers anyone can make again."""
    shape = options.get("shape", SHAPE)
    high = options.get("high", 255.0)
    count = int(np.prod(shape))
    x = (np.arange(count) * 37 % 101 / 101 * 0.9 + 0.03).reshape(shape) * (high or 0.0)
    return (x + (0 if high else 5.0)).astype(options.get("dtype", "float32"))


def data_of(case: Any) -> dict[str, Any]:
    """Return what the layer is given: pictures, and the other entries of the case."""
    _, _, _, options = case
    result: dict[str, Any] = {"images": pictures(options)}
    if options.get("masks"):
        mask = np.arange(2 * 5 * 6) * 11 % 7 % 3
        result["segmentation_masks"] = mask.reshape(2, 5, 6, 1).astype("float32")
    if "boxes" in options:
        labels = np.array([[1, 2], [3, 4]], "int32")
        result["bounding_boxes"] = {
            "boxes": np.array(options["boxes"], "float32"),
            "labels": labels,
        }
    if options.get("labels"):
        result["labels"] = np.array([[1, 0, 0], [0, 0, 1]], "float32")
    return result


def layer_of(case: Any, layers: Any) -> Any:
    """Return the layer of `layers` that a case is about."""
    name, args, _, options = case
    args = {k: tuple(v) if isinstance(v, list) else v for k, v in args.items()}
    if "boxes" in options:
        args["bounding_box_format"] = "xyxy"
    return getattr(layers, name)(**args)


def transformation_of(case: Any, convert: Any) -> Any:
    """Return what is given to the transform methods, lists as tensors, or None."""
    given = case[2]
    if given is None or isinstance(given, list):
        return given
    kinds = {"permutation_order": "int32"}
    return {
        k: tuple(v) if k == "input_shape"
        else convert(np.array(v) if isinstance(np.array(v).ravel()[0], np.bool_)
                     else np.array(v, kinds.get(k, "float32")))
        for k, v in given.items()
    }  # fmt: skip


def outputs_of(case: Any, layers: Any, convert: Any) -> dict[str, Any]:
    """Return the arrays that the layer gives, by name."""
    layer, data = layer_of(case, layers), data_of(case)
    training = case[3].get("training", True)
    given = transformation_of(case, convert)
    if given is None:
        if len(data) > 1:
            return _flat(layer(data, training=training))
        return {"images": np.asarray(layer(data["images"], training=training))}
    result = {"images": layer.transform_images(convert(data["images"]), given)}
    if "segmentation_masks" in data:
        mask = convert(data["segmentation_masks"])
        result["segmentation_masks"] = layer.transform_segmentation_masks(mask, given)
    if "labels" in data:
        result["labels"] = layer.transform_labels(convert(data["labels"]), given)
    if "bounding_boxes" in data:
        boxes = {k: convert(v) for k, v in data["bounding_boxes"].items()}
        result["bounding_boxes"] = layer.transform_bounding_boxes(boxes, given)
    return _flat(result)


def _flat(result: Any) -> dict[str, Any]:
    boxes = result.pop("bounding_boxes", None) or {}
    result = {**result, **{f"box_{k}": v for k, v in boxes.items()}}
    return {k: np.asarray(v) for k, v in result.items()}
