"""Distributions: how batches and variables are divided among the processes of a job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kerasish.distribution.mesh import DeviceMesh, LayoutMap, TensorLayout
from kerasish.distribution.setup import list_devices
from kerasish.ranks import Sharding, current_group, current_sharding, set_sharding
from kerasish.tensor import Variable
from kerasish.typing import AnyTensor, Structure, TensorLike

_WHOLE = (
    "Arrays of the host belong to one process: tensors are not divided over processes, and no "
    "layout spreads from tensor to tensor. ModelParallel() divides variables by their paths"
)


class Distribution:
    """What is divided among the processes: the base class of `DataParallel` and `ModelParallel`.

    Args:
        device_mesh: the devices.
        batch_dim_name: the mesh's axis along which batches are divided; None: they are not.
        auto_shard_dataset: whether every rank is given the same batches, of which it takes its
            rows. False is refused: batches of unknown weight cannot be added up exactly.

    Example:
        >>> isinstance(DataParallel(), Distribution)
        True
    """

    def __init__(
        self,
        device_mesh: DeviceMesh,
        batch_dim_name: str | None = None,
        auto_shard_dataset: bool = True,
    ) -> None:
        self._device_mesh = device_mesh
        self._batch_dim_name = batch_dim_name
        self.auto_shard_dataset = auto_shard_dataset

    @property
    def device_mesh(self) -> DeviceMesh:
        """The devices."""
        return self._device_mesh

    @property
    def batch_dim_name(self) -> str | None:
        """The mesh's axis along which batches are divided."""
        return self._batch_dim_name

    @property
    def auto_shard_dataset(self) -> bool:
        """Whether every rank is given the same batches, of which it takes its rows."""
        return self._auto_shard_dataset

    @auto_shard_dataset.setter
    def auto_shard_dataset(self, value: bool) -> None:
        if not value:
            raise ValueError(
                "auto_shard_dataset=False: every rank would have its own batches. Give all "
                "ranks the same data (arrays, memory maps, a PyDataset, a generator with equal "
                "batches): each takes its own rows of each batch."
            )
        self._auto_shard_dataset = True

    @property
    def num_processes(self) -> int:
        """How many processes there are."""
        return current_group().size

    @property
    def num_model_replicas(self) -> int:
        """How many copies of the model there are."""
        raise NotImplementedError(f"{type(self).__name__} must define num_model_replicas.")

    @property
    def data_shard_id(self) -> int:
        """Which part of each batch this process computes."""
        return current_group().rank

    def get_data_layout(self, data_shape: Sequence[int | None]) -> TensorLayout:
        """Return the layout of a batch: its first axis is divided."""
        axes = [self._batch_dim_name, *([None] * (len(data_shape) - 1))]
        return TensorLayout(axes, self._device_mesh)

    def get_variable_layout(self, variable: Variable) -> TensorLayout | None:
        """Return the layout of a variable."""
        raise NotImplementedError(f"{type(self).__name__} must define get_variable_layout.")

    def get_tensor_layout(self, path: str) -> TensorLayout | None:
        """Return the layout of a tensor inside the model; None: unchanged."""
        return None

    def distribute_dataset(self, dataset: Structure) -> Structure:
        """Return the data set: `fit` takes each rank's rows from whole batches by itself."""
        return dataset

    def distribute_tf_dataset(self, dataset: Structure) -> Structure:
        """Return the data set; see `distribute_dataset`."""
        return dataset

    def sharding(self) -> Sharding | None:
        """Return how batches are cut; None: they are not."""
        raise NotImplementedError(f"{type(self).__name__} must define sharding.")

    @contextmanager
    def scope(self) -> Iterator[Distribution]:
        """Let this distribution be the current one inside the block."""
        before, sharding = _Current.value, current_sharding()
        set_distribution(self)
        try:
            yield self
        finally:
            _Current.value = before
            set_sharding(sharding)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} device_mesh={self._device_mesh}>"


class DataParallel(Distribution):
    """Every process has the whole model, and computes its rows of each batch.

    Gradients are added up over all processes before the optimizer sees them, so clipping, loss
    scaling, accumulation and averages work as in one process. `batch_size` of `fit` is that of the
    whole batch. Losses, metrics, weights and masks are exact for every number of rows.

    Each batch is cut into `shards`, whose gradients are added in a fixed binary tree. The bits of a
    training depend on the number of shards, not on the number of processes, where that number
    divides `shards` by a power of two: 8 shards give the same bits on 1, 2, 4 and 8 processes of
    the same kind of processor with the same number of threads.

    Args:
        device_mesh: a mesh of one axis; None: made of `devices`.
        devices: names of devices; None: `list_devices()`.
        auto_shard_dataset: True; see `Distribution`.
        shards: a multiple of the number of processes; None: that number.
        shard_optimizer: whether each process keeps only the optimizer's slots of its part of
            the variables (ZeRO-1): less memory, the same bits. The optimizer must compute each
            element by itself. Files hold whole slots; all processes call `model.save()` together.

    Raises:
        ValueError: the mesh has several axes; the devices, or the shards, do not fit the processes.

    Example:
        >>> import kerasish
        >>> data_parallel = DataParallel(shards=4)    # four shards on one process
        >>> data_parallel.num_model_replicas
        1
    """

    def __init__(
        self,
        device_mesh: DeviceMesh | None = None,
        devices: Sequence[str] | None = None,
        auto_shard_dataset: bool = True,
        *,
        shards: int | None = None,
        shard_optimizer: bool = False,
    ) -> None:
        if device_mesh is None:
            names = list_devices() if devices is None else list(devices)
            device_mesh = DeviceMesh((len(names),), ["batch"], names)
        if len(device_mesh.shape) != 1:
            raise ValueError(
                f"DataParallel: expected a mesh with one axis, got shape={device_mesh.shape}. "
                "ModelParallel takes meshes with more."
            )
        super().__init__(device_mesh, device_mesh.axis_names[0], auto_shard_dataset)
        self.shards = _check_fits("DataParallel", device_mesh, shards)
        self.shard_optimizer = bool(shard_optimizer)

    @property
    def num_model_replicas(self) -> int:
        """How many copies of the model there are: one per process."""
        return int(self.device_mesh.devices.size)

    def get_variable_layout(self, variable: Variable) -> TensorLayout:
        """Return the layout of a variable: every process has all of it."""
        return TensorLayout([None] * len(variable.shape), self.device_mesh)

    def sharding(self) -> Sharding | None:
        """Return how batches are cut; None where one process computes them whole."""
        group = current_group()
        if group.size == 1 and self.shards == 1:
            return None
        return Sharding(group, self.shards, self.shard_optimizer)


class ModelParallel(Distribution):
    """Variables divided by a map of layouts: each process keeps a segment of them and their slots.

    A variable whose layout names an axis of the mesh with several devices is divided evenly among
    all processes, for any axis. It is gathered where a layer reads it, freed, and gathered
    again by the reverse pass; gradients are summed, and each process updates its segment. Batches
    are cut among all processes, as `DataParallel` cuts them, and the bits are those of
    `DataParallel`: only where the numbers are kept differs. Layouts of tensors that are no
    variables have no effect. The optimizer must compute each element by itself.

    All processes read a divided variable together: `get_weights()`, `save()` and `numpy()` are
    calls of all of them.

    Args:
        layout_map: the layouts of variables by their paths; None is an error.
        batch_dim_name: the mesh's axis along which batches are divided; None: the first.
        auto_shard_dataset: True; see `Distribution`.
        shards: as for `DataParallel`.

    Raises:
        ValueError: there is no layout map, or its mesh has no such axis; the devices, or the
            shards, do not fit the processes.

    Example:
        >>> mesh = DeviceMesh((1, 1), ["batch", "model"], ["cpu:0"])
        >>> layouts = LayoutMap(mesh)
        >>> layouts["dense.*kernel"] = (None, "model")
        >>> ModelParallel(layout_map=layouts).batch_dim_name
        'batch'
    """

    def __init__(
        self,
        *,
        layout_map: LayoutMap | None = None,
        batch_dim_name: str | None = None,
        auto_shard_dataset: bool = True,
        shards: int | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs.pop("device_mesh", None)
        if kwargs:
            raise ValueError(f"ModelParallel: unexpected argument(s) {sorted(kwargs)}.")
        if layout_map is None:
            raise ValueError("ModelParallel: expected layout_map=LayoutMap(mesh), got None.")
        if not isinstance(layout_map, LayoutMap):
            raise ValueError(f"ModelParallel: expected a LayoutMap, got {layout_map!r}.")
        mesh = layout_map.device_mesh
        name = mesh.axis_names[0] if batch_dim_name is None else batch_dim_name
        if name not in mesh.axis_names:
            raise ValueError(
                f"ModelParallel: batch_dim_name is an axis of the mesh {list(mesh.axis_names)}, "
                f"got {name!r}."
            )
        super().__init__(mesh, name, auto_shard_dataset)
        self._layout_map = layout_map
        self.shards = _check_fits("ModelParallel", mesh, shards)

    @property
    def num_model_replicas(self) -> int:
        """How many copies of the model there are: the size of the batch's axis."""
        return self.device_mesh.size_of(self.batch_dim_name)

    def get_variable_layout(self, variable: Variable) -> TensorLayout:
        """Return the layout that the map gives to the variable's path; not divided without one."""
        layout = self._layout_map[variable.path]
        if layout is None:
            return TensorLayout([None] * len(variable.shape), self.device_mesh)
        return layout

    def get_tensor_layout(self, path: str) -> TensorLayout | None:
        """Return the layout that the map gives to a tensor's path, or None."""
        return self._layout_map[path]

    def sharding(self) -> Sharding | None:
        """Return how batches are cut, and which variables are divided; None: none is."""
        group = current_group()
        if group.size == 1 and self.shards == 1:
            return None
        return Sharding(group, self.shards, divided=self._divides)

    def _divides(self, path: str) -> bool:
        layout = self._layout_map[path]
        return layout is not None and layout.divides


def _check_fits(who: str, mesh: DeviceMesh, shards: int | None) -> int:
    """Return the number of shards; raise if it, or the devices, do not fit the processes."""
    size = current_group().size
    if mesh.devices.size != size:
        raise ValueError(
            f"{who}: {mesh.devices.size} devices for {size} processes; each "
            "process has one. Start as many processes as there are devices (mpiexec -n), and "
            "call initialize() first."
        )
    if shards is not None and (
        isinstance(shards, bool) or not isinstance(shards, int) or shards < 1 or shards % size
    ):
        raise ValueError(
            f"{who}: shards must be a multiple of the {size} processes, got {shards!r}."
        )
    return size if shards is None else shards


class _Current:
    value: Distribution | None = None


def distribution() -> Distribution | None:
    """Return the current distribution, or None.

    Example:
        >>> print(distribution())
        None
    """
    return _Current.value


def set_distribution(value: Distribution | None) -> None:
    """Divide all training, evaluation and prediction from now on as `value` says.

    All processes call it. It also applies to existing models: all start from the values that
    variables have on rank 0.

    Args:
        value: a `DataParallel` or `ModelParallel`; None: every process works by itself.

    Raises:
        TypeError: it is no distribution.

    Example:
        >>> set_distribution(DataParallel())
        >>> distribution().batch_dim_name
        'batch'
        >>> set_distribution(None)
    """
    if value is not None and not isinstance(value, Distribution):
        raise TypeError(
            f"set_distribution: expected DataParallel() or None, got {value!r} "
            f"({type(value).__name__})."
        )
    sharding = None if value is None else value.sharding()
    _Current.value = value
    set_sharding(sharding)


def distribute_tensor(tensor: TensorLike, layout: TensorLayout) -> AnyTensor:
    """Return a tensor in another layout: the tensor itself, where the layout divides nothing.

    Args:
        tensor: any tensor.
        layout: its layout.

    Returns:
        The tensor.

    Raises:
        TypeError: it is no layout.
        ValueError: the layout divides the tensor.

    Example:
        >>> mesh = DeviceMesh((1,), ["batch"], ["cpu:0"])
        >>> distribute_tensor([1.0], TensorLayout(["batch"], mesh))
        [1.0]
    """
    if not isinstance(layout, TensorLayout):
        raise TypeError(
            f"distribute_tensor: expected a TensorLayout, got {layout!r} ({type(layout).__name__})."
        )
    if layout.divides:
        raise ValueError(f"distribute_tensor: {layout} divides the tensor. {_WHOLE}.")
    return tensor
