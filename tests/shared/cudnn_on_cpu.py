"""A frontend of cuDNN's interface whose graphs are computed on the CPU, by the reference ops.

It takes what `kerasish` asks of `nvidia-cudnn-frontend`, nothing else: wrong names, orders of calls
and strides raise. Tensors are read and written at their addresses, as their strides say.
tests/backends/cuda/test_cudnn_plans.py puts the same graphs to the real one.
"""

from __future__ import annotations

import ctypes
import math
import types
from typing import Any

import ml_dtypes
import numpy as np

from kerasish.ops.op import REGISTRY

NUMPY = {"FLOAT": np.float32, "HALF": np.float16, "BFLOAT16": ml_dtypes.bfloat16}
NOTES = (
    "TENSOR_CORE DOWN_CONVERT_INPUTS REDUCED_PRECISION_REDUCTION FFT NONDETERMINISTIC WINOGRAD "
    "WINOGRAD_TILE_4x4 WINOGRAD_TILE_6x6 WINOGRAD_TILE_13x13 STRICT_NAN_PROP"
)
ORDER = ("validate", "build_operation_graph", "create_execution_plans", "check_support",
         "build_plans")  # fmt: skip
# What float32 may not suffer, where it stays float32.
COARSE = {"TENSOR_CORE", "DOWN_CONVERT_INPUTS"}
WORKSPACE = 1000  # bytes that every plan wants


class NotSupported(Exception):  # noqa: N818 - the library's cudnnGraphNotSupportedError
    """The library does not do this."""


def _names(text: str) -> Any:
    return types.SimpleNamespace(**{name: name for name in text.split()})


class Tensor:
    """A tensor of a graph: its sizes, strides and dtype."""

    def __init__(self, **known: Any) -> None:
        self.uid = self.dim = self.stride = self.data_type = None
        self.output = False
        self.__dict__.update(known)

    def set_uid(self, uid: int) -> Tensor:
        self.uid = uid
        return self

    def set_output(self, output: bool) -> Tensor:
        self.output = output
        return self

    def set_data_type(self, data_type: Any) -> Tensor:
        self.data_type = data_type
        return self

    def set_dim(self, dim: list[int]) -> Tensor:
        self.dim = dim
        return self

    def set_stride(self, stride: list[int]) -> Tensor:
        self.stride = stride
        return self

    def at(self, address: int) -> Any:
        """Return the memory there as an array of these sizes and strides."""
        dtype = np.dtype(NUMPY[self.data_type])
        assert len(self.dim) == len(self.stride), (self.dim, self.stride)
        span = 1 + sum((d - 1) * s for d, s in zip(self.dim, self.stride))
        memory = (ctypes.c_char * (span * dtype.itemsize)).from_address(address)
        strides = [s * dtype.itemsize for s in self.stride]
        flat = np.frombuffer(memory, dtype)
        return np.lib.stride_tricks.as_strided(flat, self.dim, strides, writeable=True)

    def __repr__(self) -> str:
        return f"Tensor{self.__dict__}"


class Frontend:
    """What `import cudnn` gives.

    Attributes:
        asked: how often each step of planning was taken, by name; and plans read and runs.
        refuse: a function of a graph's nodes: whether the library does not do it.
        fail: the name of a step that raises RuntimeError.
    """

    data_type = _names("FLOAT DOUBLE HALF BFLOAT16 INT32 BOOLEAN")
    heur_mode = _names("A B FALLBACK OPENSOURCE")
    numerical_note = _names(NOTES)
    diagonal_alignment = _names("TOP_LEFT BOTTOM_RIGHT")
    cudnnGraphNotSupportedError = NotSupported  # noqa: N815 - the library's name

    def __init__(self) -> None:
        self.__version__ = "1.28.0"
        self.version, self.handles, self.stream = 92800, 0, None
        self.asked: dict[str, int] = {}
        self.refuse: Any = lambda nodes: False
        self.fail: str | None = None
        self.notes: list[Any] = []  # what the last plan may not do
        self._kept: list[Any] = []

    def backend_version(self) -> int:
        return self.version

    def create_handle(self) -> Any:
        self.step("create_handle")
        self.handles += 1
        return ("handle", self.handles)

    def set_stream(self, handle: Any, stream: int) -> None:
        assert handle[0] == "handle" and type(stream) is int
        self.stream = stream

    def pygraph(
        self, name: str = "test_graph", io_data_type: Any = None,
        intermediate_data_type: Any = None, compute_data_type: Any = None, handle: Any = None,
    ) -> Graph:  # fmt: skip
        assert handle[0] == "handle"
        return Graph(self, compute_data_type)

    def step(self, name: str) -> None:
        self.asked[name] = self.asked.get(name, 0) + 1
        if self.fail == name:
            raise RuntimeError(f"{name} fails as it was told to")


class Graph:
    """A graph, described and planned in the library's order of steps."""

    selected_engine = None

    def __init__(self, lib: Frontend, compute: Any) -> None:
        self.lib, self.compute = lib, compute
        self.tensors: list[Tensor] = []
        self.nodes: list[tuple[str, dict[str, Any], dict[str, Tensor]]] = []
        self.done: list[str] = []

    def tensor(
        self, dim: list[int], stride: list[int], data_type: Any, name: str = "", uid: int = -1
    ) -> Tensor:
        assert all(type(n) is int for n in (*dim, *stride, uid)) and not self.done
        made = Tensor(dim=dim, stride=stride, data_type=data_type, uid=uid)
        self.tensors.append(made)
        return made

    def _node(self, name: str, options: dict[str, Any], **outputs: Tensor) -> None:
        assert not self.done
        self.nodes.append((name, options, outputs))
        self.tensors.extend(outputs.values())

    def _convolved(self, name: str, **options: Any) -> Tensor:
        made = Tensor()
        self._node(name, options, made=made)
        return made

    def conv_fprop(
        self, image: Tensor, weight: Tensor, pre_padding: Any, post_padding: Any, stride: Any,
        dilation: Any,
    ) -> Tensor:  # fmt: skip
        windows = {"before": pre_padding, "after": post_padding, "strides": stride}
        return self._convolved("forward", a=image, b=weight, dilation=dilation, **windows)

    def conv_dgrad(
        self, loss: Tensor, filter: Tensor, pre_padding: Any, post_padding: Any, stride: Any,
        dilation: Any,
    ) -> Tensor:  # fmt: skip
        windows = {"before": pre_padding, "after": post_padding, "strides": stride}
        return self._convolved("data", a=loss, b=filter, dilation=dilation, **windows)

    def conv_wgrad(
        self, image: Tensor, loss: Tensor, pre_padding: Any, post_padding: Any, stride: Any,
        dilation: Any,
    ) -> Tensor:  # fmt: skip
        windows = {"before": pre_padding, "after": post_padding, "strides": stride}
        return self._convolved("kernel", a=image, b=loss, dilation=dilation, **windows)

    def bias(self, input: Tensor, bias: Tensor) -> Tensor:
        made = Tensor()
        self._node("bias", {"a": input, "b": bias}, made=made)
        return made

    def relu(self, input: Tensor) -> Tensor:
        made = Tensor()
        self._node("relu", {"a": input}, made=made)
        return made

    def sdpa(
        self, q: Tensor, k: Tensor, v: Tensor, generate_stats: bool, attn_scale: float,
        bias: Tensor | None = None, diagonal_alignment: Any = None,
        diagonal_band_right_bound: Any = None,
    ) -> list[Tensor]:  # fmt: skip
        assert generate_stats
        made, stats = Tensor(), Tensor(dim=[*q.dim[:3], 1])
        stats.stride = _rows(stats.dim)
        causal = _causal(diagonal_alignment, diagonal_band_right_bound)
        options = {"q": q, "k": k, "v": v, "bias": bias, "scale": attn_scale, "causal": causal}
        self._node("attention", options, made=made, stats=stats)
        return [made, stats]

    def sdpa_backward(
        self, q: Tensor, k: Tensor, v: Tensor, o: Tensor, dO: Tensor,  # noqa: N803
        stats: Tensor, attn_scale: float, use_deterministic_algorithm: bool,
        bias: Tensor | None = None, dBias: Tensor | None = None,  # noqa: N803
        diagonal_alignment: Any = None, diagonal_band_right_bound: Any = None,
    ) -> list[Tensor]:  # fmt: skip
        assert use_deterministic_algorithm
        made = [Tensor() for _ in range(3)]
        causal = _causal(diagonal_alignment, diagonal_band_right_bound)
        options = {"q": q, "k": k, "v": v, "bias": bias, "scale": attn_scale, "causal": causal,
                   "o": o, "g": dO, "stats": stats, "dbias": dBias}  # fmt: skip
        self._node("attention_gradient", options, **dict(zip(("dq", "dk", "dv"), made)))
        return made

    # --- planning ---

    def _step(self, name: str) -> None:
        before = ORDER[: ORDER.index(name)]
        assert tuple(self.done) == before, f"{name} after {self.done}"
        self.done.append(name)
        self.lib.step(name)

    def validate(self) -> None:
        self._step("validate")
        within = [t for _, options, _ in self.nodes for t in options.values()]
        made = [t for _, _, outputs in self.nodes for t in outputs.values()]
        for t in self.tensors:
            if t in made and not t.output:  # stays inside
                assert t in within and t.data_type == "FLOAT" and t.uid is None
            else:
                assert None not in (t.uid, t.dim, t.stride, t.data_type), t
        numbers = self._outside()
        assert len(set(numbers)) == len(numbers) and self.compute == "FLOAT"

    def _outside(self) -> list[int]:
        return [t.uid for t in self.tensors if t.uid is not None]

    def build_operation_graph(self) -> None:
        self._step("build_operation_graph")

    def create_execution_plans(self, heuristics: list[Any]) -> None:
        assert heuristics == ["A", "FALLBACK"]
        self._step("create_execution_plans")

    def deselect_numeric_notes(self, notes: list[Any]) -> Graph:
        assert self.done[-1] == "create_execution_plans"
        self.lib.notes = notes
        return self

    def deselect_workspace_greater_than(self, workspace_limit: int) -> Graph:
        assert workspace_limit >= WORKSPACE
        return self

    def check_support(self) -> None:
        self._step("check_support")
        if self.lib.refuse(self.nodes):
            raise NotSupported("not this one")

    def build_plans(self) -> None:
        self._step("build_plans")

    def get_workspace_size(self) -> int:
        assert self.done[-1] == "build_plans"
        return WORKSPACE

    def serialize(self) -> list[int]:
        self.lib._kept.append((self.tensors, self.nodes))
        return list(f"graph {len(self.lib._kept) - 1} of 92800".encode())

    def deserialize(self, data: list[int]) -> None:
        assert type(data) is list and not self.nodes
        self.lib.step("deserialize")
        words = bytes(data).split()
        if len(words) != 4 or words[3] != str(self.lib.version).encode():
            raise RuntimeError("another version's graph")
        self.tensors, self.nodes = self.lib._kept[int(words[1])]
        self.done = list(ORDER)

    # --- running ---

    def execute(self, tensor_dict: dict[int, int], workspace: int, handle: Any) -> None:
        assert self.done[-1] == "build_plans" and handle[0] == "handle"
        self.lib.step("execute")
        assert set(tensor_dict) == set(self._outside())
        self._compute(tensor_dict, workspace)

    def _compute(self, tensor_dict: dict[int, int], workspace: int) -> None:
        ctypes.memset(workspace, 0x7F, WORKSPACE)
        arrays = {t: t.at(tensor_dict[t.uid]) for t in self.tensors if t.uid is not None}
        for name, options, outputs in self.nodes:
            given = {k: arrays[v] if isinstance(v, Tensor) else v for k, v in options.items()}
            for key, found in _KINDS[name](name, given, outputs).items():
                to = outputs[key]
                if to.uid is None:
                    arrays[to] = found
                else:
                    assert arrays[to].shape == found.shape
                    arrays[to][...] = found


def _rows(dim: list[int]) -> list[int]:
    return [math.prod(dim[i + 1 :]) for i in range(len(dim))]


def _causal(alignment: Any, right: Any) -> bool:
    assert (alignment, right) in ((None, None), ("TOP_LEFT", 0))
    return right == 0


def _last(x: Any) -> Any:
    """Return (n, channels, *spatial) with its channels last, in float64."""
    return np.moveaxis(np.asarray(x, np.float64), 1, -1)


def _convolve(name: str, given: dict[str, Any], to: dict[str, Tensor]) -> dict[str, Any]:
    a, b = _last(given["a"]), _last(given["b"])  # weights: (results, *window, channels)
    attrs = {
        "strides": given["strides"], "dilation": given["dilation"],
        "padding": list(zip(given["before"], given["after"])),
    }  # fmt: skip
    dim = to["made"].dim
    if name == "forward":
        weights = np.moveaxis(b, 0, -1)
        groups = a.shape[-1] // b.shape[-1]
        found = REGISTRY["convolution"].kernel(np, a, weights, groups=groups, **attrs)
    elif name == "data":
        attrs |= {"size": tuple(dim[2:]), "groups": dim[1] // b.shape[-1]}
        op = REGISTRY["convolution_data_gradient"]
        found = op.kernel(np, a, np.moveaxis(b, 0, -1), **attrs)
    else:
        attrs |= {"size": tuple(dim[2:]), "groups": a.shape[-1] // dim[1]}
        found = REGISTRY["convolution_kernel_gradient"].kernel(np, a, b, **attrs)
        return {"made": np.moveaxis(found, (-1, -2), (0, 1))}
    return {"made": np.moveaxis(found, -1, 1)}


def _finish(name: str, given: dict[str, Any], to: dict[str, Tensor]) -> dict[str, Any]:
    a = given["a"]
    if name == "relu":
        return {"made": np.maximum(a, 0)}
    assert given["b"].shape == (1, a.shape[1], *[1] * (a.ndim - 2))
    return {"made": a + np.asarray(given["b"], np.float64)}


def _logits(given: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    q, k, v = (np.asarray(given[n], np.float64) for n in "qkv")
    k, v = (np.repeat(x, q.shape[1] // k.shape[1], 1) for x in (k, v))
    logits = given["scale"] * q @ np.swapaxes(k, -1, -2)
    if given["bias"] is not None:
        logits = logits + np.asarray(given["bias"], np.float64)
    if given["causal"]:
        logits = np.where(np.tri(*logits.shape[-2:], dtype=bool), logits, -np.inf)
    return q, k, v, logits


def _attend(name: str, given: dict[str, Any], to: dict[str, Tensor]) -> dict[str, Any]:
    q, k, v, logits = _logits(given)
    if name == "attention":
        most = logits.max(-1, keepdims=True)
        stats = most + np.log(np.exp(logits - most).sum(-1, keepdims=True))
        return {"made": np.exp(logits - stats) @ v, "stats": stats}
    g, o = (np.asarray(given[n], np.float64) for n in "go")
    weights = np.exp(logits - np.asarray(given["stats"], np.float64))
    through = weights * (g @ np.swapaxes(v, -1, -2) - (g * o).sum(-1, keepdims=True))
    if given["dbias"] is not None:
        assert given["dbias"].shape == through.shape
        given["dbias"][...] = through
    heads = to["dk"].dim[1]

    def summed(x: Any) -> Any:  # over the heads that share a key
        return x.reshape(x.shape[0], heads, -1, *x.shape[2:]).sum(2)

    by_key = given["scale"] * np.swapaxes(through, -1, -2) @ q
    by_value = np.swapaxes(weights, -1, -2) @ g
    return {"dq": given["scale"] * through @ k, "dk": summed(by_key), "dv": summed(by_value)}


_KINDS = {
    **dict.fromkeys(("forward", "data", "kernel"), _convolve),
    **dict.fromkeys(("bias", "relu"), _finish),
    **dict.fromkeys(("attention", "attention_gradient"), _attend),
}
