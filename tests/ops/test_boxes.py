"""Bounding boxes against Keras's numbers, and by their meaning."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from kerasish.ops.images.boxes import FORMATS
from kerasish.utils import bounding_boxes

FACTS = np.load(Path(__file__).parents[1] / "data" / "boxes.npz")
BOXES = np.array(
    [[[10, 20, 30, 60], [5, 5, 50, 70.0]], [[1, 2, 3, 4], [-5, 10, 200, 30]]], "float32"
)
OTHER = BOXES[::-1].copy()


def close(found, name):
    expected = FACTS[name]
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=1e-5 * scale)


@pytest.mark.parametrize(("source", "target"), list(itertools.product(FORMATS, FORMATS)))
def test_formats(source, target):
    boxes = BOXES / 100 if source.startswith("rel") else BOXES
    close(bounding_boxes.convert_format(boxes, source, target, 40, 80), f"{source}{target}")


def test_cut_at_the_edge():
    data = {"boxes": BOXES, "labels": np.array([[1, 2], [3, 4]])}
    result = bounding_boxes.clip_to_image_size(data, 40, 80)
    close(result["boxes"], "clip")
    close(result["labels"], "cl")
    outside = {"boxes": [[90.0, 1, 99, 2]], "labels": [5]}
    assert bounding_boxes.clip_to_image_size(outside, 40, 80)["labels"].tolist() == [-1]
    assert data["boxes"] is BOXES


def test_moves():
    def f(*v):
        return np.array(v, "float32")

    moved = bounding_boxes.affine_transform(
        BOXES, f(30, -10), f(0.1, 0), f(0, 0.2), f(1, 1.5), f(10, 0), f(5, 20), 40, 80
    )
    close(moved, "aff")
    close(bounding_boxes.crop(BOXES, 5, 6, 30, 20), "crop")
    close(bounding_boxes.pad(BOXES, 5, 6), "pad")


def test_overlaps():
    close(bounding_boxes.compute_iou(BOXES, OTHER, "xyxy"), "iou")
    close(bounding_boxes.compute_iou(BOXES[0], BOXES[1], "xywh", use_masking=True), "iou2")
    close(bounding_boxes.compute_ciou(BOXES, OTHER, "xyxy"), "ciou")
    one = bounding_boxes.compute_iou([[0.0, 0, 2, 2]], [[1.0, 1, 3, 3]], "xyxy")
    assert float(one[0, 0]) == pytest.approx(1 / 7)


def test_offsets_from_anchors():
    spread = [0.1, 0.1, 0.2, 0.2]
    deltas = bounding_boxes.encode_box_to_deltas(BOXES, OTHER, "xyxy", "xywh", variance=spread)
    close(deltas, "enc")
    back = bounding_boxes.decode_deltas_to_boxes(BOXES, deltas, "xyxy", "xywh", variance=spread)
    close(back, "dec")
    np.testing.assert_allclose(back, OTHER, rtol=1e-4, atol=1e-3)
    levels = bounding_boxes.decode_deltas_to_boxes(
        {"a": BOXES}, {"a": deltas}, "xyxy", "xywh", variance=spread
    )
    np.testing.assert_array_equal(levels["a"], back)


def test_what_is_refused():
    with pytest.raises(ValueError, match="'xyzw'"):
        bounding_boxes.convert_format(BOXES, "xyzw", "xyxy")
    with pytest.raises(ValueError, match="height"):
        bounding_boxes.convert_format(BOXES, "rel_xyxy", "xyxy")
    with pytest.raises(ValueError, match="4"):
        bounding_boxes.convert_format(BOXES[..., :3], "yxyx", "xyxy")
    with pytest.raises(ValueError, match="convert_format"):
        bounding_boxes.crop(BOXES, 1, 1, 5, 5, bounding_box_format="xywh")
    with pytest.raises(ValueError, match="image_shape"):
        bounding_boxes.compute_iou(BOXES, OTHER, "rel_xyxy")
    with pytest.raises(ValueError, match="encoding_format"):
        bounding_boxes.encode_box_to_deltas(BOXES, OTHER, "xyxy", "xyxy", "xyxy")
