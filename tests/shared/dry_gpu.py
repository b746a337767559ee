"""A training step of the eager engine on a GPU that counts what it is handed and computes little.

`Steps` is what `python -m benchmarks.gpu_launches` and the tests of the limits count with: launches
by name, allocations and bytes. Kernels of the package, cuBLASLt and cuDNN are handed their work and
do not do it; CuPy's own functions run on NumPy. So a step takes seconds at the real sizes, and its
numbers mean nothing.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import cuda_on_cpu
import fake_cupy
import numpy as np
from cudnn_on_cpu import Frontend

import kerasish
from kerasish.backends.eager.cuda import blas, cublaslt, cudnn


class Counts(NamedTuple):
    """What one step hands to the GPU.

    Attributes:
        launches, bytes: of each kernel, by name.
        allocations: memory taken from the pool, how often.
    """

    launches: Counter[str]
    bytes: Counter[str]
    allocations: float

    @property
    def total(self) -> float:
        return sum(self.launches.values())


def _product(
    lib: Any, a: Any, b: Any, y: Any, epilogue: int, bias: Any, tf32: bool, onto: Any = None
) -> None:
    for factor in (a, b):
        cublaslt._lying(factor)  # a copy, counted, where it has neither layout
    arrays = [v for v in (a, b, y, bias, onto) if v is not None]
    fake_cupy.work.put("cublasLtMatmul", sum(v.nbytes for v in arrays))


def _ran(plan: Any, arrays: dict[int, Any]) -> bool:
    name = f"cudnn {getattr(plan.request, 'kind', type(plan.request).__name__)}"
    fake_cupy.work.put(name, sum(v.nbytes for v in arrays.values()))
    return True


def _zeros(shape: Any, dtype: Any = float) -> Any:
    return fake_cupy.ndarray(np.zeros(shape, dtype))


@contextlib.contextmanager
def installed(monkeypatch: Any, cublaslt_there: bool = True, cudnn_there: bool = True) -> Any:
    """Let `import cupy` give the fake, with libraries that are there or not, and dry kernels."""
    frontend = Frontend()
    known = {"name": b"a GPU", "major": 9, "minor": 0, "multiProcessorCount": 132}
    with fake_cupy.installed(monkeypatch) as module, monkeypatch.context() as patch:
        module.cuda.runtime.getDeviceProperties = lambda index: known
        module.empty = _zeros  # pages exist where they are touched
        patch.setattr(cuda_on_cpu.Function, "dry", True)
        patch.setattr(blas, "library", lambda version: frontend if cublaslt_there else None)
        patch.setattr(cublaslt, "_run", _product)
        patch.setattr(cudnn, "library", lambda version: frontend if cudnn_there else None)
        patch.setattr(cudnn, "ran", _ran)
        patch.setattr(cudnn, "run", _ran)
        patch.setenv("KERASISH_CACHE_DIR", "")
        for kept in (cudnn._plan, cudnn._handle, cudnn._kind_of):
            kept.cache_clear()
        try:
            yield module
        finally:
            for kept in (cudnn._plan, cudnn._handle, cudnn._kind_of):
                kept.cache_clear()


@contextlib.contextmanager
def counted(found: list[Counts]) -> Iterator[None]:
    """Append what the block hands to the GPU."""
    fake_cupy.work.clear()
    before = fake_cupy.counts["allocations"]
    yield
    taken = fake_cupy.counts["allocations"] - before
    work = fake_cupy.work
    found.append(Counts(Counter(work.launches), Counter(work.bytes), taken))


def step_of(model: Any, x: np.ndarray, y: np.ndarray) -> Counts:
    """Return what a training step of `fit` hands to the GPU: an epoch of 4 less one of 2, halved.

    Args:
        model: compiled with `run_eagerly=True`, on the GPU.
        x, y: one batch.
    """
    result: list[Counts] = []
    for steps in (1, 2, 4):
        many = [np.concatenate([a] * steps) for a in (x, y)]
        with counted(result):
            model.fit(*many, batch_size=len(x), verbose=0, shuffle=False)
    _, short, long = result
    more = [Counter({k: n - s[k] for k, n in m.items() if n > s[k]})
            for m, s in ((long.launches, short.launches), (long.bytes, short.bytes))]  # fmt: skip
    halves = [Counter({k: n / 2 for k, n in m.items()}) for m in more]
    return Counts(*halves, (long.allocations - short.allocations) / 2)


def workload_step(workload: Any, batch: int | None = None) -> Counts:
    """Return what a training step of a workload of `benchmarks/workloads.py` hands to the GPU.

    Args:
        batch: its size; None: the workload's own.
    """
    from benchmarks.workloads import LEARNING_RATE, make_data

    kerasish.utils.set_random_seed(0)
    x, y = make_data(workload, batch or workload.batch)
    before = kerasish.config.dtype_policy()
    kerasish.config.set_dtype_policy(workload.policy)
    try:
        with kerasish.device("gpu"):
            model = workload.build(kerasish)
            model.compile(
                optimizer=kerasish.optimizers.Adam(learning_rate=LEARNING_RATE),
                loss=kerasish.losses.SparseCategoricalCrossentropy(from_logits=True),
                metrics=["accuracy"], run_eagerly=True,
            )  # fmt: skip
            return step_of(model, x, y)
    finally:
        kerasish.config.set_dtype_policy(before)
