"""ResNet with 50 layers, under the name that Keras keeps for older programs."""

from kerasish.applications.resnet import ResNet50 as ResNet50
from kerasish.applications.resnet import decode_predictions as decode_predictions
from kerasish.applications.resnet import preprocess_input as preprocess_input
