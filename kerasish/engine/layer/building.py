"""How layers are built: from the shapes of the first data, or by running call on shapes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from kerasish import tree
from kerasish.engine.layer.arguments import _owner, _shapes_of, _to_spec, _tuples
from kerasish.engine.layer.call_context import NOWHERE, CallParts, context, parameters_of
from kerasish.engine.layer.call_errors import note_layer
from kerasish.engine.layer.parts import PartsMixin
from kerasish.errors import TraceError
from kerasish.graph.abstract import infer
from kerasish.overriding import override
from kerasish.signatures import any_arguments
from kerasish.tensor import Tensor, autocast, current_path, is_traced, name_scope
from kerasish.tracebacks import hide_frames


def _wrap_build(build: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(build)
    def built_once(self: BuildMixin, *args: Any, **kwargs: Any) -> Any:
        if self._building:  # a subclass's build called its parent's
            return build(self, *args, **kwargs)
        self._building = True
        try:
            path = current_path()
            self._path = f"{path}/{self.name}" if path else self.name
            with name_scope(self.name):
                result = build(self, *args, **kwargs)
        except Exception as error:
            hide_frames(error, keep_entry=False)
            raise
        finally:
            self._building = False
        self._build_shapes = _named_shapes(build, args, kwargs)
        self.built = self._complete = True
        return result

    built_once.builds_once = True  # type: ignore[attr-defined]
    return built_once


def builds_by_call(build: Callable[..., Any]) -> Callable[..., None]:
    """Mark a `build` that creates no weights itself: it runs `call` to build the parts."""
    build.runs_call = True  # type: ignore[attr-defined]
    return build


def _written_for(cls: type, name: str) -> Any:
    """Return the method that `cls` itself or a mixin before its parents brings, or None."""
    owner = _owner(cls, name)
    return owner.__dict__[name] if owner is cls or not issubclass(owner, BuildMixin) else None


def _named_shapes(build: Callable[..., Any], args: Any, kwargs: Any) -> dict[str, Any]:
    names = [p.name for p in parameters_of(build)]
    return {**dict(zip(names, args)), **kwargs}


def _has_numbers(structure: Any) -> bool:
    """Return whether no tensor of a structure is a value of a trace."""
    return not any(isinstance(x, Tensor) and is_traced(x) for x in tree.flatten(structure))


class BuildMixin(PartsMixin):
    """The building of a layer's weights, when the shapes of its inputs are known."""

    call_parts: CallParts
    call: Callable[..., Any]
    compute_dtype: str
    _casts: bool
    compute_output_shape: Callable[..., Any]
    _building = False
    _remat_mode: Any
    _build_shapes: dict[str, Any] | None = None

    @builds_by_call
    @any_arguments
    def build(self, input_shape: Any) -> None:
        """Make the weights for inputs of `input_shape`; subclasses with weights override it."""
        self._build_shapes = {"input_shape": input_shape}
        self.built = True

    def _begin_building(self, args: Any, kwargs: Any) -> bool:
        """Build from the arguments of the first call, or leave it to the call: then return True.

        A layer that does not define `build` is built by its first call on numbers, which builds
        its parts: Python in `call` sees real values, and runs once.
        """
        by_call = getattr(type(self).build, "runs_call", False) and bool(self._layers)
        if by_call and self._remat_mode is None and _has_numbers((args, kwargs)):
            path = current_path()
            self._path = f"{path}/{self.name}" if path else self.name
            return True
        if not by_call:
            self._build_for(args, kwargs)
            return False
        try:
            self._build_by_call(args, kwargs)
        except TraceError:
            if self._remat_mode is not None:
                raise  # the parts of what is computed twice are made before
        return True  # else the call may have the numbers that it asks for

    def _end_building(self, args: Any, kwargs: Any) -> None:
        """Note that the first call has built the parts."""
        first = args[0] if args else next(iter(kwargs.values()), None)
        self._build_shapes = {"input_shape": _shapes_of(first)}
        self.built = self._complete = True

    def _build_for(self, args: Any, kwargs: Any) -> None:
        """Build from the shapes of the arguments of a call."""
        names = self.call_parts.names
        arguments = {**dict(zip(names, args)), **kwargs}
        if type(self).build is BuildMixin.build:
            path = current_path()
            self._path = f"{path}/{self.name}" if path else self.name
            if self._layers:
                self._build_by_call(args, kwargs)
            self._build_shapes = {"input_shape": _shapes_of(args[0] if args else None)}
            self.built = self._complete = True
            return
        taken = parameters_of(type(self).build)
        shape_names = [p.name for p in taken]
        needed = {
            p.name for p in taken if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD
        }
        shapes = {}
        for name in shape_names:
            source = name[:-6] if name.endswith("_shape") else name
            if source in arguments and len(shape_names) > 1:
                shapes[name] = _shapes_of(arguments[source])
            elif len(shape_names) > 1 and source not in names and name in needed:
                raise ValueError(
                    f"{self.display_name()}: build takes {name!r}, the shape of an argument "
                    f"{source!r}, but call takes {list(names)}."
                )
        if len(shape_names) == 1 or not shapes:
            first = next(iter(arguments.values()), None)
            self.build(_shapes_of(first))
        else:
            self.build(**shapes)

    def shapes_for_output(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return what `compute_output_shape` takes, of the arguments of a call.

        One that needs several shapes takes them by the names of the arguments, as `query_shape`;
        any other takes the shape of the first argument.
        """
        arguments = {**dict(zip(self.call_parts.names, args)), **kwargs}
        taken = parameters_of(type(self).compute_output_shape)
        needed = [p.name for p in taken if p.default is p.empty and p.kind <= p.KEYWORD_ONLY]
        needed = [n for n in needed if n.removesuffix("_shape") in arguments]
        if len(needed) > 1:
            return (), {name: _shapes_of(arguments[name.removesuffix("_shape")]) for name in needed}
        first = args[0] if args else next(iter(arguments.values()), None)
        return (_shapes_of(first),), {}

    def _build_by_call(self, args: Any, kwargs: Any) -> None:
        """Build the parts by running `call` on shapes only."""
        unbuilt = [x for x in self.flatten_layers(include_self=False) if not x.built]
        if not unbuilt:
            return
        with name_scope(self.name):
            infer(self._call_quietly, *(_to_spec(x) for x in (args, kwargs)))

    def _call_quietly(self, *args: Any, **kwargs: Any) -> Any:
        if self.call_parts.training and kwargs.get("training") is None:
            kwargs["training"] = bool(context.training or self.call_parts.training_default)
        with override(self, "_losses", []), override(context, "root", NOWHERE):
            try:
                with autocast(self.compute_dtype if self._casts else None):
                    return self.call(*args, **kwargs)
            except Exception as error:
                note_layer(error, self, args, kwargs)  # type: ignore[arg-type]
                raise

    def get_build_config(self) -> dict[str, Any] | None:
        """Return the shapes from which the layer was built, or None."""
        shapes = self._build_shapes
        if not shapes:
            return None
        if len(shapes) == 1:
            return {"input_shape": next(iter(shapes.values()))}
        return {"shapes_dict": dict(shapes)}

    def build_from_config(self, config: dict[str, Any]) -> None:
        """Build from what `get_build_config` returned."""
        if not config or self.built:
            return
        if "shapes_dict" in config:
            self.build(**{k: _tuples(v) for k, v in config["shapes_dict"].items()})
        elif config.get("input_shape") is not None:
            self.build(_tuples(config["input_shape"]))
