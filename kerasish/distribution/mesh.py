"""Meshes of devices, and layouts of tensors on them: Keras's way to describe a distribution."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

import numpy as np

from kerasish.distribution.setup import list_devices
from kerasish.reprs import arguments_repr
from kerasish.typing import Array


class DeviceMesh:
    """Devices in an array whose axes have names.

    Args:
        shape: the sizes of the axes, each >= 1.
        axis_names: a name for each axis.
        devices: as many device names as the mesh has places; None: `list_devices()`.

    Raises:
        ValueError: sizes, names and devices do not fit each other.

    Example:
        >>> mesh = DeviceMesh((1,), ["batch"], ["cpu:0"])
        >>> mesh.devices.tolist()
        ['cpu:0']
    """

    def __init__(
        self, shape: Sequence[int], axis_names: Sequence[str], devices: Array = None
    ) -> None:
        if not shape or not axis_names:
            raise ValueError(
                f"DeviceMesh: expected at least one axis, got shape={shape}, "
                f"axis_names={axis_names}."
            )
        if len(shape) != len(axis_names):
            raise ValueError(
                f"DeviceMesh: expected one name for each axis, got shape={shape}, "
                f"axis_names={axis_names}."
            )
        given = np.array(list_devices() if devices is None else devices)
        if math.prod(shape) != given.size:
            raise ValueError(
                f"DeviceMesh: shape={shape} has {math.prod(shape)} places, but there are "
                f"{given.size} devices; a job has one per process (mpiexec -n)."
            )
        self._shape, self._axis_names = shape, axis_names
        self._devices = given.reshape(shape)

    @property
    def shape(self) -> Sequence[int]:
        """The sizes of the axes."""
        return self._shape

    @property
    def axis_names(self) -> Sequence[str]:
        """The names of the axes."""
        return self._axis_names

    @property
    def devices(self) -> Array:
        """The names of the devices, an array of this shape."""
        return self._devices

    @property
    def backend_mesh(self) -> DeviceMesh:
        """The mesh itself: no backend has another form of it."""
        return self

    def size_of(self, axis: str | None) -> int:
        """Return the size of an axis by its name; 1 for None."""
        return 1 if axis is None else int(self._shape[list(self._axis_names).index(axis)])

    def __repr__(self) -> str:
        return f"<{type(self).__name__} shape={self.shape}, axis_names={self.axis_names}>"


class TensorLayout:
    """Which axis of a mesh each axis of a tensor is divided along.

    Args:
        axes: for each axis of the tensor the name of a mesh's axis, or None: not divided.
        device_mesh: the mesh; None: set later, once.

    Raises:
        ValueError: the mesh has no axis of such a name.

    Example:
        >>> TensorLayout([None, "model"]).axes
        (None, 'model')
    """

    def __init__(self, axes: Sequence[str | None], device_mesh: DeviceMesh | None = None) -> None:
        self._axes, self._device_mesh = tuple(axes), device_mesh
        self._check()

    @property
    def axes(self) -> tuple[str | None, ...]:
        """The names of the mesh's axes."""
        return self._axes

    @property
    def device_mesh(self) -> DeviceMesh | None:
        """The mesh."""
        return self._device_mesh

    @device_mesh.setter
    def device_mesh(self, device_mesh: DeviceMesh) -> None:
        if self._device_mesh is not None:
            raise ValueError(
                f"TensorLayout: the mesh is {self._device_mesh} already; make another layout."
            )
        self._device_mesh = device_mesh
        self._check()

    @property
    def backend_layout(self) -> TensorLayout:
        """The layout itself: no backend has another form of it."""
        return self

    @property
    def divides(self) -> bool:
        """Whether a tensor of this layout is divided among several devices."""
        mesh = self._device_mesh
        return mesh is not None and any(mesh.size_of(axis) > 1 for axis in self._axes)

    def _check(self) -> None:
        if self._device_mesh is not None:
            known = set(self._device_mesh.axis_names)
            unknown = set(self._axes) - {None} - known
            if unknown:
                raise ValueError(
                    f"TensorLayout: expected names of the mesh's axes {sorted(known)}, got "
                    f"{sorted(map(str, unknown))}."
                )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} axes={self.axes}, device_mesh={self.device_mesh}>"


class LayoutMap(MutableMapping[str, Any]):
    """Layouts of variables by their paths; a key is a path, or a regular expression of paths.

    Args:
        device_mesh: the mesh of layouts that have none.

    Example:
        >>> layouts = LayoutMap(DeviceMesh((1, 1), ["batch", "model"], ["cpu:0"]))
        >>> layouts["dense.*kernel"] = (None, "model")
        >>> layouts["dense_1/kernel"].axes
        (None, 'model')
    """

    def __init__(self, device_mesh: DeviceMesh) -> None:
        self._layouts: dict[str, TensorLayout] = {}
        self._device_mesh = device_mesh

    def __getitem__(self, key: str) -> TensorLayout | None:
        """Return the layout of a path; None where no key fits.

        Raises:
            ValueError: several keys fit.
        """
        if key in self._layouts:
            return self._layouts[key]
        fitting = [pattern for pattern in self._layouts if re.search(pattern, key)]
        if len(fitting) > 1:
            raise ValueError(
                f"LayoutMap: the path {key!r} fits several keys: {fitting}. Make them narrower."
            )
        return self._layouts[fitting[0]] if fitting else None

    def __setitem__(self, key: str, layout: Any) -> None:
        """Set the layout of a path or a regular expression: a `TensorLayout`, or a tuple of axes.

        Raises:
            ValueError: the key is there already, or it is no layout.
        """
        if key in self._layouts:
            raise ValueError(
                f"LayoutMap: {key!r} has the layout {self._layouts[key]} already; delete it first."
            )
        if isinstance(layout, tuple):
            layout = TensorLayout(layout)
        if not isinstance(layout, TensorLayout):
            raise ValueError(
                f"LayoutMap: expected a TensorLayout or a tuple of axes for {key!r}, got "
                f"{layout!r} ({type(layout).__name__})."
            )
        if layout.device_mesh is None:
            layout.device_mesh = self._device_mesh
        self._layouts[key] = layout

    def __delitem__(self, key: str) -> None:
        del self._layouts[key]

    def __len__(self) -> int:
        return len(self._layouts)

    def __iter__(self) -> Iterator[str]:
        return iter(self._layouts)

    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh."""
        return self._device_mesh

    __repr__ = arguments_repr
