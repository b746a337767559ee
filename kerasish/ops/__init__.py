"""Operations on tensors: Keras's `ops`, built on a registry of primitive ops.

Each file's `__all__` is the one list of the names that it adds to a name space: `nn`, `numpy`,
`linalg`, `image`, or only this one. Names that Keras puts elsewhere than most of their file are
imported one by one by the name space that they belong to. All names of `nn`, `numpy` and `linalg`
are names of `ops`, too.
"""

from kerasish.ops import image as image
from kerasish.ops import linalg as linalg
from kerasish.ops import nn as nn
from kerasish.ops import numpy as numpy
from kerasish.ops.algebra.norms import cdist as cdist
from kerasish.ops.algebra.solving import logdet as logdet
from kerasish.ops.algebra.special import erfc as erfc
from kerasish.ops.arrays.complexes import view_as_complex as view_as_complex
from kerasish.ops.arrays.complexes import view_as_real as view_as_real
from kerasish.ops.arrays.core import *
from kerasish.ops.arrays.scatter import *
from kerasish.ops.basic.control import *
from kerasish.ops.basic.conversion import *
from kerasish.ops.basic.error_function import *
from kerasish.ops.basic.exponentials import rsqrt as rsqrt
from kerasish.ops.basic.printing import print as print
from kerasish.ops.basic.reshaping import shape as shape
from kerasish.ops.basic.selection import top_k as top_k
from kerasish.ops.basic.selection import unstack as unstack
from kerasish.ops.basic.statistics import logsumexp as logsumexp
from kerasish.ops.communication import *
from kerasish.ops.images.patches import rearrange as rearrange
from kerasish.ops.linalg import *
from kerasish.ops.networks.crf import *
from kerasish.ops.networks.crossentropy import in_top_k as in_top_k
from kerasish.ops.networks.recurrent import *
from kerasish.ops.nn import *
from kerasish.ops.numpy import *
from kerasish.ops.signals.signal import *
