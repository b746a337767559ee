"""Layer: weights and a computation, built on the first call, its config and shapes derived."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish import dtype_policies, ops, regularizers, tree
from kerasish.engine.layer.arguments import (
    _BASE_ARGUMENTS,
    _bind,
    _described,
    _is_array,
    _is_part_array,
    _legacy_shape,
    _owner,
    _revived,
    described_arguments,
)
from kerasish.engine.layer.building import _wrap_build, _written_for
from kerasish.engine.layer.call_context import CallParts, context, read_call, serials
from kerasish.engine.layer.call_errors import note_layer
from kerasish.engine.layer.input_spec import check_input, meets
from kerasish.engine.layer.losses import LossesMixin
from kerasish.engine.layer.masks import MasksMixin
from kerasish.engine.layer.operation import KerasTensor, Node, any_symbolic
from kerasish.engine.layer.quantization import QuantizationMixin
from kerasish.engine.layer.remat import current_remat
from kerasish.engine.layer.sparse_inputs import take_sparse
from kerasish.engine.layer.specs import SpecsMixin
from kerasish.engine.layer.stateless import StatelessMixin
from kerasish.engine.layer.weights import WeightsMixin
from kerasish.errors import user_place
from kerasish.naming import name_for
from kerasish.ops import dtypes
from kerasish.ops.op import SymbolicArgument
from kerasish.scopes import calling
from kerasish.tensor import SparseTensor, Tensor, Variable, convert
from kerasish.tracebacks import hide_frames
from kerasish.typing import PolicyLike, RegularizerLike, Structure
from kerasish.unsupported import refuse_method
from kerasish.watched import note_use, set_calling

if TYPE_CHECKING:
    from typing_extensions import Self

    from kerasish.dtype_policies import DTypePolicy


class MissingInitError(RuntimeError, AttributeError):
    """A layer is used whose constructor has not called its parent's."""


class Layer(SpecsMixin, StatelessMixin, MasksMixin, LossesMixin, QuantizationMixin, WeightsMixin):
    """A computation with weights.

    Subclasses define `__init__`, `build(input_shape)` where weights are added, and `call`. Config
    and output shape follow from these.

    Args:
        activity_regularizer: a penalty on the result, added to the losses; None: none.
        trainable: whether training changes the weights.
        dtype: a dtype or dtype policy; None: the process's.
        autocast: whether floating inputs and variables are cast to the compute dtype.
        name: the layer's name; None: made from the class.

    Example:
        >>> class Scale(Layer):
        ...     def build(self, input_shape):
        ...         self.factor = self.add_weight(shape=(input_shape[-1],), initializer="ones")
        ...     def call(self, x):
        ...         return x * self.factor
        >>> Scale()(np.ones((2, 3))).shape
        (2, 3)
    """

    call_parts: CallParts
    created_at: tuple[str, int] | None = None  # (file, line) of the user's code that made it
    _building = False
    _complete = False  # whether `build` is over: no weights are added after it
    built = False
    runs_on_host = False  # whether NumPy or Python computes it, never a compiled step
    takes_structures = False  # whether it is folded: its input is a Python structure
    expected_dtype: str | None = None  # of inputs made for it; None: the compute dtype
    # Whether `call` takes a SparseTensor as it is. None: a layer of the user's does.
    accepts_sparse: bool | None = None
    weightless = False  # whether the class has nothing to build: then it is built from the start
    names_activity = False  # whether configs name an activity_regularizer of None, as Keras's do

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        self = object.__new__(cls)
        object.__setattr__(self, "_arguments", _bind(cls, args, kwargs))
        object.__setattr__(self, "created_at", user_place())
        return self

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # Reached only where an attribute is missing.
            if "inbound_nodes" not in self.__dict__ and not name.startswith("__"):
                raise MissingInitError(
                    f"{type(self).__name__} has no {name!r} yet: its __init__ must begin with "
                    "super().__init__()."
                )
            own = inspect.getattr_static(type(self), name, None)
            if isinstance(own, property):  # which has reported in its own text what is missing
                return own.fget(self)
            refuse_method(self, name)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        build, call = _written_for(cls, "build"), _written_for(cls, "call")
        if build is not None and not hasattr(build, "builds_once"):
            type.__setattr__(cls, "build", _wrap_build(build))
        if call is not None:
            cls.call_parts = read_call(call)
        for fact in ("layer_role", "result_activation"):  # hold for the `call` of their class
            if getattr(cls, fact) and cls.call is not _owner(cls, fact).call:
                type.__setattr__(cls, fact, "")

    def __init__(
        self,
        *,
        activity_regularizer: RegularizerLike | None = None,
        trainable: bool = True,
        dtype: PolicyLike | None = None,
        autocast: bool = True,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.name = name_for(self, name)
        self.inbound_nodes: list[Node] = []
        self._weights: list[Variable] = []
        self._losses: list[Any] = []
        self._losses_of = 0
        if not isinstance(trainable, bool):
            raise ValueError(
                f"{self.display_name()}: trainable is True or False, got {trainable!r}."
            )
        self._trainable = trainable
        self.activity_regularizer = regularizers.get(activity_regularizer)
        self.autocast = autocast
        self._remat_mode = current_remat()
        self.input_spec: Any = None
        self._path = self.name
        self._build_shapes: dict[str, Any] | None = None
        self._set_policy(dtype)
        self._first_shape = _legacy_shape(self, kwargs)
        self.built = self.weightless and type(self).build is Layer.build

    # --- dtype ------------------------------------------------------------------------------

    def _set_policy(self, policy: Any) -> None:
        self._policy = dtype_policies.get(policy)
        self._read_policy()

    def _read_policy(self) -> None:
        own = self.own_policy()
        self.compute_dtype, self.variable_dtype = own.compute_dtype, own.variable_dtype
        self._casts = self.autocast and self.compute_dtype != self.variable_dtype

    @property
    def dtype_policy(self) -> DTypePolicy:
        """The dtype policy."""
        return self._policy

    @dtype_policy.setter
    def dtype_policy(self, value: DTypePolicy | str) -> None:
        if isinstance(self._policy, dtype_policies.DTypePolicyMap):
            self._policy[self._path] = dtype_policies.get(value)
            self._read_policy()
        else:
            self._set_policy(value)

    @property
    def dtype(self) -> str:
        """The dtype of the variables."""
        return self.variable_dtype

    @property
    def input_dtype(self) -> str:
        """The dtype to which inputs are cast."""
        return self.compute_dtype

    # --- parts ------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """The names of the layers around this one and its own name, joined by '/'."""
        return self._path

    # --- call -------------------------------------------------------------------------------

    def call(self, *args: Any, **kwargs: Any) -> Structure:
        """Compute the result; subclasses say how."""
        raise NotImplementedError(
            f"{self.display_name()} does not have a `call` method: write `def call(self, inputs)`, "
            "which returns the result."
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
        """Compute the result for tensors; for symbolic ones, remember the call."""
        try:
            if context.recorder is not None:
                return context.recorder.layer_call(self, args, kwargs)
            plain = len(args) == 1 and type(args[0]) is Tensor
            if not plain and any_symbolic(args) or kwargs and any_symbolic(kwargs):
                return self._call_symbolic(args, kwargs)
            if args:
                first = args[0]
                if type(first) is not Tensor or (
                    first.dtype != self.compute_dtype and self.autocast
                ):
                    args = (self._take(first), *args[1:])
                if len(args) > 1:
                    args = (args[0], *(self._take(a) if _is_array(a) else a for a in args[1:]))
            elif kwargs:
                kwargs = {k: self._take(v) if _is_array(v) else v for k, v in kwargs.items()}
            parts = self.call_parts
            training = kwargs.get("training")
            if training is None and context.training is not None:
                training = context.training
            if parts.training and "training" not in parts.names[: len(args)]:
                kwargs["training"] = bool(parts.training_default if training is None else training)
            elif "training" in kwargs and not parts.training:
                del kwargs["training"]
            if parts.masks:
                self._pass_masks(args, kwargs)
            outermost = context.root is None
            before = context.training
            if outermost:
                set_calling(True)  # first: what a call notes down makes no trace stale
                context.root, context.serial = self, next(serials)
                self._losses, self._losses_of = [], context.serial
            note_use(self)
            context.training = training
            try:
                building = not self.built and self._begin_building(args, kwargs)
                spec = self.input_spec
                if spec is not None and not meets(spec, args):
                    check_input(spec, args[0] if args else None, self.display_name())
                with calling(self.name, self.compute_dtype if self._casts else None):
                    remat = self._remat_mode is not None
                    call = self.rematerialized_call(self.call) if remat else self.call
                    try:
                        outputs = call(*args, **kwargs)
                    except Exception as error:
                        note_layer(error, self, args, kwargs)
                        raise
                if building:
                    self._end_building(args, kwargs)
                self._finish_call(args, kwargs, outputs)
                if context.watch is not None:
                    context.watch(self, outputs)
                return outputs
            finally:
                context.training = before
                if outermost:
                    context.root = None
                    set_calling(False)
        except SymbolicArgument as signal:
            if not hasattr(signal.argument, "outside"):
                raise
            return signal.argument.__kerasish_function__(self, args, kwargs)
        except Exception as error:
            hide_frames(error)
            raise

    def _finish_call(self, args: Any, kwargs: Any, outputs: Structure) -> None:
        """Add the penalty on the results, and give them their masks."""
        if self.activity_regularizer is not None:
            for t in tree.flatten(outputs):
                self.add_loss(ops.divide(self.activity_regularizer(t), float(max(t.shape[0], 1))))
        first = args[0] if args else self._first_named(kwargs)
        if first is None:
            return
        plain = type(outputs) is Tensor and type(first) is Tensor and "mask" not in kwargs
        plain = plain and type(self).compute_mask is MasksMixin.compute_mask
        if not plain or first._keras_mask is not None or first.dropped_mask is not None:
            self._set_masks(first, outputs, kwargs.get("mask"))

    def _call_symbolic(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Structure:
        args = tuple(
            convert(a) if _is_array(a) and not isinstance(a, (KerasTensor, Tensor)) else a
            for a in args
        )
        if self.call_parts.masks:
            self._pass_masks(args, kwargs)
        if not self.built:
            self._build_for(args, kwargs)
        if self.input_spec is not None:
            check_input(self.input_spec, args[0] if args else None, self.display_name())
        outputs = self.symbolic_call(*args, **kwargs)
        first = args[0] if args else self._first_named(kwargs)
        if first is not None:
            self._set_masks(first, outputs, kwargs.get("mask"))
        return outputs

    def _take(self, x: Structure) -> Structure:
        """Return an argument as tensors in the compute dtype."""
        if isinstance(x, Tensor):
            if self.autocast and x.dtype != self.compute_dtype and dtypes.is_float(x.dtype):
                mask, loss = getattr(x, "_keras_mask", None), getattr(x, "dropped_mask", None)
                x = ops.cast(x, self.compute_dtype)
                if mask is not None:
                    x._keras_mask = mask
                elif loss is not None:
                    x.dropped_mask = loss
            return x
        if isinstance(x, (list, tuple)) and x and any(map(_is_part_array, x)):
            return type(x)(self._take(part) for part in x)
        if isinstance(x, dict):
            return {k: self._take(v) for k, v in x.items()}
        if x is None or isinstance(x, (str, bool)) or callable(x) and not _is_array(x):
            return x
        if isinstance(x, SparseTensor):
            return take_sparse(self, x)
        if isinstance(x, np.ndarray) and x.dtype.kind in "OUS":
            return x
        if _is_array(x) or isinstance(x, (list, tuple, int, float)):
            return self._take(convert(x))
        return x

    # --- config -----------------------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments: what `from_config` needs to make an equal layer.

        Those of kerasish's layers are what JSON can hold; those of others are as they were given.
        A `get_config` that overrides this one names the arguments of its own constructor itself.
        """
        results: dict[str, Any] = {
            "name": self.name, "trainable": self._trainable, "dtype": _described(self._policy),
        }  # fmt: skip
        given, own = described_arguments(self)
        if own and self.names_activity or self.activity_regularizer is not None:
            results["activity_regularizer"] = _described(self.activity_regularizer)
        for name, value in given.items():
            if name in _BASE_ARGUMENTS:
                continue
            # Our own layers keep each argument, in its final form, under its own name.
            results[name] = _described(getattr(self, name, value)) if own else value
        return results

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Return the layer that `get_config` describes."""
        results = {name: _revived(value) for name, value in config.items()}
        if type(results.get("dtype")) is dtype_policies.DTypePolicy:
            results["dtype"] = results["dtype"].name
        try:
            return cls(**results)
        except TypeError as error:
            raise TypeError(
                f"{cls.__name__}.from_config: the constructor did not take {sorted(results)}: "
                f"{error}"
            ) from error

    def __repr__(self) -> str:
        if "inbound_nodes" not in self.__dict__:
            return f"<{type(self).__name__} without super().__init__()>"
        return f"<{type(self).__name__} name={self.name}, built={self.built}>"

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        state.pop("created_at", None)  # a path of this machine
        state["inbound_nodes"] = []
        state["_losses"] = []
        return state


Layer.call_parts = read_call(Layer.call)


if TYPE_CHECKING:

    class SomeLayer(Layer):
        """A layer of a class unknown to type checkers: it may have any attribute."""

        def __getattr__(self, name: str) -> Any: ...
