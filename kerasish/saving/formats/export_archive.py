"""Archives for inference: functions of tensors with their weights, and no classes behind them.

An archive has the layout of `.safetensors`. Its metadata hold each endpoint's graph: ops by name,
their attributes, and which value goes where. Loading looks ops up by these names and checks shapes;
nothing is imported, unpickled or computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from kerasish.callbacks.message import say
from kerasish.engine import Layer
from kerasish.engine.layer.input_spec import InputSpec
from kerasish.engine.model.exported import Endpoint, record_endpoint
from kerasish.engine.model.model import Model
from kerasish.reprs import arguments_repr
from kerasish.saving.formats.json_text import read_json, restore, write_json
from kerasish.saving.formats.other_formats import format_of, known_formats, writer_of
from kerasish.saving.formats.tensor_file import code_of, opened, write_arrays
from kerasish.saving.formats.weights import file_path
from kerasish.tensor import Variable
from kerasish.typing import Array, PathLike, Structure

_FORMAT = "kerasish archive 1"
_ELSEWHERE = ("tf_saved_model", "openvino", "litert", "torch")


class ExportArchive:
    """Collects endpoints, functions of tensors, and writes them to one file for inference.

    `load_archive` gives them back as functions. It needs none of the classes that made them, and
    they run on either engine. Sizes that the signature leaves open (None) stay open.

    Args:
        format: "kerasish"; the formats of other frameworks are written by Keras, which reads
            `.keras` files of ours.

    Raises:
        ValueError: another format.

    Example:
        >>> import kerasish, os, tempfile
        >>> model = kerasish.Sequential([kerasish.Input((3,)), kerasish.layers.Dense(2)])
        >>> archive = ExportArchive()
        >>> archive.track(model)
        >>> _ = archive.add_endpoint("serve", model, [kerasish.InputSpec(shape=(None, 3))])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "model.archive")
        ...     archive.write_out(path, verbose=False)
        ...     served = load_archive(path)
        >>> tuple(served.serve([[1.0, 2.0, 3.0]]).shape)
        (1, 2)
    """

    def __init__(self, format: str = "kerasish") -> None:
        check_format(format, "ExportArchive")
        self.variables: list[Variable] = []
        self.trainable_variables: list[Variable] = []
        self.non_trainable_variables: list[Variable] = []
        self._arrays: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._held: dict[str, Variable] = {}
        self._records: dict[str, dict[str, Any]] = {}
        self._collections: dict[str, list[Variable]] = {}

    def track(self, resource: Structure) -> None:
        """Note the variables of a layer, a model or a list of variables.

        Raises:
            ValueError: a layer that is not built, or something else.
        """
        if isinstance(resource, Layer):
            if not resource.built:
                raise ValueError(
                    f"ExportArchive.track: {resource.display_name()} is not built yet."
                )
            result = resource.variables
        else:
            result = [resource] if isinstance(resource, Variable) else resource
            if not isinstance(result, (list, tuple)) or not _all_variables(result):
                raise ValueError(
                    "ExportArchive.track: expected a layer or variables, got "
                    f"{type(resource).__name__}."
                )
        known = {id(v) for v in self.variables}
        for v in result:
            if id(v) not in known:
                self.variables.append(v)
                of_kind = self.trainable_variables if v.trainable else self.non_trainable_variables
                of_kind.append(v)

    def add_endpoint(
        self,
        name: str,
        fn: Callable[..., Any],
        input_signature: InputSpec | Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> Callable[..., Any]:
        """Add a function under a name; return it as it will be when it is loaded.

        Args:
            name: what it is called: `loaded.name(...)`.
            fn: a model, a layer, or a function of tensors that computes by `kerasish.ops`.
            input_signature: a list with a structure of `InputSpec(shape, dtype)` for each argument;
                None: of a functional or sequential model, its inputs.

        Raises:
            ValueError: the name is taken, the signature is missing, or `fn` cannot be written: it
                assigns to variables, or depends on open sizes beyond sums of their products.
            TraceError: `fn` needs strings or numbers that are only known when it runs.
        """
        who = f"ExportArchive.add_endpoint: {name!r}"
        if kwargs:
            raise ValueError(f"{who}: unexpected argument(s) {sorted(kwargs)}.")
        if not isinstance(name, str) or not name.isidentifier() or name.startswith("_"):
            raise ValueError(f"{who}: expected a name such as 'serve'.")
        if name in self._records:
            raise ValueError(f"{who} is taken.")
        signature = _signature_of(fn) if input_signature is None else input_signature
        if not isinstance(signature, (list, tuple)):
            raise ValueError(
                f"{who}: input_signature is a list with an InputSpec for each argument, got "
                f"{signature!r}."
            )
        try:
            record = record_endpoint(fn, signature, self._keep, self._name_of)
        except ValueError as error:
            raise type(error)(f"{who}: {error}") from error
        result = Endpoint(name, record, self._arrays, self._held)
        self._records[name] = record
        return result

    def track_and_add_endpoint(
        self,
        name: str,
        resource: Layer,
        input_signature: Sequence[InputSpec] | None = None,
        **kwargs: Any,
    ) -> Callable[..., Any]:
        """Do both: `track` a layer or model, and add it as an endpoint."""
        self.track(resource)
        return self.add_endpoint(name, resource, input_signature, **kwargs)

    def add_variable_collection(self, name: str, variables: Sequence[Variable]) -> None:
        """Keep variables together under a name: `load_archive(path).collections[name]`.

        Raises:
            ValueError: they are no list of variables.
        """
        if not isinstance(variables, (list, tuple, set)) or not _all_variables(variables):
            raise ValueError(
                "ExportArchive.add_variable_collection: expected a list of variables, got "
                f"{type(variables).__name__}."
            )
        self._collections[name] = list(variables)

    def write_out(
        self, filepath: PathLike, options: dict[str, Any] | None = None, verbose: bool = True
    ) -> None:
        """Write all endpoints, with the weights as they are now, to one file.

        Args:
            filepath: the file, of any name; it is complete or not there at all.
            options: of other formats; None.
            verbose: whether to say what is in it.

        Raises:
            ValueError: there is no endpoint.
            OSError: the file could not be written; what was there before is unchanged.
        """
        path = file_path(filepath)
        if not self._records:
            raise ValueError("ExportArchive.write_out: no endpoints; call add_endpoint first.")
        if options is not None:
            raise ValueError("ExportArchive.write_out: options are for other formats; give None.")
        named = {k: [self._name_of(v) for v in vs] for k, vs in self._collections.items()}
        stored = {name: _contiguous(v.numpy()) for name, v in self._held.items()}
        texts = {"endpoints": self._records, "collections": named, "variables": list(stored)}
        metadata = {key: write_json(value) for key, value in texts.items()}
        write_arrays(path, {**self._arrays, **stored}, {"format": _FORMAT, **metadata})
        if verbose:
            names = ", ".join(self._records)
            say(f"Saved {path!r} with {names}; kerasish.saving.load_archive reads it.")

    def _keep(self, array: Array) -> str:
        for name, known in self._arrays.items():
            if _same_bits(known, array):
                return name
        name = f"constant/{len(self._arrays)}"
        self._arrays[name] = _contiguous(array)
        return name

    def _name_of(self, variable: Variable) -> str:
        result = self._names.get(id(variable))
        if result is None:
            result = f"variable/{variable.path}"
            while result in self._held:
                result += "'"
            self._names[id(variable)] = result
            self._held[result] = variable
        return result

    __repr__ = arguments_repr


def _same_bits(a: Array, b: Array) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _all_variables(many: Sequence[Any]) -> bool:
    return all(isinstance(v, Variable) for v in many)


def _contiguous(array: Array) -> Array:
    array = np.asarray(array)
    if code_of(array.dtype) is None:
        raise ValueError(f"An archive holds no arrays of {array.dtype}.")
    return np.ascontiguousarray(array).reshape(array.shape)


def _signature_of(fn: Model | Callable[..., Any]) -> list[Any]:
    inputs = getattr(fn, "inputs_structure", None)
    if inputs is None:
        raise ValueError(
            "ExportArchive.add_endpoint: input_signature is needed, as in "
            "[InputSpec(shape=(None, 3), dtype='float32')]; only functional and sequential models "
            "say what their inputs are."
        )
    return [inputs]


def check_format(format: str, who: str) -> None:
    """Raise unless `format` is ours."""
    if format == "kerasish":
        return
    names = ", ".join(repr(name) for name in known_formats())
    if format in known_formats():
        raise ValueError(
            f"{who}: it holds functions, which format={format!r} does not: use Model.export."
        )
    what = f"writes no {format!r}" if format in _ELSEWHERE else f"has no format {format!r}"
    raise ValueError(
        f"{who}: kerasish {what}; it writes {names}. For another framework save('model.keras'): "
        "Keras reads that file, and exports from there."
    )


def export_model(
    model: Model,
    filepath: PathLike,
    format: str | None = None,
    verbose: bool | None = None,
    input_signature: Any = None,
    **kwargs: Any,
) -> None:
    """Write a model's inference to a file: an archive with the endpoint "serve", or ONNX."""
    format = format_of(file_path(filepath)) if format is None else format
    write = writer_of(format)
    if write is not None:
        write(model, filepath, verbose=verbose, input_signature=input_signature, **kwargs)
        return
    check_format(format, "export")
    if kwargs:
        raise ValueError(f"export: unexpected argument(s) {sorted(kwargs)}.")
    archive = ExportArchive()
    archive.track_and_add_endpoint("serve", model, input_signature)
    archive.write_out(filepath, verbose=verbose is None or bool(verbose))


# --- loading ----------------------------------------------------------------------------------


class LoadedArchive:
    """The endpoints of an archive: `archive.serve(x)`, or `archive["serve"](x)`.

    Attributes:
        endpoints: name -> function.
        variables: the variables that they read.
        collections: name -> variables, as `add_variable_collection` put them together.
    """

    def __init__(
        self,
        endpoints: dict[str, Endpoint],
        variables: list[Variable],
        collections: dict[str, list[Variable]],
    ) -> None:
        self.endpoints, self.variables, self.collections = endpoints, variables, collections

    def __getattr__(self, name: str) -> Endpoint:
        result = self.__dict__.get("endpoints", {}).get(name)
        if result is None:
            known = sorted(self.__dict__.get("endpoints", {}))
            raise AttributeError(f"The archive has no endpoint {name!r}, but {known}.")
        return result

    def __getitem__(self, name: str) -> Endpoint:
        if name not in self.endpoints:
            raise KeyError(f"The archive has no endpoint {name!r}, but {sorted(self.endpoints)}.")
        return self.endpoints[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.endpoints)


def load_archive(filepath: PathLike) -> LoadedArchive:
    """Return the endpoints that `Model.export` or `ExportArchive` wrote, as functions.

    Loading computes nothing and runs no code of the file: a file names ops, which are looked up
    among those of kerasish, and every shape is checked. Calling an endpoint computes what the file
    says, as long as that takes.

    Raises:
        ValueError: the file is no archive, damaged, or names what is not there.
        OSError: it cannot be read.
    """
    path = file_path(filepath)
    with opened(path) as file:
        if not file.sealed or file.metadata.get("format") != _FORMAT:
            raise ValueError(f"{path}: no archive of this version of kerasish.")
        parts = {
            key: read_json(file.metadata.get(key, ""), f"{path}: {key}")
            for key in ("endpoints", "collections", "variables")
        }
        arrays = {name: file.read(name) for name in file.places}
    return restore(lambda: _loaded(parts, arrays), path)


def _loaded(parts: dict[str, Any], arrays: dict[str, Any]) -> LoadedArchive:
    held = {
        name: Variable(arrays.pop(name), trainable=False, name=name.rpartition("/")[2])
        for name in parts["variables"]
    }
    endpoints = {}
    for name, record in parts["endpoints"].items():
        if not name.isidentifier() or name.startswith("_"):
            raise ValueError(f"an endpoint is called {name!r}")
        try:
            endpoints[name] = Endpoint(name, record, arrays, held)
        except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
            raise ValueError(f"the endpoint {name!r} is damaged: {error}") from error
    collections = {k: [held[n] for n in names] for k, names in parts["collections"].items()}
    return LoadedArchive(endpoints, list(held.values()), collections)
