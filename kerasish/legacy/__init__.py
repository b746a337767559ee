"""The functions of Keras 2's `backend`, for programs that still call them; new ones use `ops`.

Names whose arguments are those of an op are that op. The others differ in a default, in the order
of arguments, or work on variables. `kerasish.backend` finds them here.
"""

from typing import Any

from kerasish import ops
from kerasish.legacy import computing, tensors
from kerasish.registry import own_objects

_OPS = (
    "abs all any cast clip cos cumprod cumsum dot elu equal exp eye greater greater_equal "
    "hard_sigmoid less less_equal log max maximum mean min minimum not_equal one_hot ones_like "
    "prod round sigmoid sign sin softmax softplus softsign square squeeze stack std stop_gradient "
    "sum tanh tile transpose var zeros_like"
).split()
FUNCTIONS: dict[str, Any] = {
    **{name: getattr(ops, name) for name in _OPS},
    "pow": ops.power,
    **own_objects(computing.__name__),
    **own_objects(tensors.__name__),
}
globals().update(FUNCTIONS)
