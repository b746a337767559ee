"""Bounding boxes: Keras's `utils.bounding_boxes`."""

from kerasish.ops.images.boxes import affine_transform as affine_transform
from kerasish.ops.images.boxes import clip_to_image_size as clip_to_image_size
from kerasish.ops.images.boxes import compute_ciou as compute_ciou
from kerasish.ops.images.boxes import compute_iou as compute_iou
from kerasish.ops.images.boxes import convert_format as convert_format
from kerasish.ops.images.boxes import crop as crop
from kerasish.ops.images.boxes import decode_deltas_to_boxes as decode_deltas_to_boxes
from kerasish.ops.images.boxes import encode_box_to_deltas as encode_box_to_deltas
from kerasish.ops.images.boxes import pad as pad
