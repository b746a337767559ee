"""Run as a program: the real cuDNN plans our graphs, without a GPU, and says what came of it.

    python cudnn_planner.py convolution|attention [folder for plans]

cuDNN plans for a GPU that is described to it ("deviceless" planning). Each line of the output is
JSON: [name, "planned" or what is refused, bytes of workspace, bytes of the plan].
"""

from __future__ import annotations

import itertools
import json
import pathlib
import sys
from typing import Any

from kerasish.backends import disk
from kerasish.backends.eager.cuda import cudnn as ours
from kerasish.backends.eager.cuda.cudnn_attention import AttentionSizes
from kerasish.backends.eager.cuda.cudnn_convolution import Convolution

# An H200, as cuDNN describes devices.
GPU = {
    "deviceName": "NVIDIA H200", "deviceVer": 900, "driverVer": 13000, "cudaDeviceId": 0,
    "multiProcessorCount": 132, "totalGlobalMem": 150754820096, "warpSize": 32,
    "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
    "regsPerBlock": 65536, "maxRegistersPerSM": 65536, "maxCtasPerSM": 32,
    "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "maxSharedMemoryPerBlock": 49152,
    "maxSharedMemoryPerBlockOptin": 232448, "oversizedSharedMemoryPerBlock": 0,
    "reservedSharedMemoryPerBlock": 1024, "smClockRateKHz": 1980000, "memClockRateKHz": 3201000,
    "memoryBusWidth": 6144, "l2CacheSize": 62914560, "pciDeviceId": 0, "isTccDriver": 0,
    "supportCoopLaunch": 1,
}  # fmt: skip

# n, channels, spatial, results, window, strides, padding, dilation, groups
CONVOLUTIONS = {
    "3x3": (8, 64, (56, 56), 128, (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    "7x7 by 2": (8, 3, (224, 224), 64, (7, 7), (2, 2), ((2, 3), (2, 3)), (1, 1), 1),
    "1x1": (8, 64, (56, 56), 256, (1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    "uneven": (2, 5, (9, 7), 7, (3, 2), (2, 1), ((1, 0), (0, 1)), (1, 2), 1),
    "groups": (8, 64, (28, 28), 128, (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 4),
    "depthwise": (8, 64, (28, 28), 64, (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 64),
    "depthwise, two each": (8, 64, (28, 28), 128, (3, 3), (2, 2), ((0, 1), (0, 1)), (1, 1), 64),
    "one axis": (8, 64, (1, 100), 128, (1, 3), (1, 1), ((0, 0), (2, 0)), (1, 1), 1),
    "three axes": (4, 16, (8, 16, 16), 32, (3, 3, 3), (1, 1, 1), ((1, 1),) * 3, (1, 1, 1), 1),
    "three axes, groups": (4, 16, (8, 9, 9), 32, (3, 3, 3), (2, 1, 1), ((1, 1),) * 3, (1, 1, 1), 2),
    "dilated": (8, 64, (56, 56), 128, (3, 3), (1, 1), ((2, 2), (2, 2)), (2, 2), 1),
}

# batch, heads, key heads, targets, sources, size, value size, bias, causal
ATTENTIONS = {
    "plain": (4, 8, 8, 256, 256, 64, 64, None, False),
    "causal, odd lengths": (2, 4, 4, 255, 131, 64, 64, None, True),
    "shared keys": (2, 8, 2, 64, 64, 64, 64, None, True),
    "bias": (4, 8, 8, 256, 256, 64, 64, (4, 8, 256, 256), False),
    "mask of rows": (2, 4, 4, 255, 131, 64, 64, (2, 1, 1, 131), False),
    "small": (2, 4, 4, 7, 7, 8, 16, None, True),
    "one target": (2, 8, 8, 1, 64, 128, 128, None, False),
}


def convolutions() -> Any:
    """Yield (name, request)."""
    for name, (n, c, sizes, o, window, strides, padding, dilation, groups) in CONVOLUTIONS.items():
        counts = tuple(
            (s + a + b - d * (w - 1) - 1) // t + 1
            for s, w, t, (a, b), d in zip(sizes, window, strides, padding, dilation)
        )
        before, after = (tuple(p[i] for p in padding) for i in (0, 1))
        shapes = (n, c, *sizes), (o, c // groups, *window), (n, o, *counts)
        for kind, dtype in itertools.product(("forward", "data", "kernel"), ours.TYPES):
            for tf32 in (False, True)[: 2 if dtype == "float32" else 1]:
                request = Convolution(kind, dtype, tf32, *shapes, strides, before, after, dilation)
                name_of = f"{name} {kind} {dtype}{' as TF32' if tf32 else ''}"
                yield name_of, request
                if kind == "forward":
                    biased = request._replace(biased=True)
                    yield f"{name_of}, bias", biased
                    yield f"{name_of}, bias and relu", biased._replace(rectified=True)


def attentions() -> Any:
    """Yield (name, request)."""
    for name, (*sizes, bias, causal) in ATTENTIONS.items():
        request = AttentionSizes("bfloat16", *sizes, bias, 0.125, causal)
        yield name, request
        yield f"{name}, gradient", request._replace(gradient=False)
        if name == "bias":
            yield f"{name}, gradient by it", request._replace(gradient=True)
    plain = AttentionSizes("float16", *ATTENTIONS["small"][:-2], None, 0.125, True)
    yield "float16", plain
    yield "float16, gradient", plain._replace(gradient=False)


def main(kind: str, folder: str) -> None:
    """Plan all of a kind; write each plan and read it again."""
    import cudnn

    where = {"device_property": cudnn.create_device_properties(json.dumps(GPU)), "sm_version": 90}
    path = pathlib.Path(folder) / "plan"
    for name, request in {"convolution": convolutions, "attention": attentions}[kind]():
        try:
            graph = ours.build(cudnn, request, where)
        except (cudnn.cudnnGraphNotSupportedError, RuntimeError, ValueError, TypeError) as error:
            print(json.dumps([name, f"{type(error).__name__}: {error}"[:300], 0, 0]), flush=True)
            continue
        workspace, data = graph.get_workspace_size(), bytes(graph.serialize())
        disk.replace(path, disk.seal(ours.MARK, data))
        again = ours.read(cudnn, path, where)
        assert graph.selected_engine is None
        assert again is not None and again.get_workspace_size() == workspace
        disk.replace(path, disk.seal(ours.MARK, data[: len(data) // 2]))
        assert ours.read(cudnn, path, where) is None
        print(json.dumps([name, "planned", workspace, len(data)]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
