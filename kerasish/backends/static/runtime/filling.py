"""Copies the arguments of a call into the inputs of an executable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasish.graph.trace import spec_of
from kerasish.tensor import to_numpy
from kerasish.typing import Array, Structure


def fill(inputs: Sequence[Array], args: Sequence[Any]) -> None:
    """Copy the arrays among the arguments of a call into an executable's inputs."""
    views = iter(inputs)
    for a in args:
        if type(a) is np.ndarray:
            np.copyto(next(views), a)
        elif a is not None:
            for leaf in leaves_of(a):
                np.copyto(next(views), to_numpy(leaf))


def leaves_of(structure: Structure) -> list[Any]:
    """Return the arrays and tensors of an argument in the order of the inputs."""
    if isinstance(structure, (list, tuple)):
        return [leaf for part in structure for leaf in leaves_of(part)]
    if isinstance(structure, dict):
        return [leaf for k in sorted(structure) for leaf in leaves_of(structure[k])]
    return [structure] if spec_of(structure) is not None else []
