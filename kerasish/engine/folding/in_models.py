"""What a model does with Python structures among its inputs."""

from __future__ import annotations

from typing import Any

from kerasish.engine.data.arrays import ArrayData
from kerasish.engine.data.data import Data
from kerasish.engine.data.structures import Structures
from kerasish.engine.folding.inputs import (
    PackedData,
    as_structures,
    build_configs,
    build_parts,
    folded_layers,
    may_hold_structures,
    pack_inputs,
    read_structures,
    record_inputs,
)
from kerasish.engine.layer.layer import Layer
from kerasish.typing import Structure


class StructuresMixin(Layer):
    """The part of `Model` for folded layers: their inputs, and how their layers are built."""

    def packed_data(self, data: Data) -> Data | None:
        """Return data whose structures are packed for each batch; None: no layer reads such."""
        if isinstance(data, ArrayData) and not data.holds_structures:
            return None  # before all layers are looked through
        if not folded_layers(self):
            return None
        if isinstance(data, ArrayData):
            read_structures(self, record_inputs, data.structures())
        return PackedData(data, lambda x: read_structures(self, pack_inputs, x))

    def with_structures(self, x: Structure) -> Structure:
        """Return inputs with lists of Python structures as columns, where the model reads such.

        Args:
            x: the inputs that the user gave.
        """
        if not may_hold_structures(x) or not folded_layers(self):
            return x
        return as_structures(x)

    def _packed(self, x: Structure) -> Structure:
        """Return an argument of a call with its structures packed, where the model reads such."""
        if type(x) is not list and type(x) is not Structures or len(x) and hasattr(x[0], "shape"):
            return x
        layers = folded_layers(self)
        return pack_inputs(layers, as_structures(x)) if layers else x

    def get_build_config(self) -> dict[str, Any] | None:
        """Return the shapes from which the model was built, or None."""
        if not folded_layers(self):
            return super().get_build_config()
        return {"parts": build_configs(self)}

    def build_from_config(self, config: dict[str, Any]) -> None:
        """Build from what `get_build_config` returned."""
        if config and config.get("parts"):
            build_parts(self, config["parts"])
            self.built = all(p.built for p in self.flatten_layers() if p is not self)
        else:
            super().build_from_config(config)
