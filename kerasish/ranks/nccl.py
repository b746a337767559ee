"""Sums over ranks on GPUs: NCCL through CuPy, with MPI as the rendezvous.

Each rank has one GPU. NCCL adds in rings and trees that it chooses by size: the bits repeat for the
same ranks, and are not those of another number of ranks.
"""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING, Any

from kerasish.typing import Array

if TYPE_CHECKING:
    from kerasish.ranks.group import Group

_DTYPES = {
    "float16": "NCCL_FLOAT16", "float32": "NCCL_FLOAT32", "float64": "NCCL_FLOAT64",
    "int32": "NCCL_INT32", "int64": "NCCL_INT64", "uint32": "NCCL_UINT32",
}  # fmt: skip


class NcclSums:
    """A communicator between the GPUs of a group's ranks.

    Args:
        cupy: the module CuPy.
        nccl: its module `cuda.nccl`.
        group: the ranks, which all make one at the same time.
    """

    def __init__(self, cupy: Any, nccl: Any, group: Group) -> None:
        self.cupy, self.nccl = cupy, nccl
        identity = group.broadcast(nccl.get_unique_id() if group.rank == 0 else None)
        self._communicator = nccl.NcclCommunicator(group.size, identity, group.rank)

    def sum(self, array: Array) -> Array | None:
        """Return the sum over ranks, on the current stream; None for dtypes that NCCL has not."""
        kind = _DTYPES.get(array.dtype.name)
        if kind is None:
            return None
        given = self.cupy.ascontiguousarray(array)
        out = self.cupy.empty_like(given)
        if given.size:
            self._communicator.allReduce(
                given.data.ptr, out.data.ptr, given.size, getattr(self.nccl, kind),
                self.nccl.NCCL_SUM, self.cupy.cuda.get_current_stream().ptr,
            )  # fmt: skip
        return out


def make_sums(group: Group) -> NcclSums | None:
    """Return NCCL between the ranks' GPUs; None, on all ranks, where one of them lacks it.

    Args:
        group: the ranks, which all call this at the same time.
    """
    reason, cupy, nccl = "", None, None
    try:
        cupy = importlib.import_module("cupy")
        nccl = importlib.import_module("cupy.cuda.nccl")
    except ImportError as error:
        reason = f"CuPy has no NCCL here ({error})"
    else:
        if not getattr(nccl, "available", True):
            reason = "this CuPy was built without NCCL"
    reasons = group.gather((reason, group.host, _gpu_of(cupy)))
    places = [(host, gpu) for _, host, gpu in reasons]
    missing = [(rank, why) for rank, (why, _, _) in enumerate(reasons) if why]
    if not missing and len(set(places)) < len(places):
        missing = [(0, "several ranks use one GPU")]
    if missing:
        rank, why = missing[0]
        if group.rank == 0:
            warnings.warn(
                f"Sums over ranks go through the memory of the host: rank {rank}: {why}. Install "
                "nvidia-nccl-cu13 (or -cu12), and give each rank its own GPU.",
                RuntimeWarning,
                stacklevel=2,
            )
        return None
    return NcclSums(cupy, nccl, group)


def _gpu_of(cupy: Any) -> int:
    return -1 if cupy is None else int(cupy.cuda.runtime.getDevice())
