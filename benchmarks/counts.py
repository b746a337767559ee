"""How much work a training step is, counted from the model's shapes: FLOPs and bytes.

FLOPs count a multiply-add as two. Bytes count what must move if no cache held anything between ops:
a lower bound on traffic for a step whose every op is fused into its neighbors would be smaller.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from benchmarks.workloads import VOCABULARY, Workload, compile_model, make_data

_FLOAT = 4
# Gradient: written, read. Weight: read forward, read backward, read and written by the update.
# Adam's two moments: read and written.
_PARAMETER_TOUCHES = 2 + 4 + 4
# Activation: written, read by the next layer, read backward; its gradient: written, read.
_ACTIVATION_TOUCHES = 5
_ADAM_FLOPS = 12


@dataclass(frozen=True)
class Work:
    """A layer's share of one step.

    Args:
        flops: of its forward matmuls or convolutions.
        parameters: number of trainable values.
        activations: number of values it gives to the next layer.
        needs_input_grad: False for the first layer, whose input is data.
    """

    flops: int = 0
    parameters: int = 0
    activations: int = 0
    needs_input_grad: bool = True


def dense(rows: int, inputs: int, outputs: int, first: bool = False) -> Work:
    """Work of x @ kernel + bias over `rows` rows."""
    return Work(2 * rows * inputs * outputs, inputs * outputs + outputs, rows * outputs, not first)


def convolution(
    batch: int, side: int, size: int, inputs: int, outputs: int, first: bool = False,
    bias: bool = True,
) -> Work:  # fmt: skip
    """A square convolution whose OUTPUT is `side` x `side`."""
    weights = size * size * inputs * outputs
    places = batch * side * side
    extra = outputs if bias else 0
    return Work(2 * places * weights, weights + extra, places * outputs, not first)


def pointwise(values: int, parameters: int = 0) -> Work:
    """An op that gives `values` values and whose arithmetic is not worth counting."""
    return Work(0, parameters, values)


def _mlp(batch: int) -> list[Work]:
    return [dense(batch, 784, 512, first=True), dense(batch, 512, 512), dense(batch, 512, 10)]


def _tiny(batch: int) -> list[Work]:
    return [dense(batch, 20, 32, first=True), dense(batch, 32, 32), dense(batch, 32, 2)]


def _cnn(batch: int) -> list[Work]:
    return [
        convolution(batch, 26, 3, 1, 32, first=True),
        pointwise(batch * 13 * 13 * 32),
        convolution(batch, 11, 3, 32, 64),
        pointwise(batch * 5 * 5 * 64),
        pointwise(batch * 1600),
        dense(batch, 1600, 10),
    ]


def _resnet20(batch: int) -> list[Work]:
    def convolve_norm(side: int, size: int, i: int, o: int, first: bool = False) -> list[Work]:
        values = batch * side * side * o
        return [
            convolution(batch, side, size, i, o, first, bias=False),
            pointwise(values, 2 * o),
        ]

    work = convolve_norm(32, 3, 3, 16, first=True)
    inputs = 16
    for outputs, side in ((16, 32), (32, 16), (64, 8)):
        for _ in range(3):
            work += convolve_norm(side, 3, inputs, outputs) + convolve_norm(
                side, 3, outputs, outputs
            )
            if inputs != outputs:
                work += convolve_norm(side, 1, inputs, outputs)
            work.append(pointwise(batch * side * side * outputs))
            inputs = outputs
    return [*work, dense(batch, 64, 10)]


def _lstm(batch: int) -> list[Work]:
    rows, width = batch * 80, 128
    recurrent = Work(2 * rows * width * 4 * width, 4 * width * width, rows * 2 * width)
    return [
        pointwise(rows * width, VOCABULARY * width),
        dense(rows, width, 4 * width),
        recurrent,
        dense(batch, width, 2),
    ]


def _resnet50(batch: int) -> list[Work]:
    def convolve_norm(side: int, size: int, i: int, o: int, first: bool = False) -> list[Work]:
        values = batch * side * side * o
        return [convolution(batch, side, size, i, o, first, bias=False), pointwise(values, 2 * o)]

    work = [*convolve_norm(112, 7, 3, 64, first=True), pointwise(batch * 56 * 56 * 64)]
    inputs, side = 64, 56
    for stage, count in enumerate((3, 4, 6, 3)):
        narrow, outputs = 64 << stage, 256 << stage
        for index in range(count):
            before, side = side, side // 2 if stage and not index else side
            work += convolve_norm(before, 1, inputs, narrow)
            work += convolve_norm(side, 3, narrow, narrow)
            work += convolve_norm(side, 1, narrow, outputs)
            if not index:
                work += convolve_norm(side, 1, inputs, outputs)
            work.append(pointwise(batch * side * side * outputs))
            inputs = outputs
    return [*work, dense(batch, inputs, 1000)]


def _transformer(
    batch: int, length: int = 64, width: int = 128, heads: int = 4, hidden: int = 512,
    blocks: int = 2,
) -> list[Work]:  # fmt: skip
    rows = batch * length
    scores = batch * heads * length * length
    attention = Work(2 * 2 * scores * (width // heads), 0, 2 * scores + rows * width)
    block = [
        dense(rows, width, 3 * width),
        attention,
        dense(rows, width, width),
        pointwise(rows * width, 2 * width),
        dense(rows, width, hidden),
        dense(rows, hidden, width),
        pointwise(rows * width, 2 * width),
    ]
    embedding = pointwise(rows * width, (VOCABULARY + length) * width)
    return [embedding, *(block * blocks), dense(batch, width, 2)]


_COUNTS: dict[str, Callable[[int], list[Work]]] = {
    "mlp": _mlp,
    "tiny": _tiny,
    "cnn": _cnn,
    "resnet20": _resnet20,
    "lstm": _lstm,
    "transformer": _transformer,
    "resnet50": _resnet50,
    "resnet50-bf16": _resnet50,
    "transformer512-bf16": lambda batch: _transformer(batch, 256, 512, 8, 2048, 6),
}


@dataclass(frozen=True)
class StepWork:
    """FLOPs and bytes of one training step, and the number of trainable parameters."""

    flops: int
    bytes: int
    parameters: int


def count_step(name: str, batch: int, sample: tuple[int, ...]) -> StepWork:
    """The work of one Adam step of workload `name`.

    Example:
        >>> count_step("mlp", 128, (784,)).parameters
        669706
    """
    layers = _COUNTS[name](batch)
    parameters = sum(layer.parameters for layer in layers)
    flops = sum(layer.flops * (3 if layer.needs_input_grad else 2) for layer in layers)
    values = sum(layer.activations for layer in layers) * _ACTIVATION_TOUCHES
    values += parameters * _PARAMETER_TOUCHES + 2 * batch * prod(sample)
    return StepWork(flops + _ADAM_FLOPS * parameters, values * _FLOAT, parameters)


def is_counted(name: str) -> bool:
    """Whether `count_step` knows the workload."""
    return name in _COUNTS


def trace_step(workload: Workload) -> StepWork:
    """The work of one step of any workload, as kerasish's trace of it says.

    Bytes are those that each op reads and writes, before ops are fused.
    """
    import kerasish

    model = compile_model(kerasish, workload.build(kerasish))
    x, y = make_data(workload, workload.batch)
    formulas = model.explain(x, y, batch_size=workload.batch).formulas
    flops, nbytes = sum(f.flops for f in formulas), sum(f.nbytes for f in formulas)
    return StepWork(flops, nbytes, model.count_params())
