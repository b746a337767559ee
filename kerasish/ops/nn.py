"""Neural network functions: Keras's `ops.nn` namespace."""

from kerasish.ops.activation import celu as celu
from kerasish.ops.activation import elu as elu
from kerasish.ops.activation import gelu as gelu
from kerasish.ops.activation import glu as glu
from kerasish.ops.activation import hard_shrink as hard_shrink
from kerasish.ops.activation import hard_sigmoid as hard_sigmoid
from kerasish.ops.activation import hard_silu as hard_silu
from kerasish.ops.activation import hard_swish as hard_swish
from kerasish.ops.activation import hard_tanh as hard_tanh
from kerasish.ops.activation import leaky_relu as leaky_relu
from kerasish.ops.activation import log_sigmoid as log_sigmoid
from kerasish.ops.activation import log_softmax as log_softmax
from kerasish.ops.activation import relu6 as relu6
from kerasish.ops.activation import selu as selu
from kerasish.ops.activation import silu as silu
from kerasish.ops.activation import soft_shrink as soft_shrink
from kerasish.ops.activation import softmax as softmax
from kerasish.ops.activation import softsign as softsign
from kerasish.ops.activation import sparse_plus as sparse_plus
from kerasish.ops.activation import sparse_sigmoid as sparse_sigmoid
from kerasish.ops.activation import sparsemax as sparsemax
from kerasish.ops.activation import squareplus as squareplus
from kerasish.ops.activation import swish as swish
from kerasish.ops.activation import tanh_shrink as tanh_shrink
from kerasish.ops.activation import threshold as threshold
from kerasish.ops.array import one_hot as one_hot
from kerasish.ops.crossentropy import binary_crossentropy as binary_crossentropy
from kerasish.ops.crossentropy import categorical_crossentropy as categorical_crossentropy
from kerasish.ops.crossentropy import multi_hot as multi_hot
from kerasish.ops.crossentropy import psnr as psnr
from kerasish.ops.crossentropy import (
    sparse_categorical_crossentropy as sparse_categorical_crossentropy,
)
from kerasish.ops.elementwise import relu as relu
from kerasish.ops.elementwise import sigmoid as sigmoid
from kerasish.ops.elementwise import softplus as softplus
from kerasish.ops.normalization import batch_normalization as batch_normalization
from kerasish.ops.normalization import dot_product_attention as dot_product_attention
from kerasish.ops.normalization import layer_normalization as layer_normalization
from kerasish.ops.normalization import moments as moments
from kerasish.ops.normalization import normalize as normalize
from kerasish.ops.normalization import rms_normalization as rms_normalization
