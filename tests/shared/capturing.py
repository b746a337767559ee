"""A capture of launches on the CPU: addresses are kept, launches replayed, and what a capture of a
stream refuses raises here.

CUDA refuses allocations from the driver, waits, copies to and from the host and work on the legacy
stream while a stream is captured. Nothing runs during a capture.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator
from typing import Any

import cuda_on_cpu
from cuda_on_cpu import CudaError, FakeCupy


class Captured:
    """The launches of a capture; calling it runs them on what is at their addresses now."""

    def __init__(self) -> None:
        self.launches: list[Callable[[], None]] = []

    def __call__(self) -> None:
        for launch in self.launches:
            launch()


def _refused(what: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise CudaError(f"while a stream is captured: {what}")

    return refuse


@contextlib.contextmanager
def capture(monkeypatch: Any, fake_cupy: FakeCupy, stream: int = 7) -> Iterator[Captured]:
    """Capture the launches of the block.

    Args:
        stream: the address of the current stream; 0 is the legacy stream.
    """
    captured, run = Captured(), cuda_on_cpu.Function.__call__

    def launch(function: Any, grid: Any, block: Any, args: Any, **options: Any) -> None:
        if not stream:
            raise CudaError("while a stream is captured: a launch on the legacy stream")
        # Arrays are kept by their addresses: numbers that are there at the replay count.
        captured.launches.append(lambda: run(function, grid, block, args, **options))

    current = types.SimpleNamespace(ptr=stream, synchronize=_refused("a wait for the stream"))
    with monkeypatch.context() as patch:
        patch.setattr(cuda_on_cpu.Function, "__call__", launch)
        patch.setattr(cuda_on_cpu.Array, "get", _refused("a copy to the host"))
        patch.setattr(fake_cupy, "empty", _refused("an allocation"))
        for name in ("asarray", "array", "zeros", "ones", "full", "arange"):
            patch.setattr(fake_cupy, name, _refused("an allocation"), raising=False)
        patch.setattr(fake_cupy.cuda, "get_current_stream", lambda: current)
        patch.setattr(
            fake_cupy.cuda.runtime, "deviceSynchronize", _refused("a wait for the device")
        )
        yield captured
