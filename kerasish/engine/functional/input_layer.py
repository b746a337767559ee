"""Where functional models start: Input and its layer."""

from __future__ import annotations

import warnings
from typing import Any

from kerasish import registry
from kerasish.engine.functional.arrange import _agree
from kerasish.engine.layer.layer import Layer
from kerasish.engine.layer.operation import KerasTensor, Node
from kerasish.errors import DTypeError, ShapeError, levels_to_user
from kerasish.naming import unique_name
from kerasish.ops import dtypes
from kerasish.tracebacks import keyword_hint
from kerasish.typing import AnyTensor, Shape, ShapeLike, Structure


class InputLayer(Layer):
    """The layer of a model's input.

    Args:
        shape: the shape without the batch axis; None: `batch_shape` or `input_tensor` says it.
        batch_size: the batch's size; None: any.
        dtype: the dtype's name; None: `floatx()`.
        sparse: whether data that are sparse matrices stay sparse; None: False.
        ragged: accepted for compatibility with Keras; must be false.
        batch_shape: the shape with the batch axis, instead of `shape`; None: `shape` says it.
        input_tensor: an existing symbolic tensor, instead of a shape; None: a new one.
        optional: whether the model may be called with None here.
        name: the input's name; None: made from the class's name.

    Example:
        >>> InputLayer((3,)).output.shape
        (None, 3)
    """

    def __init__(
        self,
        shape: Shape | None = None,
        batch_size: int | None = None,
        dtype: str | None = None,
        sparse: bool | None = None,
        ragged: bool | None = None,
        batch_shape: Shape | None = None,
        input_tensor: AnyTensor | None = None,
        optional: bool = False,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name or unique_name("input_layer"))
        if ragged:
            raise ValueError(
                f"{self.display_name()}: ragged inputs are not supported. Give a size of None, as "
                "in Input((None,)): fit() takes lists of sequences of different lengths for it."
            )
        batch_shape = kwargs.pop("batch_input_shape", batch_shape)
        if "input_shape" in kwargs:
            warnings.warn(
                "InputLayer: `input_shape` is the old name of `shape`.", stacklevel=levels_to_user()
            )
            shape = kwargs.pop("input_shape")
        if kwargs:
            hint = keyword_hint(type(self).__init__, kwargs)
            who = self.display_name()
            raise TypeError(f"{who}: unexpected argument(s) {sorted(kwargs)}.{hint}")
        if batch_shape is not None and (shape is not None or batch_size is not None):
            raise ValueError(
                f"{self.display_name()}: give shape and batch_size, or batch_shape, not both kinds."
            )
        if input_tensor is not None:
            target = batch_shape or shape and (batch_size, *_as_shape(shape, self.display_name()))
            target = target or batch_size and (batch_size, *input_tensor.shape[1:])
            batch_shape = _shape_of_input(input_tensor, target, dtype, self.display_name())
            dtype = input_tensor.dtype
        elif shape is not None:
            batch_shape = (batch_size, *_as_shape(shape, self.display_name()))
        elif batch_shape is None:
            raise ValueError(
                f"{self.display_name()}: give the shape of one example, e.g. Input((28, 28))."
            )
        self.batch_shape = _as_shape(batch_shape, self.display_name())
        self.expected_dtype: str = dtypes.name_of(dtype)
        self.sparse, self.ragged, self.optional = bool(sparse), False, optional
        if sparse and len(self.batch_shape) != 2:
            raise ShapeError(
                f"{self.display_name()}: a sparse input is a matrix, Input((width,), sparse=True), "
                f"got the shape {self.batch_shape}."
            )
        self.built = True
        output = input_tensor
        if output is None:
            output = KerasTensor(self.batch_shape, self.expected_dtype, self.sparse, name=self.name)
        Node(self, (), {}, output)

    @property
    def dtype(self) -> str:
        """The dtype of the input."""
        return self.expected_dtype

    def call(self, *args: Any) -> Structure:
        """Nothing to compute."""
        raise TypeError(f"{self.display_name()} represents an input and is not called.")

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {
            "batch_shape": self.batch_shape, "dtype": self.expected_dtype,
            "sparse": self.sparse, "ragged": False, "name": self.name, "optional": self.optional,
        }  # fmt: skip


def _shape_of_input(tensor: AnyTensor, target: Any, dtype: str | None, who: str) -> tuple[int, ...]:
    """Return the shape of a tensor given as input, if it is symbolic and has the expected shape."""
    if not isinstance(tensor, KerasTensor):
        raise ValueError(f"{who}: input_tensor must be a KerasTensor, got {tensor!r}.")
    if target and not (len(target) == len(tensor.shape) and _agree(target, tensor.shape)):
        raise ShapeError(f"{who}: input_tensor has shape {tensor.shape}, not {tuple(target)}.")
    if dtype is not None and dtypes.name_of(dtype) != tensor.dtype:
        raise DTypeError(f"{who}: input_tensor is of dtype {tensor.dtype}, not {dtype}.")
    return tensor.shape


def _as_shape(shape: ShapeLike, who: str) -> tuple[Any, ...]:
    many = shape if isinstance(shape, (tuple, list)) else (shape,)
    for s in many:
        if s is not None and (not hasattr(s, "__index__") or isinstance(s, bool) or s < 0):
            raise ShapeError(f"{who}: a shape is made of sizes >= 0 or None, got {shape!r}.")
    return tuple(None if s is None else int(s) for s in many)


def Input(  # noqa: N802 (Keras's name)
    shape: Shape | None = None,
    batch_size: int | None = None,
    dtype: str | None = None,
    sparse: bool | None = None,
    ragged: bool | None = None,
    batch_shape: Shape | None = None,
    name: str | None = None,
    tensor: AnyTensor | None = None,
    optional: bool = False,
) -> KerasTensor:
    """Return a symbolic tensor from which a functional model starts.

    Args:
        shape: the shape of one example, without the batch axis;
            None: `batch_shape` or `tensor` says it.
        batch_size: the batch's size; None: any.
        dtype: None: `floatx()`.
        sparse: whether SciPy matrices given to `fit`, `evaluate` or `predict` stay sparse: a
            `Dense` layer multiplies them so, and its kernel gets gradients only for the columns
            that occur; None: False.
        ragged: must be False: `fit` takes sequences of different lengths for a size of None.
        batch_shape: the shape with the batch axis, instead of `shape`; None: `shape` says it.
        name: name of the input, by which dicts of data are matched; None: made up.
        tensor: a symbolic tensor to take as the input; None: a new one.
        optional: whether the model may be called with None here.

    Example:
        >>> Input((3,)).shape
        (None, 3)
    """
    layer = InputLayer(
        shape, batch_size, dtype, sparse, ragged, batch_shape, tensor, optional, name
    )
    result: Any = layer.inbound_nodes[0].outputs
    return result


registry.add_builtins("keras.layers", {"InputLayer": InputLayer, "Input": Input})
