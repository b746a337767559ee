"""Names of classes and functions in files: register, serialize, deserialize.

Layouts are Keras's (`{"module", "class_name", "config", "registered_name"}`); a name is looked up
among what was registered, never imported.
"""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from kerasish.builtin_names import BUILTINS as BUILTINS
from kerasish.builtin_names import Builtins, public_name
from kerasish.builtin_names import add_builtins as add_builtins
from kerasish.builtin_names import own_objects as own_objects
from kerasish.errors import UnknownNameError
from kerasish.reprs import arguments_repr
from kerasish.tracebacks import hides_frames
from kerasish.typing import Array, Structure

if TYPE_CHECKING:
    from typing_extensions import Self

_custom: dict[str, Any] = {}
_custom_names: dict[Any, str] = {}

T = TypeVar("T")


class _Local(threading.local):
    def __init__(self) -> None:
        self.scopes: list[dict[str, Any]] = []
        self.shared: dict[int, Any] | None = None
        self.recalled: dict[str, Any] | None = None
        self.safe = True
        self.parts = 0


_MOST_PARTS = 10_000  # layers in one file: each costs time and memory, and few bytes
_NUMBERS = frozenset((
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
    "bfloat16", "float32", "float64", "complex64", "complex128",
))  # fmt: skip
_local = _Local()


def register_keras_serializable(
    package: str = "Custom", name: str | None = None
) -> Callable[[T], T]:
    """Return a decorator that lets files name a class or function as `package>name`.

    Args:
        package: the part before ">".
        name: the part after ">"; None: the class's own name.

    Example:
        >>> @register_keras_serializable(package="doc")
        ... def doubled(x):
        ...     return 2 * x
        >>> get_registered_name(doubled)
        'doc>doubled'
    """

    def register(value: T) -> T:
        if isinstance(value, type) and not hasattr(value, "get_config"):
            raise ValueError(
                f"register_keras_serializable: {value.__name__} needs a get_config method."
            )
        full = f"{package}>{name or getattr(value, '__name__', '')}"
        _custom[full] = value
        _custom_names[value] = full
        return value

    return register


def get_registered_name(obj: Callable[..., Any]) -> str:
    """Return the name under which `obj` was registered, else its own name.

    Args:
        obj: a class or function.

    Example:
        >>> import kerasish
        >>> kerasish.saving.get_registered_name(len)  # not registered
        'len'
    """
    return _custom_names.get(obj) or obj.__name__


def get_registered_object(
    name: str,
    custom_objects: Mapping[str, Any] | None = None,
    module_objects: Mapping[str, Any] | None = None,
) -> type | Callable[..., Any] | None:
    """Return the class or function registered under `name`, or None.

    Args:
        name: `package>name`.
        custom_objects: name -> class or function, for names that are not registered; None: none.
        module_objects: name -> class or function that are checked last; None: none.

    Example:
        >>> import kerasish
        >>> kerasish.saving.get_registered_object("mine>Unknown") is None
        True
    """
    for known in (*reversed(_local.scopes), _custom, custom_objects or {}, module_objects or {}):
        if name in known:
            return known[name]
    return None


def get_custom_objects() -> dict[str, Any]:
    """Return the dictionary of what was registered by users; it may be changed.

    Example:
        >>> isinstance(get_custom_objects(), dict)
        True
    """
    return _custom


class CustomObjectScope:
    """A `with` block inside which files may name the given classes and functions.

    Args:
        custom_objects: name -> class or function.

    Example:
        >>> import kerasish
        >>> def doubled(x):
        ...     return x * 2
        >>> with kerasish.saving.CustomObjectScope({"doubled": doubled}):
        ...     kerasish.activations.get("doubled") is doubled
        True
    """

    def __init__(self, custom_objects: Mapping[str, Any]) -> None:
        self.custom_objects = dict(custom_objects or {})

    def __enter__(self) -> Self:
        _local.scopes.append(self.custom_objects)
        return self

    def __exit__(self, *error: object) -> None:
        _local.scopes.remove(self.custom_objects)

    __repr__ = arguments_repr


custom_object_scope = CustomObjectScope


@contextmanager
def recalling() -> Iterator[None]:
    """A `with` block that finds again, registered or not, what is serialized in it.

    So that objects are copied through their configs within one process.
    """
    outer, outer_scopes = _local.recalled, _local.scopes
    _local.recalled = {}
    _local.scopes = [*outer_scopes, _local.recalled]
    try:
        yield
    finally:
        _local.recalled, _local.scopes = outer, outer_scopes


def _recall(name: str, value: type | Callable[..., Any]) -> None:
    if _local.recalled is not None:
        _local.recalled[name] = value


def _plain(value: object) -> Structure:
    return value.item() if isinstance(value, np.generic) else value


def serialize_keras_object(obj: Structure) -> Structure:
    """Return `obj` as what JSON can hold, in Keras's layout.

    Args:
        obj: an object with `get_config`, or plain data.

    Raises:
        TypeError: an object without `get_config`.

    Example:
        >>> import kerasish
        >>> saved = kerasish.saving.serialize_keras_object(kerasish.regularizers.L2(0.5))
        >>> saved["class_name"], saved["config"]["l2"]
        ('L2', 0.5)
    """
    obj = _plain(obj)
    if obj is None or isinstance(obj, (str, bool, int, float)):
        return obj
    if isinstance(obj, bytes):
        return {"class_name": "__bytes__", "config": {"value": obj.decode("utf-8")}}
    if isinstance(obj, slice):
        parts = {k: serialize_keras_object(getattr(obj, k)) for k in ("start", "stop", "step")}
        return {"class_name": "__slice__", "config": parts}
    if obj is Ellipsis:
        return {"class_name": "__ellipsis__", "config": {}}
    if isinstance(obj, Mapping) and not hasattr(obj, "get_config"):
        return {k: serialize_keras_object(v) for k, v in obj.items()}
    if isinstance(obj, (list, tuple)):
        results = [serialize_keras_object(v) for v in obj]
        return tuple(results) if isinstance(obj, tuple) else results
    if isinstance(obj, np.dtype) or isinstance(obj, type) and issubclass(obj, np.generic):
        return np.dtype(obj).name
    if isinstance(obj, np.ndarray):
        config = {"value": obj.tolist(), "dtype": obj.dtype.name}
        return {"class_name": "__numpy__", "config": config}
    if hasattr(obj, "__keras_serialize__"):
        return obj.__keras_serialize__()
    if hasattr(obj, "get_config") and not isinstance(obj, type):
        return _serialize_instance(obj)
    if callable(obj) and hasattr(obj, "__name__"):
        return _serialize_function(obj)
    if hasattr(obj, "maker"):
        return {
            "class_name": "__tensor__",
            "config": {"value": obj.tolist(), "dtype": obj.dtype},
        }
    raise TypeError(
        f"Cannot serialize {obj!r} of type {type(obj).__name__}: it has no get_config method."
    )


def _serialize_instance(obj: object) -> dict[str, Any]:
    cls = type(obj)
    module: str | None
    registered: str | None
    if cls in _custom_names:
        module, name, registered = cls.__module__, cls.__name__, _custom_names[cls]
    elif (place := public_name(cls)) is not None:
        (module, name), registered = place, None
    else:
        module = None if cls.__module__ == "__main__" else cls.__module__
        name = registered = cls.__name__
        _recall(name, cls)
    results = {
        "module": getattr(cls, "keras_module", module),
        "class_name": name,
        "config": serialize_config(obj),
        "registered_name": getattr(cls, "keras_registered_name", registered),
    }
    if hasattr(obj, "get_build_config"):
        build = obj.get_build_config()
        if build is not None:
            results["build_config"] = serialize_keras_object(build)
    if hasattr(obj, "get_compile_config"):
        compiled = obj.get_compile_config()
        if compiled is not None:
            results["compile_config"] = serialize_keras_object(compiled)
    return results


def serialize_config(obj: Any) -> dict[str, Any]:
    """Return the parts of `obj.get_config()` serialized one by one."""
    return {k: serialize_keras_object(v) for k, v in obj.get_config().items()}


def _serialize_function(f: Callable[..., Any]) -> dict[str, Any] | str:
    if f.__name__ == "<lambda>":
        raise TypeError(
            "A lambda has no name that a file could hold. Define it with def and register it by "
            "@kerasish.saving.register_keras_serializable()."
        )
    if f in _custom_names:
        name = _custom_names[f]
    elif (place := public_name(f)) is not None:
        return place[1]
    else:
        name = f.__name__
        _recall(name, f)
    module = f.__module__ if isinstance(f, type) or _is_importable(f) else "builtins"
    kind = "function" if not isinstance(f, type) else f.__name__
    return {"module": module, "class_name": kind, "config": name, "registered_name": kind}


def _is_importable(f: Callable[..., Any]) -> bool:
    """Whether a function of a user's module is found again by its names."""
    if not isinstance(f, types.FunctionType) or f in _custom_names or f.__module__ == "__main__":
        return False
    own = (f.__module__ or "").partition(".")[0] == __name__.partition(".")[0]
    return not own and getattr(sys.modules.get(f.__module__), f.__name__, None) is f


@contextmanager
def _sharing(safe: bool) -> Iterator[dict[int, Any]]:
    if _local.shared is not None:
        yield _local.shared  # inside another call: the arguments of the outer one count
        return
    _local.shared, _local.safe, _local.parts = {}, safe, 0
    try:
        yield _local.shared
    finally:
        _local.shared, _local.safe = None, True


def count_parts(number: int) -> None:
    """Count layers that are about to be made from what is being read.

    Raises:
        ValueError: it holds more of them than any model has.
    """
    if _local.shared is not None:
        _local.parts += number
        if _local.parts > _MOST_PARTS:
            raise ValueError(f"{_local.parts} layers; more than {_MOST_PARTS} are refused.")


def in_safe_mode() -> bool:
    """Return whether what is being read now may name only what is registered.

    True unless the outermost `deserialize_keras_object` was called with `safe_mode=False`.
    """
    return _local.safe


@hides_frames
def deserialize_keras_object(
    config: Structure,
    custom_objects: Mapping[str, Any] | None = None,
    safe_mode: bool = True,
    *,
    module_objects: Mapping[str, Any] | None = None,
    printable_module_name: str = "object",
) -> Structure:
    """Return what `serialize_keras_object` was given.

    Args:
        config: the serialized object.
        custom_objects: name -> class or function, in addition to what was registered; None: none.
        safe_mode: False lets Lambda layers name functions that can be imported; code inside
            files is run in no mode.
        module_objects: where plain names are looked up; None: none.
        printable_module_name: what messages call the kind of object.

    Raises:
        ValueError: a name that is not known.

    Example:
        >>> from kerasish import layers
        >>> deserialize_keras_object(serialize_keras_object(layers.Dense(3))).units
        3
    """
    with CustomObjectScope(dict(custom_objects or {})), _sharing(safe_mode) as shared:
        return _restore(config, safe_mode, module_objects, printable_module_name, shared)


def _restore(
    config: dict[str, Any] | str | float | Sequence[Any] | None,
    safe: bool,
    names: Any,
    what: str,
    shared: dict[int, Any],
) -> Structure:
    if isinstance(config, str) and names is not None:
        result = get_registered_object(config, None, names)
        if result is None:
            raise UnknownNameError.of(what, config, [*names, *_custom])
        return result
    if isinstance(config, (list, tuple)):
        return type(config)(_restore(c, safe, None, what, shared) for c in config)
    if not isinstance(config, Mapping):
        return config
    if "class_name" not in config or "config" not in config:
        return {k: _restore(v, safe, None, what, shared) for k, v in config.items()}
    number = config.get("shared_object_id")
    if number is not None and number in shared:
        return shared[number]
    created = _restore_object(config, safe, names, what, shared)
    if number is not None:
        shared[number] = created
    return created


def _restore_object(
    config: dict[str, Any],
    safe: bool,
    names: dict[str, Any] | None,
    what: str,
    shared: dict[Any, Any],
) -> Any:
    kind, inner = config["class_name"], config["config"]
    if kind in ("__tensor__", "__numpy__"):
        return _array(inner["value"], inner["dtype"])
    if kind == "__bytes__":
        return inner["value"].encode("utf-8")
    if kind == "__slice__":
        return slice(inner["start"], inner["stop"], inner["step"])
    if kind == "__ellipsis__":
        return Ellipsis
    if kind == "__lambda__":
        raise ValueError(
            "The file holds a lambda as byte code. kerasish runs no code from files. Save the "
            "model again with a function that has a name (def, not lambda) and is registered by "
            "@kerasish.saving.register_keras_serializable(); or make the model in Python and "
            "load only its weights."
        )
    if kind == "function":
        return find_function(inner, names)
    cls = find_class(config, names, what)
    if not hasattr(cls, "from_config"):
        return cls
    instance = cls.from_config(dict(inner)) if isinstance(inner, Mapping) else cls(inner)
    if config.get("build_config") and hasattr(instance, "build_from_config"):
        instance.build_from_config(config["build_config"])
    if config.get("compile_config") and hasattr(instance, "compile_from_config"):
        instance.compile_from_config(config["compile_config"])
    return instance


def _array(value: Sequence[Any], dtype: str) -> Array:
    """Return numbers as an array; a dtype of another kind may be of any size."""
    if dtype not in _NUMBERS:
        raise ValueError(f"An array of numbers is of one of {sorted(_NUMBERS)}, not {dtype!r}.")
    if dtype == "bfloat16":
        import ml_dtypes

        return np.array(value, dtype=ml_dtypes.bfloat16)
    return np.array(value, dtype=dtype)


def find_function(
    name: str, names: Mapping[str, Any] | None = None, any_package: bool = True
) -> Callable[..., Any]:
    """Return the registered or built-in function called `name`.

    Args:
        any_package: take the only one of that name, registered for any package: Keras
            before 3.7 wrote no package.
    """
    result = get_registered_object(name, None, names)
    if result is None:
        for known in BUILTINS.values():
            value = known.get(name)
            if isinstance(value, types.FunctionType):
                return value
        if name in (known := BUILTINS.get("keras.ops", Builtins())):
            return known[name]
        same = [v for n, v in _custom.items() if n.rpartition(">")[2] == name and _is_function(v)]
        if len(same) == 1 and any_package:
            return same[0]
        every = [*_custom, *(n for known in BUILTINS.values() for n in known)]
        raise UnknownNameError.of("function", name, every)
    return result


def _is_function(value: Any) -> bool:
    return isinstance(value, types.FunctionType)


def find_class(
    config: Mapping[str, Any], names: Mapping[str, Any] | None = None, what: str = "object"
) -> Any:
    """Return the class that a serialized object names."""
    name, registered = config["class_name"], config.get("registered_name")
    module = config.get("module") or ""
    for candidate in (registered, name):
        result = get_registered_object(candidate) if candidate else None
        if result is not None:
            return result
    known = BUILTINS.get(module.replace("kerasish", "keras", 1), Builtins())
    if name in known:
        return known[name]
    if names is not None and name in names:
        return names[name]
    for other in BUILTINS.values():
        if isinstance(other.get(name), type):
            return other[name]
    every = names or known or [n for known in BUILTINS.values() for n in known]
    raise UnknownNameError.of(f"{what} class", name, [*_custom, *every]) from None
