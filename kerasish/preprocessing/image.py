"""Pictures, under the names that Keras keeps for older programs."""

from kerasish.utils.images import array_to_img as array_to_img
from kerasish.utils.images import img_to_array as img_to_array
from kerasish.utils.images import load_img as load_img
from kerasish.utils.images import save_img as save_img
from kerasish.utils.images import smart_resize as smart_resize
