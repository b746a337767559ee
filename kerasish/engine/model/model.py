"""Model: a layer that can be trained; functional models."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kerasish import registry, tree
from kerasish.engine.data.arrays import ArrayData
from kerasish.engine.data.data import Data
from kerasish.engine.folding.in_models import StructuresMixin
from kerasish.engine.functional.arrange import arrange_inputs
from kerasish.engine.functional.functional import FunctionalGraph, start_at_inputs
from kerasish.engine.functional.host_stage import HostInputs, HostStage, host_stage_of, stage_data
from kerasish.engine.layer.building import builds_by_call
from kerasish.engine.layer.layer import Layer
from kerasish.engine.layer.operation import KerasTensor, any_symbolic, is_keras_tensor, to_specs
from kerasish.engine.model.functional_config import functional_config, functional_from_config
from kerasish.engine.model.quantizing import QuantizedModelMixin
from kerasish.engine.model.state_tree import read_state, write_state
from kerasish.engine.model.summary import print_summary, summary_html
from kerasish.engine.saving_hooks import saving
from kerasish.engine.training.program import TrainingProgram
from kerasish.engine.training.trainer import Trainer
from kerasish.graph.abstract import infer
from kerasish.signatures import any_arguments
from kerasish.tracebacks import hides_frames
from kerasish.typing import PathLike, Shape, Structure

if TYPE_CHECKING:
    from typing_extensions import Self


def _is_functional(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return (len(args) == 2 and any_symbolic(args[0])) or (
        len(args) == 1 and "outputs" in kwargs or "inputs" in kwargs and "outputs" in kwargs
    )


class Model(QuantizedModelMixin, StructuresMixin, Trainer):  # type: ignore[misc]  # arguments
    """A layer with `compile`, `fit`, `evaluate`, `predict`, `save` and `summary`.

    `Model(inputs, outputs)` makes a functional model of symbolic tensors; a subclass defines
    `__init__` and `call` instead.

    Args:
        args: the inputs and the outputs of a functional model: symbolic tensors, or nested tuples,
            lists and dicts of them; also as `inputs=` and `outputs=`. Of a subclass: what its
            `__init__` takes.
        kwargs: `name`, the model's name; of a subclass: what its `__init__` takes.

    Example:
        >>> import kerasish
        >>> x = kerasish.Input((3,))
        >>> model = kerasish.Model(x, kerasish.layers.Dense(2)(x))
        >>> model.output_shape
        (None, 2)
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        if cls is Model and _is_functional(args, kwargs):
            return Functional.__new__(Functional, *args, **kwargs)  # type: ignore[return-value]
        return super().__new__(cls, *args, **kwargs)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if _is_functional(args, kwargs):
            names = ("inputs", "outputs", "name")
            given = {**dict(zip(names, args)), **kwargs}
            inputs, outputs = given.pop("inputs"), given.pop("outputs")
            Layer.__init__(self, **given)
            self.training_program = TrainingProgram(self)
            self._set_graph(inputs, outputs)
            return
        if args and type(self) is Model:
            raise ValueError(
                "Model(inputs, outputs) takes symbolic tensors, which start from Input(shape), got "
                f"{', '.join(type(a).__name__ for a in args)}; data is passed later, to fit()."
            )
        Layer.__init__(self, *args, **kwargs)
        self.training_program = TrainingProgram(self)

    # --- functional graph ---------------------------------------------------------------------

    _any_sizes = False  # whether the inputs' shapes are those of the first data, and bind no other
    reads_mask = False  # its layers do
    accepts_sparse = True  # its layers say whether they do

    def _set_graph(self, inputs: Structure, outputs: Structure) -> None:
        inputs, outputs = start_at_inputs(inputs, outputs)
        self.inputs_structure, self.outputs_structure = inputs, outputs
        self.layer_graph = FunctionalGraph(inputs, outputs, f'{type(self).__name__} "{self.name}"')
        self.graph_layers = [o for o in self.layer_graph.operations if isinstance(o, Layer)]
        self._casts = False  # each layer casts for itself
        self.built = True

    @any_arguments
    def call(
        self, inputs: Structure, training: bool | None = None, mask: Structure = None
    ) -> Structure:
        """Compute the outputs; subclasses that are not functional models override this."""
        graph = self.layer_graph
        if graph is None:
            return self._call_without_graph(inputs)
        if type(inputs) is HostInputs:  # in a step: the host stage has run already
            results = host_stage_of(graph).finish(inputs)  # type: ignore[union-attr]
        else:
            values = arrange_inputs(
                inputs, self.inputs_structure, self.display_name(), self._any_sizes
            )
            if mask is not None:
                for value, m in zip(values, tree.flatten(mask)):
                    if m is not None and getattr(value, "_keras_mask", None) is None:
                        value._keras_mask = m
            results = graph.run(values)
        if is_keras_tensor(self.outputs_structure):
            return results[0]
        return tree.pack_sequence_as(self.outputs_structure, results)

    def _call_without_graph(self, inputs: Structure) -> Any:
        raise NotImplementedError(
            f"{self.display_name()} defines no call(self, inputs); write one, or give inputs and "
            "outputs."
        )

    def _prepare_inputs(self, x: Structure) -> Any:
        """Return what a step gets for x: x, or the results of the model's host stage."""
        stage = self.host_stage()
        if stage is None or type(x) is HostInputs:
            return x
        return stage(arrange_inputs(x, self.inputs_structure, self.display_name(), self._any_sizes))

    def host_stage(self) -> HostStage | None:
        """Return the part of the model that runs on the host, before each step; None: no part."""
        return host_stage_of(self.layer_graph)

    def on_host(self, data: Data) -> Data:
        """Return data whose x has gone through the model's host stage, if it has one."""
        if self.layer_graph is None and not self.built and self._waits_for_host_layers():
            self._build_for((data.peek()[0],), {})
        sparse = {key: t.sparse for key, t in self.known_inputs.items()}
        if any(sparse.values()) and isinstance(data, ArrayData):
            data.keep_sparse(sparse)
        packed = self.packed_data(data)
        if packed is not None:
            return packed
        stage = self.host_stage()
        return data if stage is None else stage_data(data, stage, self._prepare_inputs)

    def _waits_for_host_layers(self) -> bool:
        return False

    def _take(self, x: Structure) -> Structure:
        # A functional model's layers cast for themselves; integer inputs must stay what they are.
        if self.layer_graph is not None:
            return tree.map_structure(lambda tensor: tensor, x)
        return super()._take(self._packed(x))

    def _cast_specs(self, structure: Structure) -> Structure:
        return structure if self.layer_graph is not None else super()._cast_specs(structure)

    @any_arguments
    def compute_mask(self, inputs: Structure, previous_mask: Structure) -> Structure | None:
        """Return the mask of the result: None, since its layers mark the results themselves."""
        if self.layer_graph is not None or not self.supports_masking:
            return None
        return super().compute_mask(inputs, previous_mask)

    @builds_by_call
    @any_arguments
    def build(self, input_shape: Shape) -> None:
        """Build the layers by running `call` on inputs of the given shape(s)."""
        if self.layer_graph is not None or self.built:
            self._build_shapes = {"input_shape": None}
            return
        specs = tree.map_shape_structure(lambda s: KerasTensor(s, self.compute_dtype), input_shape)
        infer(self._call_quietly, to_specs((specs,)), by_values=True)

    # --- looking at it --------------------------------------------------------------------------

    def _repr_html_(self) -> str:
        return summary_html(self)

    def summary(
        self,
        line_length: int | None = None,
        positions: Sequence[float] | None = None,
        print_fn: Callable[..., Any] | None = None,
        expand_nested: bool = False,
        show_trainable: bool = False,
        layer_range: Sequence[str] | None = None,
        *,
        batch_size: int | None = None,
    ) -> None:
        """Print a table of the layers, their output shapes and their numbers of weights.

        It has colors in a terminal, unless the environment variable NO_COLOR is set.

        Args:
            line_length: columns of the table.
            print_fn: takes the text instead of `print`.
            expand_nested: whether to list what is inside models inside the model.
            show_trainable: whether to say what training changes.
            layer_range: (first, last) names of layers, or patterns of them.
            batch_size: rows of a batch; then the table also has the bytes of each layer's
                result and its FLOPs in a forward pass, a multiply-add counting as two.
        """
        print_summary(
            self, line_length, positions, print_fn, expand_nested, show_trainable, layer_range,
            batch_size,
        )  # fmt: skip

    # --- files ----------------------------------------------------------------------------------

    @hides_frames
    def save(
        self, filepath: PathLike, overwrite: bool = True, zipped: bool | None = None, **kwargs: Any
    ) -> None:
        """Save the model: architecture, weights, optimizer state and compile settings."""
        return saving("save_model")(self, filepath, overwrite=overwrite, zipped=zipped, **kwargs)

    def state_folder(self, path: str) -> Any:
        """Return the training states kept in a folder; see `callbacks.Resume`."""
        return saving("state_folder")(path)

    def remove_partial_saves(self, pattern: str) -> None:
        """Remove temporary files that interrupted saves left under names like `pattern`."""
        saving("clear_cut_off")(pattern)

    @hides_frames
    def save_weights(
        self, filepath: PathLike, overwrite: bool = True, max_shard_size: int | None = None
    ) -> None:
        """Save the weights to a `.weights.h5` file."""
        return saving("save_weights")(
            self, filepath, overwrite=overwrite, max_shard_size=max_shard_size
        )

    @hides_frames
    def load_weights(self, filepath: PathLike, skip_mismatch: bool = False, **kwargs: Any) -> None:
        """Load weights from a `.weights.h5`, `.keras` or legacy `.h5` file."""
        return saving("load_weights")(self, filepath, skip_mismatch=skip_mismatch, **kwargs)

    def get_state_tree(self, value_format: str = "backend_tensor") -> dict[str, Any]:
        """Return the variables' values as nested dicts by their paths.

        Args:
            value_format: "backend_tensor" for tensors, "numpy_array" for arrays.

        Returns:
            "trainable_variables", "non_trainable_variables", "optimizer_variables" and
            "metrics_variables", each {"layer": {"kernel": value}}.
        """
        return read_state(self, value_format)

    def set_state_tree(self, state_tree: dict[str, Any]) -> None:
        """Assign what `get_state_tree` returned, or a part of it."""
        write_state(self, state_tree)

    def to_json(self, **kwargs: Any) -> str:
        """Return the architecture as JSON."""
        return saving("model_to_json")(self, **kwargs)

    @hides_frames
    def export(
        self,
        filepath: PathLike,
        format: str | None = None,
        verbose: bool | None = None,
        input_signature: Structure = None,
        **kwargs: Any,
    ) -> None:
        """Write the model's inference to a file that needs none of the model's classes.

        Args:
            filepath: the file.
            format: "kerasish": an archive of any name, which `saving.load_archive(filepath).serve`
                runs on either engine; "onnx": a file for ONNX runtimes; "native": a shared library
                with a C header, `filepath` without a suffix; None: "onnx" for names that end with
                .onnx, else "kerasish".
            verbose: False says nothing.
            input_signature: a list with an InputSpec for each argument; None: the model's inputs.
            kwargs: options of "native": `target` ("native", "x86-64-v2" to "-v4", "aarch64") and
                `weights` ("inside" or "beside" the library). Options of "onnx": `opset_version`
                (18 or later; 18), `verify` (True: compare with onnxruntime before the file is put
                in place), `external_data` (whether weights are in a second file; None: above 2 GB).

        Raises:
            ValueError: another format; or the model cannot be written (`ExportArchive` says when);
                or a layer cannot be expressed in ONNX, which the message names.
            ImportError: format "onnx" without the package onnx: `pip install 'kerasish[onnx]'`.
        """
        saving("export_model")(self, filepath, format, verbose, input_signature, **kwargs)

    # --- config ---------------------------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        """Return what `from_config` needs to make an equal model with new weights."""
        if self.layer_graph is None or _has_own_init(type(self)):
            return super().get_config()
        parts = functional_config(self._need_graph(), self.inputs_structure, self.outputs_structure)
        return {"name": self.name, "trainable": self._trainable, **parts}

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Model:
        """Return the model that `get_config` describes."""
        with registry.CustomObjectScope(custom_objects or {}):
            if "layers" in config and "input_layers" in config:
                target = Functional if cls is Model else cls
                return functional_from_config(target, config)
            return super().from_config(config)


def _has_own_init(cls: type) -> bool:
    """Return whether a subclass has a constructor with other arguments."""
    if cls.__module__.split(".")[0] == "kerasish":
        return False
    names = list(inspect.signature(cls.__init__).parameters)[1:]  # type: ignore[misc]
    return names != ["args", "kwargs"]


class Functional(Model):
    """A model given by symbolic inputs and outputs.

    Args:
        inputs, outputs: symbolic tensors: one, or a list, tuple or dict of them.
        name: the model's name; None: made from the class's name.

    Example:
        >>> import kerasish
        >>> x = kerasish.Input((3,))
        >>> type(kerasish.Model(x, x * 2.0)).__name__
        'Functional'
    """

    def __init__(
        self, inputs: Structure, outputs: Structure, name: str | None = None, **kwargs: Any
    ) -> None:
        Layer.__init__(self, name=name, **kwargs)
        self.training_program = TrainingProgram(self)
        self._set_graph(inputs, outputs)

    keras_module = "keras.src.models.functional"
    keras_registered_name = "Functional"


registry.add_builtins("keras", {"Model": Model, "Functional": Functional})
registry.add_builtins("keras.models", {"Model": Model, "Functional": Functional})
