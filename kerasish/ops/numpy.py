"""Functions named as in NumPy: Keras's `ops.numpy` namespace."""

from kerasish.ops.algebra.closeness import *
from kerasish.ops.algebra.solving import slogdet as slogdet
from kerasish.ops.algebra.special import *
from kerasish.ops.arrays.complexes import *
from kerasish.ops.arrays.contraction import *
from kerasish.ops.arrays.einsum import *
from kerasish.ops.arrays.grids import *
from kerasish.ops.arrays.nans import *
from kerasish.ops.arrays.searching import *
from kerasish.ops.arrays.shaping import *
from kerasish.ops.arrays.statistics import *
from kerasish.ops.arrays.vectorizing import *
from kerasish.ops.basic.arithmetic import *
from kerasish.ops.basic.bessel import *
from kerasish.ops.basic.bits import *
from kerasish.ops.basic.comparison import *
from kerasish.ops.basic.creation import *
from kerasish.ops.basic.exponentials import *
from kerasish.ops.basic.movement import *
from kerasish.ops.basic.product import *
from kerasish.ops.basic.reduce import *
from kerasish.ops.basic.reshaping import *
from kerasish.ops.basic.selection import *
from kerasish.ops.basic.statistics import *
from kerasish.ops.basic.trigonometry import *
from kerasish.ops.signals.tapers import *
