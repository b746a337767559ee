"""Functions on pictures: Keras's `ops.image` namespace."""

from kerasish.ops.images.extraction import *
from kerasish.ops.images.filtering import *
from kerasish.ops.images.resizing import *
from kerasish.ops.images.warping import *
