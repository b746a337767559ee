"""What a layer demands of its inputs: rank, sizes, dtype."""

from __future__ import annotations

from typing import Any

from kerasish import tree
from kerasish.errors import ShapeError
from kerasish.tensor import Tensor
from kerasish.tracebacks import hides_frames
from kerasish.typing import AnyTensor, Shape


class InputSpec:
    """Demands on one input.

    Args:
        dtype: the dtype it must have; None: any.
        shape: the shape it must have; None sizes are free.
        ndim: the rank it must have; None: any.
        max_ndim: the highest rank; None: any.
        min_ndim: the lowest rank; None: any.
        axes: axis -> size; None: any sizes.
        allow_last_axis_squeeze: take (n, 1) for (n,) and the other way round.
        name: the key by which the input is found in a dict of inputs; None: by its place.
        optional: whether it may be None.

    Example:
        >>> spec = InputSpec(ndim=2, axes={-1: 3})
        >>> spec.ndim, spec.axes
        (2, {-1: 3})
    """

    @hides_frames
    def __init__(
        self,
        dtype: str | None = None,
        shape: Shape | None = None,
        ndim: int | None = None,
        max_ndim: int | None = None,
        min_ndim: int | None = None,
        axes: dict[int, int] | None = None,
        allow_last_axis_squeeze: bool = False,
        name: str | None = None,
        optional: bool = False,
    ) -> None:
        self.dtype = dtype
        self.shape = None if shape is None else tuple(shape)
        self.ndim = len(self.shape) if self.shape is not None else ndim
        self.max_ndim, self.min_ndim = max_ndim, min_ndim
        self.axes = {int(k): v for k, v in (axes or {}).items()}
        self.allow_last_axis_squeeze = allow_last_axis_squeeze
        self.name, self.optional = name, optional

    def allows(self, shape: tuple[Any, ...]) -> bool:
        """Return whether a shape surely fits; False: `check_input` must decide."""
        ndim = len(shape)
        if self.shape is not None or self.ndim not in (None, ndim):
            return False
        if self.max_ndim is not None or self.min_ndim is not None and ndim < self.min_ndim:
            return False
        for axis, size in self.axes.items():
            if not -ndim <= axis < ndim or shape[axis] != size:
                return False
        return True

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {
            "dtype": self.dtype, "shape": self.shape, "ndim": self.ndim,
            "max_ndim": self.max_ndim, "min_ndim": self.min_ndim, "axes": self.axes,
            "optional": self.optional,
        }  # fmt: skip

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> InputSpec:
        """Return the spec that `get_config` describes."""
        return cls(**config)

    def __repr__(self) -> str:
        parts = [f"{k}={v}" for k, v in self.get_config().items() if v not in (None, {}, False)]
        return f"InputSpec({', '.join(parts)})"


def meets(spec: Any, args: tuple[Any, ...]) -> bool:
    """Return whether the first argument of a layer is a tensor that certainly meets its spec."""
    if not args or type(args[0]) is not Tensor or type(spec) is not InputSpec:
        return False
    return spec.allows(args[0].value.shape)


def check_input(spec: InputSpec, inputs: AnyTensor, who: str) -> None:
    """Raise ShapeError unless `inputs` meet `spec` (one spec, or a structure of them)."""
    specs, values = tree.flatten(spec), tree.flatten(inputs)
    if isinstance(spec, dict) and isinstance(inputs, dict):
        values = [inputs[name] for name in sorted(spec) if name in inputs]
    if len(specs) != len(values):
        raise ShapeError(f"{who}: expected {len(specs)} input(s), got {len(values)}.")
    for one, value in zip(specs, values):
        if one is not None and value is not None and hasattr(value, "shape"):
            _check(one, tuple(value.shape), who)


def _likely_cause(expected: int, got: int) -> str:
    if expected == got + 1 and expected in (4, 5):
        return " For pictures without an axis of channels use x[..., None]."
    if expected == 3 and got == 2:
        return (
            " It takes (batch, steps, values): a recurrent layer gives that with "
            "return_sequences=True, one column of values with x[..., None]."
        )
    return ""


def _check(spec: InputSpec, shape: tuple[Any, ...], who: str) -> None:
    if spec.shape is not None and spec.allow_last_axis_squeeze and shape:
        if len(shape) == len(spec.shape) + 1 and shape[-1] == 1:
            shape = shape[:-1]
        elif len(spec.shape) == len(shape) + 1 and spec.shape[-1] == 1:
            shape = (*shape, 1)
    ndim = len(shape)
    if spec.ndim is not None and ndim != spec.ndim:
        raise ShapeError(
            f"{who}: expected an input with {spec.ndim} axes, got shape {shape}."
            f"{_likely_cause(spec.ndim, ndim)}"
        )
    if spec.max_ndim is not None and ndim > spec.max_ndim:
        raise ShapeError(
            f"{who}: expected an input with at most {spec.max_ndim} axes, got shape {shape}."
        )
    if spec.min_ndim is not None and ndim < spec.min_ndim:
        raise ShapeError(
            f"{who}: expected an input with at least {spec.min_ndim} axes, got shape {shape}."
        )
    for axis, size in spec.axes.items():
        if size is not None and (not -ndim <= axis < ndim or shape[axis] not in (size, None)):
            which = "last size" if axis == -1 else f"size of axis {axis}"
            raise ShapeError(
                f"{who}: the input's {which} must be {size} (from build), got shape {shape}."
            )
    if spec.shape is not None:
        for expected, size in zip(spec.shape, shape):
            if None not in (expected, size) and expected != size:
                raise ShapeError(f"{who}: expected shape {spec.shape}, got {shape}.")
