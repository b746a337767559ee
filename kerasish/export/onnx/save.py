"""Writes a model as an ONNX file: check, compare with a runtime, then put the file in place."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection, Sequence
from typing import Any

from kerasish import tree
from kerasish.callbacks.message import say
from kerasish.engine.layer.input_spec import InputSpec
from kerasish.engine.model.model import Model
from kerasish.export.onnx import stored
from kerasish.export.onnx.convert import OLDEST_OPSET, Named, convert
from kerasish.export.onnx.package import need_onnx
from kerasish.export.onnx.registry import HOST_LAYERS
from kerasish.export.onnx.verify import compare
from kerasish.saving.files.atomic import replacing
from kerasish.saving.formats.weights import file_path
from kerasish.typing import PathLike, Structure

_MOST_INSIDE = 2**31 - 2**24  # bytes: protobuf writes no message of 2 GiB
_ALIGNED = 4096  # bytes: stored tensors begin at multiples, so that runtimes can map them


def export_onnx(
    model: Model,
    filepath: PathLike,
    verbose: bool | None = None,
    input_signature: Structure = None,
    opset_version: int | None = None,
    verify: bool = True,
    external_data: bool | None = None,
) -> None:
    """Write a model's inference as an ONNX file.

    Sizes that the model leaves open become symbolic dimensions, "batch" for the number of examples.
    Inputs and outputs keep their names, weights are initializers under their paths. Layers that
    ONNX has an operator for become that operator; others become several.

    Args:
        model: a built model.
        filepath: the file.
        verbose: False prints nothing; None: prints the file.
        input_signature: a list with an `InputSpec` for each argument; None: the model's inputs.
        opset_version: the version of ONNX's operator set, 18 or later, up to that of the installed
            package onnx; None: 18.
        verify: whether to compare the file's results with the model's by onnxruntime (where that
            is not installed: by onnx's own evaluator), for two batch sizes, before the file is put
            in place.
        external_data: whether weights are stored in a second file, `<filepath>.data`; None: where
            the file would exceed 2 GB.

    Raises:
        ValueError: a layer cannot be said in ONNX (the message names it), the opset is not known,
            the file is not valid, or its results differ.
        ImportError: the package onnx is not installed.
        OSError: the file could not be written; what was there before is unchanged.

    Example:
        >>> import kerasish
        >>> model = kerasish.Sequential([kerasish.Input((4,)), kerasish.layers.Dense(1)])
        >>> export_onnx(model, "scores.onnx", verbose=False)  # doctest: +SKIP
    """
    onnx = need_onnx("Model.export: format='onnx'")
    path = file_path(filepath)
    opset = OLDEST_OPSET if opset_version is None else opset_version
    latest = onnx.defs.onnx_opset_version()
    if type(opset) is not int or not OLDEST_OPSET <= opset <= latest:
        raise ValueError(
            f"Model.export: opset_version is a number from {OLDEST_OPSET} to {latest} (that of "
            f"the installed package onnx), got {opset_version!r}."
        )
    f, signature = inference_of(model, input_signature, HOST_LAYERS)
    names = input_names_of(model, signature)
    most = 0 if external_data else _MOST_INSIDE
    try:
        named = convert(f, signature, names, model.output_names, opset, model.name, most)
    except ValueError as error:
        raise type(error)(f"Model.export: {model.name!r}: {error}") from error
    if named.large and external_data is False:
        size = sum(map(stored.size_of, named.large.values()))
        raise ValueError(
            f"Model.export: the weights take {size:,} bytes, and an ONNX file holds at most "
            f"{_MOST_INSIDE:,}; leave external_data at None."
        )
    outside = bool(named.large) or external_data is True
    _write(onnx, named, path, outside, _comparison(f, signature, named) if verify else None)
    if verbose is None or verbose:
        say(f"Saved {path!r}: ONNX, opset {opset}.")


def inference_of(
    model: Model, input_signature: Any, host_layers: Collection[type] = ()
) -> tuple[Callable[..., Any], list[Any]]:
    """Return (function, signature) of a model's inference.

    Args:
        model: a built model.
        input_signature: as for `export_onnx`.
        host_layers: classes of layers that run on the host, and that the format has ops for.

    Raises:
        ValueError: nothing says what the inputs are, or a layer runs on the host.
    """
    signature = input_signature
    used = model.layers if model.layer_graph is not None else []
    on_host = [
        layer.name for layer in used if layer.runs_on_host and type(layer) not in host_layers
    ]
    if on_host:
        raise ValueError(
            f"Model.export: {model.name!r}: layer {on_host[0]!r}: it runs on the host, and an "
            "exported file holds only computations on tensors. Prepare the data by it, and export "
            "what follows: Model(layer.output, model.output)."
        )
    if signature is None:
        structure = getattr(model, "inputs_structure", None)
        if structure is None:
            raise ValueError(
                "Model.export: input_signature is needed, as in "
                "[InputSpec(shape=(None, 3), dtype='float32')]; only functional and sequential "
                "models say what their inputs are."
            )
        signature = [structure]
    if not isinstance(signature, (list, tuple)):
        raise ValueError(
            "Model.export: input_signature is a list with an InputSpec for each argument, got "
            f"{signature!r}."
        )
    if not model.call_parts.training:
        return model, list(signature)
    return lambda *args: model(*args, training=False), list(signature)


def input_names_of(model: Model, signature: Sequence[Any]) -> list[str]:
    """Return a name for each tensor of a signature: that of the model's input, or a number."""
    leaves = tree.flatten(signature)
    known = model.input_names if model.layer_graph is not None else []
    if len(known) == len(leaves):
        return list(known)
    names = [leaf.name if isinstance(leaf, InputSpec) else None for leaf in leaves]
    return [name or f"input_{i}" for i, name in enumerate(names)]


def _comparison(
    f: Callable[..., Any], signature: Sequence[Any], named: Named
) -> Callable[[str], None]:
    return lambda path: compare(f, signature, named, path)


def _write(
    onnx: Any, named: Named, path: str, outside: bool, verify: Callable[[str], None] | None
) -> None:
    """Write the file and the one of its weights; nothing is replaced before all is checked."""
    data = f"{path}.data"
    folder = os.path.dirname(os.path.abspath(path))
    if not outside:
        with replacing(path) as new:
            _save(onnx, named.proto, new, verify)
        return
    # Both are checked under their final names in another folder: external data needs the names.
    with tempfile.TemporaryDirectory(dir=folder) as staging:
        _store_outside(named, os.path.join(staging, os.path.basename(data)))
        trial = os.path.join(staging, os.path.basename(path))
        _save(onnx, named.proto, trial, verify)
        for source, target in ((f"{trial}.data", data), (trial, path)):
            with replacing(target) as new:
                os.replace(source, new)


def _save(onnx: Any, proto: Any, path: str, verify: Callable[[str], None] | None) -> None:
    with open(path, "wb") as file:
        file.write(proto.SerializeToString())
    try:
        onnx.checker.check_model(path, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ValueError(f"Model.export: the ONNX model is not valid: {error}") from error
    if verify is not None:
        verify(path)


def _store_outside(named: Named, path: str) -> None:
    """Write the large initializers to a file, each at a multiple of the page size."""
    with open(path, "wb") as file:
        for tensor in named.proto.graph.initializer:
            array = named.large.get(tensor.name)
            if array is None:
                continue
            offset = -(-file.tell() // _ALIGNED) * _ALIGNED
            file.seek(offset)
            content = stored.content(array)
            file.write(content.data)
            tensor.data_location = type(tensor).EXTERNAL
            place = {"location": os.path.basename(path), "offset": offset, "length": content.size}
            for key, value in place.items():
                tensor.external_data.add(key=key, value=str(value))
