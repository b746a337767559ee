"""Converters of skl2onnx: estimators of kerasish inside scikit-learn's pipelines, as ONNX."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from kerasish import ops
from kerasish.engine import InputSpec
from kerasish.export.onnx.convert import OLDEST_OPSET, convert
from kerasish.export.onnx.package import need_onnx
from kerasish.wrappers.classifier import KerasClassifier, from_logits
from kerasish.wrappers.regressor import KerasRegressor

_FLOAT = 1  # ONNX's number of float32


def register_onnx_converters() -> None:
    """Let skl2onnx convert `KerasClassifier` and `KerasRegressor`, by themselves and in pipelines.

    After it `skl2onnx.to_onnx(pipeline, X[:1], target_opset=18)` takes them.

    A classifier gives labels and probabilities, a regressor its values, computed in float32. One
    column of labels is supported; `target_opset` must be 18 or later.

    Raises:
        ImportError: the package skl2onnx is not installed.

    Example:
        >>> import kerasish
        >>> kerasish.wrappers.register_onnx_converters()  # doctest: +SKIP
    """
    try:
        skl2onnx = importlib.import_module("skl2onnx")
        shapes = importlib.import_module("skl2onnx.common.shape_calculator")
    except ImportError as error:
        raise ImportError(
            "register_onnx_converters: the package skl2onnx is not installed: pip install skl2onnx."
        ) from error
    options = {"zipmap": [True, False, "columns"], "nocl": [True, False]}
    skl2onnx.update_registered_converter(
        KerasClassifier, "KerasishClassifier", shapes.calculate_linear_classifier_output_shapes,
        _convert_classifier, options={**options, "output_class_labels": [False, True]},
    )  # fmt: skip
    skl2onnx.update_registered_converter(
        KerasRegressor, "KerasishRegressor", shapes.calculate_linear_regressor_output_shapes,
        _convert_regressor,
    )  # fmt: skip


def _convert_classifier(scope: Any, operator: Any, container: Any) -> None:
    estimator: Any = operator.raw_operator
    classes = estimator.classes_
    if isinstance(classes, list) or estimator.target_type_ == "multilabel-indicator":
        raise ValueError(
            f"{type(estimator).__name__}: only classifiers with one column of labels are converted "
            f"to ONNX, this one has learned {estimator.target_type_!r} targets."
        )
    count, logits = len(classes), from_logits(estimator.model_.loss)

    def outputs(x: Any) -> tuple[Any, Any]:
        raw = ops.cast(estimator.model_(x, training=False), "float32")
        raw = ops.reshape(raw, (x.shape[0], -1))
        if raw.shape[1] == 1:
            positive = ops.sigmoid(raw) if logits else raw
            shares = ops.concatenate([1 - positive, positive], axis=1)[:, :count]
            index = ops.cast(ops.greater(positive[:, 0], 0.5), "int64")
        else:
            powers = ops.softmax(raw) if logits else raw / ops.sum(raw, axis=1, keepdims=True)
            shares = powers[:, :count]
            index = ops.cast(ops.argmax(shares, axis=1), "int64")
        return ops.minimum(index, count - 1), shares

    index, _ = _append(scope, operator, container, outputs, [None, operator.outputs[1].full_name])
    onnx = need_onnx("register_onnx_converters")
    helper = onnx.helper
    stored = scope.get_unique_variable_name("classes")
    if np.asarray(classes).dtype.kind in "OUS":
        words = [str(c).encode() for c in classes]
        tensor = helper.make_tensor(stored, onnx.TensorProto.STRING, [count], words)
    else:
        numbers = np.asarray(classes).astype("int64")
        tensor = onnx.numpy_helper.from_array(numbers, stored)
    container.initializers.append(tensor)
    container.nodes.append(
        helper.make_node(
            "Gather", [stored, index], [operator.outputs[0].full_name],
            name=scope.get_unique_operator_name("Gather"),
        )
    )  # fmt: skip


def _convert_regressor(scope: Any, operator: Any, container: Any) -> None:
    estimator: Any = operator.raw_operator
    scale, mean = estimator.target_scale()

    def outputs(x: Any) -> Any:
        raw = ops.cast(estimator.model_(x, training=False), "float32")
        raw = ops.reshape(raw, (x.shape[0], -1))
        return raw * scale.astype("float32") + mean.astype("float32")

    _append(scope, operator, container, outputs, [operator.outputs[0].full_name])


def _append(
    scope: Any, operator: Any, container: Any, f: Callable[..., Any], names: list[str | None]
) -> list[str]:
    """Add the nodes of a function of the operator's input; return the names of its outputs."""
    estimator = operator.raw_operator
    opset = int(container.target_opset)
    if opset < OLDEST_OPSET:
        raise ValueError(
            f"{type(estimator).__name__}: target_opset={opset}; {OLDEST_OPSET} and later are "
            "written."
        )
    spec = InputSpec(shape=(None, estimator.n_features_in_), dtype="float32")
    own = [name or scope.get_unique_variable_name("kerasish") for name in names]
    named = convert(f, [spec], ["x"], [f"y{i}" for i in range(len(own))], opset)
    entered = scope.get_unique_variable_name("kerasish_input")
    known = {"x": entered, "": "", **{f"y{i}": name for i, name in enumerate(own)}}
    helper = need_onnx("register_onnx_converters").helper
    cast = helper.make_node(
        "Cast", [operator.inputs[0].full_name], [entered], to=_FLOAT,
        name=scope.get_unique_operator_name("Cast"),
    )  # fmt: skip
    container.nodes.append(cast)

    def rename(name: str) -> str:
        if name not in known:
            known[name] = scope.get_unique_variable_name(name.replace("/", "_"))
        return known[name]

    for tensor in named.proto.graph.initializer:
        tensor.name = rename(tensor.name)
        container.initializers.append(tensor)
    for node in named.proto.graph.node:
        _rename_node(node, rename)
        container.nodes.append(node)
    container.node_domain_version_pair_sets.add(("", opset))
    return own


def _rename_node(node: Any, rename: Callable[[str], str]) -> None:
    for field in (node.input, node.output):
        for i, name in enumerate(field):
            field[i] = rename(name)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for value in (*graph.input, *graph.output):
                value.name = rename(value.name)
            for inner in graph.node:
                _rename_node(inner, rename)
