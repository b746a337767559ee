"""Operations on tensors: Keras's `ops`, built on a registry of primitive ops."""

from kerasish.ops.array import *  # noqa: F403
from kerasish.ops.creation import *  # noqa: F403
from kerasish.ops.elementwise import *  # noqa: F403
from kerasish.ops.indexing import *  # noqa: F403
from kerasish.ops.linalg import *  # noqa: F403
from kerasish.ops.movement import *  # noqa: F403
from kerasish.ops.reduce import *  # noqa: F403
from kerasish.ops.reduce import reduce_all as all, reduce_any as any, reduce_sum as sum
from kerasish.ops.array import max, min, round
