"""What recurrent cells share: their arithmetic on arrays and tensors, masks, shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kerasish.errors import ShapeError
from kerasish.ops.arrays.core import derivatives
from kerasish.ops.basic.comparison import not_equal
from kerasish.ops.basic.convolution import accumulation_dtype
from kerasish.ops.basic.creation import zeros
from kerasish.ops.basic.movement import concatenate, transpose
from kerasish.ops.basic.reduce import reduce_sum
from kerasish.ops.basic.reshaping import stack
from kerasish.ops.basic.selection import where
from kerasish.ops.basic.trigonometry import tanh
from kerasish.ops.shapes import Spec, agree
from kerasish.typing import AnyTensor, Array, ArrayModule

if TYPE_CHECKING:
    from kerasish.tensor import Tensor


class Maths(NamedTuple):
    """What the cells need in addition to operators and slices."""

    tanh: Callable[..., Any]
    where: Callable[..., Any]
    differs: Callable[..., Any]
    stack: Callable[..., Any]
    join: Callable[..., Any]
    turn: Callable[..., Any]
    total: Callable[..., Any]


TENSORS = Maths(
    tanh, where, not_equal, stack, lambda parts: concatenate(parts, axis=-1), transpose, reduce_sum
)


def of_arrays(xp: ArrayModule) -> Maths:
    """Return what the cells need, of NumPy or CuPy."""
    return Maths(
        xp.tanh, xp.where, xp.not_equal, xp.stack, lambda parts: xp.concatenate(parts, axis=-1),
        xp.transpose, xp.sum,
    )  # fmt: skip


def sigmoid(m: Maths, x: AnyTensor) -> AnyTensor:
    """Return the sigmoid of x, by the hyperbolic tangent."""
    return m.tanh(x * 0.5) * 0.5 + 0.5


def cut(x: AnyTensor, count: int) -> list[Any]:
    """Return x in `count` equal parts along the last axis."""
    width = x.shape[-1] // count
    return [x[..., k * width : (k + 1) * width] for k in range(count)]


def counts_at(m: Maths, mask: AnyTensor | None, t: int) -> AnyTensor | None:
    """Return (n, 1): whether step t counts; None where all do."""
    return None if mask is None else m.differs(mask[t], 0)[:, None]


def choose(m: Maths, counts: AnyTensor | None, new: AnyTensor, old: AnyTensor) -> AnyTensor:
    """Return the new state where a step counts, else the old one."""
    return new if counts is None else m.where(counts, new, old)


def by_steps(x: AnyTensor) -> AnyTensor:
    """Return (steps, n, k) as (steps * n, k)."""
    return x.reshape((x.shape[0] * x.shape[1], x.shape[2]))


def states_before(m: Maths, first: AnyTensor, states: AnyTensor) -> AnyTensor:
    """Return the states before each step."""
    return m.stack([first, *(states[t] for t in range(states.shape[0] - 1))])


def weight_gradient(m: Maths, first: AnyTensor, states: AnyTensor, dz: AnyTensor) -> AnyTensor:
    """Return the gradient by the recurrent kernel: one product over all steps."""
    return m.turn(by_steps(states_before(m, first, states))) @ by_steps(dz)


def kernel_of(body: Callable[..., Any]) -> Callable[..., Any]:
    """Return the reference kernel of a function written for both: 16 bits are computed in 32."""

    def kernel(xp: ArrayModule, *arrays: Any) -> Array:
        dtype = accumulation_dtype(xp, arrays[0].dtype)
        result = body(of_arrays(xp), *(a.astype(dtype) for a in arrays))
        many = result if isinstance(result, tuple) else (result,)
        created = tuple(r.astype(arrays[0].dtype) for r in many)
        return created if isinstance(result, tuple) else created[0]

    return kernel


def through_definition(
    body: Callable[..., Any], inputs: Sequence[Tensor], g: Sequence[Tensor]
) -> list[Any]:
    """Return the gradients of `body` on tensors, by differentiating its composition."""
    result = derivatives["vjp"](lambda *xs: body(TENSORS, *xs), inputs, g)
    return list(result)


def full_gradient(g: Tensor | None, like: Tensor) -> Tensor:
    """Return a gradient, zeros where there is none."""
    return zeros(like.shape, like.dtype) if g is None else g


def fitting_units(
    what: str, x: Spec, recurrent: Spec, states: tuple[Spec, ...], gates: int
) -> int | None:
    """Return the number of units, or raise where the shapes do not fit each other."""
    units = recurrent.shape[0]
    fits = len(x.shape) == 3 and len(recurrent.shape) == 2
    known = fits and None not in (units, recurrent.shape[1])
    if fits and known:
        fits = agree(recurrent.shape[1], gates * units) and agree(x.shape[2], gates * units)
    if not fits or any(len(s.shape) != 2 for s in states):
        raise ShapeError(
            f"{what}: expected x (steps, n, {gates} * units), recurrent (units, {gates} * units) "
            f"and states (n, units), got shapes {x.shape}, {recurrent.shape} and "
            f"{[s.shape for s in states]}."
        )
    for s in states:
        if not all(map(agree, s.shape, (x.shape[1], units))):
            raise ShapeError(
                f"{what}: x of shape {x.shape} and recurrent {recurrent.shape} need states of "
                f"shape {(x.shape[1], units)}, got {s.shape}."
            )
    return units


def mask_of(*shape: int) -> Callable[..., Any]:
    """Return a function that draws an example of a mask."""
    return lambda rng: (rng.random(shape) < 0.6) + 0.0
