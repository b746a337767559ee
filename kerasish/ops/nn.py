"""Neural network functions: Keras's `ops.nn` namespace."""

from kerasish.ops.arrays.complexes import polar as polar
from kerasish.ops.basic.activation import *
from kerasish.ops.basic.conv import *
from kerasish.ops.basic.nonlinearity import *
from kerasish.ops.basic.pool import *
from kerasish.ops.basic.selection import one_hot as one_hot
from kerasish.ops.images.patches import *
from kerasish.ops.networks.crossentropy import *
from kerasish.ops.networks.ctc import *
from kerasish.ops.networks.normalization import *
