"""Boxes and masks drawn into pictures; galleries as files."""

from __future__ import annotations

import numpy as np
import pytest

from kerasish import visualization
from kerasish.errors import ShapeError

BLACK = np.zeros((2, 20, 30, 3), "uint8")
BOXES = {"boxes": np.array([[[5, 4, 15, 12]], [[0, 0, 0, 0]]]), "labels": np.array([[1], [-1]])}


def test_a_frame_is_drawn_where_the_box_is():
    drawn = visualization.draw_bounding_boxes(
        BLACK, BOXES, "xyxy", color=(9, 8, 7), line_thickness=1
    )
    expected = np.zeros((20, 30), bool)
    expected[4, 5:16] = expected[12, 5:16] = expected[4:13, 5] = expected[4:13, 15] = True
    np.testing.assert_array_equal((drawn[0] == (9, 8, 7)).all(-1), expected)
    assert not drawn[1].any() and not BLACK.any()


@pytest.mark.parametrize(
    ("form", "box"),
    [
        ("yxyx", [4, 5, 12, 15]),
        ("xywh", [5, 4, 10, 8]),
        ("center_xywh", [10, 8, 10, 8]),
        ("rel_xyxy", [5 / 30, 4 / 20, 15 / 30, 12 / 20]),
    ],
)
def test_formats_of_boxes_agree(form, box):
    boxes = {"boxes": np.array([[box], [box]], "float32"), "labels": BOXES["labels"]}
    drawn = visualization.draw_bounding_boxes(BLACK, boxes, form)
    np.testing.assert_array_equal(drawn, visualization.draw_bounding_boxes(BLACK, BOXES, "xyxy"))


@pytest.mark.parametrize("channels", [1, 3])
def test_names_are_written(channels):
    black = np.zeros((1, 60, 90, channels), "uint8")
    boxes = {"boxes": [[[20, 40, 60, 55]]], "labels": [[3]], "confidences": [[0.5]]}
    bare = visualization.draw_bounding_boxes(black, boxes, "xyxy")
    named = visualization.draw_bounding_boxes(black, boxes, "xyxy", {3: "cat"})
    above = named[0, :39] != bare[0, :39]
    assert above.any()


def test_masks_are_mixed_in():
    gray = np.full((1, 2, 2, 3), 100, "uint8")
    masks = np.array([[[0, 1], [2, 5]]])
    colors = {1: (200, 0, 0), 2: (0, 200, 0), 5: (9, 9, 9)}
    drawn = visualization.draw_segmentation_masks(
        gray, masks, color_mapping=colors, alpha=0.5, ignore_index=5
    )
    expected = [[[100] * 3, [150, 50, 50]], [[50, 150, 50], [100] * 3]]
    np.testing.assert_array_equal(drawn[0], expected)
    plain = visualization.draw_segmentation_masks(
        gray, masks[..., None], color_mapping=colors, blend=False
    )
    np.testing.assert_array_equal(plain[0, 1, 0], [0, 200, 0])


def test_channels_first():
    first = BLACK.transpose(0, 3, 1, 2)
    drawn = visualization.draw_bounding_boxes(first, BOXES, "xyxy", data_format="channels_first")
    np.testing.assert_array_equal(drawn, visualization.draw_bounding_boxes(BLACK, BOXES, "xyxy"))


def test_galleries_are_written(tmp_path):
    pictures = np.random.default_rng(0).random((3, 8, 8, 3))
    visualization.plot_image_gallery(
        pictures, y_true=[0, 1, 0], label_map={0: "cat", 1: "dog"}, value_range=(0, 1),
        path=tmp_path / "plain.png",
    )  # fmt: skip
    boxes = {"boxes": np.full((3, 1, 4), 2.0), "labels": np.zeros((3, 1), int)}
    visualization.plot_bounding_box_gallery(
        pictures, "xywh", y_true=boxes, legend=True, value_range=(0, 1),
        path=tmp_path / "boxes.png",
    )  # fmt: skip
    visualization.plot_segmentation_mask_gallery(
        pictures, 2, (0, 1), y_true=np.ones((3, 8, 8), int), path=tmp_path / "masks.png"
    )
    for name in ("plain", "boxes", "masks"):
        assert (tmp_path / f"{name}.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: visualization.draw_bounding_boxes(BLACK[0], BOXES, "xyxy"), ShapeError),
        (lambda: visualization.draw_bounding_boxes(BLACK, [1], "xyxy"), TypeError),
        (lambda: visualization.draw_bounding_boxes(BLACK, {"boxes": []}, "xyxy"), ValueError),
        (lambda: visualization.draw_segmentation_masks(BLACK, np.zeros((2, 20, 30))), TypeError),
        (lambda: visualization.plot_image_gallery(BLACK, y_true=[0, 1]), ValueError),
        (lambda: visualization.plot_image_gallery(BLACK, path="a.png", show=True), ValueError),
    ],
)
def test_arguments_are_checked(call, error):
    with pytest.raises(error):
        call()
