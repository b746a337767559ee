"""The public names of kerasish: what the API reference lists, and what tests ask docstrings of.

The names come from the package's own modules, so that a new export needs no entry here.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import kerasish

ROOT = Path(__file__).resolve().parents[2]

# In this order a name that several modules offer gets its page: the first module has it.
FIRST = (
    "", "layers", "models", "losses", "metrics", "optimizers", "optimizers.schedules", "callbacks",
    "data", "datasets", "fold", "media", "estimator", "ops", "ops.nn", "ops.numpy", "ops.linalg",
    "ops.image", "random", "autodiff", "activations", "initializers", "regularizers",
    "constraints", "wrappers", "wrappers.sklearn", "saving", "export", "utils", "visualization",
    "config", "dtype_policies", "mixed_precision", "tree", "testing", "errors",
)  # fmt: skip

# Names without an underscore that packages share among themselves, and Keras does not have.
INTERNAL = {
    "autodiff": {
        "backward", "gradients_of", "leaves_of", "name_of", "sum_to_shape", "walk_back",
    },
    "config": {
        "SeedStream", "is_debugging", "keep_dtype_policy", "next_seed", "random_state", "seed",
        "seed_stream", "seeded", "set_random_state", "set_seed", "standardize_data_format",
        "when_seeded",
    },
    "losses": {"LossFunction", "candidates"},
    "random": {"draw_seed", "set_shared_state", "shared_state"},
    "saving": {"clear_cut_off", "export_model", "load_archive", "register_saving"},
    "tree": {"is_namedtuple", "is_shape"},
    "errors": {"at_user_line", "is_users", "levels_to_user"},
}  # fmt: skip
# Names that users take from a module that does not define them, and Keras does not have.
COLLECTED = {
    "config": {"set_device", "set_memory_limit"},
    "fold": {"Folded", "Structures"},
    "models": {"Functional"},
}
# Modules below, with what they offer under names that their package does not repeat.
DATASETS = "datasets"


class Name(NamedTuple):
    """One public object: the module of its page, its name there, and its other addresses."""

    module: str
    name: str
    value: Any
    aliases: tuple[str, ...]

    @property
    def address(self) -> str:
        """Where to import it from."""
        return f"{self.module}.{self.name}"


def modules() -> list[str]:
    """Return the public modules, without "kerasish." before them, in the order of `FIRST`."""
    signatures = ROOT / "tests" / "data" / "keras_signatures.json"
    theirs = [n for n in json.loads(signatures.read_text("utf-8")) if n != "keras"]
    package = Path(kerasish.__file__).parent
    there = []
    for name in dict.fromkeys((*FIRST, *theirs)):
        path = package.joinpath(*name.split("."))
        if path.is_dir() or path.with_suffix(".py").is_file():
            there.append(name)
    return there


def exported(module: str) -> dict[str, Any]:
    """Return name -> object of what users import from a module, sorted."""
    full = f"kerasish.{module}".rstrip(".")
    imported = importlib.import_module(full)
    if module == DATASETS:
        return dict(sorted(_functions_of_submodules(imported)))
    known = {name: getattr(imported, name) for name in dir(imported)}
    keras, ours = _keras_names(module), COLLECTED.get(module, ())
    names = {
        name: value
        for name, value in known.items()
        if not name.startswith("_")
        and name not in INTERNAL.get(module, ())
        and not isinstance(value, types.ModuleType)
        and (name in keras or name in ours or not module or _is_ours(value, module))
        and callable(value)
        and str(getattr(value, "__module__", "")).startswith("kerasish")
    }
    return dict(sorted(names.items(), key=lambda item: (item[0].lower(), item[0])))


@functools.cache
def _signatures() -> dict[str, Any]:
    return json.loads((ROOT / "tests/data/keras_signatures.json").read_text("utf-8"))


def _keras_names(module: str) -> frozenset[str]:
    return frozenset(_signatures().get(module or "keras", ()))


def _is_ours(value: Any, module: str) -> bool:
    """Return whether a module defines what Keras does not have; networks share parts, not names."""
    home, full = str(getattr(value, "__module__", "")), f"kerasish.{module}"
    within = home == full or home.startswith(f"{full}.")
    return within and not module.startswith("applications.")


def _functions_of_submodules(package: types.ModuleType) -> list[tuple[str, Callable[..., Any]]]:
    """Return ("digits.load_data", function), ... of the data sets."""
    result = []
    for name, module in vars(package).items():
        if isinstance(module, types.ModuleType) and hasattr(module, "load_data"):
            result.append((f"{name}.load_data", module.load_data))
            if hasattr(module, "get_word_index"):
                result.append((f"{name}.get_word_index", module.get_word_index))
    return result


def public() -> list[Name]:
    """Return every public object once, with all its addresses."""
    addresses: dict[int, list[tuple[str, str]]] = {}
    values: dict[int, Any] = {}
    for module in modules():
        for name, value in exported(module).items():
            addresses.setdefault(id(value), []).append((module, name))
            values[id(value)] = value
    result = []
    for key, places in addresses.items():
        value = values[key]
        home = places[0][0]
        here = [name for module, name in places if module == home]
        own = getattr(value, "__name__", "")
        name = own if own in here else here[0]
        others = tuple(_address(m, n) for m, n in places if (m, n) != (home, name))
        result.append(Name(f"kerasish.{home}".rstrip("."), name, value, others))
    return result


def _address(module: str, name: str) -> str:
    return ".".join(part for part in ("kerasish", module, name) if part)


def signature_of(value: Any) -> inspect.Signature | None:
    """Return the parameters of a call, or None for a class that Python's own constructor makes."""
    try:
        return inspect.signature(value)
    except ValueError:  # an error class: BaseException's constructor has no signature
        return None
