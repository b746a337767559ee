"""Folded: a layer that runs a recursive Python function for many structures at once."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable
from types import CodeType
from typing import Any

from kerasish import ops, tree
from kerasish.engine.data.structures import Structures
from kerasish.engine.folding.deep import MOST_FRAMES, call_deep
from kerasish.engine.folding.immediate import Immediate
from kerasish.engine.folding.inputs import build_configs, build_parts
from kerasish.engine.folding.recorder import CallRecord, Recorder
from kerasish.engine.folding.run import run
from kerasish.engine.folding.schedule import is_packed, pack
from kerasish.engine.folding.table import FoldedTable
from kerasish.engine.layer.call_context import context
from kerasish.engine.layer.layer import Layer
from kerasish.engine.layer.operation import any_symbolic, is_keras_tensor
from kerasish.errors import TraceError, add_note
from kerasish.graph.nested import Tracer
from kerasish.ops.op import current_engine, using_engine
from kerasish.overriding import override
from kerasish.ranks import current_sharding
from kerasish.tensor import Tensor
from kerasish.typing import Array, Structure


class Folded(Layer):
    """A function of one structure (a tree, a list, a graph) as a layer for many different ones.

    The function is ordinary Python: it looks at a structure, calls itself for the parts, and calls
    layers and ops on what it gets. All of its values are those of one structure, without an axis
    of samples: a word's vector has the shape (64,). For a batch it runs once per structure without
    numbers; then each layer and each op is called once for all nodes of all structures at the same
    depth. Derivatives flow as through any layer.

    Give the function, or write a subclass with a method `visit`, which can hold the layers and can
    be saved.

    Args:
        function: takes a structure and returns a tensor or a structure of tensors; of the same
            shapes for every structure. None: the method `visit` of a subclass.
        record_once: whether a structure in the data of `fit` is checked once; False: the
            function runs again for each batch, so it may decide by what changes meanwhile.

    Input: a list of structures, or what `pack` returns for it. Result: tensors with one row per
    structure.

    Raises:
        ValueError, TypeError: a message names the structure and the node.

    Source:
        Looks, Herreshoff, Hutchins and Norvig, "Deep Learning with Dynamic Computation Graphs"
        (TensorFlow Fold), 2017.

    Example:
        >>> import kerasish
        >>> from kerasish import layers
        >>> word, join = layers.Embedding(10, 4), layers.Dense(4, activation="tanh")
        >>> def meaning(tree):
        ...     if isinstance(tree, int):
        ...         return word(tree)
        ...     left, right = map(meaning, tree)
        ...     return join(kerasish.ops.concatenate([left, right]))
        >>> folded = Folded(meaning)
        >>> folded([(1, (2, 3)), 4, ((1, 2), (3, 4))]).shape
        (3, 4)
    """

    takes_structures = True

    def __init__(
        self,
        function: Callable[[Any], Any] | None = None,
        record_once: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if function is not None and not callable(function):
            raise TypeError(f"Folded takes a function of one structure, got {function!r}.")
        self.function, self.record_once = function, record_once
        self.called: list[Layer] = []  # layers that the function calls and nothing else holds
        self._table = FoldedTable()
        self.built = True

    def visit(self, structure: Structure) -> Structure:
        """Return the function's result for one structure; subclasses define it.

        Args:
            structure: any object of the data.
        """
        if self.function is None:
            raise NotImplementedError(
                f"{self.display_name()}: give a function, or write a subclass with a method "
                "`visit(self, structure)`."
            )
        return self.function(structure)

    # --- calls ----------------------------------------------------------------------------------

    def __call__(self, structures: Any, **kwargs: Any) -> Any:
        """Return the results for a list of structures; inside a folded function, for one."""
        if context.recorder is not None:
            return self.visit(structures)
        named = structures if isinstance(structures, dict) else ()
        if any_symbolic(named) or is_keras_tensor(structures):
            raise NotImplementedError(
                f"{self.display_name()} reads Python structures, which no symbolic tensor can "
                "represent. Use it in a Sequential model without an Input, or in a Model subclass."
            )
        if isinstance(structures, dict) and is_packed(structures.get(self.name)):
            structures = structures[self.name]
        if not is_packed(structures):
            if isinstance(current_engine(), Tracer):
                raise TraceError(
                    f"{self.display_name()} got Python structures in a compiled function: pack "
                    "them outside, by its method `pack`, and pass the result."
                )
            structures = self.pack(structures)
        return super().__call__(structures, **kwargs)

    def call(self, structures: Structure) -> Structure:
        """Run the packed calls."""
        assert self._table.root is not None
        results = run(structures, self._table, self.display_name())
        structure = self._table.root[0]
        return results[0] if structure is None else tree.pack_sequence_as(structure, results)

    def _take(self, x: Structure) -> Structure:
        return x

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Structure:
        """Refuse: the result's shape depends on the data."""
        raise NotImplementedError(f"{self.display_name()} has no shape before it has seen data.")

    def pack(self, structures: Iterable[Any]) -> dict[str, Array]:
        """Return a batch of structures as arrays, which a compiled function takes.

        Args:
            structures: a list (or any iterable) of the objects that the function takes.
        """
        if isinstance(structures, (str, bytes, dict)) or not hasattr(structures, "__iter__"):
            raise TypeError(
                f"{self.display_name()}: expected a list of structures, got "
                f"{type(structures).__name__} {reprlib.repr(structures)}."
            )
        if current_sharding() is not None:
            raise ValueError(
                f"{self.display_name()}: the batches of folded functions are not divided among "
                "ranks. Train in one process."
            )
        column = structures if isinstance(structures, Structures) else Structures(structures)
        records = self._records(column)
        if not records and self._table.root is None:
            raise ValueError(
                f"{self.display_name()}: expected at least one structure, got none: the shape of "
                "the result is known after the first one."
            )
        return pack(records, self._table)

    # --- recording ------------------------------------------------------------------------------

    def record(self, structures: Structures) -> None:
        """Look at all structures of a column: layers that they need are built.

        Args:
            structures: the column; what is learned of it is kept there.
        """
        if self.record_once:
            self._records(structures)

    def _records(self, column: Structures) -> list[CallRecord]:
        known = column.known.setdefault(self, {}) if self.record_once else {}
        recorder = Recorder(self._table, self.name, self._met)
        records = []
        for place, item in enumerate(column):
            record = known.get(id(item))
            if record is None:
                record = self._record(recorder, item, place)
                if self.record_once:
                    known[id(item)] = record
            records.append(record)
        return records

    def _record(self, recorder: Recorder, item: Any, place: int) -> CallRecord:
        """Return the record of one structure."""
        try:
            try:
                return self._record_here(recorder, item)
            except RecursionError:
                return call_deep(lambda: self._record_here(recorder, item))
        except RecursionError as error:
            raise RecursionError(
                f"{self.display_name()}: the function called itself more than "
                f"{MOST_FRAMES:,} times deep on structure {place}. Does the structure hold itself? "
                "Keep the results of a graph's nodes in a dict, or use a loop for long lists."
            ) from error
        except Exception as error:
            self._note_node(error, place)
            raise

    def _record_here(self, recorder: Recorder, item: Any) -> CallRecord:
        record = recorder.begin()
        with override(context, "recorder", recorder), using_engine(recorder):
            result = self.visit(item)
            leaves = [recorder.value_of(x) for x in tree.flatten(result)]
        for leaf in leaves:
            record.check_own(leaf)
        structure = tree.map_structure(lambda x: None, result) if tree.is_nested(result) else None
        root = (structure, tuple(leaf.kind for leaf in leaves))
        if not leaves:
            raise ValueError(f"{self.display_name()}: the function returned no tensor.")
        table = self._table
        if table.root is None:
            table.root = root
        if table.root != root:
            raise ValueError(
                f"{self.display_name()}: the function must return the same shapes for every "
                f"structure, got {self._described(root)} after {self._described(table.root)}."
            )
        record.roots = [leaf.number for leaf in leaves]
        return record.finish()

    def _described(self, root: tuple[Any, tuple[int, ...]]) -> str:
        classes = (self._table.classes[c] for c in root[1])
        return ", ".join(f"{c.dtype}{list(c.shape)}" for c in classes)

    def _met(self, layer: Layer) -> None:
        """Hold a layer that the function has called for the first time."""
        owner = getattr(self.function, "__self__", None)
        held = self.flatten_layers()
        if isinstance(owner, Layer):
            held += owner.flatten_layers()
        if not any(layer is other for other in held):
            self.called = [*self.called, layer]

    def _note_node(self, error: Exception, place: int) -> None:
        """Say at which node of which structure an error occurred."""
        function = self.function or type(self).visit
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        nodes = _nodes_of(error, code) if code is not None else []
        where = f"structure {place}"
        if nodes:
            where += f", node {reprlib.repr(nodes[-1])} at depth {len(nodes) - 1}"
        add_note(error, f"This happened in {self.display_name()}, {where}.")

    # --- the reference --------------------------------------------------------------------------

    def one_by_one(self, structures: Iterable[Any], training: bool | None = None) -> Structure:
        """Return the same results without batching: each call runs at once, on one row.

        Python in the function sees numbers here, and a debugger stops at them.

        Args:
            structures: a list of structures.
            training: the training flag for the layers.
        """
        rows: list[list[Tensor]] = []
        structure: Any = None
        for item in structures:
            with override(context, "recorder", Immediate(training)):
                structure = self.visit(item)
            rows.append([ops.convert_to_tensor(x) for x in tree.flatten(structure)])
        if not rows:
            raise ValueError(f"{self.display_name()}: expected at least one structure, got none.")
        results = [ops.stack(column) for column in zip(*rows)]
        return tree.pack_sequence_as(structure, results)

    # --- files ----------------------------------------------------------------------------------

    def get_build_config(self) -> dict[str, Any] | None:
        """Return how each inner layer was built: only data say so, and a file holds none."""
        return {"parts": build_configs(self)}

    def build_from_config(self, config: dict[str, Any]) -> None:
        """Build the layers inside from what `get_build_config` returned."""
        build_parts(self, (config or {}).get("parts") or ())


def _nodes_of(error: BaseException, code: CodeType) -> list[Any]:
    """Return the first argument of each call of a function in an error's traceback."""
    names = code.co_varnames[: code.co_argcount]
    name = next((n for n in names if n != "self"), None)
    nodes = []
    at = error.__traceback__
    while at is not None:
        if at.tb_frame.f_code is code and name in at.tb_frame.f_locals:
            nodes.append(at.tb_frame.f_locals[name])
        at = at.tb_next
    return nodes
