"""VGG with 19 layers: stacks of 3x3 convolutions (Simonyan and Zisserman, 2014)."""

from __future__ import annotations

from kerasish.applications.imagenet_utils import decode_predictions as decode_predictions
from kerasish.applications.network import application, kernels_file
from kerasish.applications.vgg16 import SOURCE, vgg
from kerasish.applications.vgg16 import preprocess_input as preprocess_input

VGG19 = application(
    "VGG19", "vgg19", "VGG with 19 layers", SOURCE, (224, 32), vgg,
    kernels_file(
        "vgg19", "vgg19",
        "cbe5617147190e668d6c5d5026f83318", "253f8cb515780f3b799900260a226db6",
    ),
    depths=(2, 2, 4, 4, 4),
)  # fmt: skip
