"""Computing in half-width floats with variables in float32, under the names Keras gives it."""

from kerasish.dtype_policies import DTypePolicy as DTypePolicy
from kerasish.dtype_policies import dtype_policy as dtype_policy
from kerasish.dtype_policies import set_dtype_policy as set_dtype_policy
from kerasish.optimizers import LossScaleOptimizer as LossScaleOptimizer

Policy = DTypePolicy
global_policy = dtype_policy
set_global_policy = set_dtype_policy
