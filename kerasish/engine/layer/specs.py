"""What a layer's result is like before there are numbers: its shapes and dtypes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from kerasish import tree
from kerasish.engine.layer.building import BuildMixin
from kerasish.engine.layer.masks import _overrides, _parent_of_overrides
from kerasish.engine.layer.operation import KerasTensor, Node, any_symbolic, from_specs, to_specs
from kerasish.graph.abstract import infer
from kerasish.ops import dtypes
from kerasish.ops.shapes import Spec
from kerasish.typing import Structure


class SpecsMixin(BuildMixin):
    """The part of a layer that computes shapes and dtypes; a base class of `Layer`."""

    autocast: bool
    compute_dtype: str

    def symbolic_call(self, *args: Any, **kwargs: Any) -> Structure:
        """Return symbolic results and remember the call."""
        outputs = self.compute_output_spec(*args, **kwargs)
        if any_symbolic(args) or any_symbolic(kwargs):
            Node(self, args, kwargs, outputs)
        return outputs

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Structure:
        """Return symbolic tensors of the shapes and dtypes that `call` gives."""
        if _overrides(self, "compute_output_shape", SpecsMixin):
            return self._spec_from_shape(args, kwargs)
        specs = [self._cast_specs(to_specs(x)) for x in (args, kwargs)]
        options = dict(specs[1])
        if not self.call_parts.training:
            options.pop("training", None)
        return from_specs(infer(self._call_quietly, specs[0], options, by_values=True))

    def _spec_from_shape(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> KerasTensor:
        one, named = self.shapes_for_output(args, kwargs)
        shapes = self.compute_output_shape(*one, **named)
        dtype = self.compute_dtype
        return tree.map_shape_structure(lambda s: KerasTensor(s, dtype), shapes)

    def _cast_specs(self, structure: Structure) -> Structure:
        def cast(x: Any) -> Any:
            changes = self.autocast and isinstance(x, Spec) and dtypes.is_float(x.dtype)
            return Spec(x.shape, self.compute_dtype) if changes else x

        return tree.map_plain(cast, structure)

    def compute_output_shape(self, *args: Any, **kwargs: Any) -> Structure:
        """Return the result's shape for inputs of the given shape(s).

        Example:
            >>> from kerasish import layers
            >>> layers.Dense(3).compute_output_shape((None, 2))
            (None, 3)
        """
        if len(kwargs) == 1 and not args:
            args, kwargs = tuple(kwargs.values()), {}
        symbols = [self._symbol(shape) for shape in args]
        named = {k.removesuffix("_shape"): self._symbol(v) for k, v in kwargs.items()}
        if not self.built:
            self._build_for(tuple(symbols), named)
        if _overrides(self, "compute_output_shape", SpecsMixin):
            outputs = self._spec_of_parent(symbols, named)
        else:
            outputs = self.compute_output_spec(*symbols, **named)
        return tree.map_structure(lambda t: t.shape, outputs)

    def _spec_of_parent(self, args: list[Any], kwargs: dict[str, Any]) -> Structure:
        """Return what the class gives whose shape an override asks for by `super`."""
        one, named = (self._cast_specs(to_specs(x)) for x in (tuple(args), kwargs))
        parent: Any = _parent_of_overrides(self, "compute_output_shape", SpecsMixin)
        return from_specs(infer(functools.partial(parent.call, self), one, named, by_values=True))

    def _symbol(self, shapes: Sequence[Any] | None) -> Structure | None:
        """Return symbolic tensors of a structure of shapes; None, an argument left out, stays."""
        if shapes is None:
            return None
        dtype = self.compute_dtype
        return tree.map_shape_structure(lambda s: KerasTensor(s, dtype), shapes)
