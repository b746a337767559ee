"""Modules named `keras`, `tf_keras` and `tensorflow` that give kerasish: see `kerasish.as_keras`.

After `install()`, in this process, `import keras`, `import tf_keras` and `from tensorflow import
keras` give kerasish, with all modules below them, and `keras.src.<path>` gives the public names
that Keras defines there.

A name that kerasish does not have raises an error that says what to use instead. Of TensorFlow
itself there are `tf.keras`, `tf.data`, and the few names of `TENSORFLOW`.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import kerasish

# What `keras.__version__` says: libraries ask it which interface they meet.
KERAS_VERSION = "3.15.1"
ROOTS = ("keras", "tf_keras", "tensorflow.keras")
# Keras's public modules; those of PACKAGES have public submodules.
MODULES = frozenset(
    (
        "activations", "applications", "backend", "callbacks", "config", "constraints", "datasets",
        "distribution", "dtype_policies", "export", "initializers", "layers", "losses", "metrics",
        "mixed_precision", "models", "ops", "optimizers", "preprocessing", "quantizers", "random",
        "regularizers", "saving", "tree", "utils", "visualization", "wrappers",
    )
)  # fmt: skip
PACKAGES = frozenset(("applications", "datasets", "ops", "preprocessing", "wrappers"))
SUBMODULES = frozenset(("optimizers.schedules", "utils.bounding_boxes", "utils.legacy"))
# Where Keras's implementation has modules under names that its public interface does not use.
SOURCES = MODULES | {"api", "engine", "legacy", "testing", "trainers", "version"}
# Modules of Keras's implementation that programs reach by attributes: `keras.src.utils.tracking`.
SOURCE_MODULES = frozenset(
    (
        "activation activations argument_validation attention backend_utils base_optimizer common "
        "config core data_adapter_utils data_adapters dense distribution_lib dtypes einsum_dense "
        "embedding file_utils function functional global_state gru image image_utils input_layer "
        "io_utils jax jax_utils keras_tensor layer learning_rate_schedule linalg loss losses lstm "
        "math metric model multi_head_attention naming nn node numerical_utils numpy "
        "object_registration operation optimizer python_utils random rnn saving_lib sequential "
        "serialization_lib stateless_scope summary_utils symbolic_arguments tensorflow tf_utils "
        "torch torch_utils traceback_utils tracking trainer variables wrapper"
    ).split()
)
# Modules of TensorFlow other than `keras`: name -> its replacement.
TENSORFLOW = {
    "tensorflow": {
        "GradientTape": "GradientTape",
        "Tensor": "Tensor",
        "Variable": "Variable",
        "constant": "ops.convert_to_tensor",
        "convert_to_tensor": "ops.convert_to_tensor",
        "data": "data",
        "function": "function",
    },
    "tensorflow.errors": {},
    "tensorflow.random": {"set_seed": "utils.set_random_seed"},
}
# What programs catch of TensorFlow -> what kerasish raises there.
TENSORFLOW_ERRORS = {
    "InvalidArgumentError": ValueError,
    "NotFoundError": FileNotFoundError,
    "OutOfRangeError": StopIteration,
    "ResourceExhaustedError": MemoryError,
}
DTYPES = frozenset(
    "bfloat16 bool float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32".split()
)


class AliasModule(ModuleType):
    """A module of Keras's name whose attributes are those of kerasish, looked up when asked for.

    Args:
        name: the name in `sys.modules`.
        targets: the modules of kerasish to look in, in this order.
        deep: whether it replaces a module of Keras's implementation.
    """

    def __init__(self, name: str, targets: Sequence[str], deep: bool = False) -> None:
        super().__init__(name, doc=f"{name}, provided by kerasish ({', '.join(targets)}).")
        self.__dict__["_targets"] = tuple(targets)
        self.__dict__["_deep"] = deep
        if name in ROOTS:
            self.__dict__.update(__version__=KERAS_VERSION, version=_keras_version)

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            return [n for n in self.__dir__() if not n.startswith("_")]
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if name == "src" and self.__name__ in ROOTS:
            return importlib.import_module(f"{self.__name__}.src")
        if name in SOURCES and self.__name__.endswith(".src"):
            return importlib.import_module(f"{self.__name__}.{name}")
        modules = [importlib.import_module(target) for target in self._targets]
        for module in modules[:-1] if self._deep else ():
            if hasattr(module, name):
                return getattr(module, name)
        if self._deep and name in SOURCE_NAMES:
            return SOURCE_NAMES[name]()
        try:
            return getattr(modules[-1], name)
        except AttributeError as error:
            if self._deep and name in SOURCE_MODULES:
                return importlib.import_module(f"{self.__name__}.{name}")
            raise AttributeError(self._explanation(name, error)) from None

    def _explanation(self, name: str, error: AttributeError) -> str:
        if "is not supported" in str(error):
            return str(error)
        what = "public name" if self._deep else "name"
        return (
            f"{self.__name__}.{name}: kerasish has no {what} {name!r} there. kerasish replaces "
            f"{self.__name__.partition('.')[0]} here; see its page 'Coming from Keras', or run "
            "the program without kerasish.as_keras."
        )

    def __dir__(self) -> list[str]:
        module = importlib.import_module(self._targets[0])
        hidden = {"TYPE_CHECKING", "Any", "annotations"}
        return sorted(name for name in {*dir(module), *vars(self)} if name not in hidden)


class TensorFlowModule(ModuleType):
    """A module of TensorFlow: the names of `TENSORFLOW`, and `keras`.

    Args:
        name: "tensorflow", or one of its modules in `TENSORFLOW`.
    """

    def __getattr__(self, name: str) -> Any:
        full = f"{self.__name__}.{name}"
        if full == "tensorflow.keras" or full in TENSORFLOW:
            return importlib.import_module(full)
        if self.__name__ == "tensorflow.errors" and name in TENSORFLOW_ERRORS:
            return TENSORFLOW_ERRORS[name]
        if self.__name__ == "tensorflow" and name in DTYPES:
            return name
        value: Any = kerasish
        if name in TENSORFLOW[self.__name__]:
            for part in TENSORFLOW[self.__name__][name].split("."):
                value = getattr(value, part)
            return value
        if name.startswith("__") and name != "__version__":
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        near = kerasish.random if self.__name__ == "tensorflow.random" else kerasish.ops
        hint = f"; try {near.__name__}.{name}" if hasattr(near, name) else ""
        raise AttributeError(
            f"{self.__name__}.{name}: kerasish replaces tf.keras and tf.data, not the "
            f"rest of TensorFlow{hint}."
        )


class AliasFinder(MetaPathFinder, Loader):
    """Finds the modules of Keras's names: put first in `sys.meta_path`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how to load a module, None for one of another package.

        Raises:
            ModuleNotFoundError: Keras, or kerasish, does not have it.
        """
        if fullname.partition(".")[0] not in ("keras", "tf_keras", "tensorflow"):
            return None
        if fullname not in TENSORFLOW and not _targets_of(fullname):
            raise ModuleNotFoundError(
                f"No module named {fullname!r}: kerasish replaces the public modules of "
                "Keras 3, keras.src and tf.keras, and has no such module.",
                name=fullname,
            )
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module that replaces Keras's."""
        if spec.name in TENSORFLOW:
            return TensorFlowModule(spec.name)
        return AliasModule(spec.name, _targets_of(spec.name), deep="src" in spec.name.split("."))

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: attributes are looked up when asked for."""


def _itself(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function as it is: layers of kerasish hold lists and dicts unchanged."""
    return function


def _mask_of(x: Any) -> Any:
    """Return the mask that a tensor carries, or None."""
    return getattr(x, "_keras_mask", None)


def _set_mask(x: Any, mask: Any) -> None:
    """Let a tensor carry a mask; None: no mask."""
    x._keras_mask = mask


# Names of Keras's implementation that packages use and that have no public name -> what gives them.
SOURCE_NAMES: dict[str, Callable[[], Any]] = {
    "ALL_OBJECTS_DICT": lambda: kerasish.saving.get_custom_objects(),
    "LossFunctionWrapper": lambda: importlib.import_module("kerasish.losses.loss").LossFunction,
    "get_keras_mask": lambda: _mask_of,
    "no_automatic_dependency_tracking": lambda: _itself,
    "set_keras_mask": lambda: _set_mask,
}


def _keras_version() -> str:
    return KERAS_VERSION


def _targets_of(fullname: str) -> tuple[str, ...]:
    """Return the modules of kerasish that a module with Keras's name searches; (): none."""
    root = next((r for r in ROOTS if f"{fullname}.".startswith(f"{r}.")), None)
    if root is None:
        return ()
    parts = fullname[len(root) + 1 :].split(".") if fullname != root else []
    if parts[:1] == ["api"]:
        parts = parts[1:]
    if parts[:1] == ["src"]:
        return _targets_of_source(parts[1:])
    path = ".".join(["kerasish", *parts])
    known = not parts or (
        parts[0] in MODULES
        and (len(parts) == 1 or parts[0] in PACKAGES or ".".join(parts) in SUBMODULES)
        and importlib.util.find_spec(path) is not None
    )
    return (path,) if known else ()


def _targets_of_source(parts: Sequence[str]) -> tuple[str, ...]:
    """Return the public modules that may have a name of `keras.src.<parts>`; the root is last."""
    if parts and parts[0] not in SOURCES or any(part != part.lower() for part in parts):
        return ()
    nearest = [f"kerasish.{parts[0]}"] if parts and parts[0] in MODULES else []
    if list(parts[:2]) == ["optimizers", "schedules"]:
        nearest.insert(0, "kerasish.optimizers.schedules")
    if list(parts[:2]) == ["legacy", "preprocessing"]:
        known = [part for part in parts[2:3] if part in ("image", "sequence")]
        nearest.insert(0, ".".join(["kerasish.preprocessing", *known]))
    if parts[:1] == ["ops"]:
        nearest += ["kerasish.ops.nn", "kerasish.ops.numpy"]
    shared = [f"kerasish.{part}" for part in ("layers", "models", "utils", "saving", "config")]
    return tuple(dict.fromkeys([*nearest, *shared, "kerasish"]))


def install() -> None:
    """Put the finder in charge, once; importing `kerasish.as_keras` does so.

    Raises:
        ImportError: Keras or TensorFlow has been imported before.
    """
    if any(isinstance(finder, AliasFinder) for finder in sys.meta_path):
        return
    before = [n for n in ("keras", "tf_keras", "tensorflow") if n in sys.modules]
    if before:
        raise ImportError(
            f"kerasish.as_keras: {before[0]} has been imported already; put `import "
            "kerasish.as_keras` first, or start the program with `python -m kerasish`."
        )
    sys.meta_path.insert(0, AliasFinder())
