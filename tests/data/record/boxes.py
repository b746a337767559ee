"""Write boxes.npz: what Keras's own functions give for tests/ops/test_boxes.py.

On JAX.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import numpy as np
from keras.utils import bounding_boxes

FORMATS = (
    "xyxy", "yxyx", "xywh", "center_xywh", "center_yxhw",
    "rel_xyxy", "rel_yxyx", "rel_xywh", "rel_center_xywh",
)  # fmt: skip
BOXES = np.array(
    [[[10, 20, 30, 60], [5, 5, 50, 70.0]], [[1, 2, 3, 4], [-5, 10, 200, 30]]], "float32"
)
OTHER = BOXES[::-1].copy()


def f(*v: float) -> Any:
    """Return numbers as an array."""
    return np.array(v, "float32")


if __name__ == "__main__":
    out = {}
    for s in FORMATS:
        for t in FORMATS:
            boxes = BOXES / 100 if s.startswith("rel") else BOXES
            out[s + t] = bounding_boxes.convert_format(boxes, s, t, 40, 80)
    data = {"boxes": BOXES, "labels": np.array([[1, 2], [3, 4]])}
    found = bounding_boxes.clip_to_image_size(data, 40, 80)
    out["clip"], out["cl"] = found["boxes"], found["labels"]
    turn = (f(30, -10), f(0.1, 0), f(0, 0.2), f(1, 1.5), f(10, 0), f(5, 20), 40, 80)
    out["aff"] = bounding_boxes.affine_transform(BOXES, *turn)
    out["crop"] = bounding_boxes.crop(BOXES, 5, 6, 30, 20)
    out["pad"] = bounding_boxes.pad(BOXES, 5, 6)
    out["iou"] = bounding_boxes.compute_iou(BOXES, OTHER, "xyxy")
    out["iou2"] = bounding_boxes.compute_iou(BOXES[0], BOXES[1], "xywh", use_masking=True)
    out["ciou"] = bounding_boxes.compute_ciou(BOXES, OTHER, "xyxy")
    spread = [0.1, 0.1, 0.2, 0.2]
    rest = ("xyxy", "xywh")
    out["enc"] = bounding_boxes.encode_box_to_deltas(BOXES, OTHER, *rest, variance=spread)
    out["dec"] = bounding_boxes.decode_deltas_to_boxes(BOXES, out["enc"], *rest, variance=spread)
    arrays = {k: np.asarray(v) for k, v in out.items()}
    np.savez_compressed(Path(__file__).parents[1] / "boxes.npz", **arrays)
