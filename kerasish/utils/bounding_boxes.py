"""Bounding boxes: Keras's `utils.bounding_boxes`."""

from kerasish.ops.boxes import affine_transform as affine_transform
from kerasish.ops.boxes import clip_to_image_size as clip_to_image_size
from kerasish.ops.boxes import compute_ciou as compute_ciou
from kerasish.ops.boxes import compute_iou as compute_iou
from kerasish.ops.boxes import convert_format as convert_format
from kerasish.ops.boxes import crop as crop
from kerasish.ops.boxes import decode_deltas_to_boxes as decode_deltas_to_boxes
from kerasish.ops.boxes import encode_box_to_deltas as encode_box_to_deltas
from kerasish.ops.boxes import pad as pad
