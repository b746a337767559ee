"""kerasish: Keras's words on two engines of its own."""

from kerasish import config as config
from kerasish import ops as ops
from kerasish import tree as tree
from kerasish.autodiff import GradientTape as GradientTape
from kerasish.autodiff import custom_gradient as custom_gradient
from kerasish.autodiff import grad as grad
from kerasish.autodiff import value_and_grad as value_and_grad
from kerasish.tensor import Tensor as Tensor
from kerasish.tensor import Variable as Variable
from kerasish.backends import eager
from kerasish.ops.op import set_default_engine

set_default_engine(eager.Eager())
__version__ = "0.1.0"
