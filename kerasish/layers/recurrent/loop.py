"""RNN: a cell over the steps of a sequence. StackedRNNCells: several cells as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from kerasish import ops, tree
from kerasish.engine.layer.input_spec import InputSpec
from kerasish.engine.layer.layer import Layer
from kerasish.errors import ShapeError
from kerasish.layers.options import CELL, LayerOptions
from kerasish.layers.recurrent.cell import BaseCell, CellAttributes, RecurrentCell
from kerasish.signatures import Unpack
from kerasish.tensor import Tensor, Variable
from kerasish.typing import AnyTensor, Shape, Structure

C = TypeVar("C", bound=type)


class StackedRNNCells(Layer):
    """Cells one above the other as one cell: each takes the output of the one before.

    Args:
        cells: the cells, the lowest first.

    Example:
        >>> from kerasish import layers
        >>> cells = StackedRNNCells([layers.GRUCell(2), layers.GRUCell(3)])
        >>> layers.RNN(cells).compute_output_shape((None, 5, 4))
        (None, 3)
    """

    def __init__(self, cells: Sequence[Any], **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        for cell in cells:
            if not hasattr(cell, "state_size") or not callable(getattr(cell, "call", None)):
                raise ValueError(
                    f"{self.display_name()}: every cell needs call() and state_size, {cell!r} "
                    "lacks one."
                )
        self.cells = list(cells)

    @property
    def state_size(self) -> list[Any]:
        """The state sizes of the cells."""
        return [cell.state_size for cell in self.cells]

    @property
    def output_size(self) -> int:
        """The size of the last cell's output."""
        last = self.cells[-1]
        return getattr(last, "output_size", None) or tree.flatten(last.state_size)[0]

    def get_initial_state(self, batch_size: int | None = None) -> list[Any]:
        """Return the first states of the cells."""
        return [first_state(cell, batch_size, self.compute_dtype) for cell in self.cells]

    def build(self, input_shape: Shape) -> None:
        """Build the cells."""
        for cell in self.cells:
            if isinstance(cell, Layer) and not cell.built:
                cell.build(input_shape)
            size = getattr(cell, "output_size", None) or tree.flatten(cell.state_size)[0]
            input_shape = (input_shape[0], size)

    def call(
        self, inputs: Tensor, states: Sequence[Any], training: bool = False
    ) -> tuple[Any, ...]:
        """Run the step of each cell."""
        results = []
        for cell, own in zip(self.cells, states):
            single = not isinstance(own, (list, tuple))
            inputs, new = cell(inputs, [own] if single else list(own))
            new = list(new) if isinstance(new, (list, tuple)) else [new]
            results.append(new[0] if single else new)
        return inputs, results

    def reset_dropout_masks(self) -> None:
        """Let each cell draw new masks."""
        for cell in self.cells:
            if hasattr(cell, "reset_dropout_masks"):
                cell.reset_dropout_masks()


def first_state(cell: Any, batch_size: Any, dtype: str) -> Any:
    """Return the cell's states before the first step."""
    if hasattr(cell, "get_initial_state"):
        return cell.get_initial_state(batch_size=batch_size)
    return tree.map_structure(lambda size: ops.zeros((batch_size, size), dtype), cell.state_size)


class _Kept:
    """The states of a stateful layer: no weights, and not among its variables, as in Keras."""

    def __init__(self) -> None:
        self.states: Any = None


class RNN(Layer):
    """A cell over the steps of a sequence.

    Args:
        cell: a cell, or a list of cells. A cell has call(inputs, states) -> (output, new states)
            and state_size; it may have output_size and get_initial_state(batch_size).
        return_sequences: whether to return the outputs of all steps, not only the last.
        return_state: whether to return the last states after the output.
        go_backwards: whether to go from the last step to the first (outputs are in that order).
        stateful: whether the last states are the first ones of the next call.
        unroll: accepted for compatibility with Keras; the engine decides.
        zero_output_for_mask: whether the output of a step that a mask leaves out is 0, not that
            of the step before.

    Shape: (n, steps, inputs) -> (n, units), or (n, steps, units) with `return_sequences`.

    Example:
        >>> from kerasish import layers
        >>> RNN(layers.SimpleRNNCell(2)).compute_output_shape((None, 3, 4))
        (None, 2)
    """

    reads_mask = True

    def __init__(
        self,
        cell: Structure,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        unroll: bool = False,
        zero_output_for_mask: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if isinstance(cell, (list, tuple)):
            cell = StackedRNNCells(cell)
        if not callable(getattr(cell, "call", None)):
            raise ValueError(f"{self.display_name()}: the cell needs a call method, got {cell!r}.")
        if not hasattr(cell, "state_size"):
            raise ValueError(
                f"{self.display_name()}: the cell {cell!r} needs an attribute state_size."
            )
        self.cell = cell
        self.return_sequences, self.return_state = return_sequences, return_state
        self.go_backwards, self.stateful, self.unroll = go_backwards, stateful, unroll
        self.zero_output_for_mask = zero_output_for_mask
        self._kept = _Kept()
        self.supports_masking = True
        self.input_spec: Any = None

    # --- states -------------------------------------------------------------------------------

    @property
    def states(self) -> list[Any]:
        """The variables that hold the states between the calls of a stateful layer, or None."""
        return self._kept.states

    @property
    def state_size(self) -> int | list[Any]:
        """The cell's state size(s)."""
        return self.cell.state_size

    def get_initial_state(self, batch_size: int | None = None) -> list[Any]:
        """Return the states before the first step."""
        result = first_state(self.cell, batch_size, self.compute_dtype)
        return list(result) if isinstance(result, (list, tuple)) else [result]

    def _zero_states(self, shape: Shape) -> list[Any]:
        """Return the states before the first step of sequences of this shape."""
        return self.get_initial_state(shape[0])

    def build(
        self, sequences_shape: Shape, initial_state_shape: Sequence[Any] | None = None
    ) -> None:
        """Build the cell and, if stateful, the variables of the states."""
        shape = tuple(sequences_shape)
        if len(shape) < 3:
            raise ShapeError(
                f"{self.display_name()}: expected an input with at least 3 axes (batch, steps, "
                f"inputs), got shape {shape}. A recurrent layer before it gives all steps with "
                "return_sequences=True; one column of values needs x[..., None]."
            )
        step = (shape[0], *shape[2:])
        if isinstance(self.cell, Layer) and not self.cell.built:
            self.cell.build(step)
        if self.stateful and self.states is None:
            if shape[0] is None:
                raise ShapeError(
                    f"{self.display_name()}: stateful=True needs a known batch size, got {shape}. "
                    "Give batch_shape=(batch, steps, inputs) to the Input."
                )
            self._kept.states = tree.map_structure(
                lambda s: Variable(
                    ops.zeros(s.shape, s.dtype), trainable=False, dtype=s.dtype, name="rnn_state"
                ),
                self._zero_states(shape),
            )

    def reset_state(self) -> None:
        """Set the states kept between calls to zero."""
        for v in tree.flatten(self.states) if self.states is not None else ():
            v.assign(ops.zeros(v.shape, v.dtype))

    def reset_states(self) -> None:
        """Set the states kept between calls to zero."""
        self.reset_state()

    def _first_states(self, given: Sequence[Any] | None, shape: Shape) -> list[Any]:
        if given is None:
            if self.stateful:
                return [tree.map_structure(lambda v: v.value, s) for s in self.states]
            return self._zero_states(shape)
        states = list(given) if isinstance(given, (list, tuple)) else [given]
        sizes = self.state_size if isinstance(self.state_size, (list, tuple)) else [1]
        if len(states) != len(sizes):
            raise ShapeError(
                f"{self.display_name()}: initial_state needs {len(sizes)} state(s), got "
                f"{len(states)}."
            )
        return [
            tree.map_structure(lambda s: ops.cast(s, self.compute_dtype), state) for state in states
        ]

    # --- call ---------------------------------------------------------------------------------

    def call(
        self,
        sequences: Tensor,
        initial_state: Sequence[Any] | None = None,
        mask: AnyTensor | None = None,
        training: bool = False,
    ) -> Tensor | tuple[Any, ...]:
        """Run the cell over the steps."""
        mask = mask[0] if isinstance(mask, (list, tuple)) else mask
        states = self._first_states(initial_state, sequences.shape)
        order = (1, 0, *range(2, len(sequences.shape)))
        x = ops.transpose(sequences, order)
        mask = None if mask is None else ops.transpose(ops.cast(mask, "bool"), (1, 0))
        if self.go_backwards:
            x = ops.flip(x, 0)
            mask = None if mask is None else ops.flip(mask, 0)
        self._renew_dropout()
        started = initial_state is not None or self.stateful
        outputs, last, states = self._steps(x, states, mask, training, started)
        self._renew_dropout()
        if self.stateful:
            for v, s in zip(tree.flatten(self.states), tree.flatten(states)):
                v.assign(s)
        if self.return_sequences:
            output = ops.transpose(outputs, (1, 0, *range(2, len(outputs.shape))))
        else:
            output = last
        return (output, *states) if self.return_state else output

    def _renew_dropout(self) -> None:
        if hasattr(self.cell, "reset_dropout_masks"):
            self.cell.reset_dropout_masks()

    def _steps(
        self, x: Tensor, states: list[Any], mask: AnyTensor | None, training: bool, started: bool
    ) -> tuple[Any, ...]:
        """Return (outputs of all steps, the last output, the last states); steps are axis 0."""
        if isinstance(self.cell, RecurrentCell):
            result = self.cell.run(x, states, mask, training)
            if result is not None:
                outputs, last = result
                if mask is not None:
                    outputs = self._cover(outputs, mask, started)
                return outputs, outputs[-1], last
        return self._loop(x, states, mask)

    def _cover(self, outputs: Tensor, mask: AnyTensor, started: bool) -> Tensor:
        """Return the outputs with 0 where a mask leaves nothing to show.

        The op's outputs are states: before the first step that counts, the state is the one
        given, while there is no previous output to use.
        """
        if self.zero_output_for_mask:
            shown = ops.cast(mask, outputs.dtype)
        elif started:
            shown = ops.cast(ops.greater(ops.cumsum(ops.cast(mask, "int32"), 0), 0), outputs.dtype)
        else:
            return outputs
        return ops.multiply(outputs, ops.expand_dims(shown, -1))

    def _loop(self, x: Tensor, states: list[Any], mask: AnyTensor | None) -> tuple[Any, ...]:
        outputs: list[Any] = []
        for t in range(x.shape[0]):
            output, new = self.cell(x[t], states)
            new = list(new) if isinstance(new, (list, tuple)) else [new]
            if mask is not None:
                output, new = self._hold(mask[t], output, new, outputs, states)
            states = new
            outputs.append(output)
        if not outputs:
            raise ShapeError(f"{self.display_name()}: the sequence has no steps (shape {x.shape}).")
        return ops.stack(outputs), outputs[-1], states

    def _hold(
        self,
        counts: AnyTensor,
        output: Tensor,
        new: Sequence[Any],
        outputs: list[Any],
        states: Sequence[Any],
    ) -> tuple[Any, ...]:
        def choose(a: Tensor, b: Tensor) -> Tensor:
            wide = ops.reshape(counts, (counts.shape[0], *(1,) * (len(a.shape) - 1)))
            return ops.where(wide, a, b)

        none = not outputs or self.zero_output_for_mask
        before = ops.zeros(output.shape, output.dtype) if none else outputs[-1]
        return choose(output, before), tree.map_structure(choose, new, states)

    def compute_mask(self, inputs: Tensor, mask: AnyTensor | None = None) -> Structure:
        """Return the input's mask with `return_sequences`, else None; None for states."""
        mask = mask[0] if isinstance(mask, (list, tuple)) else mask
        own = mask if self.return_sequences else None
        if not self.return_state:
            return own
        return [own, *(None for _ in tree.flatten(self.state_size))]


class CellLayer(CellAttributes, RNN):
    """A recurrent layer that makes its own cell: the cell's arguments are its own.

    Args:
        options: `RecurrentOptions`, all of `RECURRENT` among them.
        of_cell: the arguments of the cell that are not among these.
    """

    names_activity = True

    layer_role = "recurrent"
    cell_class: type[BaseCell]
    units: int

    def __init__(self, options: Mapping[str, Any], **of_cell: Any) -> None:
        cell, rest = make_cell(self.cell_class, options, **of_cell)
        super().__init__(cell, **rest)
        self.input_spec = InputSpec(ndim=3)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        config = super().get_config()
        for name in ("use_cudnn", "implementation", "time_major"):
            config.pop(name, None)
        config["zero_output_for_mask"] = self.zero_output_for_mask
        return config


def _shown(name: str) -> property:
    def read(self: Any) -> Any:
        return getattr(self.cell, name)

    return property(read, doc=f"The cell's {name}.")


def of_cell(*names: str) -> Callable[[C], C]:
    """Return a decorator that lets a layer show these attributes of its cell as its own."""

    def decorate(cls: C) -> C:
        for name in names:
            setattr(cls, name, _shown(name))
        return cls

    return decorate


CELL_ARGUMENTS = ("units", "activation", "use_bias", *CELL)


def make_cell(
    cell_class: Callable[..., Any], options: Mapping[str, Any], *args: Any, **of_cell: Any
) -> tuple[Any, dict[str, Any]]:
    """Return the cell of a recurrent layer, and those of the layer's options that it leaves.

    Args:
        options: `RecurrentOptions`; `dtype` and `trainable` go to both. Keras 2's are dropped.
        args, of_cell: further arguments of the cell.
    """
    rest = dict(options)
    rest.pop("implementation", None)
    if rest.pop("time_major", False):
        raise ValueError("time_major=True: kerasish takes (batch, steps, inputs) only.")
    own = {name: rest.pop(name) for name in CELL if name in rest}
    both = {name: rest[name] for name in ("dtype", "trainable") if name in rest}
    return cell_class(*args, **of_cell, **own, **both), rest
