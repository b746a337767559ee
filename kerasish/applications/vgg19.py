"""VGG with 19 layers: stacks of 3x3 convolutions (Simonyan and Zisserman, 2014)."""

from __future__ import annotations

from kerasish.applications.imagenet_utils import decode_predictions as decode_predictions
from kerasish.applications.network import layered
from kerasish.applications.vgg16 import SOURCE, vgg
from kerasish.applications.vgg16 import preprocess_input as preprocess_input

VGG19 = layered(
    "VGG", SOURCE, vgg, 19, (2, 2, 4, 4, 4),
    "cbe5617147190e668d6c5d5026f83318", "253f8cb515780f3b799900260a226db6", folder="vgg19",
)  # fmt: skip
